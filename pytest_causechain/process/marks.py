"""Tells which instructions a run executes, at the program's own speed: each jumps to a stub that sets a byte.

The stubs are made once and serve all runs in which the program lies at the same place: they and their bytes are in a
file in memory that each run maps, so that what a run has marked can be read when it is gone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence

from pytest_causechain.model.load_map import number_of
from pytest_causechain.process.footholds import Watched, find_footholds
from pytest_causechain.process.injection import inject
from pytest_causechain.process.linux import MAP_SHARED_FIXED, PAGE, PROT_ALL
from pytest_causechain.process.stubs import make_jump, make_marking_stub
from pytest_causechain.process.tracee import Tracee
from pytest_causechain.process.tracer import STUB_BYTES, find_places
from pytest_causechain.process.watching import watch


class Marks:
    """Of instructions in the program itself; those of libraries, and where a jump does not fit, are breakpoints."""

    def __init__(self, process: Tracee, watched: Sequence[Watched], rows: Collection[int]) -> None:
        """`process` stands at its start, as all runs will; `rows` are as for footholds."""
        self.load_map = process.landmarks.load_map
        own = sorted((w for w in watched if not number_of(w.address)), key=lambda w: w.address)
        self._marks_size, stubs_size = round_up(len(own)), round_up(len(own) * STUB_BYTES)
        self._size = self._marks_size + stubs_size
        self._file = os.memfd_create("causechain-marks")
        self._place = self._find_place(process)
        # By number; and the others.
        self._marked: dict[int, int] = {}
        self._others = [w.address for w in watched]
        self._originals: dict[int, bytes] = {}
        self._patches: dict[int, bytes] = {}
        # Of whole functions, with all patches: few writes cost less than many.
        self._codes: dict[int, bytearray] = {}
        if self._place is not None:
            self._make_stubs(process, list(enumerate(own)), rows, self._place)

    def close(self) -> None:
        os.close(self._file)

    def _find_place(self, process: Tracee) -> int | None:
        """None where nothing can be mapped."""
        os.ftruncate(self._file, self._size)
        for place in find_places(self.load_map, 0, self._size):
            with contextlib.suppress(OSError):
                self._map(process, place)
                return place
        return None

    def _map(self, process: Tracee, place: int) -> None:
        descriptor = inject(process, "open", f"/proc/{os.getpid()}/fd/{self._file}", os.O_RDWR, 0)
        try:
            inject(process, "mmap", place, self._size, PROT_ALL, MAP_SHARED_FIXED, descriptor, 0)
        finally:
            inject(process, "close", descriptor)

    def _make_stubs(
        self, process: Tracee, own: Sequence[tuple[int, Watched]], rows: Collection[int], place: int
    ) -> None:
        shift, blob = self.load_map.shift(0), bytearray()
        for foothold in find_footholds(process, 0, own, rows):
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
    return -(-size // PAGE) * PAGE
