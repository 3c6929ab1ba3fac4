"""Whether an altered run makes the failing test pass, or at least comes nearer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import takewhile, zip_longest
from typing import Literal

from pytest_causechain.model.observation import Observation, Outcome, Shown
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.verdict import Comparison, Verdict

# Touched: what was wrong is otherwise, and nothing that was right.
Judgement = Literal["repaired", "nearer", "touched", "no"]
# As programs print them.
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
MOST_NUMBERS = 4
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
        self.expected_numbers = find_expected_numbers(self._failure.comparison)

    def __call__(self, observation: Observation) -> Judgement:
        shown = observation.shown
        if shown not in self._known:
            # A test waits for its program: one that was ended by us has not passed, whatever it printed.
            over = observation.ending == "timeout"
            self._known[shown] = "no" if over else self._judge(self._ask(observation))
        return self._known[shown]

    def _judge(self, verdict: Verdict) -> Judgement:
        if verdict.outcome == "passed" and not verdict.fails_when and verdict.judged in (None, Outcome.PASS):
            return "repaired"
        if is_nearer(verdict, self._failure):
            return "nearer"
        return "touched" if touches_the_wrong(verdict, self._failure) else "no"


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


def touches_the_wrong(verdict: Verdict, failure: Verdict) -> bool:
    """Whether the test fails as it did, and all elements that were right then still are."""
    if verdict.outcome != "failed" or verdict.where != failure.where:
        return False
    one, other = failure.comparison, verdict.comparison
    if one is None or other is None or one.right != other.right or one.left == other.left:
        return False
    triples = zip_longest(one.left.elements, other.left.elements, one.right.elements)
    return all(now == expected for was, now, expected in triples if was == expected)


def find_expected_numbers(comparison: Comparison | None) -> tuple[str, ...]:
    """Numbers of the first element that is wrong: those that only one side has. Which side the expectation is on need
    not be known: what the program printed is a number that it has already."""
    if comparison is None:
        return ()
    sides = (value.elements or (value.text,) for value in (comparison.left, comparison.right))
    for pair in zip_longest(*sides, fillvalue=""):
        if pair[0] != pair[1]:
            left, right = map(NUMBER.findall, pair)
            numbers = [n for n in right if n not in left] + [n for n in left if n not in right]
            return tuple(dict.fromkeys(numbers))[:MOST_NUMBERS]
    return ()


def count_right(comparison: Comparison) -> tuple[int, int]:
    """How many elements are equal before the first that is not, and how many words of that one."""
    pairs = list(zip(comparison.left.elements, comparison.right.elements, strict=False))
    elements = count_equal(pairs)
    return elements, count_equal(zip(*map(str.split, pairs[elements]), strict=False)) if pairs[elements:] else 0


def count_equal(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
