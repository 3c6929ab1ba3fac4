"""Changes written for plain gdb: a run of its own, at other addresses, comes to the same end as an experiment."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest
from test_transfer import WORDS
from two_runs import TwoRuns, hear_of_children

from pytest_causechain.model.chain import Script
from pytest_causechain.report.gdb import CALLING
from pytest_causechain.states.deltas import Delta
from pytest_causechain.states.transfer import script_change

READER = r"""
#include <stdio.h>

int main(void)
{
    char line[40];
    fgets(line, sizeof line, stdin);
    printf("%s", line); /* here */
    while (fgets(line, sizeof line, stdin)) printf("%s", line);
    return 0;
}
"""


SURROUNDINGS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char place[100];
    chdir(argv[1]);
    umask(strtol(argv[2], NULL, 8));
    setenv("WORDS", argv[3], 1);
    argc = 0; /* here */
    printf("%s %o %s\n", getcwd(place, sizeof place), umask(0), getenv("WORDS"));
    return argc;
}
"""


@pytest.fixture(scope="module", params=["grown", "shrunk"])
def runs(request: pytest.FixtureRequest, open_shared) -> TwoRuns:
    words = (["one"], ["three", "eleven", "one", "seventeen"])
    return open_shared(WORDS, *(words if request.param == "grown" else words[::-1]))


def run_in_gdb(runs: TwoRuns, side: str, script: Script, directory: Path, processor: dict[str, str]) -> str:
    """What the program prints; the environment, and so the stack, is another one than in the laboratory."""
    command, output = runs.commands[side == "failing"], directory / "output"
    assert script.obstacle is None
    stop = runs.lab.program.breakpoint(runs.stops[0])
    (directory / "script").write_text(
        "\n".join(
            [
                CALLING,
                f"file {command.program.path}",
                "starti",
                f"tbreak *((char *) &'{stop.function}' + {stop.offset})",
                "continue",
                *script.commands,
                "continue",
            ]
        )
    )
    arguments = " ".join(command.argv[1:])
    subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", f"set args {arguments} > {output}", "-x", str(directory / "script")],
        env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LONG": "x" * 777, **processor},
        stdin=subprocess.DEVNULL,
        preexec_fn=hear_of_children,
        check=True,
        timeout=120,
    )
    return output.read_text()


def change(runs: TwoRuns, deltas: Collection[Delta], is_forwards: bool = True) -> Script:
    script = script_change(runs.comparison, deltas, is_forwards)
    assert script is not None
    return script


def test_all_deltas_make_the_passing_run_the_failing_one(runs: TwoRuns, tmp_path: Path, amx: dict[str, str]) -> None:
    shown = run_in_gdb(runs, "passing", change(runs, runs.deltas), tmp_path, amx)
    assert shown.encode() == runs.original("failing").stdout


def test_all_deltas_undone_make_the_failing_run_the_passing_one(
    runs: TwoRuns, tmp_path: Path, amx: dict[str, str]
) -> None:
    shown = run_in_gdb(runs, "failing", change(runs, runs.deltas, is_forwards=False), tmp_path, amx)
    assert shown.encode() == runs.original("passing").stdout


def test_surroundings_become_those_of_the_other_run(open_runs, tmp_path: Path, amx: dict[str, str]) -> None:
    runs = open_runs(SURROUNDINGS, ["/", "022", "one"], ["/usr", "077", "other", "more"])
    assert {"working directory", "umask", "environment WORDS"} <= {delta.name for delta in runs.deltas}
    assert runs.original("failing").stdout == b"/usr 77 other\n"
    shown = run_in_gdb(runs, "passing", change(runs, runs.deltas), tmp_path, amx)
    assert shown.encode() == runs.original("failing").stdout
    shown = run_in_gdb(runs, "failing", change(runs, runs.deltas, is_forwards=False), tmp_path, amx)
    assert shown.encode() == runs.original("passing").stdout


def test_input_is_another_file_read_as_far(open_runs) -> None:
    runs = open_runs(READER, stdin=(b"a\nb\n", b"a\nc\n"))
    script = change(runs, runs.deltas)
    assert (script.stdin, script.position) == ("a\nc\n", 2)


def test_one_that_is_a_statement_needs_none(runs: TwoRuns) -> None:
    (plain,) = (delta for delta in runs.deltas if delta.name == "sums[0]" or delta.name == "*sums")
    assert plain.assignment is not None
    assert script_change(runs.comparison, [plain], is_forwards=True) is None
