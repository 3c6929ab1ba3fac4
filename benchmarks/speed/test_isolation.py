"""What a view of its own costs an experiment, against none: nothing, unless the program writes."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import NOTHING
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.isolation import Precautions
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Program

SOURCE = """
#include <stdio.h>
static void amid(void) { }
int main(int argc, char **argv)
{
    amid();
    if (argc > 1)
        fclose(fopen("written", "w"));
    return 0;
}
"""
BATCH, ROUNDS = 50, 15


def measure(labs: list[RemoteLab]) -> list[float]:
    """Milliseconds for one experiment in each, by turns, so that all suffer from the same disturbances."""
    seconds: list[list[float]] = [[] for _ in labs]
    for _ in range(ROUNDS):
        for lab, spent in zip(labs, seconds, strict=True):
            stops = (Stop(next(f.address for f in lab.program.functions if f.name == "amid"), 1),)
            begin = time.monotonic()
            lab.experiments("passing", stops, [NOTHING] * BATCH)
            spent.append(time.monotonic() - begin)
    return [1000 * statistics.median(spent) / BATCH for spent in seconds]


def test_isolation(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(SOURCE)
    subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=tmp_path, check=True)
    program = Program(str(tmp_path / "program"), "program")
    labs = []
    for wish, words in (("off", ()), ("require", ()), ("require", ("write",))):
        command = Command(program, (program.path, *words), str(tmp_path))
        labs.append(RemoteLab(Open(command, command, precautions=Precautions(wish)), Budget(600)))
    try:
        measure(labs)
        bare, isolated, writing = measure(labs)
    finally:
        for lab in labs:
            lab.close()
    print(f"\nexperiment: bare {bare:.2f} ms, isolated {isolated:.2f} ms, with a file written {writing:.2f} ms")
    assert isolated < 1.5 * bare
