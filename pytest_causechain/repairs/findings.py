"""What is learned from failing runs: which lines tests execute, what was tried, what of it repairs the run, what that
does to others; and the ranking of the program's lines that follows.

A line counts by the failing tests that it repairs; then by whether a change of its code repairs and leaves the passing
tests alone; by how few of these its most harmless repair harms; without a repair, by whether its function has one; by
coverage; by whether a change there can alter what is wrong and nothing else. Of lines that are equal so far, one where
a repair changes all executions comes before one where a single one out of many must be changed, and the earlier before
the later. A line that only hands on a value never comes before the one that the value is from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pytest_causechain.model.alteration import Intervention, Patch
from pytest_causechain.model.chain import Repair, Suspect
from pytest_causechain.report.wording import count_of, describe_repair

Line = tuple[str, int]


@dataclass(slots=True)
class Spectrum:
    """The lines that each passing and each failing test executes."""

    passing: list[Collection[Line]] = field(default_factory=list)
    failing: list[Collection[Line]] = field(default_factory=list)

    def counts(self, line: Line) -> tuple[int, int]:
        """How many failing and how many passing tests execute a line."""
        return sum(line in lines for lines in self.failing), sum(line in lines for lines in self.passing)

    def suspicion(self, line: Line) -> float:
        """Op2: a line that failing tests execute, the more so the fewer passing ones do."""
        failing, passing = self.counts(line)
        return failing - passing / (len(self.passing) + 1)

    def tells(self, line: Line) -> bool:
        """Whether the tests differ in executing it."""
        return self.counts(line)[1] < len(self.passing)

    def tell(self, line: Line) -> str:
        failing, passing = self.counts(line)
        return (
            f"{failing} of {len(self.failing)} failing and {passing} of {len(self.passing)} passing tests "
            "of the program execute this line"
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """An intervention yet to be judged, told as the repair it may be."""

    alteration: Intervention | Patch
    repair: Repair
    when: int
    # Whether it changes all executions of its place.
    is_whole: bool
    was: bytes = b""

    @property
    def line(self) -> Line:
        return self.repair.file, self.repair.line

    @property
    def is_address(self) -> bool:
        return isinstance(self.alteration, Intervention) and self.alteration.anchor is not None

    @property
    def place(self) -> tuple[str, int]:
        """What attempts have in common that differ in the visit or the value only."""
        alteration = self.alteration
        if isinstance(alteration, Patch):
            return "code", alteration.address
        return alteration.spot.kind + alteration.spot.register, alteration.spot.stops[-1].address


@dataclass(frozen=True, slots=True)
class Found:
    """`is_full`: the test passes; else it comes nearer to that. `harmed` is the share of the passing runs that show
    something else with the same change, where that was tried. `origin` is the line of an earlier repair that brings
    the same value here: this one only changes a copy."""

    attempt: Attempt
    is_full: bool
    harmed: float | None = None
    origin: Line | None = None

    @property
    def mends(self) -> bool:
        """A change of the code that harms no passing test."""
        return self.is_full and self.harmed == 0 and self.is_of_code

    @property
    def is_of_code(self) -> bool:
        return isinstance(self.attempt.alteration, Patch)


@dataclass(slots=True)
class Findings:
    """All that was learned from one failing test."""

    found: list[Found] = field(default_factory=list)
    # The lines that the failing run executes, with their functions.
    executed: dict[Line, str] = field(default_factory=dict)
    spectrum: Spectrum = field(default_factory=Spectrum)
    # Lines where an intervention changes nothing but what is wrong, without mending it.
    touched: set[Line] = field(default_factory=set)
    experiments: int = 0
    seconds: float = 0.0


# The ranking

MOST_SUSPECTS = 20
NEVER = 1 << 62


@dataclass(slots=True)
class _Evidence:
    """What speaks against a line. `votes` counts the failing tests it repairs, `mended` those that a change of its code
    repairs without harm to any passing test; `harmed` adds up, for each of them, the share of passing tests that
    the most harmless repair harms. `full` are the own test's repairs."""

    function: str
    votes: int = 0
    mended: int = 0
    harmed: float = 0.0
    full: list[Found] = field(default_factory=list)
    near: list[Found] = field(default_factory=list)
    is_touched: bool = False
    transition: Suspect | None = None

    @property
    def best(self) -> Found | None:
        return min(self.full, key=weigh, default=None)

    @property
    def origin(self) -> Line | None:
        """Of the first of its repairs, where all of them only change copies."""
        if not all(found.origin for found in self.full):
            return None
        return min(self.full, key=lambda found: found.attempt.when).origin if self.full else None

    @property
    def when(self) -> int:
        return min((found.attempt.when for found in self.full), default=NEVER)


class Ranking:
    """`findings` are those of the failing test itself first, then of others of the same program; `transitions` are
    the suspects of its chain."""

    def __init__(self, findings: Sequence[Findings], transitions: Sequence[Suspect] = ()) -> None:
        self._findings = findings
        self._spectrum = findings[0].spectrum
        self._lines: dict[Line, _Evidence] = {}
        self._collect(transitions)
        evidences = self._lines.values()
        self._repaired_functions = {evidence.function for evidence in evidences if evidence.full or evidence.near}
        self.lines = self._put_behind_origins(sorted(self._lines, key=self._key))

    def _collect(self, transitions: Sequence[Suspect]) -> None:
        for number, findings in enumerate(self._findings):
            full: dict[Line, list[Found]] = defaultdict(list)
            for found in findings.found:
                evidence = self._evidence(found.attempt.line, found.attempt.repair.function)
                if found.is_full:
                    full[found.attempt.line].append(found)
                if number == 0:
                    (evidence.full if found.is_full else evidence.near).append(found)
            for line, repairs in full.items():
                self._lines[line].votes += 1
                self._lines[line].mended += any(found.mends for found in repairs)
                self._lines[line].harmed += min((r.harmed for r in repairs if r.harmed is not None), default=math.inf)
        for line, function in self._findings[0].executed.items():
            is_touched = line in self._findings[0].touched
            if is_touched or self._spectrum.tells(line):
                self._evidence(line, function).is_touched = is_touched
        for suspect in transitions:
            self._evidence((suspect.file, suspect.line), suspect.function).transition = suspect

    def _put_behind_origins(self, lines: Sequence[Line]) -> list[Line]:
        """What only changes copies does not outrank the line where the value comes from."""
        placed: dict[Line, None] = {}
        waiting: dict[Line, list[Line]] = defaultdict(list)
        for line in lines:
            origin = self._lines[line].origin
            if origin is not None and origin not in placed:
                waiting[origin].append(line)
                continue
            free = [line]
            while free:
                placed[first := free.pop(0)] = None
                free += waiting.pop(first, [])
        return list(placed)

    def _evidence(self, line: Line, function: str) -> _Evidence:
        return self._lines.setdefault(line, _Evidence(function))

    def _key(self, line: Line) -> tuple[object, ...]:
        evidence = self._lines[line]
        return (
            -evidence.votes,
            -evidence.mended,
            evidence.harmed,
            not evidence.full and not evidence.near,
            evidence.function not in self._repaired_functions,
            -self._spectrum.suspicion(line),
            not evidence.is_touched,
            not any(found.attempt.is_whole for found in evidence.full),
            evidence.when,
            evidence.transition.rank if evidence.transition is not None else NEVER,
            line,
        )

    def groups(self) -> list[tuple[Line, ...]]:
        """The lines in order; those that nothing but their place in the source sets apart are together."""
        return [tuple(group) for _, group in groupby(self.lines, key=lambda line: self._key(line)[:-1])]

    def twins(self) -> list[Found]:
        """The own test's best repairs, as different as can be: what one alters may never come to lie in memory, where a
        chain could begin."""
        different: dict[tuple[Line, bool], Found] = {}
        for found in self.repairs():
            different.setdefault((found.attempt.line, found.is_of_code), found)
        return list(different.values())

    def repairs(self) -> list[Found]:
        """The own test's full ones, in the order of their lines."""
        return [found for line in self.lines for found in sorted(self._lines[line].full, key=weigh)]

    def suspects(self) -> tuple[Suspect, ...]:
        return tuple(
            Suspect(rank, *line, self._lines[line].function, self._tell(line))
            for rank, line in enumerate(self.lines[:MOST_SUSPECTS], start=1)
        )

    def _tell(self, line: Line) -> str:
        evidence = self._lines[line]
        if evidence.best is not None:
            also = evidence.votes - 1
            verb = "as does" if also == 1 else "as do"
            others = f", {verb} {count_of(also, 'other failing test')} of the program" if also else ""
            return f"{describe_repair(evidence.best.attempt.repair)} here the test passes{others}"
        if evidence.votes:
            return "a change here makes another failing test of the program pass"
        if evidence.near:
            return f"{describe_repair(evidence.near[0].attempt.repair)} here the test comes nearer to passing"
        if evidence.is_touched and evidence.transition is None:
            return "a change here alters what is wrong in the output, and nothing else"
        return evidence.transition.why if evidence.transition is not None else self._spectrum.tell(line)


def weigh(found: Found) -> tuple[object, ...]:
    """The more telling first; `min` and `sort` keep the order of the search among equals."""
    return found.harmed is None, found.harmed or 0, not found.attempt.is_whole, found.attempt.when
