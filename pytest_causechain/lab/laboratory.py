"""What every laboratory can do, however it runs the program."""

from __future__ import annotations

import math
import struct
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.isolation import NO_BOUNDS, NO_ISOLATION, Bounds, Isolation
from pytest_causechain.model.load_map import LoadMap
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.process.closing import Closing

# "passing" or "failing"; a lab may know of further runs by other names.
Side = str


def name_other(number: int) -> Side:
    """Of the further runs."""
    return f"other {number}"


# For one run, until the original ones have been timed.
FIRST_RUN_SECONDS = 20.0
# An altered run may take longer than the original ones, but not without end. One that only waits may yet be woken up.
PATIENCE, LEAST_SECONDS, LEAST_CPU_SECONDS = 10, 1.0, 0.1


class Event(NamedTuple):
    """An executed instruction that was watched: a function's first one has a return address, others 0."""

    address: int
    sp: int
    return_address: int = 0


# Of one event, as the tracer writes it: low half of the return address, number of the watched address, stack pointer.
RECORD = struct.Struct("<IIQ")


class Events(Sequence[Event]):
    """Events as columns: there may be millions."""

    def __init__(self, addresses: list[int], sps: list[int], returns: list[int]) -> None:
        self.addresses, self.sps, self.returns = addresses, sps, returns

    def __len__(self) -> int:
        return len(self.addresses)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Events: ...
    def __getitem__(self, index: int | slice) -> Event | Events:
        if isinstance(index, slice):
            return Events(self.addresses[index], self.sps[index], self.returns[index])
        return Event(self.addresses[index], self.sps[index], self.returns[index])


@dataclass(frozen=True)
class Trace:
    """Events of the watched `addresses`. `complete`: up to the wanted stop or the end of the run; else cut off at a
    limit. They are kept as pieces of records until somebody looks at them."""

    addresses: tuple[int, ...]
    pieces: tuple[bytes, ...]
    load_map: LoadMap
    complete: bool

    def __len__(self) -> int:
        return sum(map(len, self.pieces)) // RECORD.size

    @cached_property
    def events(self) -> Events:
        records = b"".join(self.pieces)
        numbers = memoryview(records).cast("I")[1::4].tolist()
        if numbers and max(numbers) >= len(self.addresses):  # the program has written over our records
            sound = next(at for at, number in enumerate(numbers) if number >= len(self.addresses))
            records, numbers = records[: sound * RECORD.size], numbers[:sound]
        halves, words = memoryview(records).cast("I"), memoryview(records).cast("Q")
        backs = halves[0::4].tolist()
        returns = {back: self.load_map.complete(back) if back else 0 for back in set(backs)}
        return Events(
            [self.addresses[number] for number in numbers],
            words[1::2].tolist(),
            [returns[back] for back in backs],
        )


class Lab(Closing):
    """Deals with two runs of one program, `passing` and `failing`; every call is a run of its own. Use as a context
    manager.

    `width` is how many experiments it makes at a time, `run_seconds` and `run_cpu_seconds` how long one run may take,
    `notes` are sentences for the user on what is left out, `isolation` what keeps the runs from harming anything,
    `bounds` what the user lets one of them use."""

    name: str
    program: ProgramMap
    # How many events are traced within a few seconds: the stubs record a million in a tenth of one, but what is made
    # of them afterwards takes longer.
    recordable = 2_000_000
    width: int
    run_seconds: float
    run_cpu_seconds: float = math.inf
    notes: tuple[str, ...] = ()
    isolation: Isolation = NO_ISOLATION
    bounds: Bounds = NO_BOUNDS
    # Whether calls are on the stack where the runs begin.
    begins_inside: bool = False

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        """Run to the stops, apply the transfer, resume, observe."""
        return self.experiments(side, stops, (transfer,))[0]

    @abstractmethod
    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        """The same for each of several transfers."""

    @abstractmethod
    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        """The same where only the first is asked for, and others only may be: these may be cancelled, and are None."""

    @abstractmethod
    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        """Run to the stops, apply the transfer, run on to further stops; None when the run ends before."""

    @abstractmethod
    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = 10_000,
    ) -> Trace:
        """Run to the stops, then record each execution of the addresses, up to a further stop or the end."""
