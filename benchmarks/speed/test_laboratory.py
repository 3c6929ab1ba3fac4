"""What an experiment, a trace and a stop cost, against the program alone; a stop also against gdb.

Machines are noisy: all ways are measured alternately in one run, and medians compared. Only what cannot depend on the
machine is asserted: that all ways see the same."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import NOTHING
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Program

SHORT = r"""
#include <stdio.h>
static int twice(int n) { return 2 * n; }
int main(int argc, char **argv)
{
    printf("%d %s\n", twice(argc), argv[0] ? "ready" : "");
    return 0;
}
"""
# Three million calls, each of a function that does a little work.
BUSY = r"""
#include <stdio.h>
static unsigned seed = 1;
static unsigned mix(unsigned n)
{
    unsigned hash = n;
    for (int i = 0; i < 8; i++)
        hash = hash * 31 + (hash >> 7);
    seed ^= hash;
    return hash;
}
int main(void)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < 3000000; i++)
        sum += mix(i);
    printf("%u %u\n", sum, seed);
    return 0;
}
"""
PLENTY_SECONDS = 600.0
BATCH_SIZE = 50
BATCH = f"forked template, {BATCH_SIZE} at once"
GDB = ("gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Command]:
    def build(source: str) -> Command:
        directory = tmp_path_factory.mktemp("program")
        (directory / "program.c").write_text(source)
        subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=directory, check=True)
        path = str(directory / "program")
        return Command(Program(path, path), (path,), str(directory))

    return build


def open_lab(command: Command, kind: str) -> RemoteLab:
    lab = RemoteLab(Open(command, command, kind=kind), Budget(PLENTY_SECONDS))
    lab.run_seconds = PLENTY_SECONDS
    return lab


def find_function(lab: RemoteLab, name: str) -> tuple[Stop, Stop]:
    function = next(f for f in lab.program.functions if f.name == name)
    return Stop(function.address, 1), Stop(function.body, 1)


def measure(ways: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Median milliseconds of each way, the ways taking turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, medians: dict[str, float], against: str) -> None:
    print(f"\n{title}")
    for name, milliseconds in medians.items():
        print(f"  {name:32} {milliseconds:10.2f} ms   {milliseconds / medians[against]:8.2f} x {against}")


def test_experiment(command: Callable[[str], Command]) -> None:
    subject = command(SHORT)
    with open_lab(subject, "fork") as fork, open_lab(subject, "rerun") as rerun:
        stops = find_function(fork, "twice")
        ways: dict[str, Callable[[], object]] = {
            "native fork and exec": lambda: subprocess.run(subject.argv, capture_output=True),
            "forked template": lambda: fork.experiment("passing", stops),
            "fresh run": lambda: rerun.experiment("passing", stops),
            BATCH: lambda: fork.experiments("passing", stops, [NOTHING] * BATCH_SIZE),
        }
        medians = measure(ways, 50)
        medians[BATCH] /= BATCH_SIZE
        show("one experiment, from the middle of a short program", medians, "native fork and exec")
        seen = [lab.experiment("passing", stops) for lab in (fork, rerun)]
    assert seen[0] == seen[1]
    assert seen[0].stdout == subprocess.run(subject.argv, capture_output=True).stdout


def test_trace_of_three_million_calls(command: Callable[[str], Command]) -> None:
    """In this process, so that only the tracing is measured and not the way of 48 MB of records from the engine."""
    subject = command(BUSY)
    with LocalLab(Open(subject, subject, deadline=time.monotonic() + PLENTY_SECONDS)) as lab:
        functions = [f.address for f in lab.program.functions]
        lab.experiment("passing")
        counted: list[int] = []
        ways = {
            "native": lambda: subprocess.run(subject.argv, capture_output=True),
            "traced": lambda: counted.append(len(lab.trace("passing", (), functions, limit=3_000_001))),
        }
        show("3,000,001 function entries recorded", measure(ways, 7), "native")
    assert set(counted) == {3_000_001}


def test_reaching_a_late_visit(command: Callable[[str], Command]) -> None:
    subject = command(BUSY)
    with open_lab(subject, "rerun") as lab:
        entry, body = find_function(lab, "mix")
        medians = {}
        for visit in (10_000, 1_000_000):
            stops = (Stop(entry.address, visit), body)
            medians |= measure({f"stub, to the {visit:,}th call": partial(lab.visit, "passing", stops)}, 5)
            assert read_argument(lab.visit("passing", stops)) == visit - 1
        # To the millionth call gdb takes minutes.
        told: list[str] = []
        medians |= measure({"gdb ignore count, to the 10,000th": lambda: told.append(run_gdb(subject, 10_000))}, 1)
        show("to a late call", medians, "stub, to the 10,000th call")
    assert "$1 = 9999\n" in told[0]


def run_gdb(subject: Command, visit: int) -> str:
    commands = ("break mix", f"ignore 1 {visit - 1}", "run", "print n")
    words = [word for text in commands for word in ("-ex", text)]
    return subprocess.run([*GDB, *words, subject.argv[0]], capture_output=True, text=True).stdout


def read_argument(there: Visit | None) -> int:
    assert there is not None
    n = next(v for v in there.frames[0].variables if v.name == "n")
    region = next(r for r in there.regions if r.start <= n.address < r.end)
    return int.from_bytes(region.data[n.address - region.start :][:4], "little")


def test_many_experiments_leave_nothing_behind(command: Callable[[str], Command]) -> None:
    subject = command(SHORT)
    with open_lab(subject, "fork") as lab:
        stops = find_function(lab, "twice")
        begin = time.perf_counter()
        seen = {observation for _ in range(60) for observation in lab.experiments("passing", stops, [NOTHING] * 50)}
        seconds = time.perf_counter() - begin
    print(f"\n3,000 experiments in {seconds:.2f} s: {3_000 / seconds:.0f} a second")
    assert len(seen) == 1
    assert not [p for p in Path("/proc").glob("[0-9]*/exe") if points_to(p, subject.program.path)]


def points_to(link: Path, path: str) -> bool:
    try:
        return str(link.readlink()) == path
    except OSError:
        return False
