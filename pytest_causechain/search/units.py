"""Deltas in groups that follow the structure of the state: what belongs together is applied together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# Deeper groups are not told apart: a list of a thousand nodes, each inside the one before, would be opened node by
# node, where a search among all of them takes ten experiments.
DEPTH_LIMIT = 6


@dataclass(frozen=True, slots=True, eq=False)
class Unit(Generic[T]):
    """One delta, or a group of them that has parts."""

    deltas: tuple[T, ...]
    parts: tuple[Unit[T], ...] = ()


def group_deltas(
    deltas: Iterable[T], path: Callable[[T], Sequence[Hashable]] = lambda delta: ()
) -> tuple[Unit[T], ...]:
    """Units of deltas whose paths begin alike, in the order in which the first delta of each was given; without paths
    each is a unit by itself."""
    return _group([(delta, tuple(path(delta))[:DEPTH_LIMIT]) for delta in deltas])


def _group(deltas: Sequence[tuple[T, tuple[Hashable, ...]]]) -> tuple[Unit[T], ...]:
    together: dict[Hashable, list[tuple[T, tuple[Hashable, ...]]]] = {}
    for number, (delta, path) in enumerate(deltas):
        # A delta without a further group of its own is a unit by itself.
        key = ("group", path[0]) if path else ("delta", number)
        together.setdefault(key, []).append((delta, path[1:]))
    units = []
    for members in together.values():
        if len(members) == 1:
            units.append(Unit((members[0][0],)))
        else:
            parts = _group(members)
            # A group that holds nothing but another group is that group.
            units.append(parts[0] if len(parts) == 1 else Unit(tuple(delta for delta, _ in members), parts))
    return tuple(units)


def restrict(units: Iterable[Unit[T]], wanted: frozenset[T]) -> tuple[Unit[T], ...]:
    """The same groups with some of the deltas only."""
    found = []
    for unit in units:
        deltas = tuple(delta for delta in unit.deltas if delta in wanted)
        if deltas:
            parts = restrict(unit.parts, wanted) if len(deltas) > 1 else ()
            found.append(parts[0] if len(parts) == 1 else Unit(deltas, parts))
    return tuple(found)


def split(units: Sequence[Unit[T]], n: int) -> tuple[int, ...]:
    """The n + 1 bounds of n successive parts of nearly as many deltas each, but at least one unit; n <= len(units)."""
    weights = list(accumulate(len(unit.deltas) for unit in units))
    bounds = [0]
    for i in range(1, n):
        even = bisect_right(weights, weights[-1] * i // n)
        bounds.append(min(max(even, bounds[-1] + 1), len(units) - (n - i)))
    return (*bounds, len(units))


def deltas_of(units: Iterable[Unit[T]]) -> frozenset[T]:
    return frozenset(delta for unit in units for delta in unit.deltas)
