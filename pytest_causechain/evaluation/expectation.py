"""What a test says of a run, where all that is known of the test is what the correct program shows."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.evaluation.reading import Example
from pytest_causechain.model.runs import Command, Observation, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.values import describe_comparison

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
