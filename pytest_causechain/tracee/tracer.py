"""Records executions of chosen instructions at nearly the program's own speed.

Each becomes a jump to a stub that writes a record; where a jump does not fit, a breakpoint does the same, slowly.
Only the first thread's executions count: the stacks of others would confuse the tree of calls. What stubs record of
them is thrown away.

Where only matters which instructions a run executes, stubs set a byte each. They are made once and serve all runs in
which the program lies at the same place: stubs and bytes are in a file in memory that each run maps, so that what a run
has marked can be read when it is gone.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from pytest_causechain.kernel import linux
from pytest_causechain.model.load_map import LOW_HALF, LoadMap, number_of
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee.alteration import watch
from pytest_causechain.tracee.stubs import (
    CURSOR,
    RECORD_SIZE,
    RESTORE_SIZE,
    SAVED_R11,
    Watched,
    find_footholds,
    make_jump,
    make_marking_stub,
    make_stub,
)
from pytest_causechain.tracee.tracee import OPTIONS, TRACE_CHILDREN, WORD, NotReached, Tracee, inject

# Low half of the return address, number of the watched address, stack pointer.
RECORD = struct.Struct("<IIQ")
# Of each thread: a page with the words that stubs use, then its records. One MiB of them stays in the processor's
# cache, which is faster than fewer interruptions.
AREAS, AREA_DISTANCE = 0x2100_0000_0000, 1 << 21
CAPACITY = 1 << 16
AREA_SIZE = linux.PAGE + CAPACITY * RECORD_SIZE
BUFFER, GUARD = AREAS + linux.PAGE, AREAS + AREA_SIZE
# Generous: a stub is some 60 bytes of record and the moved instructions.
STUB_BYTES = 128
# Where a program that is not relocated leaves no room below it.
FAR_PLACE = 0x1000_0000
# A library's stubs lie so far below it: just below libraries the kernel puts what the program maps next, and a jump
# reaches twice as far.
LIBRARY_DISTANCE = 1 << 30
PLACES_TRIED = 16


class Stub(NamedTuple):
    """Where it begins, where its part that records ends, and from where it is jumped to."""

    start: int
    head_end: int
    source: int


class Tracer:
    """For one run: patches the program, runs it, gives the records."""

    def __init__(
        self,
        process: Tracee,
        watched: Sequence[Watched],
        rows: Collection[int],
        use_stubs: bool = True,
        deadline: float = math.inf,
    ) -> None:
        """`rows` are all addresses at which a line begins: a jump table may lead to any of them. BudgetUsedUp where the
        program cannot be patched until the deadline."""
        self.subject = process
        self._watched = watched
        self._rows = rows
        # In pieces, since there may be many; how many records they are.
        self.pieces: list[bytes] = []
        self.count = 0
        # Whether the program became another one before all records were read.
        self.is_lossy = False
        self._load_map = process.landmarks.load_map
        self._originals, self._patches = process.originals, process.patches
        # Where the code of stubs was mapped: start and size.
        self._spaces: list[tuple[int, int]] = []
        self._stubs: list[Stub] = []  # in the order of their addresses
        self._breakpoints: dict[int, int] = {}
        # Where the instructions went that a jump has taken the place of.
        self._moved: dict[int, int] = {}
        # Threads that were given an area; they may have ended since.
        self._areas: dict[int, int] = {}
        if process.registers().gs_base:
            use_stubs = False  # a program that needs it itself
        if use_stubs:
            for thread in process.threads.standing:
                self._give_area(thread)
            process.threads.on_birth = self._give_area
            process.before_signal = self._leave_record
        ordered = sorted(enumerate(watched), key=lambda pair: pair[1].address)
        for module, group in groupby(ordered, key=lambda pair: number_of(pair[1].address)):
            self._patch(module, list(group), use_stubs, deadline)
        self._stubs.sort()

    def _map(self, place: int, size: int, protection: int) -> None:
        inject(self.subject, "mmap", place, size, protection, linux.MAP_PRIVATE_FIXED_ANONYMOUS, linux.NO_FILE, 0)

    def _give_area(self, thread: int) -> None:
        area = AREAS + AREA_DISTANCE * len(self._areas)
        with self.subject.selected(thread):
            self._map(area, AREA_SIZE, linux.PROT_READ_WRITE)
            registers = self.subject.registers()
            registers.gs_base = area
            self.subject.set_registers(registers)
        self._areas[thread] = area
        self._set_cursor(thread, area + linux.PAGE)

    def _set_cursor(self, thread: int, to: int) -> None:
        self.subject.write(self._areas[thread] + CURSOR, WORD.pack(to))

    def _map_code(self, module: int, size: int) -> int | None:
        """Memory for stubs that jumps from a module reach; None where all of it is taken."""
        place = find_room(self._load_map, module, size, lambda place: self._map(place, size, linux.PROT_ALL))
        if place is not None:
            self._spaces.append((place, size))
        return place

    def _patch(self, module: int, group: Sequence[tuple[int, Watched]], use_stubs: bool, deadline: float) -> None:
        """Instructions of one module, in the order of their addresses."""
        subject, blob = self.subject, bytearray()
        place = self._map_code(module, -(-len(group) * STUB_BYTES // linux.PAGE) * linux.PAGE) if use_stubs else None
        for foothold in find_footholds(subject, module, group, self._rows, deadline):
            number, watched, address = foothold.number, foothold.watched, foothold.address
            instructions = foothold.instructions
            if place is not None and instructions is not None:
                at = place + len(blob)
                stub, head = make_stub(number, watched.is_entry, instructions, at)
                self._moved[address] = at + head
                self._stubs.append(Stub(at, at + head, address))
                blob += stub.ljust(-(-len(stub) // 16) * 16, b"\xcc")
                patch = make_jump(address, at, sum(i.len for i in instructions))
            else:
                patch = linux.INT3
                self._breakpoints[address] = number
            self._originals[address] = foothold.code[: len(patch)]
            self._patches[address] = patch
            subject.write(address, patch)
        if place is not None:
            subject.write(place, bytes(blob))

    def _keep(self, records: bytes) -> None:
        self.pieces.append(records)
        self.count += len(records) // RECORD_SIZE

    def _drain(self) -> None:
        if not self._areas:
            return
        (cursor,) = WORD.unpack(self.subject.read(self._areas[self.subject.pid] + CURSOR, 8))
        if cursor > self._begin:
            self._keep(self.subject.read(self._begin, cursor - self._begin))

    def _rewind(self, limit: int) -> int:
        """Let the buffer begin so that it is full after as many records as are still wanted."""
        wanted = limit - self.count
        self._begin = GUARD - RECORD_SIZE * max(1, min(CAPACITY, wanted))
        if self._areas:
            self._set_cursor(self.subject.pid, self._begin)
        return self._begin

    def run(self, until: Stop | None, limit: int, deadline: float) -> bool:
        """True: up to the stop, or to the end of the run. False: cut off by limit or time."""
        subject, sign = self.subject, 0
        left = until.visit if until is not None else 0
        halt = self._load_map.to_run(until.address) if until is not None else 0
        if until is not None:
            self._break_at(halt)
        # The last records are read at the exit; children get their code back.
        subject.threads.set_options(OPTIONS | linux.TRACE_EXIT | TRACE_CHILDREN)
        subject.threads.take_turns()
        self._rewind(limit)
        self._step_off()
        while True:
            subject.resume(sign)
            status = subject.wait(deadline)
            if status is None:
                subject.halt()
                self._drain()
                return False
            if not os.WIFSTOPPED(status):
                return True
            if status >> 16 == linux.EVENT_EXIT:
                self._drain()
                if not subject.has_other_threads():
                    return True
                self._rewind(limit)
            if status >> 16 == linux.EVENT_EXEC:
                # The records since the last look are gone with the program's memory.
                self.is_lossy = bool(self._moved)
                return True
            sign = 0 if status >> 16 else os.WSTOPSIG(status)
            registers = subject.registers()
            if sign == signal.SIGSEGV and self._find_stub(registers.rip) is not None:
                if subject.thread != subject.pid:
                    registers.r11 = self._areas[subject.thread] + linux.PAGE
                else:
                    self._drain()
                    if self.count >= limit:
                        return False
                    registers.r11 = self._rewind(limit)
                subject.set_registers(registers)  # and the faulting instruction is tried again
                sign = 0
            elif subject.thread != subject.pid:
                self._leave_record(subject.thread)
            elif sign == signal.SIGTRAP and registers.rip - 1 in self._breakpoints:
                sign = 0
                self._drain()
                address = registers.rip - 1
                if address == halt:
                    left -= 1
                    if left == 0:
                        return True
                if self.count < limit:
                    self._record(address)
                if self.count >= limit:
                    return False
                self._rewind(limit)
            elif sign:
                self._leave_record(subject.pid)

    def _leave_record(self, thread: int) -> None:
        """A handler of a signal would write records of its own in the same place. So the thread goes back, unless the
        record is complete."""
        subject = self.subject
        registers = subject.registers_of(thread)
        stub = self._find_stub(registers.rip)
        if stub is None:
            return
        is_complete = registers.rip >= stub.head_end - RESTORE_SIZE
        registers.rip = stub.head_end if is_complete else stub.source
        (registers.r11,) = WORD.unpack(subject.read(self._areas[thread] + SAVED_R11, 8))
        with subject.selected(thread):
            subject.set_registers(registers)

    def _find_stub(self, address: int) -> Stub | None:
        """The one amid whose record a thread stands there."""
        index = bisect_right(self._stubs, address, key=attrgetter("start")) - 1
        stub = self._stubs[index] if index >= 0 else None
        return stub if stub is not None and stub.start < address < stub.head_end else None

    def stop_before(self, visit: int, deadline: float) -> None:
        """Stop before the visit-th execution of the only watched instruction, with the code as it was."""
        subject = self.subject
        ended = visit > 1 and self.run(None, visit - 1, deadline)
        if ended or self.count < visit - 1:
            raise NotReached(None)
        # Then it faulted at the record of this very execution.
        stands_there = self._find_stub(subject.registers().rip) is not None
        self.remove()
        if not stands_there:
            subject.run_to([Stop(self._watched[0].address, 1)], deadline)

    def remove(self) -> None:
        """Give the program its code and its address space back."""
        subject = self.subject
        for address, original in self._originals.items():
            subject.write(address, original)
        self._originals.clear()
        self._patches.clear()
        if not self._areas:
            return
        subject.threads.on_birth = subject.before_signal = None
        for thread in subject.threads.standing:
            self._leave_record(thread)
            self._leave_stub(thread)
        for place, size in (*self._spaces, *((area, AREA_SIZE) for area in self._areas.values())):
            inject(subject, "munmap", place, size)

    def _leave_stub(self, thread: int) -> None:
        with self.subject.selected(thread):
            while any(place <= self.subject.registers().rip < place + size for place, size in self._spaces):
                self.subject.step()
            registers = self.subject.registers()
            registers.gs_base = 0
            self.subject.set_registers(registers)

    def _break_at(self, address: int) -> None:
        """A breakpoint where execution must stop, in the place of a stub, if there was one."""
        if address in self._breakpoints:
            return
        wanted = self._load_map.to_file(address)
        number = next((n for n, w in enumerate(self._watched) if w.address == wanted), -1)
        self._moved.pop(address, None)
        if address in self._originals:
            self.subject.write(address, self._originals[address])
        else:
            self._originals[address] = self.subject.read(address, 1)
        self._breakpoints[address] = number
        self._patches[address] = linux.INT3
        self.subject.write(address, linux.INT3)

    def _step_off(self) -> None:
        """The instruction we stand before was counted when we came here."""
        address = self.subject.registers().rip
        if address in self._breakpoints:
            self.subject.step_over(address)
        elif address in self._moved:
            self.subject.jump(self._moved[address])

    def _record(self, address: int) -> None:
        """What a stub would have written; then over the breakpoint."""
        subject = self.subject
        subject.jump(address)
        number = self._breakpoints[address]
        if number >= 0:
            back, sp = 0, subject.registers().rsp
            if self._watched[number].is_entry:
                (back,) = WORD.unpack(subject.read(sp, 8))
            self._keep(RECORD.pack(back & LOW_HALF, number, sp))
        subject.step_over(address)


def find_room(load_map: LoadMap, module: int, size: int, map_at: Callable[[int], None]) -> int | None:
    """Where something for stubs could be mapped, from which jumps reach a module and back."""
    lowest = load_map.modules[module].start
    place = lowest - size - linux.PAGE if module == 0 else lowest - LIBRARY_DISTANCE - size
    for _ in range(PLACES_TRIED):
        with contextlib.suppress(OSError):
            map_at(max(place, FAR_PLACE))
            return max(place, FAR_PLACE)
        place -= size
    return None


class Marks:
    """Of instructions in the program itself; those of libraries, and where a jump does not fit, are breakpoints."""

    def __init__(
        self, process: Tracee, watched: Sequence[Watched], rows: Collection[int], deadline: float = math.inf
    ) -> None:
        """`process` stands at its start, as all runs will; `rows` and `deadline` are those of footholds."""
        self.load_map = process.landmarks.load_map
        own = sorted((w for w in watched if not number_of(w.address)), key=lambda w: w.address)
        self._marks_size, stubs_size = round_up(len(own)), round_up(len(own) * STUB_BYTES)
        self._size = self._marks_size + stubs_size
        self._file = os.memfd_create("causechain-marks")
        os.ftruncate(self._file, self._size)
        self._place = find_room(self.load_map, 0, self._size, partial(self._map, process))
        # By number; and the others.
        self._marked: dict[int, int] = {}
        self._others = [w.address for w in watched]
        self._originals: dict[int, bytes] = {}
        self._patches: dict[int, bytes] = {}
        # Of whole functions, with all patches: few writes cost less than many.
        self._codes: dict[int, bytearray] = {}
        if self._place is not None:
            try:
                self._make_stubs(process, list(enumerate(own)), rows, self._place, deadline)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        os.close(self._file)

    def _map(self, process: Tracee, place: int) -> None:
        descriptor = inject(process, "open", f"/proc/{os.getpid()}/fd/{self._file}", os.O_RDWR, 0)
        try:
            inject(process, "mmap", place, self._size, linux.PROT_ALL, linux.MAP_SHARED_FIXED, descriptor, 0)
        finally:
            inject(process, "close", descriptor)

    def _make_stubs(
        self,
        process: Tracee,
        own: Sequence[tuple[int, Watched]],
        rows: Collection[int],
        place: int,
        deadline: float,
    ) -> None:
        shift, blob = self.load_map.shift(0), bytearray()
        for foothold in find_footholds(process, 0, own, rows, deadline):
            if foothold.instructions is None:
                continue
            at, number = place + self._marks_size + len(blob), foothold.number
            blob += make_marking_stub(place + number, foothold.instructions, at)
            address, watched = foothold.address, foothold.watched
            jump = make_jump(address, at, sum(i.len for i in foothold.instructions))
            self._originals[address], self._patches[address] = foothold.code[: len(jump)], jump
            begin, end = shift + watched.function, shift + watched.end
            code = self._codes.setdefault(begin, bytearray(process.read(begin, end - begin)))
            code[address - begin : address - begin + len(jump)] = jump
            self._marked[number] = watched.address
        os.pwrite(self._file, blob, self._marks_size)
        marked = set(self._marked.values())
        self._others = [address for address in self._others if address not in marked]

    def cover(self, process: Tracee, deadline: float) -> frozenset[int]:
        """The addresses that are executed up to the end of the run or the deadline; `process` stands at its start. An
        OSError where it cannot be told in this way."""
        os.pwrite(self._file, bytes(self._marks_size), 0)
        if self._place is not None:
            self._map(process, self._place)
            process.originals.update(self._originals)
            process.patches.update(self._patches)
            for begin, code in self._codes.items():
                process.write(begin, bytes(code))
        seen = watch(process, self._others, 1, deadline)
        marks = os.pread(self._file, self._marks_size, 0)
        return frozenset(seen) | {address for number, address in self._marked.items() if marks[number]}


def round_up(size: int) -> int:
    return -(-size // linux.PAGE) * linux.PAGE
