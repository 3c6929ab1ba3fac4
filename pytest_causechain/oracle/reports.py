"""Failures that a program reports itself before it ends: assert(), and the sanitizers of the compilers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.observation import Observation, Outcome

_ASSERTION = re.compile(
    rb"^(?:[^\n:]+: )?(?P<file>[^\n:]+):(?P<line>\d+): (?:[^\n]*: )?Assertion [`'](?P<what>[^\n]*)' failed",
    re.MULTILINE,
)
_UNDEFINED = re.compile(rb"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: runtime error: (?P<what>[^\n:]*)", re.MULTILINE)
_SUMMARY = re.compile(
    rb"^SUMMARY: (?P<tool>\w+Sanitizer): (?P<what>\S+)(?: (?P<file>[^\s:()]+):(?P<line>\d+))?", re.MULTILINE
)
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
            groups = {name: text.decode(errors="replace") for name, text in match.groupdict().items() if text}
            where = f"{groups['file'].rpartition('/')[2]}:{groups['line']}" if "file" in groups else None
            what = groups["what"] if tool == "assert" else _NUMBER.sub("...", groups["what"].strip())
            return Report(groups.get("tool", tool), what, where, tool != "UndefinedBehaviorSanitizer")
    return None


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
