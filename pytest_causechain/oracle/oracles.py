"""The oracles: each tells from what a run showed whether it is the failure in question, and its rule says by which
sign.

Crash, hang and the program's own reports are told by the run alone. All others ask the failing test about it: the
user's own function, the exit status, facts of a comparison, the assertion, the output. Between a run and its twin,
which have the same input, the whole output is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.runs import Frame, Observation, Outcome
from pytest_causechain.model.verdict import Comparison, Value, Verdict
from pytest_causechain.oracle.facts import TEXT_KINDS, Symptom, shorten, tell_kind, tell_symptom

# How a run ends

# Deeper callers differ between runs that crash for one and the same reason.
SIGNATURE_DEPTH = 2

# The place of a crash: own functions, innermost first; functions that recurse into each other are one entry.
Signature = tuple[frozenset[str], ...]


def fold_backtrace(backtrace: tuple[Frame, ...]) -> Signature:
    """Returns the innermost own functions; an endless recursion looks the same wherever the stack ends."""
    groups: list[frozenset[str]] = []
    for frame in backtrace:
        if frame.file is None:
            continue
        again = next((i for i, group in enumerate(groups) if frame.function in group), len(groups))
        groups[again:] = [frozenset({frame.function}.union(*groups[again:]))]
    return tuple(groups[:SIGNATURE_DEPTH])


@dataclass(frozen=True, slots=True)
class CrashOracle:
    """FAIL: the same signal at the same place. A crash elsewhere is another failure."""

    failing: Observation

    @property
    def rule(self) -> Rule:
        places = ["/".join(f"{name}()" for name in sorted(group)) for group in fold_backtrace(self.failing.backtrace)]
        where = f" in {' called from '.join(places)}" if places else ""
        return Rule("crash", f"it is killed by {self.failing.signal_name}{where}")

    def judge(self, observation: Observation) -> Outcome:
        if observation.ending == "exit":
            return Outcome.PASS
        if (observation.ending, observation.code) != ("signal", self.failing.code):
            return Outcome.UNRESOLVED
        expected = fold_backtrace(self.failing.backtrace)
        same = not expected or fold_backtrace(observation.backtrace) == expected
        return Outcome.FAIL if same else Outcome.UNRESOLVED


HANG = Rule("hang", "it has not ended when its time is up")


@dataclass(frozen=True, slots=True)
class HangOracle:
    """FAIL: no end within the time limit."""

    rule: Rule = HANG

    def judge(self, observation: Observation) -> Outcome:
        by_ending = {"timeout": Outcome.FAIL, "exit": Outcome.PASS, "signal": Outcome.UNRESOLVED}
        return by_ending[observation.ending]


# What the program reports itself before it ends: assert(), and the sanitizers of the compilers

_ASSERTION = re.compile(
    rb"^(?:[^\n:]+: )?(?P<file>[^\n:]+):(?P<line>\d+): (?:[^\n]*: )?Assertion [`'](?P<what>[^\n]*)' failed",
    re.MULTILINE,
)
_UNDEFINED = re.compile(rb"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: runtime error: (?P<what>[^\n:]*)", re.MULTILINE)
_SUMMARY = re.compile(
    rb"^SUMMARY: (?P<tool>\w+Sanitizer): (?P<what>\S+)(?: (?P<file>[^\s:()]+):(?P<line>\d+))?", re.MULTILINE
)
# The first of a stack that is not the sanitizer's own.
_FRAME = re.compile(rb"^ +#\d+ \S+ in [^\n]* (?P<file>(?![^\n]*sanitizer)[^\s:()]+):(?P<line>\d+)", re.MULTILINE)
# Values and sizes belong to a run, not to the kind of the failure.
_NUMBER = re.compile(r"-?\b(0x[0-9a-f]+|\d+)\b")


@dataclass(frozen=True, slots=True)
class Report:
    """`what` went wrong at `where`, if that is known; `is_fatal`: the program did not go on then."""

    tool: str
    what: str
    where: str | None
    is_fatal: bool


def find_report(observation: Observation) -> Report | None:
    """Finds the first failure that the run reported on stderr."""
    found = {
        "assert": _ASSERTION.search(observation.stderr),
        "": _SUMMARY.search(observation.stderr),
        "UndefinedBehaviorSanitizer": _UNDEFINED.search(observation.stderr),
    }
    for tool, match in found.items():
        if match is not None:
            place = (_FRAME.search(observation.stderr) or match) if tool == "" else match
            what = match["what"].decode(errors="replace").strip()
            return Report(
                tool or match["tool"].decode(),
                what if tool == "assert" else _NUMBER.sub("...", what),
                _tell_place(place),
                is_fatal=tool != "UndefinedBehaviorSanitizer",
            )
    return None


def _tell_place(match: re.Match[bytes]) -> str | None:
    if match["file"] is None:
        return None
    return f"{match['file'].rpartition(b'/')[2].decode(errors='replace')}:{match['line'].decode()}"


@dataclass(frozen=True, slots=True)
class ReportOracle:
    """FAIL: the same report from the same place. Another one is another failure."""

    failing: Report

    @property
    def rule(self) -> Rule:
        where = f" at {self.failing.where}" if self.failing.where else ""
        if self.failing.tool == "assert":
            return Rule("crash", f"the assertion {self.failing.what}{where} does not hold")
        return Rule("crash", f"{self.failing.tool} reports {self.failing.what}{where}")

    def judge(self, observation: Observation) -> Outcome:
        report = find_report(observation)
        if report == self.failing:
            return Outcome.FAIL
        return Outcome.PASS if report is None and observation.ending == "exit" else Outcome.UNRESOLVED


# What the failing test says

# What the failing test says of a run.
Ask = Callable[[Observation], Verdict]

Side = Literal["left", "right"]


def is_same_failure(one: Verdict, other: Verdict) -> bool:
    """Tells whether both failed at the same place, reached in the same way, with the same exception."""
    return one.outcome == other.outcome == "failed" and (one.exception, one.trail) == (other.exception, other.trail)


def is_changed(verdict: Verdict, failure: Verdict) -> bool:
    """Tells whether the test says anything else than it said when it failed."""
    return not is_same_failure(verdict, failure) or (verdict.digest, verdict.comparison) != (
        failure.digest,
        failure.comparison,
    )


def take_side(comparison: Comparison, side: Side) -> Value:
    return comparison.left if side == "left" else comparison.right


@dataclass(frozen=True, slots=True)
class UserOracle:
    """Takes the word of the user's own function: the marker's fails_when, or the project's judge.

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
    """Returns the user's oracle for this test, if there is one: its marker's comes before the project's."""
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
    """Words what does not hold, about the value that depends on the run."""
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
    """Returns what two values must share to be compared by facts: an empty list lacks everything, but shows nothing."""
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


def find_telling_file(passing: Observation, failing: Observation) -> str | None:
    """Returns the name of the first file that they wrote differently, if nothing else tells the two runs apart."""
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
            return HANG
        if self.failing.ending == "signal":
            return Rule("crash", "it is killed by the same signal and prints the same as the failing run")
        file = find_telling_file(self.twin, self.failing)
        if file is not None:
            return Rule("output", tell_written(file))
        if (self.twin.stdout, self.twin.stderr) == (self.failing.stdout, self.failing.stderr):
            return Rule("exit", f"it exits with status {self.failing.code} ({self.twin.code} in its twin)")
        return Rule("output", "it prints exactly what the failing run printed")

    def judge(self, observation: Observation) -> Outcome:
        # How much a run without end printed is chance.
        is_hang = self.failing.ending == observation.ending == "timeout"
        if is_hang or observation.shown == self.failing.shown:
            return Outcome.FAIL
        return Outcome.PASS if self.passes(observation) else Outcome.UNRESOLVED
