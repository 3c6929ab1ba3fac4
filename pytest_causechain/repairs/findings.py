"""What is learned from a failing run: which lines tests execute, what was tried, what of it repairs the run, and what
that does to others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pytest_causechain.model.alteration import Intervention, Patch
from pytest_causechain.model.chain import Repair

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
