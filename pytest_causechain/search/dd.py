"""Two-sided delta debugging: turns an experiment over deltas into the minimal difference that decides its outcome.

Deltas come in groups that follow the structure of the state: what belongs together is applied together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Generic, TypeVar

from pytest_causechain.model.runs import Outcome
from pytest_causechain.search.rounds import Observed, Outcomes, settle

T = TypeVar("T", bound=Hashable)

# Deeper groups are not told apart: a list of a thousand nodes, each inside the one before, would be opened node by
# node, where a search among all of them takes ten experiments.
DEPTH_LIMIT = 6

# Into how many parts a group is divided at most before it is taken for one thing. What cannot be told apart in ten
# experiments mostly cannot be at all: half an object is no object.
GROUP_PARTS = 4
# A set of more differences, each of which is needed, explains nothing to a reader.
CONJUNCTION_LIMIT = 8


@dataclass(frozen=True, slots=True, eq=False)
class DeltaGroup(Generic[T]):
    """Deltas that belong together in the structure of the state, and are applied together: a single one, or several in
    parts."""

    deltas: tuple[T, ...]
    parts: tuple[DeltaGroup[T], ...] = ()


def group_deltas(
    deltas: Iterable[T], path: Callable[[T], Sequence[Hashable]] = lambda delta: ()
) -> tuple[DeltaGroup[T], ...]:
    """Units of deltas whose paths begin alike, in the order in which the first delta of each was given; without paths
    each is a unit by itself."""
    return _group([(delta, tuple(path(delta))[:DEPTH_LIMIT]) for delta in deltas])


def _group(deltas: Sequence[tuple[T, tuple[Hashable, ...]]]) -> tuple[DeltaGroup[T], ...]:
    together: dict[Hashable, list[tuple[T, tuple[Hashable, ...]]]] = {}
    for number, (delta, path) in enumerate(deltas):
        # A delta without a further group of its own is a unit by itself.
        key = ("group", path[0]) if path else ("delta", number)
        together.setdefault(key, []).append((delta, path[1:]))
    units = []
    for members in together.values():
        if len(members) == 1:
            units.append(DeltaGroup((members[0][0],)))
        else:
            parts = _group(members)
            # A group that holds nothing but another group is that group.
            units.append(parts[0] if len(parts) == 1 else DeltaGroup(tuple(delta for delta, _ in members), parts))
    return tuple(units)


def restrict(units: Iterable[DeltaGroup[T]], wanted: frozenset[T]) -> tuple[DeltaGroup[T], ...]:
    """The same groups with some of the deltas only."""
    found = []
    for unit in units:
        deltas = tuple(delta for delta in unit.deltas if delta in wanted)
        if deltas:
            parts = restrict(unit.parts, wanted) if len(deltas) > 1 else ()
            found.append(parts[0] if len(parts) == 1 else DeltaGroup(deltas, parts))
    return tuple(found)


def split(units: Sequence[DeltaGroup[T]], n: int) -> tuple[int, ...]:
    """The n + 1 bounds of n successive parts of nearly as many deltas each, but at least one unit; n <= len(units)."""
    weights = list(accumulate(len(unit.deltas) for unit in units))
    bounds = [0]
    for i in range(1, n):
        even = bisect_right(weights, weights[-1] * i // n)
        bounds.append(min(max(even, bounds[-1] + 1), len(units) - (n - i)))
    return (*bounds, len(units))


def deltas_of(units: Iterable[DeltaGroup[T]]) -> frozenset[T]:
    return frozenset(delta for unit in units for delta in unit.deltas)


@dataclass(frozen=True, slots=True)
class Narrowing(Generic[T]):
    """The algorithm dd of Zeller, "Isolating cause-effect chains from computer programs" (2002), Figure 2, as a state
    between two experiments; and on groups: one that is left alone is opened, and stays one where that does not help.

    Requires: the empty configuration has been seen to PASS and the one of all deltas to FAIL. Neither is tried again
    here: where it does not hold, the self-check of the moment has been left out, and the result means nothing.

    Guarantee when no question is left: `passing` PASSes, `failing` FAILs, and the difference is 1-minimal on its
    level: either it is a single unit, or adding any one of its units to `passing` does not FAIL and removing any one
    from `failing` does not PASS (more strongly, each of these experiments is UNRESOLVED). Which of several minimal
    differences is found depends on the order of the deltas and on nothing else.

    Cost for k units on one level: at most ceil(log2 k) experiments when none is UNRESOLVED, at most k*k + 3k in any
    case, when outcomes are remembered: rounds share configurations, and without memory 9 units can take 112, 4 more
    than 9*9 + 3*9.
    """

    passing: frozenset[T]
    difference: tuple[DeltaGroup[T], ...]
    # Of the parts that the difference is divided into.
    bounds: tuple[int, ...]
    is_opened: bool = False
    # Outcomes of `passing` with each part so far, and of `failing` without it.
    added: tuple[Outcome, ...] = ()
    removed: tuple[Outcome, ...] = ()

    @property
    def failing(self) -> frozenset[T]:
        return self.passing | deltas_of(self.difference)

    @property
    def n(self) -> int:
        return len(self.bounds) - 1

    def _part(self, i: int) -> tuple[DeltaGroup[T], ...]:
        return self.difference[self.bounds[i] : self.bounds[i + 1]]

    def _rest(self, i: int) -> tuple[DeltaGroup[T], ...]:
        return self.difference[: self.bounds[i]] + self.difference[self.bounds[i + 1] :]

    @property
    def question(self) -> frozenset[T] | None:
        """The next configuration to try. The failing configuration is always `passing` with the whole difference, so
        failing minus a part is `passing` with the rest."""
        if len(self.difference) == 1:
            return None
        if len(self.added) < self.n:
            return self.passing | deltas_of(self._part(len(self.added)))
        # With two parts all configurations have been tried by now, and none was resolved.
        if self.n > 2 and len(self.removed) < self.n:
            return self.passing | deltas_of(self._rest(len(self.removed)))
        return None

    def answer(self, outcome: Outcome) -> Narrowing[T]:
        """One unfolding of dd2, case by case. (The fourth case is printed with "passing minus a part" in the figure,
        which is always `passing`.)"""
        if len(self.added) < self.n:
            i = len(self.added)
            if outcome is Outcome.FAIL:
                return narrow(self.passing, self._part(i))
            if outcome is Outcome.PASS and self.n == 2:
                # Of two parts, adding one is removing the other: the second case holds, at no cost.
                return narrow(self.passing | deltas_of(self._part(i)), self._rest(i))
            state = replace(self, added=(*self.added, outcome))
        else:
            i = len(self.removed)
            if outcome is Outcome.PASS:
                return narrow(self.passing | deltas_of(self._rest(i)), self._part(i))
            state = replace(self, removed=(*self.removed, outcome))
        return state if state.question is not None else state._end_round()

    def _end_round(self) -> Narrowing[T]:
        if Outcome.PASS in self.added:
            i = self.added.index(Outcome.PASS)
            return narrow(self.passing | deltas_of(self._part(i)), self._rest(i), max(self.n - 1, 2))
        if Outcome.FAIL in self.removed:
            return narrow(self.passing, self._rest(self.removed.index(Outcome.FAIL)), max(self.n - 1, 2))
        n = min(2 * self.n, len(self.difference), GROUP_PARTS if self.is_opened else len(self.difference))
        if n <= self.n:
            return self
        return Narrowing(self.passing, self.difference, split(self.difference, n), self.is_opened)


def narrow(passing: frozenset[T], difference: tuple[DeltaGroup[T], ...], n: int = 2) -> Narrowing[T]:
    """A single group is opened. What is left of one that did come apart is divided as far as it goes."""
    is_opened = False
    while len(difference) == 1 and difference[0].parts:
        difference, n, is_opened = difference[0].parts, 2, True
    return Narrowing(passing, difference, split(difference, min(n, len(difference))), is_opened)


def begin(units: tuple[DeltaGroup[T], ...], likely: frozenset[T]) -> Narrowing[T]:
    """Divided into what is likely and the rest, where that is less than a half: to be right saves more than the one
    experiment that it costs to be wrong."""
    first, others = restrict(units, likely), restrict(units, deltas_of(units) - likely)
    if not first or 2 * len(deltas_of(first)) >= len(deltas_of(units)):
        return narrow(frozenset(), units)
    return Narrowing(frozenset(), (*first, *others), (0, len(first), len(first) + len(others)))


@dataclass(frozen=True, slots=True)
class Trimming(Generic[T]):
    """What else is needed: units are left out of a failing configuration, together where that can be.

    Guarantee when no question is left: `failing` FAILs and has no delta but `needed`, and without any one of these it
    did not FAIL, or what was left of it by then. When a failure takes several deltas together, these are `needed`, in
    whatever order the deltas were given."""

    failing: frozenset[T]
    pending: tuple[DeltaGroup[T], ...]
    needed: frozenset[T] = frozenset()

    @property
    def question(self) -> frozenset[T] | None:
        if not self.pending or len(self.needed) > CONJUNCTION_LIMIT:
            return None
        return self.failing.difference(self.pending[0].deltas)

    def answer(self, outcome: Outcome) -> Trimming[T]:
        unit, rest = self.pending[0], self.pending[1:]
        if outcome is Outcome.FAIL:
            return Trimming(self.failing.difference(unit.deltas), rest, self.needed)
        if len(unit.deltas) == 1:
            return Trimming(self.failing, rest, self.needed.union(unit.deltas))
        middle = split(unit.parts, 2)[1]
        halves = bundle(unit.parts[:middle]), bundle(unit.parts[middle:])
        return Trimming(self.failing, halves + rest, self.needed)


def bundle(units: tuple[DeltaGroup[T], ...]) -> DeltaGroup[T]:
    return units[0] if len(units) == 1 else DeltaGroup(tuple(delta for unit in units for delta in unit.deltas), units)


@dataclass(frozen=True, slots=True)
class MinimalCause(Generic[T]):
    """`cause` is the least difference found to decide, as a set: of two configurations, one inside the other, that
    PASS and FAIL, or, where several differences are each needed, all of them. `is_alone`: it FAILs by itself."""

    cause: frozenset[T]
    is_alone: bool


def isolate(
    units: tuple[DeltaGroup[T], ...], outcomes: Outcomes[frozenset[T], Observed], likely: frozenset[T] = frozenset()
) -> MinimalCause[T]:
    """Among units of which none PASSes and all together FAIL. Those that are `likely` are tried first.

    Guarantee for a cause that is alone and of at most CONJUNCTION_LIMIT deltas: without any one it does not FAIL."""
    if not units:
        raise ValueError("no deltas: the same configuration cannot both pass and fail")
    narrowing = settle(begin(units, likely), outcomes)
    difference = deltas_of(narrowing.difference)
    is_alone = outcomes(difference) is Outcome.FAIL
    if is_alone and len(difference) == 1:
        return MinimalCause(difference, is_alone)
    # What could not be told apart while it decided may hold some that are not needed; and what decided beside much
    # else may not be needed without it.
    needed = difference if is_alone else narrowing.failing
    pending = narrowing.difference if is_alone else (bundle(restrict(units, narrowing.passing)), *narrowing.difference)
    while True:
        trimming = settle(Trimming(needed, pending), outcomes)
        if trimming.pending or len(trimming.needed) > CONJUNCTION_LIMIT:
            return MinimalCause(difference, is_alone)
        if trimming.failing == needed:
            return MinimalCause(needed, is_alone=True)
        needed, pending = trimming.failing, restrict(pending, trimming.failing)
