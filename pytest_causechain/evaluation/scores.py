"""How much of a program is looked at until its defect is found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import comb, floor

from pytest_causechain.repairs.findings import Line

# Of the share of statements looked at: pinpointed, and the two that the literature counts.
LIMITS = (0.01, 0.10, 0.20)


@dataclass(frozen=True, slots=True)
class Examined:
    """Statements looked at until the first line of the defect is reached; of lines of equal rank the defect's comes
    last (`worst`), or where it is to be expected (`mid`)."""

    worst: int
    mid: float
    statements: int

    @property
    def share(self) -> float:
        return share_of(self.worst, self.statements)

    @property
    def mid_share(self) -> float:
        return share_of(self.mid, self.statements)


def share_of(looked_at: float, statements: int) -> float:
    """The first line of a program with few lines is not more than the smallest limit: who looks at one line only has
    the defect pinpointed."""
    return 0.0 if looked_at <= 1 else looked_at / statements


def count_examined(ranking: Iterable[Sequence[Line]], defects: Collection[Line], statements: int) -> Examined:
    before = 0
    for group in ranking:
        hits = sum(line in defects for line in group)
        if hits:
            return Examined(before + len(group) - hits + 1, before + (len(group) + 1) / (hits + 1), statements)
        before += len(group)
    return Examined(statements, statements, statements)


def chance_within(limit: float, executed: int, defects: int, statements: int) -> float:
    """How probable it is that lines of the failing run, taken at random, hit the defect within this share."""
    return chance_of_hit(max(1, floor(limit * statements)), executed, defects)


def chance_of_hit(count: int, executed: int, defects: int) -> float:
    """That `count` lines out of those executed contain one of the defect's."""
    count = min(count, executed)
    return 1.0 - comb(executed - defects, count) / comb(executed, count)


def share_within(shares: Sequence[float], limit: float) -> float:
    """In percent."""
    return 100.0 * sum(share <= limit for share in shares) / len(shares) if shares else 0.0
