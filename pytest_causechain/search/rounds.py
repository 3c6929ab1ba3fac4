"""Carries out a search whose next question depends on the last outcome, several experiments at a time.

What the search will ask next is foreseen for each outcome that may come, the likely ones first, and run together
with what it asks now. So the result is the same whatever the number of experiments at a time; with k of them a
binary search needs a logarithm to the base of k + 1 of rounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Protocol, Self, TypeVar

from pytest_causechain.model.observation import Outcome
from pytest_causechain.search.outcomes import Outcomes

C_co = TypeVar("C_co", bound=Hashable, covariant=True)
C = TypeVar("C", bound=Hashable)

# Of states looked into for each configuration to be found.
FORESIGHT = 8


class Search(Protocol[C_co]):
    """An immutable state of a search."""

    @property
    def question(self) -> C_co | None:
        """The configuration whose outcome it needs; None at the end."""

    def answer(self, outcome: Outcome) -> Self:
        """The state that follows."""


S = TypeVar("S", bound=Search)  # type: ignore[type-arg]


def settle(search: S, outcomes: Outcomes[C]) -> S:
    """The last state."""
    while (question := search.question) is not None:
        if not outcomes.has_run(question):
            outcomes.run(foresee(search, outcomes))
        search = search.answer(outcomes(question))
    return search


def foresee(search: Search[C], outcomes: Outcomes[C]) -> list[C]:
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
        known = outcomes.known(question)
        if known is None and not outcomes.has_run(question):
            wanted[question] = None
        for outcome in Outcome if known is None else (known,):
            likelihood = chance * (outcomes.chance(outcome) if known is None else 1)
            heapq.heappush(states, (likelihood, next(number), state.answer(outcome)))
    return list(wanted)
