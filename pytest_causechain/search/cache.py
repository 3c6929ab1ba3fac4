"""Turns an experiment function into one that runs each configuration once and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pytest_causechain.model.chain import Tally
from pytest_causechain.model.observation import Outcome

Configuration = TypeVar("Configuration", bound=Hashable)


class Outcomes(Generic[Configuration]):
    """The outcomes known so far. An experiment that raises is neither counted nor remembered."""

    def __init__(self, experiment: Callable[[Configuration], Outcome]) -> None:
        self._experiment = experiment
        self._known: dict[Configuration, Outcome] = {}
        self._runs: Counter[Outcome] = Counter()
        self._cached = 0

    def __call__(self, configuration: Configuration) -> Outcome:
        if configuration in self._known:
            self._cached += 1
            return self._known[configuration]
        outcome = self._experiment(configuration)
        self._known[configuration] = outcome
        self._runs[outcome] += 1
        return outcome

    @property
    def tally(self) -> Tally:
        return Tally(
            pass_=self._runs[Outcome.PASS],
            fail=self._runs[Outcome.FAIL],
            unresolved=self._runs[Outcome.UNRESOLVED],
            cached=self._cached,
        )

    def since(self, earlier: Tally) -> Tally:
        """What was counted after `earlier`, a `tally` of these outcomes, had been read."""
        now = self.tally
        return Tally(
            pass_=now.pass_ - earlier.pass_,
            fail=now.fail - earlier.fail,
            unresolved=now.unresolved - earlier.unresolved,
            cached=now.cached - earlier.cached,
        )
