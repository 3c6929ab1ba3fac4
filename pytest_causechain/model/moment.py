"""Places in a program, and points in time that both runs reach."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_causechain.model.codec import Sendable


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """One stop on the way to a moment of the passing run: the visit-th execution of function + offset, which may lie
    in a shared library."""

    function: str
    file: str
    offset: int
    visit: int
    library: str | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the source."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Stop(Sendable):
    """The visit-th execution of an instruction; addresses are those of the file, as LoadMap tells them."""

    address: int
    visit: int


@dataclass(frozen=True, slots=True)
class Moment:
    """One point in time in both runs: the stops to make, one after the other, to get there in each.

    `event` numbers the call that came last in the failing run, `step` the statements since then (0: the call
    itself); `passing_event` and `passing_step` are the same in the passing run. `visit` counts the executions
    of this position in the failing run, for a statement those since the call. `backtrace` names the functions,
    innermost first.
    """

    position: Position
    backtrace: tuple[str, ...]
    event: int
    step: int
    passing_event: int
    passing_step: int
    visit: int
    passing: tuple[Stop, ...]
    failing: tuple[Stop, ...]

    @property
    def is_entry(self) -> bool:
        """A call; the moment where runs begin in the middle has no stops and is none."""
        return self.step == 0 and bool(self.failing)

    @property
    def time(self) -> tuple[int, int]:
        """Moments of one pair of runs are ordered by this."""
        return (self.event, self.step)
