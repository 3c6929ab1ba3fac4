"""Counts and weighs the edits that turn one sequence into another.

Exact (Levenshtein) where that is quick; beyond WORK_LIMIT only what can be told without aligning the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

# Comparisons of two elements for one result: a few milliseconds, and dozens of candidates are compared.
WORK_LIMIT = 20_000


def count_edits(passing: Sequence[T], failing: Sequence[T]) -> int:
    """The fewest insertions, deletions and replacements between the two.

    Takes at most WORK_LIMIT steps: where that is too few it gives the lower bound of `count_bag_edits`.
    """
    passing, failing = trim_common_ends(passing, failing)
    if len(passing) * len(failing) > WORK_LIMIT:
        return count_bag_edits(Counter(passing), Counter(failing))
    return round(_align(passing, failing, lambda _one, _other: 1.0))


def weigh_edits(passing: Sequence[str], failing: Sequence[str]) -> float:
    """Like `count_edits`, but a replacement weighs only as much as the share of characters it changes.

    Characters are looked at when all pairs of them fit into WORK_LIMIT.
    """
    passing, failing = trim_common_ends(passing, failing)
    characters = sum(map(len, passing)) * sum(map(len, failing))
    if characters <= WORK_LIMIT and len(passing) * len(failing) <= WORK_LIMIT:
        return _align(passing, failing, _share_changed)
    if len(passing) == len(failing) == 1:
        return _share_changed(passing[0], failing[0])
    return float(count_edits(passing, failing))


def count_bag_edits(passing: Counter[T], failing: Counter[T]) -> int:
    """Edits needed even if the order did not matter: never more than `count_edits`, in linear time."""
    return max((passing - failing).total(), (failing - passing).total())


def trim_common_ends(passing: Sequence[T], failing: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Without what they begin and end with in common: some cheapest alignment always pairs those elements."""
    shorter = min(len(passing), len(failing))
    first = 0
    while first < shorter and passing[first] == failing[first]:
        first += 1
    last = 0
    while last < shorter - first and passing[-1 - last] == failing[-1 - last]:
        last += 1
    return passing[first : len(passing) - last], failing[first : len(failing) - last]


def _share_changed(one: str, other: str) -> float:
    """Between 0 and 1; two different texts are never at 0."""
    return count_edits(one, other) / max(len(one), len(other), 1) if one != other else 0.0


def _align(passing: Sequence[T], failing: Sequence[T], weigh: Callable[[T, T], float]) -> float:
    """The cheapest alignment where an unpaired element costs 1 and a pair of different ones `weigh`."""
    # row[j]: the cheapest alignment of the elements of `passing` seen so far with the first j of `failing`.
    row = [float(j) for j in range(len(failing) + 1)]
    for i, one in enumerate(passing, 1):
        diagonal, row[0] = row[0], float(i)
        for j, other in enumerate(failing, 1):
            paired = diagonal if one == other else diagonal + weigh(one, other)
            diagonal = row[j]
            row[j] = min(paired, row[j] + 1, row[j - 1] + 1)
    return row[-1]
