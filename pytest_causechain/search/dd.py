"""Two-sided delta debugging: turns an experiment over deltas into the minimal difference that decides its outcome."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from pytest_causechain.model.observation import Outcome

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Isolation(Generic[T]):
    """Two configurations, one inside the other, that pass and fail; `difference` is what only `failing` has, in the
    order the deltas were given."""

    passing: frozenset[T]
    failing: frozenset[T]
    difference: tuple[T, ...]


def isolate_difference(deltas: Sequence[T], experiment: Callable[[frozenset[T]], Outcome]) -> Isolation[T]:
    """The algorithm dd of Zeller, "Isolating cause-effect chains from computer programs" (2002), Figure 2.

    Requires: `deltas` are distinct, the empty configuration has been seen to PASS and the one of all deltas to FAIL.
    Neither is tried again here: where it does not hold, the self-check of the moment has been left out, and the
    result means nothing.

    Guarantee: `passing` PASSes, `failing` FAILs, and the difference is 1-minimal: either it is a single delta, or
    adding any one of its deltas to `passing` does not FAIL and removing any one from `failing` does not PASS (more
    strongly, each of these experiments is UNRESOLVED). Which of several minimal differences is found depends on the
    order of the deltas and on nothing else.

    Cost for k deltas: at most ceil(log2 k) experiments when none is UNRESOLVED, at most k*k + 3k in any case; no
    configuration is tried twice.
    """
    if not deltas:
        raise ValueError("no deltas: the same configuration cannot both pass and fail")
    # Rounds share configurations. Without memory the bound does not hold where k is no power of two: 9 deltas can
    # take 112 experiments, 4 more than 9*9 + 3*9.
    remembered = functools.cache(experiment)
    passing: frozenset[T] = frozenset()
    difference, n = tuple(deltas), 2
    # `passing` PASSes, `passing` and `difference` together FAIL; each round shrinks the difference or divides it finer.
    while len(difference) > 1:
        narrowed = _narrow(passing, difference, n, remembered)
        if narrowed is None:
            break
        passing, difference, n = narrowed
    return Isolation(passing, passing.union(difference), difference)


def _narrow(
    passing: frozenset[T], difference: tuple[T, ...], n: int, experiment: Callable[[frozenset[T]], Outcome]
) -> tuple[frozenset[T], tuple[T, ...], int] | None:
    """One unfolding of dd2, case by case; None when the difference is 1-minimal. 2 <= n <= len(difference).

    The failing configuration is always `passing` with the whole difference, so failing minus a part is `passing`
    with the rest. (The fourth case is printed with "passing minus a part" in the figure, which is always `passing`.)
    """
    splits = _split(difference, n)
    added: list[Outcome] = []
    for part, rest in splits:
        outcome = experiment(passing.union(part))
        if outcome is Outcome.FAIL:
            return passing, part, 2
        if outcome is Outcome.PASS and n == 2:
            # Of two parts, adding one is removing the other: the second case holds, at no cost.
            return passing.union(part), rest, 2
        added.append(outcome)
    removed: list[Outcome] = []
    # With two parts all configurations have been tried by now, and none was resolved.
    for part, rest in splits if n > 2 else ():
        outcome = experiment(passing.union(rest))
        if outcome is Outcome.PASS:
            return passing.union(rest), part, 2
        removed.append(outcome)
    if Outcome.PASS in added:
        part, rest = splits[added.index(Outcome.PASS)]
        return passing.union(part), rest, max(n - 1, 2)
    if Outcome.FAIL in removed:
        _, rest = splits[removed.index(Outcome.FAIL)]
        return passing, rest, max(n - 1, 2)
    if n < len(difference):
        return passing, difference, min(2 * n, len(difference))
    return None


def _split(difference: tuple[T, ...], n: int) -> list[tuple[tuple[T, ...], tuple[T, ...]]]:
    """n successive parts of nearly equal size, each with the rest."""
    bounds = [len(difference) * i // n for i in range(n + 1)]
    return [(difference[start:stop], difference[:start] + difference[stop:]) for start, stop in pairwise(bounds)]
