"""One stopped process: registers, memory, breakpoints, injected system calls and calls of its own functions."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import errno
import os
import signal
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Self

from pytest_causechain.kernel import linux
from pytest_causechain.kernel.linux import IoVector, Registers, event_message, ptrace, send_signal
from pytest_causechain.kernel.processes import end_group, list_threads
from pytest_causechain.model.load_map import NOWHERE, LoadMap
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee.threads import DOZE_SECONDS, ProcessGone, Threads

# EXIT_KILL: no tracee survives us.
OPTIONS = linux.EXIT_KILL | linux.TRACE_EXEC | linux.TRACE_CLONE
# Needed while the program's code is patched.
TRACE_CHILDREN = linux.TRACE_FORK | linux.TRACE_VFORK | linux.TRACE_VFORK_DONE
ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
CALL_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
RED_ZONE = 128
BACKTRACE_LIMIT = 64
NO_SYSCALL = (1 << 64) - 1
WORD = struct.Struct("<Q")
# Two pages of our own in the program, far from where the kernel puts its mappings: code, which begins with a
# breakpoint, then data.
SCRATCH = 0x2000_0000_0000
SCRATCH_DATA = SCRATCH + linux.PAGE

CRASHES = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP,
}  # fmt: skip
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
LIMITS = {signal.SIGXFSZ, signal.SIGXCPU}
CHILD_EVENTS = {linux.EVENT_FORK, linux.EVENT_VFORK, linux.EVENT_VFORK_DONE}
# An injected call that takes longer may need what another thread holds, such as a lock.
ALONE_SECONDS = 0.05


class NotReached(Exception):
    """The program ended before the stop, or became another one; or its time was over: then `status` is None."""

    def __init__(self, status: int | None) -> None:
        super().__init__()
        self.status = status


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended; `frames` are addresses, innermost first, where it crashed or was stopped."""

    kind: Literal["exit", "signal", "timeout"]
    code: int
    frames: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Landmarks:
    """What lies at the same place in a program and in all its copies: `load_map` tells where it was loaded,
    `syscall_at` is any `syscall` instruction, `symbols` tells where things of the C library are."""

    load_map: LoadMap = NOWHERE
    syscall_at: int = 0
    symbols: Mapping[str, int] = field(default_factory=dict)


UNKNOWN = Landmarks()


class Tracee:
    """Stops are those of its first thread, and crashes of any. While it is stopped, all its threads are."""

    def __init__(self, pid: int, landmarks: Landmarks = UNKNOWN) -> None:
        self.pid = pid
        self.threads = Threads(pid)
        self.thread = pid  # whose registers we see and change
        self.landmarks = landmarks
        # By address: what we have put into the program's code, and what was there.
        self.patches: dict[int, bytes] = {}
        self.originals: dict[int, bytes] = {}
        # Called with each thread but the first before it is handed a signal.
        self.before_signal: Callable[[int], None] | None = None
        # Called when the first thread, on its way to a stop, was stopped by the processor.
        self.on_trap: Callable[[], None] | None = None
        self.is_over = False
        self.deferred: list[int] = []  # signals held back while we stepped
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)  # bound to the address space: only after an exec

    @property
    def base(self) -> int:
        return self.landmarks.load_map.base

    def read(self, address: int, size: int) -> bytes:
        return os.pread(self._memory, size, address)

    def write(self, address: int, data: bytes) -> None:
        """Reaches read-only pages, such as code, too."""
        try:
            os.pwrite(self._memory, data, address)
        except (OSError, OverflowError) as error:
            raise OSError(errno.EFAULT, f"cannot write {len(data)} bytes at {address:#x} ({error})") from None

    def registers(self) -> Registers:
        registers = Registers()
        ptrace(linux.GETREGS, self.thread, 0, ctypes.addressof(registers))
        return registers

    def registers_of(self, thread: int) -> Registers:
        with self.selected(thread):
            return self.registers()

    def set_registers(self, registers: Registers) -> None:
        ptrace(linux.SETREGS, self.thread, 0, ctypes.addressof(registers))

    def jump(self, address: int) -> None:
        """Go on from another place."""
        registers = self.registers()
        # Else the kernel may restart the system call it was stopped in, and move rip.
        registers.rip, registers.orig_rax = address, NO_SYSCALL
        self.set_registers(registers)

    def resume(self, sign: int = 0) -> None:
        """All its threads; the signal is for the one that stopped."""
        self.threads.resume(self.thread, sign)
        self.thread = self.pid

    def settle(self) -> None:
        """Wait for the first stop of a process that was just made."""
        if not os.WIFSTOPPED(os.waitpid(self.pid, linux.WAIT_ALL)[1]):
            raise ProcessGone(self.pid)

    def wait(self, deadline: float | None = None) -> int | None:
        """The status of the next stop or end; None once the deadline has passed.

        SIGCHLD must be blocked: it is what ends the sleep."""
        while True:
            report = self.threads.take_report(block=deadline is None)
            if report is not None and self._concerns_caller(*report):
                return report[1]
            if self.threads.reports:
                continue
            left = DOZE_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return None
            if report is None:
                self.threads.doze(left)  # may wake up for another child

    def _concerns_caller(self, thread: int, status: int) -> bool:
        """False: it is dealt with, and the program runs on."""
        if not os.WIFSTOPPED(status):
            self.is_over = True
            return True
        event, sign = status >> 16, os.WSTOPSIG(status)
        if event in CHILD_EVENTS:
            self._care_for_children(thread, event)
            return False
        if thread != self.pid and (event or sign not in CRASHES):
            if sign and not event and self.before_signal is not None:
                self.before_signal(thread)
            self.threads.go(thread, 0 if event else sign)
            return False
        self._halt_threads()
        if not self.threads.is_there(thread):
            self.threads.go(thread)  # what another one met has ended them all; that is told next
            return False
        if thread != self.pid and self._stand_before_breakpoint(thread, status):
            self._pass_breakpoint(thread)
            return False
        self.thread = thread
        self.threads.give_turn(thread)
        if event == linux.EVENT_EXEC:  # the code is another one
            self.patches.clear()
            self.originals.clear()
        return True

    def _halt_threads(self) -> None:
        """Breakpoints that other threads have hit meanwhile may be gone when they go on: they come back to them."""
        self.threads.halt()
        for thread, status in tuple(self.threads.reports):
            if thread != self.pid and self._stand_before_breakpoint(thread, status):
                self.threads.reports.remove((thread, status))

    def _stand_before_breakpoint(self, thread: int, status: int) -> bool:
        """Go back to the breakpoint that the thread has just hit; False when it has not."""
        if not os.WIFSTOPPED(status) or status >> 16 or os.WSTOPSIG(status) != signal.SIGTRAP:
            return False
        with self.selected(thread):
            registers = self.registers()
            registers.rip -= 1
            if self.patches.get(registers.rip) != linux.INT3:
                return False
            self.set_registers(registers)
        return True

    def _pass_breakpoint(self, thread: int) -> None:
        """Only the first thread's executions count."""
        with self.selected(thread), contextlib.suppress(ProcessGone, ProcessLookupError):
            self.step_over(self.registers().rip)
        self.threads.resume()

    @contextlib.contextmanager
    def selected(self, thread: int) -> Iterator[None]:
        self.thread, before = thread, self.thread
        try:
            yield
        finally:
            self.thread = before

    def step(self) -> None:
        """One instruction. A signal that arrives meanwhile is kept, to be sent again later. One that the instruction
        itself brings about comes again and again: then the process stays where it stands."""
        kept: list[int] = []
        while True:
            status = self.threads.step(self.thread)
            if status >> 16:  # an event within a system call: let it complete
                if status >> 16 == linux.EVENT_EXIT:
                    raise ProcessGone(self.pid)
                continue
            sign = os.WSTOPSIG(status)
            if sign == signal.SIGTRAP:
                break
            if sign in FAULTS and sign in kept:
                kept.remove(sign)  # it will come by itself
                break
            kept.append(sign)
        if self.thread == self.pid:
            self.deferred += kept
        else:
            for sign in kept:
                send_signal(self.pid, self.thread, sign)

    def run_to(self, stops: Sequence[Stop], deadline: float) -> None:
        """Stop before the visit-th execution of each in turn, with the code unpatched again."""
        for stop in stops:
            self._run_to(self.landmarks.load_map.to_run(stop.address), stop.visit, deadline)

    def _run_to(self, address: int, visits: int, deadline: float) -> None:
        if self.registers().rip == address:
            self._pass()  # the execution we stand before was counted when we came here
        for visit, _ in enumerate(self.hits([address], deadline), 1):
            if visit == visits:
                break
        self.originals.clear()
        self.patches.clear()

    def hits(self, addresses: Collection[int], deadline: float) -> Iterator[int]:
        """Run on, and stop before each execution of these addresses by the first thread, with the code there as it was.
        A breakpoint that is taken out of the patches then does not come back. NotReached when there are no more."""
        self.threads.set_options(OPTIONS | TRACE_CHILDREN)
        self.threads.take_turns()
        self.originals.update((address, self.read(address, 1)) for address in addresses)
        self.patches.update(dict.fromkeys(addresses, linux.INT3))
        for address in addresses:
            self.write(address, linux.INT3)
        sign = 0
        while True:
            self.resume(sign)
            status = self.wait(deadline)
            if status is None:
                self.halt()
                raise NotReached(None)
            if not os.WIFSTOPPED(status) or status >> 16 == linux.EVENT_EXEC:
                raise NotReached(status)
            sign = 0 if status >> 16 else os.WSTOPSIG(status)
            if sign != signal.SIGTRAP or self.thread != self.pid:
                continue
            address = self.registers().rip - 1
            if address in self.patches:
                sign = 0
                self.jump(address)
                self.write(address, self.originals[address])
                yield address
                if address in self.patches:
                    if self.registers().rip == address:
                        self._pass()
                    self.write(address, linux.INT3)
            elif self.on_trap is not None:
                sign = 0
                self.on_trap()

    def _pass(self) -> None:
        self.step()
        if self.on_trap is not None:
            self.on_trap()

    def step_over(self, address: int) -> None:
        """The instruction there, in the place of which stands a breakpoint."""
        self.write(address, self.originals[address][:1])
        self.step()
        self.write(address, linux.INT3)

    def _care_for_children(self, thread: int, event: int) -> None:
        """A child that the program just made is not our concern: it runs on with the code as it was.

        One of vfork uses the program's own memory; the program sleeps until that child has left it, and its other
        threads must do so too."""
        if event == linux.EVENT_VFORK_DONE:
            for address, data in self.patches.items():
                self.write(address, data)
            self.threads.resume()
            return
        if event == linux.EVENT_VFORK and self.patches:
            self._halt_threads()
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile: its end will be reported
            self._release_child(event_message(thread))
        if event == linux.EVENT_VFORK and self.patches:
            self.threads.go_alone(thread)
        else:
            self.threads.go(thread)

    def _release_child(self, pid: int) -> None:
        child = Tracee(pid)
        try:
            child.settle()
            for address, data in self.originals.items():
                child.write(address, data)
            ptrace(linux.DETACH, child.pid)
        except (OSError, ProcessGone):  # it is gone already
            pass
        finally:
            child.close()

    def has_other_threads(self) -> bool:
        return len(list_threads(self.pid)) > 1

    def halt(self) -> None:
        """See where it is: its first thread, or another one when that has ended."""
        self._halt_threads()
        standing = self.threads.standing
        self.thread = self.pid if self.pid in standing or not standing else standing[0]

    def finish(self, deadline: float) -> End:
        """Run to the end."""
        finish = Finish(self)
        while (end := finish.take(self.wait(deadline))) is None:
            pass
        return end

    def backtrace(self) -> tuple[int, ...]:
        """pc and return addresses along the rbp chain: whole with -O0 or frame pointers, else it ends early."""
        try:
            return tuple(pc for pc, _ in islice(self.frames(), BACKTRACE_LIMIT))
        except OSError:  # it did not stop
            return ()

    def frames(self) -> Iterator[tuple[int, int]]:
        """pc and rbp of each frame, as far as frame pointers lead."""
        registers = self.registers()
        pc, rbp = registers.rip, registers.rbp
        while True:
            yield pc, rbp
            try:
                above, pc = struct.unpack("<QQ", self.read(rbp, 16))
            except (OSError, OverflowError, struct.error):  # rbp is used for something else
                return
            if above <= rbp:  # callers lie at higher addresses
                yield pc, above
                return
            rbp = above

    def __enter__(self) -> Self:
        """At the end of the `with` block it is killed."""
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @contextlib.contextmanager
    def ended_by_errors(self) -> Iterator[None]:
        """Killed only when the `with` block fails."""
        try:
            yield
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it and all it started in its process group; only the first call does."""
        if self._memory < 0:
            return
        if not self.is_over:
            self._end()
        end_group(self.pid)
        # A child that it made amid its end is traced from birth on, though we never learned of it: it stays until it
        # is waited for.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.pid, linux.WAIT_ALL | os.WNOHANG)[0]:
                pass
        self.close()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        threads = {*list_threads(self.pid), *self.threads.standing}
        # The process is not over before each thread that is traced has been waited for.
        for thread in (*(threads - {self.pid}), self.pid):
            with contextlib.suppress(ChildProcessError):
                self.threads.go(thread)  # one that stopped at its exit does not hear SIGKILL
                while os.WIFSTOPPED(os.waitpid(thread, linux.WAIT_ALL)[1]):
                    self.threads.go(thread)

    def close(self) -> None:
        os.close(self._memory)
        self._memory = -1


def is_crash(status: int | None) -> bool:
    """Whether a process stands at an instruction that crashes it."""
    return status is not None and os.WIFSTOPPED(status) and not status >> 16 and os.WSTOPSIG(status) in CRASHES


class Finish:
    """A process on its way to its end, from now on."""

    def __init__(self, process: Tracee) -> None:
        self.process = process
        self._frames: tuple[int, ...] = ()
        process.threads.set_options(OPTIONS)
        process.threads.in_turns = False
        for pending in process.deferred:
            send_signal(process.pid, process.pid, pending)
        process.resume()

    def take(self, status: int | None) -> End | None:
        """What a wait gave; None: it runs on."""
        process = self.process
        if status is None:
            process.halt()
            return End("timeout", signal.SIGKILL, process.backtrace())
        if os.WIFEXITED(status):
            return End("exit", os.WEXITSTATUS(status))
        if os.WIFSIGNALED(status):
            code = os.WTERMSIG(status)
            # A run that wrote or computed too much was ended by a limit of ours, as one that took too long.
            return End("timeout" if code in LIMITS else "signal", code, self._frames)
        if is_crash(status):
            self._frames = process.backtrace()
        process.resume(0 if status >> 16 else os.WSTOPSIG(status))
        return None


def wait_for_any(processes: Sequence[Tracee], deadline: float) -> tuple[Tracee, int] | None:
    """The first of several that stops or ends, with its status; None once the deadline has passed."""
    while True:
        for process in processes:
            if (status := process.wait(0.0)) is not None:
                return process, status
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        signal.sigtimedwait({signal.SIGCHLD}, min(left, DOZE_SECONDS))


def inject(process: Tracee, name: str, *arguments: int | str | bytes) -> int:
    """The result of a system call; an OSError when it fails. What is not a number is passed by its address."""
    home = process.registers()
    registers = copy.copy(home)
    # Else the kernel may restart the system call it was stopped in, and move rip.
    registers.orig_rax = NO_SYSCALL
    registers.rax, registers.rip = linux.SYSCALLS[name], process.landmarks.syscall_at
    for register, value in zip(ARGUMENTS, place(process, arguments), strict=False):
        setattr(registers, register, value)
    process.set_registers(registers)
    process.step()
    result = ctypes.c_int64(process.registers().rax).value
    process.set_registers(home)
    if -4096 < result < 0:
        raise OSError(-result, os.strerror(-result), f"injected {name}")
    return result


def place(process: Tracee, arguments: Iterable[int | str | bytes]) -> list[int]:
    at, values = SCRATCH_DATA, []
    for argument in arguments:
        if isinstance(argument, int):
            values.append(argument)
            continue
        data = argument if isinstance(argument, bytes) else os.fsencode(argument) + b"\0"
        process.write(at, data)
        values.append(at)
        at += -(-len(data) // 8) * 8
    return values


def call_function(process: Tracee, function: int, arguments: Iterable[int], timeout_seconds: float = 1.0) -> int:
    """Call a function of the program, such as malloc; it returns to our breakpoint."""
    home = process.registers()
    state = ctypes.create_string_buffer(1 << 14)
    # Vector registers may hold arguments of the interrupted code, and callees clobber them.
    vector = IoVector(ctypes.addressof(state), len(state))
    ptrace(linux.GETREGSET, process.thread, linux.NT_X86_XSTATE, ctypes.addressof(vector))
    registers = copy.copy(home)
    registers.orig_rax, registers.rax, registers.rip = NO_SYSCALL, 0, function
    registers.rsp = ((home.rsp - RED_ZONE) & -16) - 8  # aligned as just after a call
    for register, value in zip(CALL_ARGUMENTS, arguments, strict=False):
        setattr(registers, register, value)
    process.write(registers.rsp, WORD.pack(SCRATCH))
    process.set_registers(registers)
    after = _run_call(process, time.monotonic() + timeout_seconds)
    ptrace(linux.SETREGSET, process.thread, linux.NT_X86_XSTATE, ctypes.addressof(vector))
    process.set_registers(home)
    return after.rax


def _run_call(process: Tracee, deadline: float) -> Registers:
    """Up to our breakpoint, without the other threads if possible; signals that arrive meanwhile are kept, as in
    `step`."""
    process.threads.go(process.thread)
    while True:
        status = process.wait(min(deadline, time.monotonic() + ALONE_SECONDS))
        if status is None and time.monotonic() < deadline:
            process.threads.resume()
            continue
        if status is None or not os.WIFSTOPPED(status):
            raise ProcessGone(process.pid)
        registers = process.registers()
        if registers.rip == SCRATCH + 1:
            return registers
        sign = 0 if status >> 16 else os.WSTOPSIG(status)
        if sign in CRASHES or status >> 16 == linux.EVENT_EXIT:
            raise ProcessGone(process.pid)
        if sign:
            process.deferred.append(sign)
        process.threads.go(process.thread)
