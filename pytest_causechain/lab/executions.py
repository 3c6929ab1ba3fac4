"""What a run executes: events in order, which instructions at all, how often, and who writes to a place."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import struct
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.elf import find_build_id, read_sections
from pytest_causechain.kernel.processes import read_mappings
from pytest_causechain.lab.captures import Captures
from pytest_causechain.lab.flights import Flights
from pytest_causechain.lab.laboratory import Side, Trace
from pytest_causechain.lab.starts import Starts, ending
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.place import Place
from pytest_causechain.tracee.alteration import TooOften, watch, watch_writes
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import NotReached
from pytest_causechain.tracee.tracer import Marks, Tracer

# To a place between two moments; a loop counter tells nothing that takes longer to find.
MOST_WRITES = 2_000


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
        limit: int = 10_000,
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
            tracer = Tracer(subject, watched, starts.rows, use_stubs)
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
                self._marks = Marks(subject, watched, self._starts.rows)
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
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return find_build_id(content, read_sections(content))
    except (OSError, ValueError, struct.error):
        return None  # no file, or none of this kind
