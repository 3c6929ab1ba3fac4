"""Cause transitions: turns causes at single moments into the chain of causes and the places where they change.

After Cleve and Zeller, "Locating causes of program failures" (2005), appendix: where two moments have causes in
different variables, the cause in the middle is isolated and both halves are searched in turn, until nothing lies
between. All experiments are behind `CauseFinder`; here is only the decision which moment to ask next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

M = TypeVar("M", bound=Hashable)
M_contra = TypeVar("M_contra", bound=Hashable, contravariant=True)
C = TypeVar("C")

# Moments refused one after the other until the search of a region ends. In doubled steps they reach a thousand
# moments far, and they are all there is in the small intervals where exactness counts.
ATTEMPTS = 12

# Adjacent refused moments that count as the border of what can be transferred at an end of the run. Holes before it
# are mostly single moments (a file just opened, an object half built), so a neighbour tells them from the border.
BORDER_ATTEMPTS = 2

# A cause isolated this often for ever new successors alternates between equally good answers: leave it.
REVISIONS = 3


class CauseFinder(Protocol[M_contra, C]):
    """What the search asks of the laboratory. Any method but `variables` may make experiments, and raise."""

    def isolate(self, moment: M_contra, hints: Sequence[C]) -> C | None:
        """The cause of the failure at a moment; None when the states there cannot be transferred.

        The hints are the causes at the nearest known moments before and after, worth trying first.
        """

    def isolate_for(self, moment: M_contra, later: tuple[M_contra, C]) -> C | None:
        """The cause, at a moment, of a later cause and the failure; None when there is none."""

    def causes(self, earlier: tuple[M_contra, C], later: tuple[M_contra, C]) -> bool:
        """Whether the earlier cause alone makes the later one appear."""

    def variables(self, cause: C) -> frozenset[str]:
        """The variables a cause is about."""


@dataclass(frozen=True, slots=True)
class CauseMove(Generic[M]):
    """Two successive moments of the chain between which the cause moves from some variables to others."""

    before: M
    after: M


class TransitionSearch(Generic[M, C]):
    """A search that can be read at any time, also after an exception, and continued with more moments.

    Each moment added is in one of four places: `known` with its cause, `refused` (not transferable), `skipped` (never
    tried, for what was refused around it), or still untried. `run` leaves a moment untried only between two known
    ones of equal variables.

    Guarantee: after `run`, every transition is direct: all moments between its two are refused or skipped. Nothing is
    skipped in a transition with fewer than `ATTEMPTS` refused moments, and a hole of any length is narrowed to its
    borders. An interval whose ends have equal variables is not searched: all transitions are found where no set of
    variables comes back after another took its place; where one does, those in between may be missed.

    Chain property: each known cause causes the next one, or the pair is `unproven`. A newly isolated cause that does
    not cause its successor is isolated again for it; then predecessors, latest first, are isolated again for their
    successors until one does cause its own. Going only backwards, and at most `REVISIONS` times to each moment, this
    ends. What a moment changes in the chain is entered all at once, so an exception leaves a whole chain.

    Cost for m transitions among c calls and l lines, all transferable: two isolations for the ends and at most
    m * (log2 c + log2 l + 2) others. A hole of h moments in a transition costs about 2 * log2 h + `ATTEMPTS` tries,
    an end of h moments that cannot be transferred `BORDER_ATTEMPTS` * log2 h.
    """

    def __init__(
        self,
        finder: CauseFinder[M, C],
        order: Callable[[M], SupportsRichComparison],
        is_call: Callable[[M], bool],
    ) -> None:
        """`order` gives every moment a place in time of its own; `is_call` tells a call from a line."""
        self.known: dict[M, C] = {}
        self.refused: set[M] = set()
        self.skipped: set[M] = set()
        self._untried: list[M] = []  # in time order
        self._proven: dict[tuple[M, M], bool] = {}
        self._revisions: Counter[M] = Counter()
        self._finder = finder
        self._order = order
        self._is_call = is_call

    def add(self, moments: Iterable[M]) -> bool:
        """More moments for the next `run`, anywhere in time; those already here are left where they are. Whether there
        are new ones."""
        present = {*self.known, *self.refused, *self.skipped, *self._untried}
        new = set(moments) - present
        self._untried = sorted({*self._untried, *new}, key=self._order)
        return bool(new)

    def run(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Narrow until all transitions are direct; to be called again after `add`, or after an exception.

        The widest interval goes first, so that a search cut short, by an exception or because it no longer `goes_on`,
        knows all parts of the chain equally well.
        """
        if not self.known:
            # The start is mostly transferable. Where it is not, or the runs are alike for long before they differ:
            # forwards in doubled steps, then towards the end in halved ones, and some more near the start.
            untried = list(self._untried)
            steps = [1 << k for k in range(len(untried).bit_length())]
            far = [untried[-step] for step in reversed(steps) if step <= len(untried)]
            tries = [*islice(_outwards(untried, 0), len(steps) + 1), *far, *islice(_outwards(untried, 0), ATTEMPTS)]
            self._visit_one_of(untried, dict.fromkeys(tries))
        self._extend(self._untried_after_last)
        self._extend(self._untried_before_first)
        while opening := [t for t in self.transitions() if self._untried_between(t.before, t.after)]:
            if not goes_on():
                break
            self._narrow(max(opening, key=lambda t: len(self._untried_between(t.before, t.after))))

    def transitions(self) -> list[CauseMove[M]]:
        """Where the cause changes, as far as known, in time order."""
        return [
            CauseMove(before, after)
            for before, after in pairwise(self._chain())
            if self._variables(before) != self._variables(after)
        ]

    def links(self) -> list[tuple[M, C]]:
        """The chain, as far as known, in time order: each cause at the first moment it is known at."""
        firsts = [*self._chain()[:1], *(transition.after for transition in self.transitions())]
        return [(moment, self.known[moment]) for moment in firsts]

    def unproven(self) -> list[tuple[M, M]]:
        """Successive known moments of which the first was not found to cause the second."""
        return [pair for pair in pairwise(self._chain()) if not self._proven[pair]]

    def _chain(self) -> list[M]:
        return sorted(self.known, key=self._order)

    def _variables(self, moment: M) -> frozenset[str]:
        return self._finder.variables(self.known[moment])

    # Choosing moments

    def _extend(self, beyond: Callable[[], list[M]]) -> None:
        """Find the outermost transferable moment at one end; `beyond` lists the untried ones there, nearest first.

        Beyond the moment at which the failure shows nothing can be transferred, before it nearly everything. So
        either the very last can, or the border lies in between and is found by bisection.
        """
        if outside := beyond():
            self._visit(outside[-1])
        while outside := beyond():
            middle = len(outside) // 2
            if not any(map(self._visit, islice(_outwards(outside, middle), BORDER_ATTEMPTS))):
                self._skip(outside[middle:])

    def _narrow(self, transition: CauseMove[M]) -> None:
        """Visit a moment inside: calls before lines, the middle first.

        Where a refused one is in the way, what lies between it and either end is bisected, which finds the borders of
        a hole; only then is its inside tried.
        """
        inside = self._untried_between(transition.before, transition.after)
        inside = [moment for moment in inside if self._is_call(moment)] or inside
        refused = self._between(sorted(self.refused, key=self._order), transition.before, transition.after)
        fence = [transition.before, *refused, transition.after]
        outer = max(self._between(inside, *fence[:2]), self._between(inside, *fence[-2:]), key=len)
        if outer:
            self._visit(outer[len(outer) // 2])
        else:
            self._visit_one_of(inside, islice(_outwards(inside, len(inside) // 2), ATTEMPTS))

    def _visit_one_of(self, moments: Sequence[M], tries: Iterable[M]) -> None:
        """Visit until one of the tries is transferable; skip all moments when none is."""
        if not any(map(self._visit, tries)):
            self._skip(moments)

    def _untried_after_last(self) -> list[M]:
        return self._untried_between(self._chain()[-1], None) if self.known else []

    def _untried_before_first(self) -> list[M]:
        return self._untried_between(None, self._chain()[0])[::-1] if self.known else []

    def _untried_between(self, before: M | None, after: M | None) -> list[M]:
        return self._between(self._untried, before, after)

    def _between(self, moments: list[M], before: M | None, after: M | None) -> list[M]:
        """Those of some moments, given in time order, that lie between two; None leaves a side open."""
        start = 0 if before is None else bisect_right(moments, self._order(before), key=self._order)
        stop = None if after is None else bisect_left(moments, self._order(after), key=self._order)
        return moments[start:stop]

    def _skip(self, moments: Sequence[M]) -> None:
        skipped = set(moments) - self.refused
        self._untried = [moment for moment in self._untried if moment not in skipped]
        self.skipped |= skipped

    # Entering a moment into the chain

    def _visit(self, moment: M) -> bool:
        """Isolate the cause at an untried moment and link it into the chain; False when it is not transferable."""
        chain = self._chain()
        place = bisect_left(chain, self._order(moment), key=self._order)
        earlier, later = chain[:place], chain[place : place + 1]
        cause = self._finder.isolate(moment, [self.known[near] for near in (*earlier[-1:], *later)])
        if cause is None:
            self._untried.remove(moment)
            self.refused.add(moment)
            return False
        proven: dict[tuple[M, M], bool] = {}
        for after in later:
            cause, proven[moment, after] = self._fit(moment, cause, (after, self.known[after]))
        changed = {moment: cause}
        after = moment
        for before in reversed(earlier):
            changed[before], proven[before, after] = self._fit(before, self.known[before], (after, changed[after]))
            if changed[before] is self.known[before]:
                break  # what lies before it was linked to this very cause
            after = before
        # In this order a Ctrl-C in between loses the moment, not the chain.
        self._untried.remove(moment)
        self._proven.update(proven)
        self.known.update(changed)
        return True

    def _fit(self, moment: M, cause: C, later: tuple[M, C]) -> tuple[C, bool]:
        """The cause, or another one at its moment, that causes the later one; False with the old one if none does."""
        if self._finder.causes((moment, cause), later):
            return cause, True
        if self._revisions[moment] == REVISIONS:
            return cause, False
        self._revisions[moment] += 1
        other = self._finder.isolate_for(moment, later)
        return (cause, False) if other is None else (other, True)


def _outwards(moments: Sequence[M], centre: int) -> Iterator[M]:
    """All moments, from the centre to both sides: in doubled steps first, which pass a hole of any size soon, then the
    ones between."""
    if moments:
        yield moments[centre]
    for distance in sorted(range(1, len(moments)), key=lambda distance: (distance.bit_count() > 1, distance)):
        for place in (centre + distance, centre - distance):
            if 0 <= place < len(moments):
                yield moments[place]
