"""Records executions of chosen instructions at nearly the program's own speed.

Each becomes a jump to a stub that writes a record; where a jump does not fit, a breakpoint does the same, slowly.
"""

from __future__ import annotations

import os
import signal
import struct
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_causechain.model.moment import Stop
from pytest_causechain.process.linux import (
    EVENT_EXEC,
    EVENT_EXIT,
    INT3,
    MAP_PRIVATE_FIXED_ANONYMOUS,
    PAGE,
    PROT_ALL,
    PROT_READ_WRITE,
    SINGLESTEP,
    TRACE_EXIT,
)
from pytest_causechain.process.maps import read_mappings
from pytest_causechain.process.stubs import (
    RECORD_SIZE,
    Slots,
    branch_targets,
    make_jump,
    make_stub,
    overwritten,
)
from pytest_causechain.process.subject import NO_FILE
from pytest_causechain.process.tracee import OPTIONS, TRACE_CHILDREN, NotReached, Tracee

# Low half of the return address, number of the watched address, stack pointer.
RECORD = struct.Struct("<IIQ")
LOW_HALF = 0xFFFFFFFF
WORD = struct.Struct("<Q")
BUFFER = 0x2100_0000_0000
# One MiB stays in the processor's cache, which is faster than fewer interruptions.
CAPACITY = 1 << 16
GUARD = BUFFER + CAPACITY * RECORD_SIZE
# Generous: a stub is some 60 bytes of record and the moved instructions.
STUB_BYTES = 128
# Where a program that is not relocated leaves no room below it.
FAR_PLACE = 0x1000_0000


@dataclass(frozen=True, slots=True)
class Watched:
    """An instruction to record, and what must be known to put a jump there: the code of its function from there
    on, and where jumps may lead in it. Addresses of the file."""

    address: int
    is_entry: bool
    function: int
    end: int


class Tracer:
    """For one run: patches the program, runs it, gives the records."""

    def __init__(
        self, process: Tracee, path: str, watched: Sequence[Watched], rows: Collection[int], use_stubs: bool = True
    ) -> None:
        """`rows` are all addresses at which a line begins: a jump table may lead to any of them."""
        self.subject = process
        self._watched = watched
        self._rows = rows
        # In pieces, since there may be many; how many records they are.
        self.pieces: list[bytes] = []
        self.count = 0
        # Whether the program became another one before all records were read.
        self.is_lossy = False
        self._originals, self._patches = process.originals, process.patches
        # Where each stub begins, and where its part that records ends.
        self._stubs: list[int] = []
        self._heads: list[int] = []
        # Signals that came amid a record: a handler would write records of its own in the same place.
        self._held: list[int] = []
        self._breakpoints: dict[int, int] = {}
        # Where the instructions went that a jump has taken the place of.
        self._moved: dict[int, int] = {}
        self._map_memory(path, len(watched))
        self._patch(use_stubs)

    def _map_memory(self, path: str, count: int) -> None:
        subject = self.subject
        self._space = -(-(count * STUB_BYTES + PAGE) // PAGE) * PAGE
        lowest = min(m.start for m in read_mappings(subject.pid) if m.name == path)
        place = lowest - self._space - PAGE
        if place < FAR_PLACE:
            place = FAR_PLACE
        subject.syscall("mmap", place, self._space, PROT_ALL, MAP_PRIVATE_FIXED_ANONYMOUS, NO_FILE, 0)
        subject.syscall("mmap", BUFFER, GUARD - BUFFER, PROT_READ_WRITE, MAP_PRIVATE_FIXED_ANONYMOUS, NO_FILE, 0)
        self._slots = Slots(place, place + 8)
        # Not on the page of the slots: processors take writes near code for self-modification.
        self._code = place + PAGE

    def _patch(self, use_stubs: bool) -> None:
        subject, blob = self.subject, bytearray()
        targets: dict[int, set[int]] = {}
        starts = {subject.base + w.address for w in self._watched}
        for number, watched in sorted(enumerate(self._watched), key=lambda pair: pair[1].address):
            address = subject.base + watched.address
            begin = subject.base + watched.function
            if watched.function not in targets:
                # Read before any patch of this function: the addresses are in order.
                code = subject.read(begin, watched.end - watched.function)
                targets[watched.function] = branch_targets(begin, code) if use_stubs else set()
            instructions = None
            if use_stubs:
                # A jump table never leads to where a function's body begins.
                rows = () if watched.is_entry else self._rows
                instructions = overwritten(
                    address,
                    code[address - begin :],
                    partial(is_barrier, targets[watched.function], starts, rows, subject.base),
                )
            at = self._code + len(blob)
            if instructions is not None:
                stub, head = make_stub(number, watched.is_entry, instructions, at, self._slots)
                self._moved[address] = at + head
                self._stubs.append(at)
                self._heads.append(at + head)
                blob += stub.ljust(-(-len(stub) // 16) * 16, b"\xcc")
                patch = make_jump(address, at, sum(i.len for i in instructions))
            else:
                patch = INT3
                self._breakpoints[address] = number
            self._originals[address] = code[address - begin : address - begin + len(patch)]
            self._patches[address] = patch
            subject.write(address, patch)
        subject.write(self._code, bytes(blob))

    def _keep(self, records: bytes) -> None:
        self.pieces.append(records)
        self.count += len(records) // RECORD_SIZE

    def _drain(self) -> None:
        (cursor,) = WORD.unpack(self.subject.read(self._slots.cursor, 8))
        if cursor > self._begin:
            self._keep(self.subject.read(self._begin, cursor - self._begin))

    def _rewind(self, limit: int) -> int:
        """Let the buffer begin so that it is full after as many records as are still wanted."""
        wanted = limit - self.count
        self._begin = GUARD - RECORD_SIZE * max(1, min(CAPACITY, wanted))
        self.subject.write(self._slots.cursor, WORD.pack(self._begin))
        return self._begin

    def run(self, until: Stop | None, limit: int, deadline: float) -> bool:
        """True: up to the stop, or to the end of the run. False: cut off by limit or time."""
        subject, sign = self.subject, 0
        left = until.visit if until is not None else 0
        halt = subject.base + until.address if until is not None else 0
        if until is not None:
            self._break_at(halt)
        # The last records are read at the exit; children get their code back.
        subject.threads.set_options(OPTIONS | TRACE_EXIT | TRACE_CHILDREN)
        self._rewind(limit)
        self._step_off()
        while True:
            self._resume(sign)
            status = subject.wait(deadline)
            if status is None:
                subject.halt()
                self._drain()
                return False
            if not os.WIFSTOPPED(status):
                return True
            if status >> 16 == EVENT_EXIT:
                self._drain()
                return True
            if status >> 16 == EVENT_EXEC:
                # The records since the last look are gone with the program's memory.
                self.is_lossy = bool(self._moved)
                return True
            sign = 0 if status >> 16 else os.WSTOPSIG(status)
            registers = subject.registers()
            if sign == signal.SIGSEGV and self._is_amid_record(registers.rip):
                self._drain()
                if self.count >= limit:
                    return False
                registers.r11 = self._rewind(limit)
                subject.set_registers(registers)  # and the faulting instruction is tried again
                sign = 0
            elif sign == signal.SIGTRAP and registers.rip - 1 in self._breakpoints:
                sign = 0
                self._drain()
                address = registers.rip - 1
                if address == halt:
                    left -= 1
                    if left == 0:
                        return True
                self._record(address)
                if self.count >= limit:
                    return False
                self._rewind(limit)
            elif self._held and sign == signal.SIGTRAP:
                sign = 0  # a step of ours
            elif sign and self._is_amid_record(registers.rip):
                self._held.append(sign)
                sign = 0

    def _resume(self, sign: int) -> None:
        """Signals that are held back are handed over once the record is complete."""
        subject = self.subject
        if self._held and self._is_amid_record(subject.registers().rip):
            subject.threads.go(subject.pid, request=SINGLESTEP)
            return
        for held in self._held:
            os.kill(subject.pid, held)
        self._held.clear()
        subject.resume(sign)

    def _is_amid_record(self, address: int) -> bool:
        index = bisect_right(self._stubs, address) - 1
        return index >= 0 and self._stubs[index] < address < self._heads[index]

    def stop_before(self, visit: int, deadline: float) -> None:
        """Stop before the visit-th execution of the only watched instruction, with the code as it was."""
        subject = self.subject
        ended = visit > 1 and self.run(None, visit - 1, deadline)
        if ended or self.count < visit - 1:
            raise NotReached(None)
        registers = subject.registers()
        in_stub = self._is_amid_record(registers.rip)
        if in_stub:  # it faulted at the record of this very execution
            registers.rip = subject.base + self._watched[0].address
            (registers.r11,) = WORD.unpack(subject.read(self._slots.saved_r11, 8))
            subject.set_registers(registers)
        self.remove()
        subject.deferred += self._held
        if not in_stub:
            subject.run_to([Stop(self._watched[0].address, 1)], deadline)

    def remove(self) -> None:
        """Give the program its code and its address space back."""
        for address, original in self._originals.items():
            self.subject.write(address, original)
        self._originals.clear()
        self._patches.clear()
        self.subject.syscall("munmap", self._slots.cursor, self._space)
        self.subject.syscall("munmap", BUFFER, GUARD - BUFFER)

    def _break_at(self, address: int) -> None:
        """A breakpoint where execution must stop, in the place of a stub, if there was one."""
        if address in self._breakpoints:
            return
        number = next((n for n, w in enumerate(self._watched) if self.subject.base + w.address == address), -1)
        self._moved.pop(address, None)
        if address in self._originals:
            self.subject.write(address, self._originals[address])
        else:
            self._originals[address] = self.subject.read(address, 1)
        self._breakpoints[address] = number
        self._patches[address] = INT3
        self.subject.write(address, INT3)

    def _step_off(self) -> None:
        """The instruction we stand before was counted when we came here."""
        address = self.subject.registers().rip
        if address in self._breakpoints:
            self._pass(address)
        elif address in self._moved:
            registers = self.subject.registers()
            registers.rip = self._moved[address]
            self.subject.set_registers(registers)

    def _pass(self, address: int) -> None:
        self.subject.write(address, self._originals[address][:1])
        self.subject.step()
        self.subject.write(address, INT3)

    def _record(self, address: int) -> None:
        """What a stub would have written; then over the breakpoint."""
        subject = self.subject
        registers = subject.registers()
        registers.rip = address
        subject.set_registers(registers)
        number = self._breakpoints[address]
        if number >= 0:
            back = 0
            if self._watched[number].is_entry:
                (back,) = WORD.unpack(subject.read(registers.rsp, 8))
            self._keep(RECORD.pack(back & LOW_HALF, number, registers.rsp))
        self._pass(address)


def is_barrier(targets: set[int], starts: set[int], rows: Collection[int], base: int, address: int) -> bool:
    return address in targets or address in starts or address - base in rows
