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
from pytest_causechain.model.verdict import Comparison, Oracle, Value, Verdict
from pytest_causechain.oracle.facts import TEXT_KINDS, Symptom, shorten, tell_kind, tell_symptom


@dataclass(frozen=True, slots=True)
class Sign:
    """An oracle: the rule, and the function that follows it."""

    rule: Rule
    judge: Callable[[Observation], Outcome]


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


def judge_by_crash(failing: Observation) -> Oracle:
    """FAIL: the same signal at the same place. A crash elsewhere is another failure."""
    place = fold_backtrace(failing.backtrace)
    named = ["/".join(f"{name}()" for name in sorted(group)) for group in place]
    where = f" in {' called from '.join(named)}" if named else ""

    def judge(observation: Observation) -> Outcome:
        if observation.ending == "exit":
            return Outcome.PASS
        if (observation.ending, observation.code) != ("signal", failing.code):
            return Outcome.UNRESOLVED
        return Outcome.FAIL if not place or fold_backtrace(observation.backtrace) == place else Outcome.UNRESOLVED

    return Sign(Rule("crash", f"it is killed by {failing.signal_name}{where}"), judge)


HANG = Rule("hang", "it has not ended when its time is up")


def judge_by_hang() -> Oracle:
    """FAIL: no end within the time limit."""
    by_ending = {"timeout": Outcome.FAIL, "exit": Outcome.PASS, "signal": Outcome.UNRESOLVED}
    return Sign(HANG, lambda observation: by_ending[observation.ending])


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


def judge_by_report(failing: Report) -> Oracle:
    """FAIL: the same report from the same place. Another one is another failure."""
    where = f" at {failing.where}" if failing.where else ""
    told = f"{failing.tool} reports {failing.what}{where}"
    if failing.tool == "assert":
        told = f"the assertion {failing.what}{where} does not hold"

    def judge(observation: Observation) -> Outcome:
        report = find_report(observation)
        if report == failing:
            return Outcome.FAIL
        return Outcome.PASS if report is None and observation.ending == "exit" else Outcome.UNRESOLVED

    return Sign(Rule("crash", told), judge)


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


def judge_by_user(failing: Observation, ask: Ask) -> Oracle | None:
    """Takes the word of the user's own function for this test, if there is one: the marker's fails_when, else the
    project's judge.

    Where fails_when says no, only a run that ended by itself is a PASS; a run of which the judge says nothing is
    unresolved."""
    verdict = ask(failing)

    def judge_by_marker(observation: Observation) -> Outcome:
        if ask(observation).fails_when:
            return Outcome.FAIL
        return Outcome.PASS if observation.ending == "exit" else Outcome.UNRESOLVED

    if verdict.fails_when is not None:
        return Sign(Rule("user", "the marker's fails_when says so"), judge_by_marker)
    if verdict.judged is None:
        return None
    project = Rule("user", "the project's pytest_causechain_judge says so")
    return Sign(project, lambda observation: ask(observation).judged or Outcome.UNRESOLVED)


def judge_by_status(passing: Observation, failing: Observation, ask: Ask) -> Oracle:
    """FAIL and PASS: the two exit statuses; a third one is another failure. So is a run of which the test, but for the
    status, says something else than of the two."""

    def ask_but_for_status(observation: Observation) -> Verdict:
        return ask(replace(observation, code=passing.code))

    def list_known() -> Iterator[Verdict]:
        yield Verdict("passed")
        yield ask_but_for_status(passing)
        yield ask_but_for_status(failing)

    def judge(observation: Observation) -> Outcome:
        if observation.ending != "exit" or observation.code not in (failing.code, passing.code):
            return Outcome.UNRESOLVED
        if all(is_other_failure(ask_but_for_status(observation), known) for known in list_known()):
            return Outcome.UNRESOLVED
        return Outcome.FAIL if observation.code == failing.code else Outcome.PASS

    return Sign(Rule("exit", f"it exits with status {failing.code} ({passing.code} in the passing run)"), judge)


def is_other_failure(one: Verdict, other: Verdict) -> bool:
    return one.outcome != other.outcome or (one.outcome == "failed" and not is_same_failure(one, other))


def judge_by_assertion(
    passing: Observation, failing: Observation, failure: Verdict, side: Side | None, ask: Ask
) -> Oracle:
    """FAIL: the test fails where it failed. PASS: it passes. A run that ends with another status than both runs, or
    writes where neither of them does, is another failure.

    `side` is where the observed value stands in the failed comparison, if there is one and that is known."""
    forms = {(known.code, bool(known.stdout), bool(known.stderr)) for known in (passing, failing)}

    def judge(observation: Observation) -> Outcome:
        if observation.ending != "exit":
            return Outcome.UNRESOLVED
        verdict = ask(observation)
        if verdict.outcome == "passed":
            return Outcome.PASS
        form = (observation.code, bool(observation.stdout), bool(observation.stderr))
        return Outcome.FAIL if is_same_failure(verdict, failure) and form in forms else Outcome.UNRESOLVED

    return Sign(Rule("assertion", tell_assertion(failure, side)), judge)


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


def judge_by_facts(
    symptom: Symptom,
    failure: Verdict,
    side: Side,
    shapes: frozenset[tuple[str, bool]],
    status: int | None,
    ask: Ask,
) -> Oracle:
    """FAIL: the test fails where it failed and all facts hold of the value it compared there. PASS: none does.

    `shapes` are the failing and the passing run's; a value of a third one belongs to another failure. Where both runs
    exit with one `status`, a third one tells that the program gave up."""
    assert failure.comparison is not None and failure.where is not None

    def judge(observation: Observation) -> Outcome:
        if observation.ending != "exit":
            return Outcome.UNRESOLVED
        verdict = ask(observation)
        if verdict.outcome == "passed":
            return Outcome.PASS
        if verdict.comparison is None or not is_same_failure(verdict, failure):
            return Outcome.UNRESOLVED
        value = take_side(verdict.comparison, side)
        held = symptom.compare(value) if shape(value) in shapes else "some"
        if held == "none" and status in (None, observation.code):
            return Outcome.PASS
        return Outcome.FAIL if held == "all" else Outcome.UNRESOLVED

    return Sign(Rule("symptom", tell_symptom(symptom, take_side(failure.comparison, side), failure.where)), judge)


def judge_by_output(passing: Observation, failing: Observation, ask: Ask) -> Oracle:
    """FAIL and PASS: all a run wrote and its exit status are one run's or the other's."""

    def judge(observation: Observation) -> Outcome:
        if observation.shown == failing.shown:
            return Outcome.FAIL
        if observation.shown == passing.shown:
            return Outcome.PASS
        passed = observation.ending == "exit" and ask(observation).outcome == "passed"
        return Outcome.PASS if passed else Outcome.UNRESOLVED

    return Sign(Rule("output", tell_output(passing, failing)), judge)


def tell_output(passing: Observation, failing: Observation) -> str:
    file = find_telling_file(passing, failing)
    if file is not None:
        return tell_written(file)
    if failing.stdout == passing.stdout and failing.stderr != passing.stderr:
        written, place = failing.stderr, " on stderr"
    else:
        written, place = failing.stdout, ""
    text = shorten(repr(written.decode(errors="replace"))) if written else "nothing"
    return f"it prints exactly {text}{place} and ends with status {failing.returncode}"


def find_telling_file(passing: Observation, failing: Observation) -> str | None:
    """Returns the name of the first file that they wrote differently, if nothing else tells the two runs apart."""
    if failing.shown[:-1] != passing.shown[:-1]:
        return None
    other = [file for file in failing.files if file not in passing.files]
    missing = [file for file in passing.files if file not in failing.files]
    return next((Path(path).name for path, _content in (*other, *missing)), None)


def tell_written(file: str) -> str:
    return f"it writes to {file} exactly what the failing run wrote"


def judge_by_twin(twin: Observation, failing: Observation, passes: Callable[[Observation], bool]) -> Oracle:
    """FAIL: the run shows what the failing one showed. PASS: the test passes."""

    def judge(observation: Observation) -> Outcome:
        # How much a run without end printed is chance.
        is_hang = failing.ending == observation.ending == "timeout"
        if is_hang or observation.shown == failing.shown:
            return Outcome.FAIL
        return Outcome.PASS if passes(observation) else Outcome.UNRESOLVED

    return Sign(_name_difference(twin, failing), judge)


def _name_difference(twin: Observation, failing: Observation) -> Rule:
    if failing.ending == "timeout":
        return HANG
    if failing.ending == "signal":
        return Rule("crash", "it is killed by the same signal and prints the same as the failing run")
    file = find_telling_file(twin, failing)
    if file is not None:
        return Rule("output", tell_written(file))
    if (twin.stdout, twin.stderr) == (failing.stdout, failing.stderr):
        return Rule("exit", f"it exits with status {failing.code} ({twin.code} in its twin)")
    return Rule("output", "it prints exactly what the failing run printed")
