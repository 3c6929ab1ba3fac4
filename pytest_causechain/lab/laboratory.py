"""What a laboratory can be asked about two runs of one program, and the messages that carry questions to an engine.

A Laboratory is a list of questions; the proxy that sends each of them as a Call is made from it. Messages are pickled,
and pass through gateways as they are (see relay).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import NamedTuple, Protocol, cast, overload

from pytest_causechain.debugger.program import ProgramMap, Signature
from pytest_causechain.debugger.types import Type
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.lab.relay import Order
from pytest_causechain.model.alteration import NOTHING, Intervention, Patch, SeenValues, Sighting, Spot, Transfer
from pytest_causechain.model.isolation import USUAL, Isolation, Precautions
from pytest_causechain.model.load_map import LoadMap
from pytest_causechain.model.moment import Place, Stop
from pytest_causechain.model.runs import Command, Observation
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
# Of which a trace holds as many, unless more are asked for.
EVENTS_LIMIT = 10_000
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
        limit: int = EVENTS_LIMIT,
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


@dataclass(frozen=True, slots=True)
class Open:
    """Prepare a pair. `deadline` is a time.monotonic(), which all processes share. `kind` is "fork": experiments are
    made in copies of a program stopped at the moment, where that can be copied; or "rerun": each is a fresh run.
    `libraries` are patterns for those that count as the program's own code, `cache` is a directory for what should be
    known again in later sessions. `others` are further runs of the program, known by `name_other`. With a `repair` the
    passing run is the failing one with it, and both begin where it is made: before that they are the same.
    `environment` is the one that pytest runs in, None the engine's own."""

    passing: Command
    failing: Command
    deadline: float = math.inf
    kind: str = "fork"
    libraries: tuple[str, ...] = ()
    cache: Path | None = None
    others: tuple[Command, ...] = ()
    repair: Intervention | Patch | None = None
    precautions: Precautions = USUAL
    environment: tuple[tuple[str, str], ...] | None = None

    @property
    def commands(self) -> dict[Side, Command]:
        others = {name_other(number): command for number, command in enumerate(self.others)}
        return {"passing": self.passing, "failing": self.failing} | others

    @property
    def begins_inside(self) -> bool:
        """Whether calls are on the stack where the runs begin."""
        return isinstance(self.repair, Intervention)


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a program, as a command starts it, can be dealt with where this engine runs: a Fitness."""

    command: Command
    deadline: float


@dataclass(frozen=True, slots=True)
class Fitness:
    """`obstacle` is a sentence that says why not; `is_hopeless`: it holds for every program there."""

    obstacle: str = ""
    is_hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A question of Laboratory, by name."""

    name: str
    arguments: tuple[object, ...] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)


Message = Open | Check | Call | Order | None


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The value of a call, with the name of the lab by then and the types it has learned since the last answer; or
    why there is none: the user's time is over, a sentence for the user, or a trouble that another try may not meet.
    `is_hopeless`: the sentence holds for whatever is tried; the trouble is gdb's, should it be met again.
    `cpu_seconds` is what the program's processes that have ended since the last answer computed."""

    value: object = None
    lab: str = ""
    types: tuple[Type, ...] = ()
    is_used_up: bool = False
    refusal: str = ""
    is_hopeless: bool = False
    trouble: str = ""
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Opened:
    """Of a lab: `notes` are sentences for the user on what is left out, `isolation` what keeps the runs from harming
    anything."""

    program: ProgramMap
    width: int
    notes: tuple[str, ...]
    isolation: Isolation


CALLS = frozenset(
    name for name, value in vars(Laboratory).items() if isinstance(value, FunctionType) and not name.startswith("_")
)


def _pack(argument: object) -> object:
    """What may be any collection, such as the view of a dictionary, must be one that can be sent."""
    if isinstance(argument, Collection) and not isinstance(argument, str | bytes | tuple):
        return tuple(argument)
    return argument


def make_proxy(send: Callable[[Call], object]) -> Laboratory:
    """A laboratory each of whose methods sends a call of the same name and returns what the answer holds."""

    def ask(name: str, *arguments: object, **keywords: object) -> object:
        return send(Call(name, tuple(map(_pack, arguments)), {key: _pack(value) for key, value in keywords.items()}))

    return cast(Laboratory, SimpleNamespace(**{name: partial(ask, name) for name in CALLS}))
