"""Oracles that ask the failing test about a run: fails_when, the assertion, facts of its comparison, the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.observation import Observation, Outcome
from pytest_causechain.model.verdict import Comparison, Value, Verdict
from pytest_causechain.oracle.facts import TEXT_KINDS, Symptom, shorten, tell_symptom

# What the failing test says of a run.
Ask = Callable[[Observation], Verdict]

Side = Literal["left", "right"]


def is_same_failure(one: Verdict, other: Verdict) -> bool:
    """Whether both failed at the same place, reached in the same way, with the same exception."""
    return one.outcome == other.outcome == "failed" and (one.exception, one.trail) == (other.exception, other.trail)


def take_side(comparison: Comparison, side: Side) -> Value:
    return comparison.left if side == "left" else comparison.right


@dataclass(frozen=True, slots=True)
class UserOracle:
    """FAIL: the user's function says so. Where it says no, only a run that ended by itself is a PASS."""

    ask: Ask

    @property
    def rule(self) -> Rule:
        return Rule("user", "the marker's fails_when says so")

    def judge(self, observation: Observation) -> Outcome:
        if self.ask(observation).fails_when:
            return Outcome.FAIL
        return Outcome.PASS if observation.ending == "exit" else Outcome.UNRESOLVED


@dataclass(frozen=True, slots=True)
class AssertionOracle:
    """FAIL: the test fails where it failed. PASS: it passes."""

    failure: Verdict
    ask: Ask

    @property
    def rule(self) -> Rule:
        place = f" at {self.failure.where}" if self.failure.where else ""
        return Rule("assertion", f"the test raises {self.failure.exception}{place}")

    def judge(self, observation: Observation) -> Outcome:
        if observation.ending != "exit":
            return Outcome.UNRESOLVED
        verdict = self.ask(observation)
        if verdict.outcome == "passed":
            return Outcome.PASS
        return Outcome.FAIL if is_same_failure(verdict, self.failure) else Outcome.UNRESOLVED


def shape(value: Value) -> tuple[str, bool]:
    """What two values must share to be compared by facts: an empty list lacks everything, but shows nothing."""
    return "text" if value.kind in TEXT_KINDS else value.kind, bool(value.elements)


@dataclass(frozen=True, slots=True)
class FactOracle:
    """FAIL: the test fails where it failed and all facts hold of the value it compared there. PASS: none does."""

    symptom: Symptom
    failure: Verdict
    side: Side
    # The failing and the passing run's; a value of a third shape belongs to another failure.
    shapes: frozenset[tuple[str, bool]]
    # Where both runs exit with one status, a third one tells that the program gave up.
    status: int | None
    ask: Ask

    @property
    def rule(self) -> Rule:
        assert self.failure.comparison is not None and self.failure.where is not None
        value = take_side(self.failure.comparison, self.side)
        return Rule("symptom", tell_symptom(self.symptom, value, self.failure.where))

    def judge(self, observation: Observation) -> Outcome:
        if observation.ending != "exit":
            return Outcome.UNRESOLVED
        verdict = self.ask(observation)
        if verdict.outcome == "passed":
            return Outcome.PASS
        if verdict.comparison is None or not is_same_failure(verdict, self.failure):
            return Outcome.UNRESOLVED
        value = take_side(verdict.comparison, self.side)
        if shape(value) not in self.shapes:
            return Outcome.UNRESOLVED
        match self.symptom.compare(value):
            case "all":
                return Outcome.FAIL
            case "none" if self.status is None or observation.code == self.status:
                return Outcome.PASS
            case _:
                return Outcome.UNRESOLVED


@dataclass(frozen=True, slots=True)
class OutputOracle:
    """FAIL and PASS: all a run wrote and its exit status are one run's or the other's."""

    passing: Observation
    failing: Observation
    ask: Ask

    @property
    def rule(self) -> Rule:
        if self.failing.stdout == self.passing.stdout and self.failing.stderr != self.passing.stderr:
            stream, written = " on stderr", self.failing.stderr
        else:
            stream, written = "", self.failing.stdout
        text = shorten(repr(written.decode(errors="replace"))) if written else "nothing"
        return Rule("output", f"it prints exactly {text}{stream} and ends with status {self.failing.returncode}")

    def judge(self, observation: Observation) -> Outcome:
        if observation.shown == self.failing.shown:
            return Outcome.FAIL
        if observation.shown == self.passing.shown:
            return Outcome.PASS
        passed = observation.ending == "exit" and self.ask(observation).outcome == "passed"
        return Outcome.PASS if passed else Outcome.UNRESOLVED
