"""Carries out a search whose next question depends on the last outcome, several experiments at a time.

What the search will ask next is foreseen for each outcome that may come, the likely ones first, and run together
with what it asks now. So the result is the same whatever the number of experiments at a time; with k of them a
binary search needs a logarithm to the base of k + 1 of rounds.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import astuple
from itertools import count
from operator import sub
from typing import Generic, Protocol, Self, TypeVar

from pytest_causechain.model.chain import Tally
from pytest_causechain.model.runs import Outcome

C_co = TypeVar("C_co", bound=Hashable, covariant=True)
C = TypeVar("C", bound=Hashable)
# What an experiment shows.
Observed = TypeVar("Observed")

# Of states looked into for each configuration to be found.
FORESIGHT = 8


def as_it_is(outcome: Outcome) -> Outcome:
    """The judge where experiments show nothing but their outcomes."""
    return outcome


class Outcomes(Generic[C, Observed]):
    """Runs each configuration once, several at a time where that helps, and counts.

    A configuration may be run before anybody asks for its outcome; it is judged, and counted, only then. Experiments
    that raise are neither counted nor remembered."""

    def __init__(
        self,
        experiments: Callable[[Sequence[C]], Iterable[Observed | None]],
        judge: Callable[[Observed], Outcome],
        width: int = 1,
    ) -> None:
        """`width` is how many are run at a time. Of several the first is needed; others may be None, cancelled because
        they took too long for something that nobody has asked for."""
        self._experiments = experiments
        self._judge = judge
        self.width = width
        # What those that have run showed.
        self.observed: dict[C, Observed] = {}
        # The outcomes of all that have been asked for, in this order.
        self.known: dict[C, Outcome] = {}
        self._counts: Counter[Outcome] = Counter()
        self._cached = 0

    def __call__(self, configuration: C) -> Outcome:
        if configuration in self.known:
            self._cached += 1
            return self.known[configuration]
        self.run([configuration])
        outcome = self._judge(self.observed[configuration])
        self.known[configuration] = outcome
        self._counts[outcome] += 1
        return outcome

    def run(self, configurations: Sequence[C]) -> None:
        new = [c for c in dict.fromkeys(configurations) if c not in self.observed]
        if new:
            ran = zip(new, self._experiments(new), strict=True)
            self.observed.update((c, observed) for c, observed in ran if observed is not None)

    def chance(self, outcome: Outcome) -> float:
        """How likely it is for a new configuration, by what was seen so far."""
        return (self._counts[outcome] + 1) / (self._counts.total() + len(Outcome))

    @property
    def tally(self) -> Tally:
        return Tally(
            pass_=self._counts[Outcome.PASS],
            fail=self._counts[Outcome.FAIL],
            unresolved=self._counts[Outcome.UNRESOLVED],
            cached=self._cached,
        )

    def since(self, earlier: Tally) -> Tally:
        """What was counted after `earlier`, a `tally` of these outcomes, had been read."""
        return Tally(*map(sub, astuple(self.tally), astuple(earlier)))


class Search(Protocol[C_co]):
    """An immutable state of a search."""

    @property
    def question(self) -> C_co | None:
        """The configuration whose outcome it needs; None at the end."""

    def answer(self, outcome: Outcome) -> Self:
        """The state that follows."""


S = TypeVar("S", bound=Search)  # type: ignore[type-arg]


def settle(search: S, outcomes: Outcomes[C, Observed]) -> S:
    """The last state."""
    while (question := search.question) is not None:
        if question not in outcomes.observed:
            outcomes.run(foresee(search, outcomes))
        search = search.answer(outcomes(question))
    return search


def foresee(search: Search[C], outcomes: Outcomes[C, Observed]) -> list[C]:
    """The configurations that are asked for next with the best chances; the very next first."""
    wanted: dict[C, None] = {}
    number = count()
    states: list[tuple[float, int, Search[C]]] = [(-1.0, next(number), search)]
    for _ in range(FORESIGHT * outcomes.width):
        if not states or len(wanted) == outcomes.width:
            break
        chance, _, state = heapq.heappop(states)
        question = state.question
        if question is None:
            continue
        known = outcomes.known.get(question)
        if known is None and question not in outcomes.observed:
            wanted[question] = None
        for outcome in Outcome if known is None else (known,):
            likelihood = chance * (outcomes.chance(outcome) if known is None else 1)
            heapq.heappush(states, (likelihood, next(number), state.answer(outcome)))
    return list(wanted)
