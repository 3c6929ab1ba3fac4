"""Copies of a stopped program, in each of which one experiment runs.

The program is made to call clone(2); the copy gets private files by a few system calls prepared beforehand,
is altered, and runs on while the original stays where it is. These calls are straight-line machine code that ends at a
breakpoint: a single injected system call costs five ptrace requests, and a copy needs a dozen of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import struct

from pytest_causechain.kernel import linux
from pytest_causechain.kernel.processes import (
    Descriptor,
    Mapping,
    list_children,
    list_threads,
    pending_signals,
    read_descriptors,
    read_mappings,
    read_timers,
    staying,
)
from pytest_causechain.sandbox.isolation import UNTOUCHED
from pytest_causechain.sandbox.subject import Streams, Subject, identity
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import OPTIONS, SCRATCH, SCRATCH_DATA, inject

QUAD = struct.Struct("<Q")
# mov REGISTER, imm64
LOAD = {"rax": b"\x48\xb8", "rdi": b"\x48\xbf", "rsi": b"\x48\xbe", "rdx": b"\x48\xba", "r10": b"\x49\xba"}
STORE_RAX = b"\x48\xa3"  # mov [imm64], rax
FETCH_RAX = b"\x48\xa1"  # mov rax, [imm64]
RAX_TO_RDI = b"\x48\x89\xc7"  # mov rdi, rax
TEST_EAX = b"\x85\xc0"  # test eax, eax
JUMP_IF_ZERO, JUMP_SHORT = b"\x74", b"\xeb"  # with a distance of one byte
CODE_AT = SCRATCH + 64
# The names of the files for the next copy's outputs, then those of all others.
OUTPUTS_AT, OUTPUT_ROOM = SCRATCH_DATA + 2048, 32
PATHS_AT = OUTPUTS_AT + 2 * OUTPUT_ROOM
CODE_LIMIT, PATHS_LIMIT = SCRATCH + linux.PAGE - CODE_AT, SCRATCH_DATA + linux.PAGE - PATHS_AT
# ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF; struct itimerval.
INTERVAL_TIMERS, INTERVAL_SIZE = 3, 32


class SystemCalls:
    """Collects calls; `results` is where the process keeps what they return, one word each."""

    def __init__(self, results: int) -> None:
        self._code = bytearray()
        self._results = results
        self.count = 0

    def call(self, name: str, *arguments: int, on: int | None = None) -> int:
        """Add a call; the number of its result. `on` is that of an earlier one, a descriptor: the first argument."""
        registers = iter(("rdi", "rsi", "rdx"))
        if on is not None:
            next(registers)
            self._code += FETCH_RAX + QUAD.pack(self._results + 8 * on) + RAX_TO_RDI
        for register, value in zip(registers, arguments, strict=False):
            self._code += LOAD[register] + QUAD.pack(value)
        self._code += LOAD["rax"] + QUAD.pack(linux.SYSCALLS[name]) + linux.SYSCALL_INSTRUCTION
        self._code += STORE_RAX + QUAD.pack(self._results + 8 * self.count)
        self.count += 1
        return self.count - 1

    def assemble(self) -> bytes:
        return bytes(self._code) + linux.INT3


def assemble_fork(flags: int, number_at: int) -> bytes:
    """clone(2), after which the new process goes on behind this code; the old one stops at a breakpoint, and when it
    is resumed does the same again. `number_at` is where the C library keeps the number of the thread, if the flags
    ask for it."""
    code = LOAD["rdi"] + QUAD.pack(flags) + LOAD["rsi"] + QUAD.pack(0)  # on the same stack
    code += LOAD["r10"] + QUAD.pack(number_at)
    code += LOAD["rax"] + QUAD.pack(linux.SYSCALLS["clone"]) + linux.SYSCALL_INSTRUCTION + TEST_EAX
    back = linux.INT3 + JUMP_SHORT
    code += JUMP_IF_ZERO + bytes([len(back) + 1]) + back
    return code + (-len(code) - 1).to_bytes(1, "little", signed=True)


class CannotCopy(Exception):
    """A copy would share more with the original than its memory."""


class Template:
    """A subject that stands at a moment, ready to be copied; it does nothing else any more."""

    def __init__(self, subject: Subject, is_root: bool = False, roams: bool = True) -> None:
        """CannotCopy when it has threads, or descriptors that copies would share.

        `is_root`: it has not run yet. Copies of it may know the number of their own first thread; those of a template
        that has locked a mutex in its name must not. Unless it `roams`, copies stay on the processor that we are on."""
        self.subject = subject
        self._is_root, self._roams = is_root, roams
        if len(list_threads(subject.pid)) > 1:
            raise CannotCopy("threads")
        if list_children(subject.pid):
            raise CannotCopy("children")  # which only the original can wait for
        if any(is_shared(mapping) for mapping in read_mappings(subject.pid)):
            raise CannotCopy("shared memory")
        if not is_root and has_timers(subject):
            raise CannotCopy("timers")  # which are not inherited
        # Nor are signals on their way.
        self._signals = (*subject.deferred, *pending_signals(subject.pid))
        self._written = subject.outputs()
        self._processors = self._place = os.sched_getaffinity(subject.pid)
        self._calls = self._prepare_code(read_descriptors(subject.pid))
        self._home = subject.registers()
        subject.threads.set_options(OPTIONS)
        subject.jump(CODE_AT)

    def _prepare_code(self, descriptors: list[Descriptor]) -> int:
        """Write the code that makes a copy and gives it files of its own; the number of its system calls."""
        subject = self.subject
        outputs = {identity(os.fstat(d)): n for n, d in enumerate((subject.streams.stdout, subject.streams.stderr))}
        calls, paths = SystemCalls(SCRATCH_DATA), bytearray()
        opened: dict[int, int] = {}
        for descriptor in descriptors:
            if not descriptor.is_regular:
                if not is_harmless(descriptor):
                    raise CannotCopy("sockets or pipes")
                continue
            output = outputs.get(descriptor.file)
            if output is None and descriptor.is_writable:
                raise CannotCopy("files open for writing")
            if descriptor.shared_with not in opened:
                at = OUTPUTS_AT + output * OUTPUT_ROOM if output is not None else PATHS_AT + len(paths)
                if output is None:
                    paths += f"/proc/self/fd/{descriptor.number}\0".encode()
                flags = descriptor.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
                number = opened[descriptor.shared_with] = calls.call("open", at, flags, 0)
                calls.call("lseek", descriptor.position, os.SEEK_SET, on=number)
            number = opened[descriptor.shared_with]
            calls.call("dup3", descriptor.number, descriptor.flags & os.O_CLOEXEC, on=number)
        for number in opened.values():
            calls.call("close", on=number)
        number_at = find_thread_number(subject)
        flags = linux.CLONE_PARENT | linux.CLONE_PTRACE | signal.SIGCHLD
        if number_at:
            flags |= linux.CLONE_CHILD_CLEARTID | (linux.CLONE_CHILD_SETTID if self._is_root else 0)
        code = assemble_fork(flags, number_at) + calls.assemble()
        if len(code) > CODE_LIMIT or len(paths) > PATHS_LIMIT:
            raise CannotCopy("too many open files")
        subject.write(CODE_AT, code)
        subject.write(PATHS_AT, bytes(paths))
        return calls.count

    def copy(self) -> Subject:
        """A stopped copy with private files, our own child, so that the original never hears of it."""
        subject = self.subject
        streams = Streams(subject.streams.stdin)
        for descriptor, text in zip((streams.stdout, streams.stderr), self._written, strict=True):
            if text:
                os.pwrite(descriptor, text, 0)
        with staying() as here:
            if self._place != here:
                os.sched_setaffinity(subject.pid, here)
                self._place = here
            try:
                copy = Subject(self._fork(), subject.command, streams, subject.landmarks, subject.stage)
            except BaseException:
                streams.close()
                raise
            with copy.ended_by_errors():
                copy.settle()
                os.setpgid(copy.pid, copy.pid)
                self._open_files(copy)
                copy.set_registers(self._home)
                copy.enter_stage(subject.view)
                copy.deferred.extend(self._signals)
                if self._roams:
                    os.sched_setaffinity(copy.pid, self._processors)
        return copy

    def _fork(self) -> int:
        """The pid of a new copy. The original goes round in our code."""
        subject = self.subject
        while True:
            subject.resume()
            status = subject.wait()
            if status is None or not os.WIFSTOPPED(status):
                raise ProcessGone(subject.pid)
            if os.WSTOPSIG(status) == signal.SIGTRAP:
                break  # any other signal is one that each copy is sent
        pid = ctypes.c_int64(subject.registers().rax).value
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid), "injected clone")
        return pid

    def _open_files(self, copy: Subject) -> None:
        names = (f"/proc/{os.getpid()}/fd/{d}\0" for d in (copy.streams.stdout, copy.streams.stderr))
        copy.write(OUTPUTS_AT, b"".join(name.encode().ljust(OUTPUT_ROOM, b"\0") for name in names))
        copy.resume()
        status = copy.wait()
        if status is None or not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
            raise ProcessGone(copy.pid)
        results = struct.unpack(f"<{self._calls}q", copy.read(SCRATCH_DATA, 8 * self._calls))
        failed = next((-result for result in results if result < 0), 0)
        if failed:
            raise CannotCopy(f"its files: {os.strerror(failed)}")

    def close(self) -> None:
        self.subject.view = UNTOUCHED  # what it has written stays: copies that are still there may need it
        self.subject.kill()


def find_thread_number(subject: Subject) -> int:
    """Where the C library keeps the number of the first thread, which the kernel clears at its end; 0 where it does not
    tell."""
    subject.write(SCRATCH_DATA, bytes(8))
    with contextlib.suppress(OSError):
        inject(subject, "prctl", linux.PR_GET_TID_ADDRESS, SCRATCH_DATA)
    return int.from_bytes(subject.read(SCRATCH_DATA, 8), "little")


def is_harmless(descriptor: Descriptor) -> bool:
    """Terminals and devices such as /dev/null have no state that copies could take from each other."""
    return stat.S_ISCHR(descriptor.mode) or stat.S_ISDIR(descriptor.mode)


def is_shared(mapping: Mapping) -> bool:
    return mapping.permissions.startswith("rw") and mapping.permissions.endswith("s")


def has_timers(subject: Subject) -> bool:
    if read_timers(subject.pid):
        return True
    for kind in range(INTERVAL_TIMERS):
        inject(subject, "getitimer", kind, SCRATCH_DATA)
        if any(subject.read(SCRATCH_DATA, INTERVAL_SIZE)):
            return True
    return False
