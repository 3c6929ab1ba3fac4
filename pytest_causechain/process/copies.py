"""Copies of a stopped program, in each of which one experiment runs.

The program is made to call clone(2); the copy gets private files by a few system calls prepared beforehand,
is altered, and runs on while the original stays where it is."""

from __future__ import annotations

import os
import signal
import stat
import struct

from pytest_causechain.process.assembly import SystemCalls
from pytest_causechain.process.limits import limit_memory
from pytest_causechain.process.linux import CLONE_PARENT, SETOPTIONS, TRACE_FORK, ptrace
from pytest_causechain.process.maps import (
    Descriptor,
    Mapping,
    has_children,
    list_threads,
    pending_signals,
    read_descriptors,
    read_mappings,
    read_timers,
)
from pytest_causechain.process.subject import OUTPUT, SCRATCH, SCRATCH_DATA, Subject, read_all
from pytest_causechain.process.tracee import OPTIONS, ProcessGone, Tracee

CODE_AT = SCRATCH + 64
PATHS_AT = SCRATCH_DATA + 2048
# ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF; struct itimerval.
INTERVAL_TIMERS, INTERVAL_SIZE = 3, 32


class CannotCopy(Exception):
    """A copy would share more with the original than its memory."""


class Template:
    """A subject that stands at a moment, ready to be copied."""

    def __init__(self, subject: Subject) -> None:
        """CannotCopy when it has threads, or descriptors that copies would share."""
        self.subject = subject
        if len(list_threads(subject.pid)) > 1:
            raise CannotCopy("threads")
        if has_children(subject.pid):
            raise CannotCopy("children")  # which only the original can wait for
        if any(is_shared(mapping) for mapping in read_mappings(subject.pid)):
            raise CannotCopy("shared memory")
        if has_timers(subject):
            raise CannotCopy("timers")  # which are not inherited
        # Nor are signals on their way.
        self._signals = (*subject.deferred, *pending_signals(subject.pid))
        self._home = subject.registers()
        self._outputs = (os.memfd_create(OUTPUT), os.memfd_create(OUTPUT))
        self._written = [read_all(descriptor) for descriptor in (subject.stdout, subject.stderr)]
        try:
            self._calls = self._prepare_files(read_descriptors(subject.pid))
        except BaseException:
            self._close_outputs()
            raise
        ptrace(SETOPTIONS, subject.pid, 0, OPTIONS | TRACE_FORK)

    def _prepare_files(self, descriptors: list[Descriptor]) -> int:
        """Write the code that gives a copy files of its own; the number of its system calls."""
        subject = self.subject
        own = {
            identity_of(d): output for d, output in zip((subject.stdout, subject.stderr), self._outputs, strict=True)
        }
        calls, paths = SystemCalls(SCRATCH_DATA), bytearray()
        opened: dict[int, int] = {}
        for descriptor in descriptors:
            if not descriptor.is_regular:
                if not is_harmless(descriptor):
                    raise CannotCopy("sockets or pipes")
                continue
            output = own.get(descriptor.file)
            if output is None and descriptor.is_writable:
                raise CannotCopy("files open for writing")
            if descriptor.shared_with not in opened:
                source = (
                    f"/proc/{os.getpid()}/fd/{output}" if output is not None else f"/proc/self/fd/{descriptor.number}"
                )
                at = PATHS_AT + len(paths)
                paths += source.encode() + b"\0"
                flags = descriptor.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
                opened[descriptor.shared_with] = calls.call("open", at, flags, 0)
                calls.call_on(opened[descriptor.shared_with], "lseek", descriptor.position, os.SEEK_SET)
            calls.call_on(opened[descriptor.shared_with], "dup3", descriptor.number, descriptor.flags & os.O_CLOEXEC)
        for number in opened.values():
            calls.call_on(number, "close")
        code = calls.assemble()
        if len(code) > 4000 or len(paths) > 2000:
            raise CannotCopy("too many open files")
        subject.write(CODE_AT, code)
        subject.write(PATHS_AT, bytes(paths))
        return calls.count

    def copy(self) -> Tracee:
        """A stopped copy with private files, our own child, so that the original never hears of it."""
        subject = self.subject
        for descriptor, text in zip(self._outputs, self._written, strict=True):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
        pid = subject.syscall("clone", CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        copy = Tracee(pid, subject.syscall_at, subject.scratch, subject.base)
        try:
            copy.wait()
            ptrace(SETOPTIONS, pid, 0, OPTIONS)  # or its own children would be stopped as well
            os.setpgid(pid, pid)
            limit_memory(pid)
            self._open_files(copy)
            copy.set_registers(self._home)
            copy.deferred.extend(self._signals)
        except BaseException:
            copy.kill()
            raise
        return copy

    def _open_files(self, copy: Tracee) -> None:
        registers = copy.registers()
        registers.rip, registers.orig_rax = CODE_AT, (1 << 64) - 1
        copy.set_registers(registers)
        copy.resume()
        status = copy.wait()
        if status is None or not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != signal.SIGTRAP:
            raise ProcessGone(copy.pid)
        results = struct.unpack(f"<{self._calls}q", copy.read(SCRATCH_DATA, 8 * self._calls))
        failed = next((-result for result in results if result < 0), 0)
        if failed:
            raise CannotCopy(f"its files: {os.strerror(failed)}")

    def outputs(self) -> tuple[bytes, bytes]:
        """What the last copy has written, with what the original had before."""
        stdout, stderr = (read_all(descriptor) for descriptor in self._outputs)
        return stdout, stderr

    def close(self) -> None:
        self.subject.kill()
        self._close_outputs()

    def _close_outputs(self) -> None:
        for descriptor in self._outputs:
            os.close(descriptor)


def identity_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def is_harmless(descriptor: Descriptor) -> bool:
    """Terminals and devices such as /dev/null have no state that copies could take from each other."""
    return stat.S_ISCHR(descriptor.mode) or stat.S_ISDIR(descriptor.mode)


def is_shared(mapping: Mapping) -> bool:
    return mapping.permissions.startswith("rw") and mapping.permissions.endswith("s")


def has_timers(subject: Subject) -> bool:
    if read_timers(subject.pid):
        return True
    for kind in range(INTERVAL_TIMERS):
        subject.syscall("getitimer", kind, SCRATCH_DATA)
        if any(subject.read(SCRATCH_DATA, INTERVAL_SIZE)):
            return True
    return False


def replace_stdin(process: Tracee, content: bytes, position: int) -> None:
    """Another file in the place of descriptor 0, to be read from a position on."""
    process.write(PATHS_AT, b"stdin\0")
    number = process.syscall("memfd_create", PATHS_AT, 0)
    with open(f"/proc/{process.pid}/fd/{number}", "wb", buffering=0) as file:
        file.write(content)
    process.syscall("lseek", number, position, os.SEEK_SET)
    process.syscall("dup3", number, 0, 0)
    process.syscall("close", number)
