"""Runs each configuration once, several at a time where that helps, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pytest_causechain.model.chain import Tally
from pytest_causechain.model.observation import Outcome

Configuration = TypeVar("Configuration", bound=Hashable)


class Outcomes(Generic[Configuration]):
    """The outcomes known so far. A configuration may be run before anybody asks for its outcome; it is judged, and
    counted, only then. Experiments that raise are neither counted nor remembered."""

    def __init__(
        self,
        experiments: Callable[[Sequence[Configuration]], Iterable[Any]],
        judge: Callable[[Any], Outcome] = lambda outcome: outcome,
        width: int = 1,
    ) -> None:
        """`width` is how many are run at a time. Of several the first is needed; others may be None, cancelled because
        they took too long for something that nobody has asked for."""
        self._experiments = experiments
        self._judge = judge
        self.width = width
        self._observed: dict[Configuration, Any] = {}
        self._known: dict[Configuration, Outcome] = {}
        self._counts: Counter[Outcome] = Counter()
        self._cached = 0

    def __call__(self, configuration: Configuration) -> Outcome:
        if configuration in self._known:
            self._cached += 1
            return self._known[configuration]
        self.run([configuration])
        outcome = self._judge(self._observed[configuration])
        self._known[configuration] = outcome
        self._counts[outcome] += 1
        return outcome

    def run(self, configurations: Sequence[Configuration]) -> None:
        new = [c for c in dict.fromkeys(configurations) if not self.has_run(c)]
        if new:
            ran = zip(new, self._experiments(new), strict=True)
            self._observed.update((c, observed) for c, observed in ran if observed is not None)

    def has_run(self, configuration: Configuration) -> bool:
        return configuration in self._observed

    def observed(self, configuration: Configuration) -> Any:
        """What one that has run showed."""
        return self._observed[configuration]

    def known(self, configuration: Configuration) -> Outcome | None:
        """The outcome of one that has been asked for before."""
        return self._known.get(configuration)

    def all_known(self) -> Mapping[Configuration, Outcome]:
        """All that have been asked for, in this order."""
        return self._known

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
        now = self.tally
        return Tally(
            pass_=now.pass_ - earlier.pass_,
            fail=now.fail - earlier.fail,
            unresolved=now.unresolved - earlier.unresolved,
            cached=now.cached - earlier.cached,
        )
