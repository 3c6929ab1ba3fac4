"""Experiments in copies of a program stopped at the moment; where it cannot be copied, in fresh runs.

gdb only visits: it tells what the debug information says of a copy that is thrown away afterwards."""

from __future__ import annotations

import contextlib
import signal
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.gdb import GdbFailure
from pytest_causechain.debugger.layouts import Chained
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
from pytest_causechain.lab.flights import Flight, Job, always, fly
from pytest_causechain.lab.laboratory import Side, Trace
from pytest_causechain.lab.libraries import Libraries, choose_libraries
from pytest_causechain.lab.starting_lab import StartingLab, ending
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Frame, Observation
from pytest_causechain.model.refusal import BudgetUsedUp
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.process.alteration import alter
from pytest_causechain.process.files import find_environment, read_files, replace_file
from pytest_causechain.process.injection import call_function, inject
from pytest_causechain.process.limits import NOTHING_USED, Usage, allow, limit_run
from pytest_causechain.process.linux import PAGE, PR_SET_PTRACER
from pytest_causechain.process.maps import (
    Mapping,
    argument_start,
    read_directory,
    read_mappings,
    read_umask,
    skip_unused_stack,
)
from pytest_causechain.process.processors import roam
from pytest_causechain.process.remains import await_writers
from pytest_causechain.process.stage import Stage
from pytest_causechain.process.subject import OUTPUT, Subject, is_ours, launch
from pytest_causechain.process.threads import ProcessGone
from pytest_causechain.process.tracee import WORD, End, Finish, NotReached, Tracee
from pytest_causechain.process.tracer import Tracer
from pytest_causechain.states.memory import HEADER, measure_mapped_chunk

# What a state may weigh; a larger one is cut off here, and that is told.
MEMORY_LIMIT = 256 << 20
# Sanitizers reserve such mappings for their own books; of a program's own it is told that they were left out.
ANONYMOUS_LIMIT = 64 << 20
RED_ZONE = 128
OUTPUT_LINK = Path(f"/memfd:{OUTPUT} (deleted)")
KINDS: dict[str, Literal["anonymous", "heap", "stack"]] = {"": "anonymous", "[heap]": "heap", "[stack]": "stack"}
# A deeper recursion than this is left to gdb.
FRAMES_LIMIT = 10_000


class PtraceLab(StartingLab):
    """Use as a context manager, in a process with a single thread: SIGCHLD is blocked there until it is closed."""

    def __init__(
        self,
        passing: Command,
        failing: Command,
        deadline: float,
        use_copies: bool = True,
        libraries: Sequence[str] = (),
        cache: Path | None = None,
        stage: Stage | None = None,
    ) -> None:
        super().__init__(passing, failing, deadline, use_copies, stage)
        self._backtraces: dict[tuple[Side, tuple[int, ...]], tuple[Frame, ...]] = {}
        self._outputs: dict[Side, bytes] = {}
        # Whether what was begun without being asked for may still be.
        self.is_wanted: Callable[[], bool] = always
        # By the original runs.
        self._used = NOTHING_USED
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        try:
            found = find_libraries(failing, libraries, deadline) if libraries else Libraries()
            self._debugger = Debugger(failing.program.path, found.paths, cache)
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise
        self.notes = found.notes
        self.program = self._debugger.program
        self._rows = frozenset(self.program.rows)

    def close(self) -> None:
        super().close()
        self._debugger.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def processes(self) -> list[int]:
        return [*self._debugger.processes(), *super().processes()]

    def _forget(self, side: Side) -> None:
        super()._forget(side)
        self._backtraces = {key: frames for key, frames in self._backtraces.items() if key[0] != side}
        self._outputs.pop(side, None)

    # What a Lab does

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        return self._fly(side, [Job(stops, transfer) for transfer in transfers])

    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        jobs = [Job(stops, transfer, is_one_of_many=is_returned_to(side)) for transfer in transfers]
        return self._fly_some(side, jobs, is_speculative=True)

    def _fly(self, side: Side, jobs: Sequence[Job]) -> list[Observation]:
        return [seen for seen in self._fly_some(side, jobs) if seen is not None]

    def _fly_some(self, side: Side, jobs: Sequence[Job], is_speculative: bool = False) -> list[Observation | None]:
        """As many at a time as there are processors."""
        take_off, observe = partial(self._take_off, side), partial(self._observe, side)
        return fly(jobs, self.width, take_off, observe, is_speculative, self.is_wanted)

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        deadline = self._begin()
        try:
            with ending(self._reach(side, stops, deadline, is_returned_to(side))) as subject:
                self._apply(subject, transfer)
                self._run_to(subject, then, deadline)
                return self._capture(subject)
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

    def _take_off(self, side: Side, number: int, job: Job) -> Flight:
        deadline, cpu_limit = self._begin(), self.bounds.cpu or self.run_cpu_seconds
        if job.limits is not None:
            deadline = min(deadline, time.monotonic() + job.limits.seconds)
            cpu_limit = min(cpu_limit, job.limits.cpu_seconds)
        try:
            subject = self._reach(side, job.stops, deadline, job.is_one_of_many)
        except NotReached:
            job = replace(job, stops=(), alteration=NOTHING)
            subject = self._start(side, deadline)
        memory, output, processes = allow(NOTHING_USED if job.is_natural else self._used, self.bounds)
        if job.limits is not None:
            output = min(output, job.limits.output_bytes)
        try:
            self._apply(subject, job.alteration)
            if self.width > 1 and not self._roams:
                roam(subject.pid)  # beside the others
            most = limit_run(subject.pid, memory, output, cpu_limit)
            return Flight(number, job, subject, deadline, cpu_limit, most, processes, Finish(subject))
        except ProcessGone:
            return Flight(number, job, subject, deadline, cpu_limit, 0, processes, None)
        except BaseException:
            subject.kill()
            raise

    def _observe(self, side: Side, flight: Flight, end: End) -> Observation | None:
        """None: it wrote to what it had not for itself, and now would."""
        with ending(flight.subject) as subject:
            if self._is_doubtful(subject):
                return None
            backtrace: tuple[Frame, ...] = ()
            if flight.finish is not None and (end.kind, end.code) == ("timeout", signal.SIGKILL):
                if time.monotonic() >= self.deadline:
                    raise BudgetUsedUp  # it might have ended, given more time
                if flight.job.limits is None:
                    backtrace = self._see(subject)
            else:
                await_writers(subject.pid, [OUTPUT_LINK], flight.deadline, flight.processes)
            files = self._stage.collect(subject.command, subject.view) if self._stage is not None else ()
            observation = Observation(end.kind, end.code, *subject.outputs(), backtrace, files)
            if flight.job.is_natural and end.kind != "timeout":
                self._learn_usage(subject, observation)
                self._outputs.setdefault(side, observation.stdout)
        if end.kind != "signal" or flight.job.limits is not None:
            return observation
        if (side, end.frames) not in self._backtraces:  # once for each place to crash at
            self._backtraces[side, end.frames] = self._see_crash(side, flight, end.frames)
        return replace(observation, backtrace=self._backtraces[side, end.frames])

    def _learn_usage(self, subject: Subject, observation: Observation) -> None:
        texts = (observation.stdout, observation.stderr, *(content or b"" for _, content in observation.files))
        memory = max(self._used.memory, subject.threads.peak_bytes)
        self._used = Usage(memory, max(self._used.output, *map(len, texts)))

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
        with ending(self._start(side, deadline)) as subject:
            try:
                self._run_to(subject, stops, deadline)
            except NotReached:
                return Trace((), (), subject.landmarks.load_map, False), True
            tracer = Tracer(subject, watched, self._rows, use_stubs)
            complete = tracer.run(until, limit, deadline)
            load_map, output = subject.landmarks.load_map, subject.outputs()[0]
        is_whole = complete and until is None
        is_sure = not tracer.is_lossy and (not is_whole or output == self._natural_output(side))
        return Trace(tuple(addresses), tuple(tracer.pieces), load_map, complete), is_sure

    # Altering and looking

    def _apply(self, subject: Subject, alteration: Transfer | Intervention | Patch) -> None:
        if isinstance(alteration, Patch):
            subject.write(subject.landmarks.load_map.to_run(alteration.address), alteration.code)
        elif isinstance(alteration, Intervention):
            alter(subject, alteration)
        else:
            self._transfer(subject, alteration)

    def _transfer(self, subject: Subject, transfer: Transfer) -> None:
        blocks = []
        for allocation in transfer.allocations:
            block = call_function(subject, subject.landmarks.symbols["malloc"], [allocation.size])
            if not block:
                raise ProcessGone(subject.pid)
            subject.write(block, allocation.data)
            blocks.append(block)
        writes = list(transfer.writes)
        for reference in transfer.references:
            place = reference.at if reference.holder is None else blocks[reference.holder] + reference.at
            writes.append((place, WORD.pack(blocks[reference.block] + reference.offset)))
        registers = subject.registers()
        for address, data in writes:
            if (register := find_register(address)) is not None:
                name, at = register
                setattr(registers, name, merge_register(getattr(registers, name), at, data))
            else:
                subject.write(address, data)
        subject.set_registers(registers)
        for file in transfer.files:
            replace_file(subject, file)
        if transfer.directory is not None:
            inject(subject, "chdir", transfer.directory)
        if transfer.umask is not None:
            inject(subject, "umask", transfer.umask)

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
        frames = self._debugger.layouts.frames(chain, sp)
        if frames is None:
            frames = self._ask_gdb(subject, chain)
        load_map, types = subject.landmarks.load_map, self.program.types
        memory = (arguments, modules, registers.fs_base, unreadable)
        return Visit(load_map, frames, regions, types, *memory, *greater)

    def _chain(self, process: Tracee) -> list[Chained]:
        """The frames up to main, as the frame pointers tell."""
        chain = []
        for number, (pc, rbp) in enumerate(islice(process.frames(), FRAMES_LIMIT)):
            address = process.landmarks.load_map.to_file(pc)
            chain.append(Chained(address, rbp))
            function = self.program.function_at(address - (number > 0))
            if function is None or function.name == "main":
                break
        return chain

    def _ask_gdb(self, process: Tracee, chain: list[Chained]) -> tuple[VisitedFrame, ...]:
        types, layouts, load_map = self.program.types, self._debugger.layouts, process.landmarks.load_map
        wanted = layouts.unknown(chain, load_map)
        seen = self._look(process, {"types_known": len(types), "backtrace": False, "wanted": wanted})
        types.extend(seen["types"])
        layouts.learn(seen["layouts"], chain, load_map)
        return make_frames(seen["frames"], load_map)

    def _read_memory(self, process: Tracee, mappings: list[Mapping], sp: int) -> tuple[tuple[Region, ...], int]:
        """All writable memory of the program itself and its read-only data; the stack from its top on. And the number
        of bytes that could not be read of it."""
        regions: list[Region] = []
        left, unreadable = MEMORY_LIMIT, 0
        # Without the stack nothing leads to the rest.
        for mapping in sorted(skip_unused_stack(process.pid, mappings), key=lambda mapping: mapping.name != "[stack]"):
            own = mapping.name in self.program.modules
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
        libraries = self.program.place_libraries(process.landmarks.load_map)
        return gdb.ask({"job": "look", "pid": process.pid, "thread": process.thread, "libraries": libraries, **request})

    def _see_crash(self, side: Side, flight: Flight, frames: tuple[int, ...]) -> tuple[Frame, ...]:
        """The same run again, for gdb to see where it got its last signal."""
        deadline = self._begin()
        seen: tuple[Frame, ...] = ()

        def look(process: Tracee, there: tuple[int, ...]) -> None:
            nonlocal seen
            if there == frames:
                seen = self._see(process)
                raise _Seen

        with contextlib.suppress(_Seen), ending(self._reach(side, flight.job.stops, deadline)) as subject:
            self._apply(subject, flight.job.alteration)
            subject.finish(deadline, look)
        return seen

    def _see(self, process: Tracee) -> tuple[Frame, ...]:
        """The rbp chain misses the caller of a library function without frame pointers; gdb does not."""
        try:
            seen = self._look(process, {"backtrace": True})
        except (OSError, GdbFailure):
            self._debugger.gdb.command("-causechain-sync")  # a dead gdb is another matter
            return ()
        return tuple(Frame(f["function"], f["file"], f["line"]) for f in seen["backtrace"])


def is_returned_to(side: Side) -> bool:
    """Whether a moment that is looked at will be again: experiments are made in the passing run."""
    return side == "passing"


class _Seen(Exception):
    """A crashed process has been looked at and is gone."""


def measure_left_out(process: Tracee, mapping: Mapping) -> int:
    """The bytes of a large mapping that the program itself asked for."""
    try:
        return measure_mapped_chunk(process.read(mapping.start, HEADER))
    except (OSError, struct.error):
        return 0


def find_libraries(command: Command, patterns: Sequence[str], deadline: float) -> Libraries:
    """Those that the program has by the time it begins."""
    with ending(launch(command, False, deadline)) as subject:
        mapped = [mapping.name for mapping in read_mappings(subject.pid)]
    return choose_libraries(mapped, command.program.path, patterns)
