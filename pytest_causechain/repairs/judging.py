"""Whether an altered run makes the failing test pass, or at least comes nearer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Literal

from pytest_causechain.model.observation import Observation, Shown
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.verdict import Comparison, Verdict

Judgement = Literal["repaired", "nearer", "no"]
Ask = Callable[[Observation], Verdict]


class Judge:
    """Asks the test about each different run once: most interventions change nothing that can be seen."""

    def __init__(self, failing: Observation, ask: Ask) -> None:
        """A Refusal when the test does not fail on its own failing run: then it looks at more than a run shows."""
        self._ask = ask
        self._failure = ask(failing)
        if self._failure.outcome != "failed":
            raise Refusal(
                "the test does not fail when replayed on the output of its own failing run, so nothing tells a repair: "
                "let it look at the program's output and exit status."
            )
        self._known: dict[Shown, Judgement] = {failing.shown: "no"}

    def __call__(self, observation: Observation) -> Judgement:
        shown = observation.shown
        if shown not in self._known:
            # A test waits for its program: one that was ended by us has not passed, whatever it printed.
            over = observation.ending == "timeout"
            self._known[shown] = "no" if over else self._judge(self._ask(observation))
        return self._known[shown]

    def _judge(self, verdict: Verdict) -> Judgement:
        if verdict.outcome == "passed" and not verdict.fails_when:
            return "repaired"
        return "nearer" if is_nearer(verdict, self._failure) else "no"


def is_nearer(verdict: Verdict, failure: Verdict) -> bool:
    """Whether the first thing that was wrong is right: a later assertion fails, or a later element."""
    if verdict.outcome != "failed" or verdict.where is None or failure.where is None:
        return False
    if verdict.where != failure.where:
        file, _, line = verdict.where.rpartition(":")
        before, _, earlier = failure.where.rpartition(":")
        return file == before and verdict.exception == failure.exception and int(line) > int(earlier)
    if verdict.comparison is None or failure.comparison is None:
        return False
    return count_right(verdict.comparison) > count_right(failure.comparison)


def count_right(comparison: Comparison) -> int:
    """How many elements are equal before the first that is not."""
    pairs = zip(comparison.left.elements, comparison.right.elements, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
