"""Which of several runs is guilty; the replayed test is a plain function of what its runs print."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_causechain.model.budget import UNLIMITED, Budget, Shortfall
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Observation, Program, Recording, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.facts import describe_comparison
from pytest_causechain.oracle.symptom import find_guilty, guilty_run

PROGRAM = Program("/bin/prog", "1")

Start = Callable[[], str]


class Failed(Exception):
    """Raised by a replayed test, as where it fails and the two sides of its comparison."""


def check(line: int, left: object, right: object) -> None:
    if left != right:
        raise Failed(line, left, right)


def find(body: Callable[[Start], None], *outputs: str, budget: Budget = UNLIMITED) -> int:
    """The number of the guilty run of a test whose real runs print these."""
    runs = [Run(Command(PROGRAM, ("prog", output), "/"), ordinal=i) for i, output in enumerate(outputs)]
    real = [Observation("exit", 0, output.encode()) for output in outputs]

    def ask(run: Run | None, observation: Observation | None) -> Verdict:
        count = 0

        def start() -> str:
            nonlocal count
            count += 1
            ordinal = count - 1
            shown = observation if run is not None and ordinal == run.ordinal else real[ordinal]
            return shown.stdout.decode()

        try:
            body(start)
        except Failed as failed:
            line, left, right = failed.args
            comparison = describe_comparison("==", left, right)
            return Verdict("failed", "AssertionError", trail=(f"t.py:{line}",), comparison=comparison, starts=count)
        except ValueError as error:
            return Verdict("failed", "ValueError", digest=str(error), trail=("t.py:1",), starts=count)
        return Verdict("passed", starts=count)

    return find_guilty("test", runs, ask(None, None), real, ask, budget).ordinal


def look_at_both(start: Start) -> None:
    first, second = start(), start()
    check(3, first, "7")
    check(4, second, "1")


def parse_all(start: Start) -> None:
    numbers = [int(start()) for _ in range(3)]
    for i, right in enumerate((1, 7, 3)):
        check(3 + i, numbers[i], right)


def loop(start: Start) -> None:
    for right in ("1", "7", "3"):
        check(3, start(), right)


def compare_both(start: Start) -> None:
    check(3, start(), start())


def prepare(start: Start) -> None:
    if start() != "ready":
        raise ValueError("not ready")
    check(4, start(), "7")


class TestGuilty:
    @pytest.mark.parametrize(
        ("body", "outputs", "guilty"),
        [
            (look_at_both, ("52", "1"), 0),
            (look_at_both, ("7", "52"), 1),
            (parse_all, ("1", "52", "3"), 1),
            (parse_all, ("52", "7", "3"), 0),
            (loop, ("1", "52"), 1),
            (loop, ("1", "7", "52"), 2),
            (compare_both, ("52", "7"), 1),
            (prepare, ("ready", "52"), 1),
        ],
    )
    def test_the_failure_depends_on_it(self, body, outputs, guilty):
        assert find(body, *outputs) == guilty

    def test_one_that_only_moves_the_failure(self):
        def body(start: Start) -> None:
            ready = start()
            start()
            if ready != "ready":
                raise ValueError(ready)
            check(4, 1, 2)

        assert find(body, "ready", "x") == 0

    def test_none_of_them(self):
        def body(start: Start) -> None:
            start(), start()
            check(3, 1, 2)

        with pytest.raises(Refusal, match=r"^test fails in the same way whatever its 2 runs print and return, so "):
            find(body, "1", "2")

    def test_out_of_time_the_last(self):
        budget = Budget(0.0)
        assert find(look_at_both, "52", "1", budget=budget) == 1
        assert budget.shortfalls == (Shortfall("guilt", 0, 2),)


class TestGuiltyRun:
    def test_the_last(self):
        runs = tuple(Run(Command(Program("/sample", "1"), ("sample", word), "/")) for word in "12")
        assert guilty_run(Recording("t", "failed", runs)) is runs[-1]

    def test_none_but_refused(self):
        with pytest.raises(Refusal, match=r"^sample is stripped: do not\.$"):
            guilty_run(Recording("t", "failed", (), ("a: b.", "sample is stripped: do not.")))

    def test_none(self):
        with pytest.raises(Refusal, match=r"^t starts no program: start "):
            guilty_run(Recording("t", "failed"))
