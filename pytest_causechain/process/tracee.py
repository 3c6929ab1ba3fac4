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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from pytest_causechain.model.load_map import NOWHERE, LoadMap
from pytest_causechain.model.moment import Stop
from pytest_causechain.process.linux import (
    CONT,
    DETACH,
    EVENT_EXIT,
    EVENT_FORK,
    EVENT_VFORK,
    EVENT_VFORK_DONE,
    EXIT_KILL,
    GETEVENTMSG,
    GETREGS,
    GETREGSET,
    INT3,
    NT_X86_XSTATE,
    PAGE,
    SETOPTIONS,
    SETREGS,
    SETREGSET,
    SINGLESTEP,
    SYSCALLS,
    TRACE_EXEC,
    TRACE_FORK,
    TRACE_VFORK,
    TRACE_VFORK_DONE,
    WAIT_ALL,
    IoVector,
    Registers,
    ptrace,
)
from pytest_causechain.process.maps import list_threads
from pytest_causechain.process.remains import end_group

# EXIT_KILL: no tracee survives us. TRACE_EXEC: otherwise each exec sends the program a SIGTRAP.
OPTIONS = EXIT_KILL | TRACE_EXEC
# Needed while the program's code is patched.
TRACE_CHILDREN = TRACE_FORK | TRACE_VFORK | TRACE_VFORK_DONE
ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
CALL_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
RED_ZONE = 128
BACKTRACE_LIMIT = 64
NO_SYSCALL = (1 << 64) - 1
WORD = struct.Struct("<Q")
# Two pages of our own in the program, far from where the kernel puts its mappings: code, which begins with a
# breakpoint, then data.
SCRATCH = 0x2000_0000_0000
SCRATCH_DATA = SCRATCH + PAGE

CRASHES = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP,
}  # fmt: skip
# Where the process has other threads, the signal that should wake us may now and then go to one of them.
DOZE_SECONDS = 0.05
# A process that does not stop within this time after SIGSTOP waits for something in the kernel.
HALT_SECONDS = 1.0


class ProcessGone(Exception):
    """The process ended while it was expected to be there."""


class NotReached(Exception):
    """The program ended before the stop, or its time was over: then `status` is None."""

    def __init__(self, status: int | None) -> None:
        super().__init__()
        self.status = status


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended; `frames` are addresses, innermost first, where it crashed or was stopped."""

    kind: Literal["exit", "signal", "timeout"]
    code: int
    frames: tuple[int, ...] = ()


# Called with a crashed process while it still stands at the faulting instruction.
CrashVisitor = Callable[["Tracee", tuple[int, ...]], None]


@dataclass(frozen=True, slots=True)
class Landmarks:
    """What lies at the same place in a program and in all its copies: `load_map` tells where it was loaded,
    `syscall_at` is any `syscall` instruction, `symbols` tells where things of the C library are."""

    load_map: LoadMap = NOWHERE
    syscall_at: int = 0
    symbols: Mapping[str, int] = field(default_factory=dict)


UNKNOWN = Landmarks()


class Tracee:
    def __init__(self, pid: int, landmarks: Landmarks = UNKNOWN) -> None:
        self.pid = pid
        self.landmarks = landmarks
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
        ptrace(GETREGS, self.pid, 0, ctypes.addressof(registers))
        return registers

    def set_registers(self, registers: Registers) -> None:
        ptrace(SETREGS, self.pid, 0, ctypes.addressof(registers))

    def jump(self, address: int) -> None:
        """Go on from another place."""
        registers = self.registers()
        # Else the kernel may restart the system call it was stopped in, and move rip.
        registers.rip, registers.orig_rax = address, NO_SYSCALL
        self.set_registers(registers)

    def resume(self, sign: int = 0) -> None:
        ptrace(CONT, self.pid, 0, sign)

    def wait(self, deadline: float | None = None) -> int | None:
        """The status of the next stop or end; None once the deadline has passed.

        SIGCHLD must be blocked: it is what ends the sleep."""
        while True:
            pid, status = os.waitpid(self.pid, WAIT_ALL | (os.WNOHANG if deadline is not None else 0))
            if pid:
                self.is_over = not os.WIFSTOPPED(status)
                return status
            assert deadline is not None
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            signal.sigtimedwait({signal.SIGCHLD}, min(left, DOZE_SECONDS))  # may wake up for another child

    def step(self) -> None:
        """One instruction. A signal that arrives meanwhile is kept, to be sent again later."""
        while True:
            ptrace(SINGLESTEP, self.pid)
            status = self.wait()
            if status is None or not os.WIFSTOPPED(status):
                raise ProcessGone(self.pid)
            if status >> 16:  # an event within a system call: let it complete
                if status >> 16 == EVENT_EXIT:
                    raise ProcessGone(self.pid)
                continue
            if os.WSTOPSIG(status) == signal.SIGTRAP:
                return
            self.deferred.append(os.WSTOPSIG(status))

    def syscall(self, name: str, *arguments: int) -> int:
        home = self.registers()
        registers = copy.copy(home)
        # Else the kernel may restart the system call it was stopped in, and move rip.
        registers.orig_rax = NO_SYSCALL
        registers.rax, registers.rip = SYSCALLS[name], self.landmarks.syscall_at
        for register, value in zip(ARGUMENTS, arguments, strict=False):
            setattr(registers, register, value)
        self.set_registers(registers)
        self.step()
        result = ctypes.c_int64(self.registers().rax).value
        self.set_registers(home)
        if -4096 < result < 0:
            raise OSError(-result, os.strerror(-result), f"injected {name}")
        return result

    def call(self, function: int, arguments: Iterable[int], timeout_seconds: float = 1.0) -> int:
        """Call a function of the program, such as malloc; it returns to our breakpoint."""
        home = self.registers()
        state = ctypes.create_string_buffer(1 << 14)
        # Vector registers may hold arguments of the interrupted code, and callees clobber them.
        vector = IoVector(ctypes.addressof(state), len(state))
        ptrace(GETREGSET, self.pid, NT_X86_XSTATE, ctypes.addressof(vector))
        registers = copy.copy(home)
        registers.orig_rax, registers.rax, registers.rip = NO_SYSCALL, 0, function
        registers.rsp = ((home.rsp - RED_ZONE) & -16) - 8  # aligned as just after a call
        for register, value in zip(CALL_ARGUMENTS, arguments, strict=False):
            setattr(registers, register, value)
        self.write(registers.rsp, WORD.pack(SCRATCH))
        self.set_registers(registers)
        after = self._run_call(time.monotonic() + timeout_seconds)
        ptrace(SETREGSET, self.pid, NT_X86_XSTATE, ctypes.addressof(vector))
        self.set_registers(home)
        return after.rax

    def _run_call(self, deadline: float) -> Registers:
        """Up to our breakpoint; signals that arrive meanwhile are kept, as in `step`."""
        while True:
            self.resume()
            status = self.wait(deadline)
            if status is None or not os.WIFSTOPPED(status):
                raise ProcessGone(self.pid)
            registers = self.registers()
            if registers.rip == SCRATCH + 1:
                return registers
            sign = 0 if status >> 16 else os.WSTOPSIG(status)
            if sign in CRASHES or status >> 16 == EVENT_EXIT:
                raise ProcessGone(self.pid)
            if sign:
                self.deferred.append(sign)

    def run_to(self, stops: Sequence[Stop], deadline: float) -> None:
        """Stop before the visit-th execution of each in turn, with the code unpatched again."""
        for stop in stops:
            self._run_to(self.landmarks.load_map.to_run(stop.address), stop.visit, deadline)

    def _run_to(self, address: int, visits: int, deadline: float) -> None:
        ptrace(SETOPTIONS, self.pid, 0, OPTIONS | TRACE_CHILDREN)
        original = self.read(address, 1)
        if self.registers().rip == address:
            self.step()  # the execution we stand before was counted when we came here
        for visit in range(visits):
            if visit:
                self.step()
            self.write(address, INT3)
            self._run_into(address, original, deadline)
            registers = self.registers()
            registers.rip = address
            self.set_registers(registers)
            self.write(address, original)

    def _run_into(self, address: int, original: bytes, deadline: float) -> None:
        """Resume until the breakpoint is hit, handing the program its signals."""
        sign = 0
        while True:
            self.resume(sign)
            status = self.wait(deadline)
            if status is None:
                self.halt()
                raise NotReached(None)
            if not os.WIFSTOPPED(status):
                raise NotReached(status)
            self.care_for_children(status >> 16, {address: original}, {address: INT3})
            sign = 0 if status >> 16 else os.WSTOPSIG(status)
            if sign == signal.SIGTRAP and self.registers().rip - 1 == address:
                return

    def care_for_children(self, event: int, originals: Mapping[int, bytes], patches: Mapping[int, bytes]) -> None:
        """A child that the program just made is not our concern: it runs on with the code as it was.

        One of vfork uses the program's own memory; the program sleeps until that child has left it."""
        if event in (EVENT_FORK, EVENT_VFORK):
            self._release_child(originals)
        elif event == EVENT_VFORK_DONE:
            for address, data in patches.items():
                self.write(address, data)

    def _release_child(self, originals: Mapping[int, bytes]) -> None:
        message = ctypes.c_ulong()
        ptrace(GETEVENTMSG, self.pid, 0, ctypes.addressof(message))
        child = Tracee(message.value)
        try:
            child.wait()
            for address, data in originals.items():
                child.write(address, data)
            ptrace(DETACH, child.pid)
        except (OSError, ProcessGone):  # it is gone already
            pass
        finally:
            child.close()

    def halt(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)
        self.wait(time.monotonic() + HALT_SECONDS)

    def finish(self, deadline: float, on_crash: CrashVisitor | None = None) -> End:
        """Run to the end."""
        finish = Finish(self, on_crash)
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

    def kill(self) -> None:
        """End it and all it started in its process group; only the first call does."""
        if self._memory < 0:
            return
        if not self.is_over:
            self._end()
        end_group(self.pid)
        self.close()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        for thread in list_threads(self.pid):
            # The process is not over before each thread that we were told of has been waited for.
            with contextlib.suppress(ChildProcessError):
                while thread != self.pid and os.WIFSTOPPED(os.waitpid(thread, WAIT_ALL)[1]):
                    pass
        with contextlib.suppress(ChildProcessError):
            while True:
                with contextlib.suppress(OSError):
                    self.resume()  # one that stopped at its exit does not hear SIGKILL
                if not os.WIFSTOPPED(os.waitpid(self.pid, WAIT_ALL)[1]):
                    break

    def close(self) -> None:
        os.close(self._memory)
        self._memory = -1


class Finish:
    """A process on its way to its end, from now on."""

    def __init__(self, process: Tracee, on_crash: CrashVisitor | None = None) -> None:
        self.process = process
        self._on_crash = on_crash
        self._frames: tuple[int, ...] = ()
        ptrace(SETOPTIONS, process.pid, 0, OPTIONS)
        for pending in process.deferred:
            os.kill(process.pid, pending)
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
            # A run that wrote too much was ended by a limit of ours, as one that took too long.
            return End("timeout" if code == signal.SIGXFSZ else "signal", code, self._frames)
        sign = 0 if status >> 16 else os.WSTOPSIG(status)
        if sign in CRASHES:
            self._frames = process.backtrace()
            if self._on_crash is not None:
                self._on_crash(process, self._frames)
        process.resume(sign)
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
