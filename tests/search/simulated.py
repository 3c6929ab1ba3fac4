"""Searches over deltas without any process: dd over groups, plain dd and ddmin, and how many experiments each takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from pytest_causechain.model.runs import Outcome
from pytest_causechain.search.dd import DeltaGroup, deltas_of, group_deltas, narrow
from pytest_causechain.search.rounds import Outcomes, as_it_is, settle

PASS, FAIL, UNRESOLVED = Outcome.PASS, Outcome.FAIL, Outcome.UNRESOLVED
Configuration = frozenset[int]
Experiment = Callable[[Configuration], Outcome]
Result = tuple[int, int]
# Causes that are needed together, and the width of the groups they lie in: of a group all deltas are applied, or none.
CASES = ((1, 1), (3, 1), (10, 1), (1, 4), (1, 20), (3, 4), (10, 4), (3, 20), (10, 20))


class GivenUp(Exception):
    pass


def count(experiment: Experiment, most: int) -> tuple[Outcomes[Configuration], Callable[[], int]]:
    def limited(configurations: Sequence[Configuration]) -> list[Outcome]:
        if outcomes.tally.total > most:
            raise GivenUp
        return [experiment(configuration) for configuration in configurations]

    outcomes = Outcomes[Configuration, Outcome](limited, as_it_is)
    return outcomes, lambda: outcomes.tally.total


def run_dd(units: tuple[DeltaGroup[int], ...], experiment: Experiment, most: int) -> Result:
    """Experiments and size of the result; none when there are more than `most`."""
    outcomes, spent = count(experiment, most)
    try:
        found = settle(narrow(frozenset(), units), outcomes)
    except GivenUp:
        return most, 0
    return spent(), len(deltas_of(found.difference))


def run_ddmin(size: int, experiment: Experiment, most: int) -> Result:
    """Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): one-sided."""
    outcomes, spent = count(experiment, most)
    failing, n = list(range(size)), 2
    try:
        while len(failing) > 1:
            bounds = [len(failing) * i // n for i in range(n + 1)]
            parts = [failing[start:stop] for start, stop in pairwise(bounds)]
            rests = [failing[:start] + failing[stop:] for start, stop in pairwise(bounds)]
            for part in parts:
                if outcomes(frozenset(part)) is FAIL:
                    failing, n = part, 2
                    break
            else:
                for rest in rests:
                    if outcomes(frozenset(rest)) is FAIL:
                        failing, n = rest, max(n - 1, 2)
                        break
                else:
                    if n == len(failing):
                        break
                    n = min(2 * n, len(failing))
    except GivenUp:
        return most, 0
    return spent(), len(failing)


def make_experiment(size: int, causes: int, width: int, seed: int) -> Experiment:
    """All causes are needed together; of a group either all deltas must be applied or none."""
    chosen = random.Random(seed).sample(range(size // width), causes)
    needed = frozenset(number for g in chosen for number in range(g * width, (g + 1) * width))

    def experiment(configuration: Configuration) -> Outcome:
        if width > 1 and len({delta // width for delta in configuration}) * width > len(configuration):
            return UNRESOLVED
        return FAIL if needed <= configuration else PASS

    return experiment


def group(size: int, width: int) -> tuple[DeltaGroup[int], ...]:
    return group_deltas(range(size), lambda delta: (delta // width,))
