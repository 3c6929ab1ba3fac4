"""Looks at a run that stands still: its memory, registers, files and frames.

gdb tells what the debug information says of a copy that is thrown away afterwards."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal

from pytest_causechain.debugger.debugger import Chained, Debugger
from pytest_causechain.debugger.gdb import GdbFailure
from pytest_causechain.debugger.visit import (
    REGISTERS,
    Region,
    Visit,
    VisitedFrame,
    find_modules,
    make_frames,
    make_registers,
)
from pytest_causechain.kernel.linux import PAGE, PR_SET_PTRACER
from pytest_causechain.kernel.processes import (
    Mapping,
    argument_start,
    read_directory,
    read_mappings,
    read_umask,
    skip_unused_stack,
)
from pytest_causechain.lab.laboratory import Side
from pytest_causechain.lab.starts import Starts, apply
from pytest_causechain.model.alteration import NOTHING, Transfer
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Frame
from pytest_causechain.sandbox.files import find_environment, read_files
from pytest_causechain.sandbox.subject import Subject, is_ours
from pytest_causechain.states.memory import HEADER, measure_mapped_chunk
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import NotReached, Tracee, inject

# What a state may weigh; a larger one is cut off here, and that is told.
MEMORY_LIMIT = 256 << 20
# Sanitizers reserve such mappings for their own books; of a program's own it is told that they were left out.
ANONYMOUS_LIMIT = 64 << 20
RED_ZONE = 128
KINDS: dict[str, Literal["anonymous", "heap", "stack"]] = {"": "anonymous", "[heap]": "heap", "[stack]": "stack"}
# A deeper recursion than this is left to gdb.
FRAMES_LIMIT = 10_000


class Captures:
    """Of the runs that `starts` brings to stops."""

    def __init__(self, starts: Starts, debugger: Debugger) -> None:
        self._starts, self._debugger, self._program = starts, debugger, debugger.program

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        deadline = self._starts.begin()
        try:
            with self._starts.reach(side, stops, deadline, is_returned_to(side)) as subject:
                apply(subject, transfer)
                self._starts.run_to(subject, then, deadline)
                return self._capture(subject)
        except (NotReached, ProcessGone):
            return None

    def see(self, process: Tracee) -> tuple[Frame, ...]:
        """The stack, in a process that ends by it. The rbp chain misses the caller of a library function without frame
        pointers; gdb does not."""
        try:
            seen = self._look(process, {"backtrace": True})
        except (OSError, GdbFailure):
            self._debugger.gdb.command("-causechain-sync")  # a dead gdb is another matter
            return ()
        return tuple(Frame(f["function"], f["file"], f["line"]) for f in seen["backtrace"])

    def innermost_frame(self, side: Side, stops: Sequence[Stop], subject: Subject) -> VisitedFrame | None:
        """Of `subject`, which stands at the stops. gdb, which ends what it looks at, is shown another copy, once for
        each function."""
        chain, sp = self._chain(subject), subject.registers().rsp
        layouts = self._debugger.layouts
        frames = layouts.frames(chain, sp)
        if frames is None and layouts.unknown(chain, subject.landmarks.load_map):
            with self._starts.reach(side, stops, self._starts.begin()) as other:
                frames = self._ask_gdb(other, chain)
        return frames[0] if frames else None

    def _capture(self, subject: Subject) -> Visit:
        chain = self._chain(subject)
        registers = subject.registers()
        sp = registers.rsp
        mappings = [mapping for mapping in read_mappings(subject.pid) if not is_ours(mapping.start)]
        regions, unreadable = self._read_memory(subject, mappings, sp)
        regions += (make_registers({name: getattr(registers, name) for name in REGISTERS}),)
        modules = find_modules((m.start, m.end, m.name) for m in mappings)
        # Before gdb looks, which ends it.
        arguments, pid = argument_start(subject.pid), subject.pid
        greater = (read_files(subject), read_directory(pid), read_umask(pid), find_environment(subject))
        self._starts.require_time()
        frames = self._debugger.layouts.frames(chain, sp)
        if frames is None:
            frames = self._ask_gdb(subject, chain)
        load_map, types = subject.landmarks.load_map, self._program.types
        memory = (arguments, modules, registers.fs_base, unreadable)
        return Visit(load_map, frames, regions, types, *memory, *greater)

    def _chain(self, process: Tracee) -> list[Chained]:
        """The frames up to main, as the frame pointers tell."""
        chain = []
        for number, (pc, rbp) in enumerate(islice(process.frames(), FRAMES_LIMIT)):
            address = process.landmarks.load_map.to_file(pc)
            chain.append(Chained(address, rbp))
            function = self._program.function_at(address - (number > 0))
            if function is None or function.name == "main":
                break
        return chain

    def _ask_gdb(self, process: Tracee, chain: list[Chained]) -> tuple[VisitedFrame, ...]:
        types, layouts, load_map = self._program.types, self._debugger.layouts, process.landmarks.load_map
        wanted = layouts.unknown(chain, load_map)
        seen = self._look(process, {"types_known": len(types), "backtrace": False, "wanted": wanted})
        self._debugger.learn_types(seen["types"])
        layouts.learn(seen["layouts"], chain, load_map)
        return make_frames(seen["frames"], load_map)

    def _read_memory(self, process: Tracee, mappings: list[Mapping], sp: int) -> tuple[tuple[Region, ...], int]:
        """All writable memory of the program itself and its read-only data; the stack from its top on. And the number
        of bytes that could not be read of it."""
        regions: list[Region] = []
        left, unreadable = MEMORY_LIMIT, 0
        # Without the stack nothing leads to the rest.
        for mapping in sorted(skip_unused_stack(process.pid, mappings), key=lambda mapping: mapping.name != "[stack]"):
            self._starts.require_time()
            own = mapping.name in self._program.modules
            if "r" not in mapping.permissions or not (own or mapping.name in KINDS):
                continue
            if not mapping.name and mapping.end - mapping.start > ANONYMOUS_LIMIT:
                unreadable += measure_left_out(process, mapping)
                continue
            start = max(mapping.start, (sp - RED_ZONE) & -PAGE) if mapping.name == "[stack]" else mapping.start
            try:
                data = process.read(start, min(mapping.end - start, left))
            except OSError:
                data = b""
            unreadable += mapping.end - start - len(data)
            if data:
                regions.append(Region(start, data, "image" if own else KINDS[mapping.name]))
                left -= len(data)
        return tuple(regions), unreadable

    def _look(self, process: Tracee, request: dict[str, Any]) -> dict[str, Any]:
        """Hand a stopped process over to gdb, which ends it when it has seen enough."""
        gdb = self._debugger.gdb
        with contextlib.suppress(OSError):  # where Yama allows attaching to descendants only
            inject(process, "prctl", PR_SET_PTRACER, gdb.pid, 0, 0, 0)
        process.threads.release()
        libraries = self._program.place_libraries(process.landmarks.load_map)
        return gdb.ask({"job": "look", "pid": process.pid, "thread": process.thread, "libraries": libraries, **request})


def is_returned_to(side: Side) -> bool:
    """Whether a moment that is looked at will be again: experiments are made in the passing run."""
    return side == "passing"


def measure_left_out(process: Tracee, mapping: Mapping) -> int:
    """The bytes of a large mapping that the program itself asked for."""
    try:
        return measure_mapped_chunk(process.read(mapping.start, HEADER))
    except (OSError, struct.error):
        return 0
