"""Oracles that ask the failing test about a run: fails_when, the exit status, facts of its comparison, the assertion,
the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.runs import Observation, Outcome
from pytest_causechain.model.verdict import Comparison, Value, Verdict
from pytest_causechain.oracle.exact import find_telling_file, tell_written
from pytest_causechain.oracle.facts import TEXT_KINDS, Symptom, shorten, tell_kind, tell_symptom

# What the failing test says of a run.
Ask = Callable[[Observation], Verdict]

Side = Literal["left", "right"]


def is_same_failure(one: Verdict, other: Verdict) -> bool:
    """Whether both failed at the same place, reached in the same way, with the same exception."""
    return one.outcome == other.outcome == "failed" and (one.exception, one.trail) == (other.exception, other.trail)


def is_changed(verdict: Verdict, failure: Verdict) -> bool:
    """Whether the test says anything else than it said when it failed."""
    return not is_same_failure(verdict, failure) or (verdict.digest, verdict.comparison) != (
        failure.digest,
        failure.comparison,
    )


def take_side(comparison: Comparison, side: Side) -> Value:
    return comparison.left if side == "left" else comparison.right


@dataclass(frozen=True, slots=True)
class UserOracle:
    """What the user's own function says: the marker's fails_when, or the project's judge.

    Where fails_when says no, only a run that ended by itself is a PASS; a run of which the judge says nothing is
    unresolved."""

    ask: Ask
    is_marker: bool

    @property
    def rule(self) -> Rule:
        function = "the marker's fails_when" if self.is_marker else "the project's pytest_causechain_judge"
        return Rule("user", f"{function} says so")

    def judge(self, observation: Observation) -> Outcome:
        verdict = self.ask(observation)
        if not self.is_marker:
            return verdict.judged or Outcome.UNRESOLVED
        if verdict.fails_when:
            return Outcome.FAIL
        return Outcome.PASS if observation.ending == "exit" else Outcome.UNRESOLVED


def take_users_word(ask: Ask, failing: Observation) -> UserOracle | None:
    """The user's oracle, where there is one for this test: its marker's comes before the project's."""
    verdict = ask(failing)
    is_marker = verdict.fails_when is not None
    return UserOracle(ask, is_marker) if is_marker or verdict.judged is not None else None


@dataclass(frozen=True, slots=True)
class ExitOracle:
    """FAIL and PASS: the two exit statuses; a third one is another failure. So is a run of which the test, but for the
    status, says something else than of the two."""

    passing: Observation
    failing: Observation
    ask: Ask

    @property
    def rule(self) -> Rule:
        return Rule("exit", f"it exits with status {self.failing.code} ({self.passing.code} in the passing run)")

    def judge(self, observation: Observation) -> Outcome:
        if observation.ending != "exit" or observation.code not in (self.failing.code, self.passing.code):
            return Outcome.UNRESOLVED
        if all(is_other_failure(self._ask_but_for_status(observation), known) for known in self._known()):
            return Outcome.UNRESOLVED
        return Outcome.FAIL if observation.code == self.failing.code else Outcome.PASS

    def _known(self) -> Iterator[Verdict]:
        yield Verdict("passed")
        yield self._ask_but_for_status(self.passing)
        yield self._ask_but_for_status(self.failing)

    def _ask_but_for_status(self, observation: Observation) -> Verdict:
        return self.ask(replace(observation, code=self.passing.code))


def is_other_failure(one: Verdict, other: Verdict) -> bool:
    return one.outcome != other.outcome or (one.outcome == "failed" and not is_same_failure(one, other))


@dataclass(frozen=True, slots=True)
class AssertionOracle:
    """FAIL: the test fails where it failed. PASS: it passes. A run that ends with another status than both runs, or
    writes where neither of them does, is another failure."""

    passing: Observation
    failing: Observation
    failure: Verdict
    # Where the observed value stands in the failed comparison, if there is one and that is known.
    side: Side | None
    ask: Ask

    @property
    def rule(self) -> Rule:
        return Rule("assertion", tell_assertion(self.failure, self.side))

    def judge(self, observation: Observation) -> Outcome:
        if observation.ending != "exit":
            return Outcome.UNRESOLVED
        verdict = self.ask(observation)
        if verdict.outcome == "passed":
            return Outcome.PASS
        same = is_same_failure(verdict, self.failure) and self._is_alike(observation)
        return Outcome.FAIL if same else Outcome.UNRESOLVED

    def _is_alike(self, observation: Observation) -> bool:
        return any(
            observation.code == known.code
            and (bool(observation.stdout), bool(observation.stderr)) == (bool(known.stdout), bool(known.stderr))
            for known in (self.passing, self.failing)
        )


def tell_assertion(failure: Verdict, side: Side | None) -> str:
    """What does not hold, about the value that a run decides."""
    comparison = failure.comparison
    if comparison is None or side is None:
        place = f" at {failure.where}" if failure.where else ""
        return f"the test raises {failure.exception}{place}"
    observed, other = take_side(comparison, side), take_side(comparison, "right" if side == "left" else "left")
    subject = f"the {tell_kind(observed)} compared at {failure.where}"
    known = shorten(other.text)
    match comparison.operator, side:
        case "in", "right":
            return f"{subject} lacks {known}"
        case "not in", "right":
            return f"{subject} contains {known}"
        case "not in", "left":
            return f"{subject} is in {known}"
        case operator, "left":
            return f"{subject} is not {operator} {known}"
        case operator, _:
            return f"{known} is not {operator} {subject}"


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
        passing, failing = self.passing, self.failing
        file = find_telling_file(passing, failing)
        if file is not None:
            return Rule("output", tell_written(file))
        if failing.stdout == passing.stdout and failing.stderr != passing.stderr:
            written, place = failing.stderr, " on stderr"
        else:
            written, place = failing.stdout, ""
        text = shorten(repr(written.decode(errors="replace"))) if written else "nothing"
        return Rule("output", f"it prints exactly {text}{place} and ends with status {failing.returncode}")

    def judge(self, observation: Observation) -> Outcome:
        if observation.shown == self.failing.shown:
            return Outcome.FAIL
        if observation.shown == self.passing.shown:
            return Outcome.PASS
        passed = observation.ending == "exit" and self.ask(observation).outcome == "passed"
        return Outcome.PASS if passed else Outcome.UNRESOLVED
