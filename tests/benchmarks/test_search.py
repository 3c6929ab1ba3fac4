"""How many experiments a search takes: dd over groups against plain dd and ddmin, without any process.

No times are measured, so what must hold is asserted."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from pytest_causechain.model.observation import Outcome
from pytest_causechain.search.dd import narrow
from pytest_causechain.search.outcomes import Outcomes
from pytest_causechain.search.rounds import settle
from pytest_causechain.search.units import Unit, deltas_of, group_deltas

PASS, FAIL, UNRESOLVED = Outcome.PASS, Outcome.FAIL, Outcome.UNRESOLVED
Configuration = frozenset[int]
Experiment = Callable[[Configuration], Outcome]
# A search that takes longer than this is given up.
MOST = 2_500
REPETITIONS = 3


class GivenUp(Exception):
    pass


def count(experiment: Experiment) -> tuple[Outcomes[Configuration], Callable[[], int]]:
    def limited(configurations: Sequence[Configuration]) -> list[Outcome]:
        if outcomes.tally.total > MOST:
            raise GivenUp
        return [experiment(configuration) for configuration in configurations]

    outcomes = Outcomes[Configuration](limited)
    return outcomes, lambda: outcomes.tally.total


def run_dd(units: tuple[Unit[int], ...], experiment: Experiment) -> tuple[int, int]:
    """Experiments and size of the result."""
    outcomes, spent = count(experiment)
    try:
        found = settle(narrow(frozenset(), units), outcomes)
    except GivenUp:
        return MOST, 0
    return spent(), len(deltas_of(found.difference))


def run_ddmin(size: int, experiment: Experiment) -> tuple[int, int]:
    """Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): one-sided."""
    outcomes, spent = count(experiment)
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
        return MOST, 0
    return spent(), len(failing)


def make_experiment(size: int, causes: int, group: int, seed: int) -> Experiment:
    """All causes are needed together; of a group either all deltas must be applied or none."""
    chosen = random.Random(seed).sample(range(size // group), causes)
    needed = frozenset(number for g in chosen for number in range(g * group, (g + 1) * group))

    def experiment(configuration: Configuration) -> Outcome:
        if group > 1 and len({delta // group for delta in configuration}) * group > len(configuration):
            return UNRESOLVED
        return FAIL if needed <= configuration else PASS

    return experiment


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_experiments(size: int) -> None:
    print(f"\nexperiments (size of the result) among {size:,} differences, medians of {REPETITIONS}")
    print(f"  {'':34} {'over groups':>14} {'plain dd':>14} {'ddmin':>14}")
    for causes, group in ((1, 1), (3, 1), (10, 1), (1, 4), (1, 20), (3, 4), (10, 4)):
        rows = []
        for seed in range(REPETITIONS):
            experiment = make_experiment(size, causes, group, seed)
            grouped = run_dd(group_deltas(range(size), lambda delta, group=group: (delta // group,)), experiment)
            plain = run_dd(group_deltas(range(size)), experiment) if size == 1_000 or group == 1 else (MOST, 0)
            least = run_ddmin(size, experiment) if size == 1_000 else (MOST, 0)
            assert grouped[0] <= 1.1 * plain[0] + 1
            if causes == 1:
                assert grouped[0] <= 1.5 * math.log2(size) + 10
            rows.append((grouped, plain, least))
        name = f"{causes} of single differences" if group == 1 else f"{causes} of groups of {group}, inseparable"
        cells = [show([row[way] for row in rows]) for way in range(3)]
        print(f"  {name:34} {cells[0]:>14} {cells[1]:>14} {cells[2]:>14}")


def show(results: list[tuple[int, int]]) -> str:
    spent, sizes = (statistics.median(column) for column in zip(*results, strict=True))
    return f"> {MOST}" if spent >= MOST else f"{spent:g} ({sizes:g})"
