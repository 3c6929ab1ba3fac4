"""What a run executes: events in order, coverage, who writes to a place; and what its instructions deal with.

Interventions are chosen by the latter: what instructions do and could do otherwise, and the values that are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.program import Signature
from pytest_causechain.debugger.scope import LIBRARY_MEMBER, Scope
from pytest_causechain.debugger.types import PointerType
from pytest_causechain.debugger.visit import VisitedFrame
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.elf import find_build_id, map_file, read_sections
from pytest_causechain.kernel.processes import read_mappings
from pytest_causechain.lab.captures import Captures
from pytest_causechain.lab.flights import Flights
from pytest_causechain.lab.laboratory import EVENTS_LIMIT, Side, Trace
from pytest_causechain.lab.starts import Starts, apply, ending
from pytest_causechain.model.alteration import Intervention, Like, SeenValues, Sighting, Spot
from pytest_causechain.model.moment import Place, Stop
from pytest_causechain.sandbox.subject import Subject
from pytest_causechain.tracee.alteration import TooOften, find_anchor, read_comparison, read_value, watch, watch_writes
from pytest_causechain.tracee.effects import Compared, Effect, Effects, Variant
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import NotReached
from pytest_causechain.tracee.tracer import Marks, Tracer

# To a place between two moments; a loop counter tells nothing that takes longer to find.
MOST_WRITES = 2_000
# Executions of each comparison.
COMPARISONS_WATCHED = 8


class Executions(Closing):
    """Of the runs that `starts` begins. What is traced must print what `flights` see the run print when it is left
    alone: there are programs that look at their own code, or jump where no compiler would."""

    def __init__(self, starts: Starts, captures: Captures, flights: Flights) -> None:
        self._starts, self._captures, self._flights = starts, captures, flights
        # For coverage, and of which addresses.
        self._marks: Marks | None = None
        self._marked: frozenset[int] | None = None

    def close(self) -> None:
        if self._marks is not None:
            self._marks.close()
        self._marks, self._marked = None, None

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = EVENTS_LIMIT,
    ) -> Trace:
        trace, is_sure = self._trace(side, stops, addresses, until, limit, use_stubs=True)
        if not is_sure:  # slowly, but surely
            trace, _ = self._trace(side, stops, addresses, until, limit, use_stubs=False)
        return trace

    def _trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None,
        limit: int,
        use_stubs: bool,
    ) -> tuple[Trace, bool]:
        """False: some records are lost, or the program did not run as it does alone."""
        starts = self._starts
        deadline = starts.begin()
        watched = [starts.watch(address) for address in addresses]
        with ending(starts.start(side, deadline)) as subject:
            try:
                starts.run_to(subject, stops, deadline)
            except NotReached:
                return Trace((), (), subject.landmarks.load_map, False), True
            tracer = Tracer(subject, watched, starts.rows, use_stubs, starts.deadline)
            complete = tracer.run(until, limit, deadline)
            load_map, output = subject.landmarks.load_map, subject.outputs()[0]
        is_whole = complete and until is None
        is_sure = not tracer.is_lossy and (not is_whole or output == self._flights.natural_output(side))
        return Trace(tuple(addresses), tuple(tracer.pieces), load_map, complete), is_sure

    def cover(self, side: Side, addresses: Collection[int], is_last: bool = False) -> frozenset[int]:
        try:
            return self._cover(side, addresses)
        finally:
            if is_last:
                self._flights.forget(side)

    def _cover(self, side: Side, addresses: Collection[int]) -> frozenset[int]:
        starts = self._starts
        deadline = starts.begin()
        with contextlib.suppress(OSError):
            marks = self._make_marks(side, frozenset(addresses), deadline)
            with ending(starts.start(side, deadline)) as subject:
                if subject.landmarks.load_map == marks.load_map:
                    covered, output = marks.cover(subject, deadline), subject.outputs()[0]
                    if output == self._flights.natural_output(side) or time.monotonic() >= deadline:
                        return covered
        with ending(starts.start(side, deadline)) as subject:
            return frozenset(watch(subject, addresses, 1, deadline))

    def _make_marks(self, side: Side, addresses: frozenset[int], deadline: float) -> Marks:
        """Once; the process that they are made for cannot be used any more."""
        if self._marked != addresses:
            self.close()
            with ending(self._starts.start(side, deadline)) as subject:
                watched = [self._starts.watch(address) for address in addresses]
                self._marks = Marks(subject, watched, self._starts.rows, self._starts.deadline)
            self._marked = addresses
        assert self._marks is not None
        return self._marks

    def count(self, addresses: Collection[int], most: int) -> dict[int, int]:
        deadline = self._starts.begin()
        with ending(self._starts.start("failing", deadline)) as subject:
            return dict(watch(subject, addresses, most, deadline))

    def layout(self, side: Side, stops: Sequence[Stop]) -> str:
        try:
            with ending(self._starts.reach(side, stops, self._starts.begin())) as subject:
                registers, mappings = subject.registers(), read_mappings(subject.pid)
        except NotReached:
            return "not reached"
        places = [(m.start, m.end, m.permissions, Path(m.name).name) for m in mappings]
        versions = [] if stops else [find_version(name) for name in sorted({m.name for m in mappings})]
        return hashlib.sha256(repr((registers.rip, registers.rsp, places, versions)).encode()).hexdigest()

    def find_writer(
        self, side: Side, stops: Sequence[Stop], then: Sequence[Stop], address: int, size: int
    ) -> Place | None:
        starts, program = self._starts, self._starts.program
        deadline = starts.begin()
        try:
            with ending(starts.reach(side, stops, deadline)) as subject:
                writes = watch_writes(subject, address, size, then, deadline, MOST_WRITES)
                if not writes:
                    return None
                last = subject.landmarks.load_map.to_file(writes[-1] - 1)
                if program.function_at(last) is not None:
                    position = program.position_of(last)
                    return Place(position.file, position.line, position.function)
            with ending(starts.reach(side, stops, deadline)) as subject:
                watch_writes(subject, address, size, then, deadline, MOST_WRITES, until=len(writes))
                own = next((frame for frame in self._captures.see(subject) if frame.file is not None), None)
                return Place(own.file, own.line, own.function) if own is not None and own.file is not None else None
        except (NotReached, ProcessGone, TooOften, OSError):
            return None


def find_version(path: str) -> str | None:
    """Of a mapped file with code in it."""
    try:
        with map_file(path) as content:
            return find_build_id(content, read_sections(content))
    except (OSError, ValueError, struct.error):
        return None  # no file, or none of this kind


class Interventions:
    """What must be known to choose interventions in the runs that `starts` begins."""

    def __init__(self, starts: Starts, captures: Captures, debugger: Debugger) -> None:
        self._starts, self._captures, self._debugger = starts, captures, debugger
        self._program = starts.program

    def signatures(self) -> dict[int, Signature]:
        return self._debugger.signatures

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant], Compared]:
        starts = self._starts
        deadline = starts.begin()
        found: list[Effects] = []
        with ending(starts.start("failing", deadline)) as subject:
            for address in functions:
                starts.require_time()
                function = self._program.function_at(address)
                assert function is not None
                start = subject.landmarks.load_map.to_run(function.address)
                code = subject.read(start, function.end - function.address)
                found.append(Effects(function.address, code, starts.rows))
            pairs: dict[tuple[int, int], None] = {}

            def look(_address: int) -> None:
                with contextlib.suppress(OSError):  # of what is not there: the run ends here
                    pairs[read_comparison(subject)] = None

            watch(subject, [a for one in found for a in one.comparisons()], COMPARISONS_WATCHED, deadline, look)
        compared: dict[int, dict[int, None]] = defaultdict(dict)
        for one, other in pairs:
            compared[one][other] = compared[other][one] = None
        others = {number: tuple(with_) for number, with_ in compared.items()}
        constants: set[int] = set()
        for effects in found:
            starts.require_time()
            constants |= effects.constants()
        ordered = sorted(constants)
        told: list[Effect] = []
        variants: list[Variant] = []
        for effects in found:
            starts.require_time()
            variants += effects.variants(others, ordered)
            told += effects.find()
        return told, variants, others

    def values(self, side: Side, effects: Sequence[Effect], most: int) -> SeenValues:
        by_address: dict[int, list[Effect]] = defaultdict(list)
        for effect in effects:
            by_address[effect.address].append(effect)
        seen: dict[tuple[int, str], dict[bytes, None]] = defaultdict(dict)

        def look(subject: Subject, address: int) -> None:
            for effect in by_address[address]:
                spot = Spot(effect.kind, (), effect.register, effect.size)
                seen[address, effect.register][read_value(subject, spot)[0]] = None

        deadline = self._starts.begin()
        with ending(self._starts.start(side, deadline)) as subject:
            watch(subject, list(by_address), most, deadline, partial(look, subject))
        return {key: tuple(values) for key, values in seen.items()}

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        """One run shows all first visits, a copy each of the others."""
        firsts = self._first_sights(side, [spot for spot in spots if is_first(spot)])
        return [firsts.get(spot) if is_first(spot) else self._sight(side, spot) for spot in spots]

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        deadline = self._starts.begin()
        try:
            with ending(self._starts.reach(side, intervention.spot.stops, deadline)) as subject:
                apply(subject, intervention)
                self._starts.run_to(subject, spot.stops, deadline)
                return read_value(subject, spot)[0]
        except (NotReached, ProcessGone):
            return None

    def _first_sights(self, side: Side, spots: Sequence[Spot]) -> dict[Spot, Sighting]:
        by_address: dict[int, list[Spot]] = defaultdict(list)
        for spot in spots:
            by_address[spot.stops[-1].address].append(spot)
        seen: dict[Spot, Sighting] = {}
        deadline = self._starts.begin()

        def look(subject: Subject, address: int) -> None:
            self._starts.require_time()
            for spot in by_address[address]:
                seen[spot] = self._sight_at(side, spot, subject, deadline)

        if by_address:
            with ending(self._starts.start(side, deadline)) as subject:
                watch(subject, list(by_address), 1, deadline, partial(look, subject))
        return seen

    def _sight(self, side: Side, spot: Spot) -> Sighting | None:
        deadline = self._starts.begin()
        try:
            with ending(self._starts.reach(side, spot.stops, deadline)) as subject:
                return self._sight_at(side, spot, subject, deadline)
        except (NotReached, ProcessGone):
            return None

    def _sight_at(self, side: Side, spot: Spot, subject: Subject, deadline: float) -> Sighting:
        """`subject` stands at the spot."""
        frame = self._captures.innermost_frame(side, spot.stops, subject, deadline)
        was, address = read_value(subject, spot)
        return self._describe(subject, frame, was, address, spot.type)

    def _describe(
        self, subject: Subject, frame: VisitedFrame | None, was: bytes, address: int, kind: int | None
    ) -> Sighting:
        scope = Scope(self._program.types, subject.read)
        if frame is not None:
            scope.add(frame.variables)
        thread_pointer, load_map = subject.registers().fs_base, subject.landmarks.load_map
        for variable in self._program.globals:
            scope.add_global(variable.name, variable.locate(load_map, thread_pointer), variable.type)
        leaf = scope.locate(address, len(was)) if address else None
        kind = leaf.type if leaf is not None else kind
        likes = scope.likes(was, kind, address)
        if kind is not None and isinstance(self._program.types[kind], PointerType):
            likes = tuple(anchored(subject, like) for like in likes)
        return Sighting(was, LIBRARY_MEMBER.sub("", leaf.name) if leaf is not None else None, kind, likes)


def is_first(spot: Spot) -> bool:
    return all(stop.visit == 1 for stop in spot.stops)


def anchored(subject: Subject, like: Like) -> Like:
    address = int.from_bytes(like.data, "little")
    return replace(like, anchor=find_anchor(subject, address)) if address else like
