"""The oracle between a run and its twin: both have the same input, so that the whole output can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.observation import Observation, Outcome


@dataclass(frozen=True, slots=True)
class ExactOracle:
    """FAIL: the run shows what the failing one showed. PASS: the test passes."""

    failing: Observation
    passes: Callable[[Observation], bool]

    @property
    def rule(self) -> Rule:
        return Rule("output", "it ends and prints as the failing run did; it passes when the test does")

    def judge(self, observation: Observation) -> Outcome:
        if self._is_as_failing(observation):
            return Outcome.FAIL
        return Outcome.PASS if self.passes(observation) else Outcome.UNRESOLVED

    def _is_as_failing(self, observation: Observation) -> bool:
        failing = self.failing
        if failing.ending == observation.ending == "timeout":
            return True  # how much it printed until then is chance
        return (observation.ending, observation.code, observation.stdout, observation.stderr) == (
            failing.ending,
            failing.code,
            failing.stdout,
            failing.stderr,
        )
