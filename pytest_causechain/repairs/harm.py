"""Finds out what changes do to runs: whether one makes the failing test pass or comes nearer to that, and whether it
harms passing ones.

A program without its defect does otherwise for the failing tests alone: passing runs are given the same change as the
failing one. Those as different as can be come first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice, takewhile, zip_longest
from typing import Literal, NamedTuple

from pytest_causechain.lab.laboratory import RunLimits, Side
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import AHEAD, ASIDE, Intervention, Patch
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Observation, Outcome, Shown
from pytest_causechain.model.verdict import Comparison, Verdict, is_later
from pytest_causechain.repairs.findings import Attempt, Findings, Line
from pytest_causechain.repairs.places import spread

# Touched: what was wrong is otherwise, and nothing that was right.
Judgement = Literal["repaired", "nearer", "touched", "no"]
# As programs print them.
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
MOST_NUMBERS = 4
Ask = Callable[[Observation], Verdict]


class RepairJudge:
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
        return verdict.exception == failure.exception and is_later(verdict.where, failure.where)
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


# Repairs of one line that are tried on passing runs, too, each time that more have been found.
MOST_WEIGHED = 3
# A value is compared with its neighbours up to here.
MOST_SHIFTED = 2
# After so many that are given repairs, and each time twice as many, the better half of the lines goes on.
FIRST_WEIGHED_ON, LEAST_LINES = 5, 5


class PassingRun(NamedTuple):
    side: Side
    covered: frozenset[Line]
    natural: Observation


class Harm:
    """`passing` are the runs to try repairs on, the nearest first; what they show is entered into the findings."""

    def __init__(
        self, lab: RemoteLab, passing: Sequence[PassingRun], judge: RepairJudge, limits: RunLimits, findings: Findings
    ) -> None:
        self._lab, self._judge, self._limits, self._findings = lab, judge, limits, findings
        self._passing = diversify(passing)

    def weigh(self) -> None:
        """A repair that does more harm than another one of its line is left alone."""
        chosen = self._choose(only_code=False)
        alterations = self._settle_all(chosen)
        harmed = dict.fromkeys(chosen, 0)
        least = dict.fromkeys(chosen.values(), 0)
        self._enter(dict.fromkeys(chosen, 0.0))
        halving = FIRST_WEIGHED_ON
        for tried, run in enumerate(self._passing, start=1):
            lines = run.covered & least.keys()
            open_ = [n for n, line in chosen.items() if line in lines and harmed[n] == least[line]]
            for number in self._find_harmful(run, {n: alterations[n] for n in open_}):
                harmed[number] += 1
            for line in lines:
                least[line] = min(count for number, count in harmed.items() if chosen[number] == line)
            self._enter({n: harmed[n] / tried for n, line in chosen.items() if line in least})
            if tried == halving:
                least = keep_better(least)
                halving *= 2

    def screen(self) -> None:
        """Changes of the code alone, each until it does any harm; those that do none are entered."""
        chosen = self._choose(only_code=True)
        harmless = self._settle_all(chosen)
        for run in self._passing:
            open_ = {number: change for number, change in harmless.items() if chosen[number] in run.covered}
            for number in self._find_harmful(run, open_):
                del harmless[number]
        self._enter(dict.fromkeys(harmless, 0.0))

    def is_convincing(self, least: int) -> bool:
        """Whether there is a change of the code after which all is right, in so many passing runs that execute its
        line, too: no other change will tell more."""
        lines = {found.attempt.line for found in self._findings.found if found.mends}
        return any(sum(line in run.covered for run in self._passing) >= least for line in lines)

    def _enter(self, shares: dict[int, float]) -> None:
        for number, share in shares.items():
            self._findings.found[number] = replace(self._findings.found[number], harmed=share)

    def _choose(self, only_code: bool) -> dict[int, Line]:
        """For each line some of the repairs at places that are new, by number: of each one, then one more."""
        by_line: dict[Line, dict[tuple[str, int], list[int]]] = {}
        weighed = {found.attempt.place for found in self._findings.found if found.harmed is not None}
        for number, found in enumerate(self._findings.found):
            if found.is_full and (found.is_of_code or not only_code) and found.attempt.place not in weighed:
                by_line.setdefault(found.attempt.line, {}).setdefault(found.attempt.place, []).append(number)
        chosen = {}
        for line, places in by_line.items():
            rows = ([numbers[n - 1] for n in spread(len(numbers), MOST_WEIGHED)] for numbers in places.values())
            turns = (number for turn in zip_longest(*rows) for number in turn if number is not None)
            chosen.update(dict.fromkeys(islice(turns, MOST_WEIGHED), line))
        return chosen

    def _find_harmful(self, run: PassingRun, alterations: dict[int, Intervention | Patch]) -> list[int]:
        """Those after which it shows something else."""
        if not alterations:
            return []
        self._findings.experiments += len(alterations)
        observed = self._lab.interventions(run.side, list(alterations.values()), self._limits)
        return [n for n, seen in zip(alterations, observed, strict=True) if seen.shown != run.natural.shown]

    def _settle_all(self, chosen: dict[int, Line]) -> dict[int, Intervention | Patch]:
        return {number: self._settle(self._findings.found[number].attempt) for number in chosen}

    def _settle(self, attempt: Attempt) -> Intervention | Patch:
        """For other runs: at the first visit, since there may be no other one. A branch that goes the other way in the
        failing run may go that way in them anyhow; what was one too many there is one too many in them."""
        alteration = attempt.alteration
        if isinstance(alteration, Patch):
            return alteration
        first, *rest = alteration.spot.stops
        elsewhere = replace(alteration, spot=replace(alteration.spot, stops=(replace(first, visit=1), *rest)))
        if alteration.spot.kind != "branch":
            return replace(elsewhere, shift=find_shift(attempt.was, alteration.data))
        (observed,) = self._lab.interventions("failing", [replace(alteration, data=AHEAD)], self._limits)
        return replace(elsewhere, data=AHEAD if self._judge(observed) == "repaired" else ASIDE)


def diversify(passing: Sequence[PassingRun]) -> list[PassingRun]:
    """Of those that execute the same lines one, then one more, always the nearest."""
    counts: Counter[frozenset[Line]] = Counter()
    order = []
    for place, run in enumerate(passing):
        counts[run.covered] += 1
        order.append((counts[run.covered], place, run))
    return [run for _, _, run in sorted(order, key=lambda item: item[:2])]


def find_shift(was: bytes, then: bytes) -> int:
    """By how much a number is another one, where it is little; 0 where the value itself counts, as of truth values."""
    one, other = (int.from_bytes(data, "little", signed=True) for data in (was, then))
    return other - one if abs(other - one) <= MOST_SHIFTED and not {one, other} <= {0, 1} else 0


def keep_better(harms: dict[Line, int]) -> dict[Line, int]:
    """The half with less harm, and all that are as good as the last of it."""
    if len(harms) <= LEAST_LINES:
        return harms
    bound = sorted(harms.values())[max(LEAST_LINES, len(harms) // 2) - 1]
    return {line: harm for line, harm in harms.items() if harm <= bound}
