"""Oracles that look at how a run ends: crash and hang. None of them needs the test to judge."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.runs import Frame, Observation, Outcome

# Deeper callers differ between runs that crash for one and the same reason.
SIGNATURE_DEPTH = 2

# The place of a crash: own functions, innermost first; functions that recurse into each other are one entry.
Signature = tuple[frozenset[str], ...]


def fold_backtrace(backtrace: tuple[Frame, ...]) -> Signature:
    """The innermost own functions; an endless recursion looks the same wherever it hits the end of the stack."""
    groups: list[frozenset[str]] = []
    for frame in backtrace:
        if frame.file is None:
            continue
        again = next((i for i, group in enumerate(groups) if frame.function in group), len(groups))
        groups[again:] = [frozenset({frame.function}.union(*groups[again:]))]
    return tuple(groups[:SIGNATURE_DEPTH])


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class CrashOracle:
    """FAIL: the same signal at the same place. A crash elsewhere is another failure."""

    failing: Observation

    @property
    def rule(self) -> Rule:
        places = ["/".join(f"{name}()" for name in sorted(group)) for group in fold_backtrace(self.failing.backtrace)]
        where = f" in {' called from '.join(places)}" if places else ""
        return Rule("crash", f"it is killed by {name_signal(self.failing.code)}{where}")

    def judge(self, observation: Observation) -> Outcome:
        if observation.ending == "exit":
            return Outcome.PASS
        if (observation.ending, observation.code) != ("signal", self.failing.code):
            return Outcome.UNRESOLVED
        expected = fold_backtrace(self.failing.backtrace)
        same = not expected or fold_backtrace(observation.backtrace) == expected
        return Outcome.FAIL if same else Outcome.UNRESOLVED


@dataclass(frozen=True, slots=True)
class HangOracle:
    """FAIL: no end within the time limit."""

    @property
    def rule(self) -> Rule:
        return Rule("hang", "it has not ended when its time is up")

    def judge(self, observation: Observation) -> Outcome:
        match observation.ending:
            case "timeout":
                return Outcome.FAIL
            case "exit":
                return Outcome.PASS
            case _:
                return Outcome.UNRESOLVED
