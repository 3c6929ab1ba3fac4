"""Runs the tests of a faulty version: which of them fail, and which lines some of them execute.

A test is known only by what the correct program shows; Expectations answers for it as a replayed test would."""

from __future__ import annotations

import functools
import random
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evaluation.manifest import Example, Subject, Version
from pytest_causechain.lab.laboratory import Open, name_other
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.runs import Command, Observation, Program, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.facts import describe_comparison
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.repairs.findings import Line

# A run of a program that ends at all takes some milliseconds.
RUN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Shown:
    """`returncode` is None for a run that did not end."""

    returncode: int | None
    stdout: bytes


def run_test(program: Path, test: Example) -> Shown:
    stdin = test.stdin.read_bytes() if test.stdin is not None else b""
    try:
        run = subprocess.run(
            [program, *test.argv],
            input=stdin,
            cwd=test.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Shown(None, b"")
    return Shown(run.returncode, run.stdout)


class Expectations:
    """Answers for tests as a replay does: as if each were `assert run.returncode == ...; assert run.stdout == ...`."""

    def __init__(self, expected: Mapping[str, Shown]) -> None:
        self._expected = expected
        self.timeout_seconds = 0.0  # answers come at once

    def close(self) -> None:
        pass

    def base(self, test: str) -> Verdict:
        """Which tests fail has been found out by running them."""
        return Verdict("failed")

    def verdict(self, test: str, run: Run, observation: Observation, *origins: Command) -> Verdict:
        expected = self._expected[test]
        status = None if observation.ending == "timeout" else observation.returncode
        compared = ((status, expected.returncode), (observation.stdout, expected.stdout))
        for line, (shown, wanted) in enumerate(compared, start=1):
            if shown != wanted:
                comparison = describe_comparison("==", shown, wanted)
                return Verdict("failed", "AssertionError", trail=(f"{test}:{line}",), comparison=comparison)
        return Verdict("passed")


# Runs whose lines are recorded by one laboratory, and the time for it.
BATCH = 100
BATCH_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Suite:
    """`failing` and `passing` come in an order that was drawn by lot. `lines` are all with code. `coverage` holds for
    the first tests of both which of them it executes: bit n stands for line n, the whole is a hexadecimal number."""

    failing: tuple[str, ...]
    passing: tuple[str, ...]
    lines: tuple[tuple[str, int], ...]
    coverage: dict[str, str]

    def executed(self, test: str) -> frozenset[Line]:
        bits = int(self.coverage[test], 16)
        return frozenset(line for number, line in enumerate(self.lines) if bits >> number & 1)

    def covered(self, tests: Collection[str]) -> list[str]:
        return [test for test in tests if test in self.coverage]


def make_command(program: Program, test: Example) -> Command:
    stdin = test.stdin.read_bytes() if test.stdin is not None else b""
    return Command(program, (program.path, *test.argv), str(test.cwd), stdin=stdin)


@functools.cache
def show_all(program: Path, tests: tuple[Example, ...]) -> dict[str, Shown]:
    return {test.name: run_test(program, test) for test in tests}


def measure_suite(subject: Subject, version: Version, most_covered: int, seed: int) -> Suite:
    """Runs all tests, and records the lines of at most `most_covered` failing and as many passing ones."""
    expected = show_all(subject.correct, subject.tests)
    usable = [test for test in subject.tests if expected[test.name].returncode is not None]
    random.Random(f"{seed}/{subject.name}/{version.name}").shuffle(usable)
    failing = [test for test in usable if run_test(version.program, test) != expected[test.name]]
    names = {test.name for test in failing}
    passing = [test for test in usable if test.name not in names]
    chosen = [*failing[:most_covered], *passing[:most_covered]]
    lines, coverage = record_lines(version.program, chosen) if failing else ((), {})
    return Suite(tuple(test.name for test in failing), tuple(test.name for test in passing), lines, coverage)


def record_lines(path: Path, tests: Sequence[Example]) -> tuple[tuple[Line, ...], dict[str, str]]:
    program = identify_program(str(path))
    lines: tuple[Line, ...] = ()
    coverage = {}
    for start in range(0, len(tests), BATCH):
        batch = tests[start : start + BATCH]
        commands = [make_command(program, test) for test in batch]
        with RemoteLab(Open(commands[0], commands[0], others=tuple(commands)), Budget(BATCH_SECONDS)) as lab:
            statements = {s.address: (s.file, s.line) for f in lab.program.functions for s in f.statements}
            lines = tuple(sorted(set(statements.values())))
            for number, test in enumerate(batch):
                executed = {statements[address] for address in lab.cover(name_other(number), statements)}
                coverage[test.name] = pack(lines, executed)
    return lines, coverage


def pack(lines: Iterable[Line], executed: Collection[Line]) -> str:
    return f"{sum(1 << number for number, line in enumerate(lines) if line in executed):x}"
