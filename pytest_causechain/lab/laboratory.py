"""What every laboratory can do, however it runs the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.transfer import NOTHING, Transfer

Side = Literal["passing", "failing"]


@dataclass(frozen=True, slots=True)
class Event:
    """An executed instruction that was watched: a function's first one has a return address, others 0."""

    address: int
    sp: int
    return_address: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """`complete`: up to the wanted stop or the end of the run; else cut off at a limit."""

    events: tuple[Event, ...]
    complete: bool


class Lab(Protocol):
    """Deals with two runs of one program, `passing` and `failing`; every call is a run of its own."""

    name: str
    program: ProgramMap

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        """Run to the stops, apply the transfer, resume, observe."""
        ...

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        """Run to the stops, apply the transfer, run on to further stops; None when the run ends before."""
        ...

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = 10_000,
    ) -> Trace:
        """Run to the stops, then record each execution of the addresses, up to a further stop or the end."""
        ...
