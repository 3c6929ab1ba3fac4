"""How many experiments a second one worker makes, and two.

Machines are noisy: both are measured alternately in one run, and medians compared. Only what cannot depend on the
machine is asserted: that both see the same."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import time
from functools import partial

import pytest

from pytest_causechain.lab import remote_lab
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.pool import OwnWorker, Pool, Share
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import NOTHING
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Observation
from pytest_causechain.recording.programs import identify_program

# Computes for as many milliseconds of processor time as its argument says.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv)
{
    volatile long n = 0;
    while (argc > 1 && clock() < atof(argv[1]) / 1000 * CLOCKS_PER_SEC)
        for (int i = 0; i < 1000; i++)
            n++;
    return puts("done") == EOF;
}
"""
PLENTY_SECONDS = 600.0
ROUNDS = 7


@pytest.mark.parametrize(("milliseconds", "batch"), [(1, 200), (50, 20)])
def test_two_workers_against_one(milliseconds, batch, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(remote_lab, "WORTHWHILE_SECONDS", 0.0)
    (tmp_path / "program.c").write_text(PROGRAM)
    subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=tmp_path, check=True)
    program = identify_program(str(tmp_path / "program"))
    command = Command(program, (program.path, str(milliseconds)), str(tmp_path))
    rates: dict[int, list[float]] = {1: [], 2: []}
    seen: set[Observation] = set()
    with contextlib.ExitStack() as stack:
        labs = {workers: open_lab(stack, command, workers) for workers in rates}
        while labs[2].width < 2:
            labs[2].experiments("passing", find_main(labs[2]), [NOTHING] * 2)
        for _ in range(ROUNDS):
            for workers, lab in labs.items():
                begin = time.monotonic()
                seen.update(lab.experiments("passing", find_main(lab), [NOTHING] * batch))
                rates[workers].append(batch / (time.monotonic() - begin))
    assert len(seen) == 1
    one, two = (statistics.median(rates[workers]) for workers in (1, 2))
    with capsys.disabled():
        print(f"\nprogram of {milliseconds} ms: {one:.0f} experiments a second with one worker, {two:.0f} with two")
        print(f"that is {two / one:.2f} times as many")


def open_lab(stack: contextlib.ExitStack, command: Command, workers: int) -> RemoteLab:
    pool = Pool([partial(OwnWorker, f"{workers}-{number}") for number in range(workers)])
    share = Share(stack.enter_context(pool))
    return stack.enter_context(RemoteLab(Open(command, command), Budget(PLENTY_SECONDS), share))


def find_main(lab: RemoteLab) -> tuple[Stop, ...]:
    return (Stop(next(f.address for f in lab.program.functions if f.name == "main"), 1),)
