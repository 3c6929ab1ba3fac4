"""Experiments in copies of a program stopped at the moment; where it cannot be copied, in fresh runs.

gdb only visits: it tells what the debug information says of a copy that is thrown away afterwards."""

from __future__ import annotations

import contextlib
import signal
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pytest_causechain.debugger.gdb import Gdb, GdbFailure, addresses_vary
from pytest_causechain.debugger.layouts import Chained, FrameLayouts
from pytest_causechain.debugger.program import ProgramMap, describe_program
from pytest_causechain.debugger.visit import (
    REGISTERS,
    Region,
    Visit,
    VisitedFrame,
    find_modules,
    find_register,
    make_frames,
    make_registers,
    merge_register,
)
from pytest_causechain.lab.laboratory import FIRST_RUN_SECONDS, Side, Trace
from pytest_causechain.model.command import Command
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Frame, Observation
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.process.closing import Closing
from pytest_causechain.process.copies import CannotCopy, Template, replace_stdin
from pytest_causechain.process.elf import refers_to
from pytest_causechain.process.linux import DETACH, PAGE, PR_SET_PTRACER, is_supported, ptrace
from pytest_causechain.process.maps import Mapping, argument_start, read_mappings, read_position
from pytest_causechain.process.remains import await_writers
from pytest_causechain.process.subject import OUTPUT, CannotStart, Subject, is_ours
from pytest_causechain.process.tracee import WORD, CrashVisitor, NotReached, ProcessGone, Tracee
from pytest_causechain.process.tracer import Tracer, Watched

# Each is a stopped process; a search returns to the last few moments again and again.
TEMPLATES_KEPT = 8
# What a state may weigh; a larger one is cut off here and the self-check tells.
MEMORY_LIMIT = 256 << 20
# No program fills such a mapping; sanitizers reserve them for their own books.
ANONYMOUS_LIMIT = 64 << 20
RED_ZONE = 128
# struct _IO_FILE of glibc: int flags, then the read pointer and the end of what was read.
FLAGS, READ_POINTER, READ_END = struct.Struct("<i"), 8, 16
END_SEEN = 0x10
OUTPUT_LINK = Path(f"/memfd:{OUTPUT} (deleted)")
KINDS: dict[str, Literal["anonymous", "heap", "stack"]] = {"": "anonymous", "[heap]": "heap", "[stack]": "stack"}
MAKING_THREADS = ("pthread_create", "thrd_create")
# Of a program that might make threads: most do so soon.
THREADS_SECONDS = 5.0
# A breakpoint costs some 0.05 ms each time it is passed, preparing a stub about as much as twenty of these.
MANY_VISITS = 50
# A deeper recursion than this is left to gdb.
FRAMES_LIMIT = 10_000

# The process to alter and resume, the program it is (a copy of), and what gives its outputs at the end.
_Reached = tuple[Tracee, Subject, Callable[[], tuple[bytes, bytes]]]


class PtraceLab(Closing):
    """Use as a context manager, in a process with a single thread: SIGCHLD stays blocked there."""

    # The stubs record a million in a tenth of a second; what is made of the events afterwards takes longer.
    recordable = 300_000

    def __init__(self, passing: Command, failing: Command, deadline: float, use_copies: bool = True) -> None:
        self.name = "fork" if use_copies else "rerun"
        self.deadline = deadline
        self.run_seconds = FIRST_RUN_SECONDS
        self._commands: dict[Side, Command] = {"passing": passing, "failing": failing}
        self._templates: OrderedDict[tuple[Side, tuple[Stop, ...]], Template] = OrderedDict()
        self._backtraces: dict[tuple[int, ...], tuple[Frame, ...]] = {}
        self._outputs: dict[Side, bytes] = {}
        self._gdb = Gdb(failing.program.path)
        try:
            self.program: ProgramMap = describe_program(self._gdb)
            if find_addresses(failing) != find_addresses(failing):
                raise addresses_vary(failing.program.path)
        except GdbFailure as failure:
            self._gdb.close()
            raise Refusal(f"gdb cannot read {failing.program.path} ({failure}): build it anew with -g.") from None
        except BaseException:
            self._gdb.close()
            raise
        self._layouts = FrameLayouts(self.program)
        self._rows = frozenset(self.program.rows)
        # Only now: gdb would inherit it, and wait for its own children in vain.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})

    def close(self) -> None:
        while self._templates:
            self._templates.popitem()[1].close()
        self._gdb.close()

    # What a Lab does

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        try:
            observation, frames = self._observe(side, stops, transfer, None)
            if observation.ending == "signal" and frames not in self._backtraces:
                # Once for each place to crash at: again, for gdb to see it there.
                with contextlib.suppress(_Seen):
                    self._observe(side, stops, transfer, self._see_crash)
                self._backtraces.setdefault(frames, ())
        except NotReached:
            return self.experiment(side)
        if observation.ending == "signal":
            return replace(observation, backtrace=self._backtraces[frames])
        return observation

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        deadline = self._begin()
        try:
            with self._reached(side, stops, deadline) as (process, subject, _):
                self._apply(process, subject, transfer)
                self._run_to(process, then, deadline)
                return self._capture(process, subject)
        except (NotReached, ProcessGone):
            return None

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

    # Runs

    def _begin(self) -> float:
        now = time.monotonic()
        if now >= self.deadline:
            raise BudgetUsedUp
        return min(self.deadline, now + self.run_seconds)

    @contextlib.contextmanager
    def _subject(self, side: Side) -> Iterator[Subject]:
        subject = Subject(self._commands[side], self.program.relocated)
        try:
            yield subject
        finally:
            subject.kill()

    @contextlib.contextmanager
    def _reached(self, side: Side, stops: Sequence[Stop], deadline: float) -> Iterator[_Reached]:
        """A process that stands at the stops: a copy where that is possible, else the program itself."""
        template = self._template(side, tuple(stops), deadline) if stops and self.name == "fork" else None
        if template is not None:
            copy = template.copy()
            try:
                yield copy, template.subject, template.outputs
            finally:
                copy.kill()
            return
        with self._subject(side) as subject:
            self._run_to(subject, stops, deadline)
            yield subject, subject, subject.outputs

    def _run_to(self, process: Tracee, stops: Sequence[Stop], deadline: float) -> None:
        """By breakpoint; by stub where that would have to be passed often."""
        for stop in stops:
            if stop.visit < MANY_VISITS:
                process.run_to([stop], deadline)
            else:
                tracer = Tracer(process, self.program.path, [self._watch(stop.address)], self._rows)
                tracer.stop_before(stop.visit, deadline)

    def _template(self, side: Side, stops: tuple[Stop, ...], deadline: float) -> Template | None:
        """None when the program cannot be copied at this moment."""
        key = (side, stops)
        if key in self._templates:
            self._templates.move_to_end(key)
            return self._templates[key]
        subject = Subject(self._commands[side], self.program.relocated)
        try:
            self._run_to(subject, stops, deadline)
            self._templates[key] = Template(subject)
        except CannotCopy:
            self.name = "rerun"
            subject.kill()
            return None
        except BaseException:
            subject.kill()
            raise
        if len(self._templates) > TEMPLATES_KEPT:
            self._templates.popitem(last=False)[1].close()
        return self._templates[key]

    def _observe(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer, on_crash: CrashVisitor | None
    ) -> tuple[Observation, tuple[int, ...]]:
        deadline = self._begin()
        with self._reached(side, stops, deadline) as (process, subject, outputs):
            try:
                self._apply(process, subject, transfer)
            except ProcessGone:
                return Observation("timeout", signal.SIGKILL), ()
            end = process.finish(deadline, on_crash)
            frames = tuple(frame - process.base for frame in end.frames)
            backtrace: tuple[Frame, ...] = ()
            if end.kind == "timeout" and end.code == signal.SIGKILL:
                if time.monotonic() >= self.deadline:
                    raise BudgetUsedUp  # it might have ended, given more time
                backtrace = self._see(process)
            else:
                await_writers(process.pid, [OUTPUT_LINK], deadline)
            return Observation(end.kind, end.code, *outputs(), backtrace), frames

    def _natural_output(self, side: Side) -> bytes:
        if side not in self._outputs:
            self._outputs[side] = self.experiment(side).stdout
        return self._outputs[side]

    def _trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None,
        limit: int,
        use_stubs: bool,
    ) -> tuple[Trace, bool]:
        """False: some records are lost, or the program did not run as it does alone; there are programs that look
        at their own code, or jump where no compiler would."""
        deadline = self._begin()
        watched = [self._watch(address) for address in addresses]
        with self._subject(side) as subject:
            try:
                self._run_to(subject, stops, deadline)
            except NotReached:
                return Trace((), (), 0, False), True
            tracer = Tracer(subject, self.program.path, watched, self._rows, use_stubs)
            complete = tracer.run(until, limit, deadline)
            base, output = subject.base, subject.outputs()[0]
        is_whole = complete and until is None
        is_sure = not tracer.is_lossy and (not is_whole or output == self._natural_output(side))
        return Trace(tuple(addresses), tuple(tracer.pieces), base, complete), is_sure

    def _watch(self, address: int) -> Watched:
        function = self.program.function_at(address)
        assert function is not None  # only the program's own code is watched
        return Watched(address, address == function.address, function.address, function.end)

    # Altering and looking

    def _apply(self, process: Tracee, subject: Subject, transfer: Transfer) -> None:
        blocks = []
        for allocation in transfer.allocations:
            block = process.call(subject.library_symbols["malloc"], [allocation.size])
            if not block:
                raise ProcessGone(process.pid)
            process.write(block, allocation.data)
            blocks.append(block)
        writes = list(transfer.writes)
        for reference in transfer.references:
            place = reference.at if reference.holder is None else blocks[reference.holder] + reference.at
            writes.append((place, WORD.pack(blocks[reference.block] + reference.offset)))
        registers = process.registers()
        for address, data in writes:
            if (register := find_register(address)) is not None:
                name, at = register
                setattr(registers, name, merge_register(getattr(registers, name), at, data))
            else:
                process.write(address, data)
        process.set_registers(registers)
        if transfer.stdin is not None and subject.reads_our_stdin(process):
            self._replace_stdin(process, subject, transfer.stdin)

    def _replace_stdin(self, process: Tracee, subject: Subject, rest: bytes) -> None:
        """What was read stays, also for a program that goes back to it; what stdio has read ahead is forgotten."""
        position = read_position(process.pid, 0) or 0
        replace_stdin(process, subject.command.stdin[:position] + rest, position)
        stream = subject.library_symbols.get("_IO_2_1_stdin_")
        if stream is not None:
            process.write(stream + READ_POINTER, process.read(stream + READ_END, 8))
            if rest:
                (flags,) = FLAGS.unpack(process.read(stream, FLAGS.size))
                process.write(stream, FLAGS.pack(flags & ~END_SEEN))

    def _capture(self, process: Tracee, subject: Subject) -> Visit:
        chain = self._chain(process)
        registers = process.registers()
        sp = registers.rsp
        mappings = [mapping for mapping in read_mappings(process.pid) if not is_ours(mapping.start)]
        regions = self._read_memory(process, mappings, sp)
        regions += (make_registers({name: getattr(registers, name) for name in REGISTERS}),)
        modules = find_modules((m.start, m.end, m.name) for m in mappings)
        position, arguments = self._stdin_position(process, subject), argument_start(process.pid)
        frames = self._layouts.frames(chain, sp)
        if frames is None:
            frames = self._ask_gdb(process, chain)
        return Visit(process.base, frames, regions, self.program.types, position, arguments, modules, registers.fs_base)

    def _chain(self, process: Tracee) -> list[Chained]:
        """The frames up to main, as the frame pointers tell."""
        chain = []
        for number, (pc, rbp) in enumerate(islice(process.frames(), FRAMES_LIMIT)):
            chain.append(Chained(pc - process.base, rbp))
            function = self.program.function_at(pc - process.base - (number > 0))
            if function is None or function.name == "main":
                break
        return chain

    def _ask_gdb(self, process: Tracee, chain: list[Chained]) -> tuple[VisitedFrame, ...]:
        types = self.program.types
        request = {"base": process.base, "types_known": len(types), "backtrace": False}
        seen = self._look(process, request | {"wanted": self._layouts.unknown(chain)})
        types.extend(seen["types"])
        self._layouts.learn(seen["layouts"], chain)
        return make_frames(seen["frames"])

    def _read_memory(self, process: Tracee, mappings: list[Mapping], sp: int) -> tuple[Region, ...]:
        """All writable memory of the program itself and its read-only data; the stack from its top on."""
        regions: list[Region] = []
        left = MEMORY_LIMIT
        for mapping in mappings:
            own = mapping.name == self.program.path
            if "r" not in mapping.permissions or not (own or mapping.name in KINDS):
                continue
            if not mapping.name and mapping.end - mapping.start > ANONYMOUS_LIMIT:
                continue
            start = max(mapping.start, (sp - RED_ZONE) & -PAGE) if mapping.name == "[stack]" else mapping.start
            try:
                data = process.read(start, min(mapping.end - start, left))
            except OSError:
                continue
            regions.append(Region(start, data, "image" if own else KINDS[mapping.name]))
            left -= len(data)
        return tuple(regions)

    def _stdin_position(self, process: Tracee, subject: Subject) -> int | None:
        """How far the input has been read: by the kernel's count, less what still waits in stdio's buffer."""
        if not subject.reads_our_stdin(process):
            return None
        position = read_position(process.pid, 0)
        stream = subject.library_symbols.get("_IO_2_1_stdin_")
        if position is None or stream is None:
            return position
        at, end = struct.unpack("<QQ", process.read(stream + READ_POINTER, 16))
        return position - int(end - at)

    def _look(self, process: Tracee, request: dict[str, Any]) -> dict[str, Any]:
        """Hand a stopped process over to gdb, which ends it when it has seen enough."""
        with contextlib.suppress(OSError):  # where Yama allows attaching to descendants only
            process.syscall("prctl", PR_SET_PTRACER, self._gdb.pid, 0, 0, 0)
        ptrace(DETACH, process.pid, 0, signal.SIGSTOP)
        return self._gdb.ask({"job": "look", "pid": process.pid, **request})

    def _see_crash(self, process: Tracee, frames: tuple[int, ...]) -> None:
        self._backtraces[tuple(frame - process.base for frame in frames)] = self._see(process)
        raise _Seen

    def _see(self, process: Tracee) -> tuple[Frame, ...]:
        """The rbp chain misses the caller of a library function without frame pointers; gdb does not."""
        try:
            seen = self._look(process, {"backtrace": True})
        except (OSError, GdbFailure):
            self._gdb.command("-causechain-sync")  # a dead gdb is another matter
            return ()
        return tuple(Frame(f["function"], f["file"], f["line"]) for f in seen["backtrace"])


class _Seen(Exception):
    """A crashed process has been looked at and is gone."""


def find_addresses(command: Command) -> list[tuple[int, str]]:
    """Where the kernel puts the parts of the program; what is written to an address must hold for all its runs."""
    subject = Subject(command, relocated=False)
    try:
        return [(mapping.start, mapping.name) for mapping in read_mappings(subject.pid)]
    finally:
        subject.kill()


def is_suitable(passing: Command, failing: Command, deadline: float) -> bool:
    """Whether both runs can be traced here, and make no threads: stopping all of those is gdb's art."""
    if not is_supported():
        return False
    until = min(deadline, time.monotonic() + THREADS_SECONDS)
    if not refers_to(passing.program.path, MAKING_THREADS):
        until = 0.0  # only whether it can be traced at all
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        return not any(makes_threads(command, until) for command in (passing, failing))
    except (CannotStart, OSError):
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def makes_threads(command: Command, deadline: float) -> bool:
    subject = Subject(command, relocated=False)
    try:
        return subject.makes_threads(deadline)
    finally:
        subject.kill()
