"""What a laboratory can be asked about two runs of one program, however and wherever it runs them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, overload

from pytest_causechain.debugger.program import ProgramMap, Signature
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch, SeenValues, Sighting, Spot
from pytest_causechain.model.load_map import LoadMap
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.place import Place
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.tracee.effects import Compared, Effect, Variant
from pytest_causechain.tracee.tracer import RECORD

# "passing" or "failing"; a lab may know of further runs by other names.
Side = str


def name_other(number: int) -> Side:
    """Of the further runs."""
    return f"other {number}"


# For one run, until the original ones have been timed.
FIRST_RUN_SECONDS = 20.0
# How many events are traced within a few seconds: the stubs record a million in a tenth of one, but what is made of
# them afterwards takes longer.
RECORDABLE = 2_000_000
# An altered run may take longer than the original ones, but not without end. One that only waits may yet be woken up.
PATIENCE, LEAST_SECONDS, LEAST_CPU_SECONDS = 10, 1.0, 0.1


class Event(NamedTuple):
    """An executed instruction that was watched: a function's first one has a return address, others 0."""

    address: int
    sp: int
    return_address: int = 0


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


@dataclass(frozen=True, slots=True)
class RunLimits:
    """For one of very many experiments: those that get out of hand end soon, and nobody looks where they were."""

    cpu_seconds: float
    seconds: float
    output_bytes: int


class Laboratory(Protocol):
    """The questions an engine answers; each answer takes a run of its own, or several.

    A Refusal says why there is no answer; BudgetUsedUp that the time is over."""

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        """For each transfer: run to the stops, apply the transfer, resume, observe."""

    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        """The same where only the first is asked for, and others only may be: these may be cancelled, and are None."""

    def interventions(
        self, side: Side, interventions: Sequence[Intervention | Patch], limits: RunLimits
    ) -> list[Observation]:
        """What each of them, alone, makes of the run."""

    def observe(self, command: Command) -> Observation:
        """What the program shows when it is started in another way."""

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        """Run to the stops, apply the transfer, run on to further stops; None when the run ends before."""

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = 10_000,
    ) -> Trace:
        """Run to the stops, then record each execution of the addresses, up to a further stop or the end."""

    def layout(self, side: Side, stops: Sequence[Stop]) -> str:
        """Tells runs apart that do not have everything in the same places when they stand at the stops: what is written
        to an address of the one means something else in the other."""

    def find_writer(
        self, side: Side, stops: Sequence[Stop], then: Sequence[Stop], address: int, size: int
    ) -> Place | None:
        """The statement of the program's own code that last wrote to a place on the way from stops to further ones,
        itself or by what it calls; None where that is not seen: the system may have written."""

    def cover(self, side: Side, addresses: Collection[int], is_last: bool = False) -> frozenset[int]:
        """Those of the addresses that a run executes; `is_last`: the run is made for nothing else any more."""

    def count(self, addresses: Collection[int], most: int) -> dict[int, int]:
        """How often the failing run executes each address, as far as `most`."""

    def signatures(self) -> dict[int, Signature]:
        """Of the program's own functions, by address."""

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant], Compared]:
        """Of the code of some functions, given by their addresses; and what they compare in the failing run."""

    def values(self, side: Side, effects: Sequence[Effect], most: int) -> SeenValues:
        """The first few values that a run stores, passes or returns at each address, by register."""

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        """What is at each spot; None where the run does not get."""

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        """The value at a spot behind an intervention; None where the run does not get."""

    def limit_runs(self, run_seconds: float, run_cpu_seconds: float) -> None:
        """How long one run may take from now on."""

    def widen(self, width: int) -> None:
        """How many experiments it makes at a time from now on."""


class Lab(Laboratory, Protocol):
    """A laboratory opened for two runs of one program, `passing` and `failing`."""

    # "fork", or "rerun" as soon as there was a moment at which the program could not be copied.
    name: str
    program: ProgramMap
    # How many events it traces within a few seconds.
    recordable: int
    # Whether calls are on the stack where the runs begin.
    begins_inside: bool

    # How many experiments it makes at a time.
    @property
    def width(self) -> int: ...

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        """Run to the stops, apply the transfer, resume, observe."""
