"""Turns the code that the failing run executes into the places at which it could have gone on otherwise."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_causechain.debugger.program import Signature
from pytest_causechain.debugger.types import (
    ArrayType,
    ComplexType,
    FloatType,
    OtherType,
    RecordType,
    StructType,
    TypeTable,
    UnionType,
    VoidType,
)
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Spot
from pytest_causechain.model.moment import Position, Stop
from pytest_causechain.tracee.effects import Effect

REGISTERS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
# Where counting an address takes a breakpoint each time: more visits than these are not told apart.
MOST_COUNTED = 200
# Parameters that do not travel in an integer register, or in more than one.
ELSEWHERE = (FloatType, StructType, UnionType, ArrayType, ComplexType, OtherType)


@dataclass(frozen=True, slots=True)
class RepairPlace:
    """An effect in the source, executed `visits` times. `name` is the parameter's; `callee` says whose."""

    effect: Effect
    position: Position
    visits: int
    name: str | None = None
    callee: str | None = None
    type: int | None = None

    def spot(self, visit: int) -> Spot:
        effect = self.effect
        if effect.watch is None or effect.watch == effect.address:
            stops: tuple[Stop, ...] = (Stop(effect.address, visit),)
        else:
            stops = (Stop(effect.watch, visit), Stop(effect.address, 1))
        return Spot(effect.kind, stops, effect.register, effect.size, self.type)


class Places:
    """All places of the failing run, and when each of their visits was."""

    def __init__(self, lab: RemoteLab, executed: Collection[int]) -> None:
        """`executed` are the addresses of the statements that the run executes."""
        self._program, self._signatures = lab.program, lab.signatures()
        functions = {f.address: f for a in executed if (f := lab.program.function_at(a)) is not None}
        effects, variants, self.compared = lab.effects(sorted(functions))
        own = [e for e in effects if self._is_wanted(e, executed)]
        self.variants = [v for v in variants if self._is_executed(v.address, executed)]
        watches = {e.watch for e in own} | {v.watch for v in self.variants}
        self._times = trace_visits(lab, sorted(watch for watch in watches if watch is not None))
        slow = sorted({e.address for e in own if e.watch is None})
        self._counts = lab.count(slow, MOST_COUNTED) if slow else {}
        self._last = sum(map(len, self._times.values()))
        self.all = [place for effect in own if (place := self._make(effect)) is not None]

    def distinct(self) -> set[tuple[str, int]]:
        """All places, and instructions that may be others, as attempts name them."""
        found = {(place.effect.kind + place.effect.register, place.effect.address) for place in self.all}
        return found | {("code", variant.address) for variant in self.variants}

    def when(self, watch: int | None, visit: int) -> int:
        """The number of the block executed then; after all others where that was not traced."""
        times = self._times.get(watch or 0, ())
        return times[visit - 1] if visit <= len(times) else self._last

    def stops_after(self, when: int, spot: Spot) -> tuple[Stop, ...]:
        """The way from a block's execution, as counted by `when`, to a spot; nothing where that is not known."""
        first, *rest = spot.stops
        times = self._times.get(first.address, ())
        visit = first.visit - bisect_right(times, when)
        if not times or visit < 0:
            return ()
        return (Stop(first.address, visit), *rest) if visit else tuple(rest)

    def _is_wanted(self, effect: Effect, executed: Collection[int]) -> bool:
        function = self._program.function_at(effect.statement)
        assert function is not None
        if effect.address < function.body:
            # What it was called with is replaced at the call, but for what travels in vector registers.
            return effect.kind == "value" and effect.is_float
        return self._is_executed(effect.statement, executed)

    def _is_executed(self, address: int, executed: Collection[int]) -> bool:
        return self._program.statement_at(address) in executed

    def _make(self, effect: Effect) -> RepairPlace | None:
        function = self._program.function_at(effect.statement)
        assert function is not None
        visits = self._counts.get(effect.address, 0) if effect.watch is None else len(self._times[effect.watch])
        name = callee = kind = None
        if effect.kind == "argument":
            target = self._program.function_at(effect.callee)
            callee = target.name if target is not None else None
            signature = self._signatures.get(effect.callee)
            parameter = find_parameter(signature, effect.register, self._program.types) if signature else None
            if signature is not None and parameter is None:
                return None
            if parameter is not None:
                name, kind = parameter
        elif effect.kind == "return" and function.address in self._signatures:
            kind = self._signatures[function.address].returns
            if isinstance(self._program.types[kind], (VoidType, *ELSEWHERE)):
                return None
        if not visits:
            return None
        return RepairPlace(effect, self._program.position_of(effect.statement), visits, name, callee, kind)


def find_parameter(signature: Signature, register: str, types: TypeTable) -> tuple[str, int] | None:
    """The parameter that travels in a register; None when there is none, or structs make the order doubtful."""
    if any(isinstance(types[kind], RecordType) for _, kind in signature.parameters):
        return None
    integers = [parameter for parameter in signature.parameters if not isinstance(types[parameter[1]], ELSEWHERE)]
    number = REGISTERS.index(register)
    return integers[number] if number < len(integers) else None


def trace_visits(lab: RemoteLab, addresses: Sequence[int]) -> dict[int, list[int]]:
    """For each address the numbers of its executions among all of them."""
    trace = lab.trace("failing", (), addresses, limit=lab.recordable)
    times: dict[int, list[int]] = defaultdict(list)
    for number, address in enumerate(trace.events.addresses):
        times[address].append(number)
    return times


def spread(visits: int, most: int) -> list[int]:
    """First, last, and more in between, the most telling first: their neighbours, then even parts."""
    ends = [1, visits, 2, visits - 1]
    parts = most - len(ends) + 1
    wanted = [*ends, *(visits * k // parts for k in range(1, parts))]
    return list(dict.fromkeys(v for v in wanted if 1 <= v <= visits))[:most]
