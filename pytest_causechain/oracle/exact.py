"""The oracle between a run and its twin: both have the same input, so that the whole output can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.runs import Observation, Outcome


def find_telling_file(passing: Observation, failing: Observation) -> str | None:
    """The name of the first file that they wrote otherwise, where nothing else tells the two runs apart."""
    if failing.shown[:-1] != passing.shown[:-1]:
        return None
    other = [file for file in failing.files if file not in passing.files]
    missing = [file for file in passing.files if file not in failing.files]
    return next((Path(path).name for path, _content in (*other, *missing)), None)


def tell_written(file: str) -> str:
    return f"it writes to {file} exactly what the failing run wrote"


@dataclass(frozen=True, slots=True)
class ExactOracle:
    """FAIL: the run shows what the failing one showed. PASS: the test passes."""

    twin: Observation
    failing: Observation
    passes: Callable[[Observation], bool]

    @property
    def rule(self) -> Rule:
        if self.failing.ending == "timeout":
            return Rule("hang", "it has not ended when its time is up")
        if self.failing.ending == "signal":
            return Rule("crash", "it is killed by the same signal and prints the same as the failing run")
        file = find_telling_file(self.twin, self.failing)
        if file is not None:
            return Rule("output", tell_written(file))
        if (self.twin.stdout, self.twin.stderr) == (self.failing.stdout, self.failing.stderr):
            return Rule("exit", f"it exits with status {self.failing.code} ({self.twin.code} in its twin)")
        return Rule("output", "it prints exactly what the failing run printed")

    def judge(self, observation: Observation) -> Outcome:
        if self._is_as_failing(observation):
            return Outcome.FAIL
        return Outcome.PASS if self.passes(observation) else Outcome.UNRESOLVED

    def _is_as_failing(self, observation: Observation) -> bool:
        failing = self.failing
        if failing.ending == observation.ending == "timeout":
            return True  # how much it printed until then is chance
        return observation.shown == failing.shown
