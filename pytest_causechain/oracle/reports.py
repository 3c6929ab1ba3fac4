"""Failures that a program reports itself before it ends: assert(), and the sanitizers of the compilers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.runs import Observation, Outcome

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
    """The first failure that the run reported on stderr."""
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
