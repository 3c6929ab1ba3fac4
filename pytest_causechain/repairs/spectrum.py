"""Which lines the suite's tests execute, and how suspicious that makes each of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

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
