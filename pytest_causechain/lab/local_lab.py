"""The laboratory itself: what is alive in it, and what it answers by a run of its own.

What a run executes: events in order, coverage, who writes to a place. And what its instructions deal with, by which
interventions are chosen: what they do and could do otherwise, and the values that are there.

Used in a process with a single thread: SIGCHLD is blocked there until it is closed."""

from __future__ import annotations

import contextlib
import hashlib
import re
import signal
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.program import ProgramMap, Signature
from pytest_causechain.debugger.scope import LIBRARY_MEMBER, Scope
from pytest_causechain.debugger.types import PointerType
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.elf import find_build_id, list_producers, map_file, read_sections
from pytest_causechain.kernel.processes import read_mappings
from pytest_causechain.lab.captures import Captures
from pytest_causechain.lab.flights import Flights
from pytest_causechain.lab.laboratory import EVENTS_LIMIT, RECORDABLE, Open, Side, Trace
from pytest_causechain.lab.starts import Starts, apply, find_libraries
from pytest_causechain.model.alteration import Intervention, Like, SeenValues, Sighting, Spot
from pytest_causechain.model.moment import Place, Stop
from pytest_causechain.report.wording import count_of
from pytest_causechain.sandbox.isolation import OPEN_STAGE, Stage
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
# How gcc notes the options it was called with; an -O0 behind another one would win, but who does that.
OPTIMISED = re.compile(rb"GNU .* -O(?:[123sgz]|fast)?(?: |$)")


class LocalLab(Closing):
    """A Lab in this process. What is traced must print what experiments show when the run is left alone: there are
    programs that look at their own code, or jump where no compiler would."""

    recordable = RECORDABLE

    def __init__(self, opening: Open, stage: Stage = OPEN_STAGE) -> None:
        with contextlib.ExitStack() as parts:
            parts.enter_context(blocking_children())
            found = find_libraries(opening)
            self._debugger = parts.enter_context(Debugger(opening.failing.program.path, found.paths, opening.cache))
            self.program: ProgramMap = self._debugger.program
            self.starts = parts.enter_context(Starts(opening, self.program, stage))
            self.captures = Captures(self.starts, self._debugger)
            self.flights = Flights(self.starts, self.captures)
            # For coverage, and of which addresses.
            self._marks: Marks | None = None
            self._marked: frozenset[int] | None = None
            parts.callback(self._drop_marks)
            self._parts = parts.pop_all()
        # Sentences for the user on what is left out.
        self.notes = found.notes
        self.begins_inside = opening.begins_inside
        # Some of what a Laboratory is asked, its parts answer.
        self.visit, flights = self.captures.visit, self.flights
        self.experiment, self.experiments, self.speculate = flights.experiment, flights.experiments, flights.speculate
        self.interventions, self.observe = flights.interventions, flights.observe

    def close(self) -> None:
        self._parts.close()

    @property
    def name(self) -> str:
        return self.starts.name

    @property
    def width(self) -> int:
        return self.flights.width

    def widen(self, width: int) -> None:
        self.flights.width = width

    def limit_runs(self, run_seconds: float, run_cpu_seconds: float) -> None:
        self.starts.run_seconds, self.flights.run_cpu_seconds = run_seconds, run_cpu_seconds

    def processes(self) -> list[int]:
        """Those that it keeps between two calls."""
        return [*self._debugger.processes(), *self.starts.processes()]

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = EVENTS_LIMIT,
    ) -> Trace:
        starts = self.starts
        watched = [starts.watch(address) for address in addresses]
        for use_stubs in (True, False):  # slowly at last, but surely
            deadline = starts.begin()
            with starts.start(side, deadline) as subject:
                load_map = subject.landmarks.load_map
                try:
                    starts.run_to(subject, stops, deadline)
                except NotReached:
                    return Trace((), (), load_map, False)
                tracer = Tracer(subject, watched, starts.rows, use_stubs, starts.deadline)
                complete = tracer.run(until, limit, deadline)
                output = subject.outputs()[0]
            is_whole = complete and until is None
            if not tracer.is_lossy and (not is_whole or output == self.flights.natural_output(side)):
                break
        return Trace(tuple(addresses), tuple(tracer.pieces), load_map, complete)

    def _watch(
        self,
        side: Side,
        addresses: Collection[int],
        most: int,
        look: Callable[[Subject, int], None] = lambda subject, address: None,
    ) -> Counter[int]:
        """How often a run executes each address, at most `most` times each; `look` is called with it before it does."""
        deadline = self.starts.begin()
        with self.starts.start(side, deadline) as subject:
            return watch(subject, addresses, most, deadline, partial(look, subject))

    def cover(self, side: Side, addresses: Collection[int], is_last: bool = False) -> frozenset[int]:
        try:
            return self._cover(side, addresses)
        finally:
            if is_last:
                self.flights.forget(side)

    def _cover(self, side: Side, addresses: Collection[int]) -> frozenset[int]:
        starts = self.starts
        deadline = starts.begin()
        with contextlib.suppress(OSError):
            marks = self._make_marks(side, frozenset(addresses), deadline)
            with starts.start(side, deadline) as subject:
                if subject.landmarks.load_map == marks.load_map:
                    covered, output = marks.cover(subject, deadline), subject.outputs()[0]
                    if output == self.flights.natural_output(side) or time.monotonic() >= deadline:
                        return covered
        return frozenset(self._watch(side, addresses, 1))

    def _drop_marks(self) -> None:
        if self._marks is not None:
            self._marks.close()
        self._marks, self._marked = None, None

    def _make_marks(self, side: Side, addresses: frozenset[int], deadline: float) -> Marks:
        """Once; the process that they are made for cannot be used any more."""
        if self._marked != addresses:
            self._drop_marks()
            with self.starts.start(side, deadline) as subject:
                watched = [self.starts.watch(address) for address in addresses]
                self._marks = Marks(subject, watched, self.starts.rows, self.starts.deadline)
            self._marked = addresses
        assert self._marks is not None
        return self._marks

    def count(self, addresses: Collection[int], most: int) -> dict[int, int]:
        return dict(self._watch("failing", addresses, most))

    def layout(self, side: Side, stops: Sequence[Stop]) -> str:
        try:
            with self.starts.reach(side, stops, self.starts.begin()) as subject:
                registers, mappings = subject.registers(), read_mappings(subject.pid)
        except NotReached:
            return "not reached"
        places = [(m.start, m.end, m.permissions, Path(m.name).name) for m in mappings]
        versions = [] if stops else [find_version(name) for name in sorted({m.name for m in mappings})]
        return hashlib.sha256(repr((registers.rip, registers.rsp, places, versions)).encode()).hexdigest()

    def find_writer(
        self, side: Side, stops: Sequence[Stop], then: Sequence[Stop], address: int, size: int
    ) -> Place | None:
        starts, program = self.starts, self.starts.program
        deadline = starts.begin()
        try:
            with starts.reach(side, stops, deadline) as subject:
                writes = watch_writes(subject, address, size, then, deadline, MOST_WRITES)
                if not writes:
                    return None
                last = subject.landmarks.load_map.to_file(writes[-1] - 1)
                if program.function_at(last) is not None:
                    position = program.position_of(last)
                    return Place(position.file, position.line, position.function)
            with starts.reach(side, stops, deadline) as subject:
                watch_writes(subject, address, size, then, deadline, MOST_WRITES, until=len(writes))
                own = next((frame for frame in self.captures.see(subject) if frame.file is not None), None)
                return Place(own.file, own.line, own.function) if own is not None and own.file is not None else None
        except (NotReached, ProcessGone, TooOften, OSError):
            return None

    # What must be known to choose interventions

    def signatures(self) -> dict[int, Signature]:
        return self._debugger.signatures

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant], Compared]:
        starts = self.starts
        found: list[Effects] = []
        with starts.start("failing", starts.begin()) as subject:
            for address in functions:
                starts.require_time()
                function = self.program.function_at(address)
                assert function is not None
                start = subject.landmarks.load_map.to_run(function.address)
                code = subject.read(start, function.end - function.address)
                found.append(Effects(function.address, code, starts.rows))
        pairs: dict[tuple[int, int], None] = {}

        def look(subject: Subject, _address: int) -> None:
            with contextlib.suppress(OSError):  # of what is not there: the run ends here
                pairs[read_comparison(subject)] = None

        self._watch("failing", [a for one in found for a in one.comparisons()], COMPARISONS_WATCHED, look)
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

        self._watch(side, by_address.keys(), most, look)
        return {key: tuple(values) for key, values in seen.items()}

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        """One run shows all first visits, a copy each of the others."""
        firsts = self._first_sights(side, [spot for spot in spots if is_first(spot)])
        return [firsts.get(spot) if is_first(spot) else self._sight(side, spot) for spot in spots]

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        deadline = self.starts.begin()
        try:
            with self.starts.reach(side, intervention.spot.stops, deadline) as subject:
                apply(subject, intervention)
                self.starts.run_to(subject, spot.stops, deadline)
                return read_value(subject, spot)[0]
        except (NotReached, ProcessGone):
            return None

    def _first_sights(self, side: Side, spots: Sequence[Spot]) -> dict[Spot, Sighting]:
        by_address: dict[int, list[Spot]] = defaultdict(list)
        for spot in spots:
            by_address[spot.stops[-1].address].append(spot)
        seen: dict[Spot, Sighting] = {}

        def look(subject: Subject, address: int) -> None:
            for spot in by_address[address]:
                seen[spot] = self._sight_at(side, spot, subject)

        if by_address:
            self._watch(side, by_address.keys(), 1, look)
        return seen

    def _sight(self, side: Side, spot: Spot) -> Sighting | None:
        try:
            with self.starts.reach(side, spot.stops, self.starts.begin()) as subject:
                return self._sight_at(side, spot, subject)
        except (NotReached, ProcessGone):
            return None

    def _sight_at(self, side: Side, spot: Spot, subject: Subject) -> Sighting:
        """`subject` stands at the spot."""
        self.starts.require_time()
        frame = self.captures.innermost_frame(side, spot.stops, subject)
        was, address = read_value(subject, spot)
        scope = Scope(self.program.types, subject.read)
        if frame is not None:
            scope.add(frame.variables)
        thread_pointer, load_map = subject.registers().fs_base, subject.landmarks.load_map
        for variable in self.program.globals:
            scope.add_global(variable.name, variable.locate(load_map, thread_pointer), variable.type)
        leaf = scope.locate(address, len(was)) if address else None
        kind = leaf.type if leaf is not None else spot.type
        likes = scope.likes(was, kind, address)
        if kind is not None and isinstance(self.program.types[kind], PointerType):
            likes = tuple(anchored(subject, like) for like in likes)
        return Sighting(was, LIBRARY_MEMBER.sub("", leaf.name) if leaf is not None else None, kind, likes)


def find_version(path: str) -> str | None:
    """Of a mapped file with code in it."""
    try:
        with map_file(path) as content:
            return find_build_id(content, read_sections(content))
    except (OSError, ValueError, struct.error):
        return None  # no file, or none of this kind


def is_first(spot: Spot) -> bool:
    return all(stop.visit == 1 for stop in spot.stops)


def anchored(subject: Subject, like: Like) -> Like:
    address = int.from_bytes(like.data, "little")
    return replace(like, anchor=find_anchor(subject, address)) if address else like


@contextlib.contextmanager
def blocking_children() -> Iterator[None]:
    """Waiting for a process sleeps until SIGCHLD."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def find_weaknesses(program: ProgramMap) -> tuple[str, ...]:
    """What makes the program's diagnosis poorer than it could be: a sentence on each."""
    name, path = Path(program.path).name, Path(program.path)
    sentences = []
    if is_optimised(path):
        sentences.append(f"{name} is optimised, so that only some of its variables are seen: build it with -O0.")
    files = sorted({Path(function.file) for function in program.functions if function.file})
    there = [file for file in files if file.is_file()]
    sentences += tell_missing([str(file) for file in files if file not in there], name)
    built = path.stat().st_mtime
    newer = [file.name for file in there if file.stat().st_mtime > built]
    sentences += [f"{file} is newer than {name}: build it again, or lines are shown that never ran." for file in newer]
    return tuple(sentences)


def tell_missing(files: Sequence[str], name: str) -> list[str]:
    """In one sentence: all sources of a program may be elsewhere."""
    if not files:
        return []
    first, more = files[0], len(files) - 1
    told = f"{first} is not there" if not more else f"{first} and {count_of(more, 'more source file')} are not there"
    lines = "their lines" if more else "its lines"
    return [f"{told}, so that {lines} cannot be shown: test where {name} was built."]


def is_optimised(path: Path) -> bool:
    return any(OPTIMISED.match(producer) for producer in list_producers(path))
