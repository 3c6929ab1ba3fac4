"""A program started under ptrace just as the test started it, and brought to a stop."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import cached_property

from pytest_causechain.model.command import Command
from pytest_causechain.process.elf import find_symbols
from pytest_causechain.process.limits import limit_self
from pytest_causechain.process.linux import (
    EVENT_CLONE,
    INT3,
    MAP_PRIVATE_FIXED_ANONYMOUS,
    PAGE,
    PROT_READ_EXECUTE,
    PROT_READ_WRITE,
    SETOPTIONS,
    SYSCALL_INSTRUCTION,
    TRACE_CLONE,
    WAIT_ALL,
    die_with_parent,
    fix_addresses,
    ptrace,
    trace_me,
)
from pytest_causechain.process.maps import load_base, read_mappings
from pytest_causechain.process.tracee import OPTIONS, Tracee

# Two pages of our own in the program, far from where the kernel puts its mappings: code, then data.
SCRATCH = 0x2000_0000_0000
SCRATCH_DATA = SCRATCH + PAGE
# The name that the files have which runs write their output to.
OUTPUT = "causechain-output"
LIBRARY_SYMBOLS = ("malloc", "_IO_2_1_stdin_")


class CannotStart(Exception):
    """The program could not be started or traced."""


class Subject(Tracee):
    """Stopped at its first instruction. Its standard streams are files of our own in memory."""

    def __init__(self, command: Command, relocated: bool) -> None:
        self.command = command
        command.require_directory()
        self.stdin, self.stdout, self.stderr = (os.memfd_create(name) for name in ("stdin", OUTPUT, OUTPUT))
        with open(self.stdin, "wb", closefd=False) as file:
            file.write(command.stdin)
        try:
            pid = start(command, self.stdin, self.stdout, self.stderr)
            super().__init__(pid)
        except BaseException:
            self.close_streams()
            raise
        ptrace(SETOPTIONS, pid, 0, OPTIONS)
        mappings = read_mappings(pid)
        vdso = next(m for m in mappings if m.name == "[vdso]")  # there even in static programs
        code = self.read(vdso.start, vdso.end - vdso.start)
        self.syscall_at = vdso.start + code.index(SYSCALL_INSTRUCTION)
        self.syscall("mmap", SCRATCH, PAGE, PROT_READ_EXECUTE, MAP_PRIVATE_FIXED_ANONYMOUS, NO_FILE, 0)
        self.syscall("mmap", SCRATCH_DATA, PAGE, PROT_READ_WRITE, MAP_PRIVATE_FIXED_ANONYMOUS, NO_FILE, 0)
        self.write(SCRATCH, INT3)
        self.scratch = SCRATCH
        base = load_base(mappings, command.program.path) if relocated else 0
        if base is None:
            self.kill()
            raise CannotStart(f"{command.program.path} is not mapped")
        self.base = base

    def kill(self) -> None:
        super().kill()
        self.close_streams()

    def close_streams(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.stdin = self.stdout = self.stderr = -1

    def reads_our_stdin(self, process: Tracee) -> bool:
        """Not once the program has closed it or opened another file in its place."""
        try:
            return os.path.samestat(os.stat(f"/proc/{process.pid}/fd/0"), os.fstat(self.stdin))
        except OSError:
            return False

    def makes_threads(self, deadline: float) -> bool:
        """Run until a thread is made, or to the end."""
        ptrace(SETOPTIONS, self.pid, 0, OPTIONS | TRACE_CLONE)
        sign = 0
        while True:
            self.resume(sign)
            status = self.wait(deadline)
            if status is None or not os.WIFSTOPPED(status):
                return False
            if status >> 16 == EVENT_CLONE:
                return True
            sign = 0 if status >> 16 else os.WSTOPSIG(status)

    def outputs(self) -> tuple[bytes, bytes]:
        return read_all(self.stdout), read_all(self.stderr)

    @cached_property
    def library_symbols(self) -> dict[str, int]:
        """Addresses of what we need of the C library, from the program itself where it is static."""
        found: dict[str, int] = {}
        for mapping in read_mappings(self.pid):
            if mapping.offset == 0 and (mapping.name == self.command.program.path or "libc.so" in mapping.name):
                base = self.base if mapping.name == self.command.program.path else mapping.start
                for name, value in find_symbols(mapping.name, LIBRARY_SYMBOLS).items():
                    found.setdefault(name, base + value)
        return found


NO_FILE = (1 << 64) - 1


def read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def is_ours(address: int) -> bool:
    """Whether a mapping is one of our own in the program."""
    return address in (SCRATCH, SCRATCH_DATA)


def start(command: Command, stdin: int, stdout: int, stderr: int) -> int:
    """The pid of the program, stopped behind its exec."""
    # Through /proc: a description of its own, read-only and at the beginning. Never a pipe: that is read once.
    feed = os.open(f"/proc/self/fd/{stdin}", os.O_RDONLY)
    environment = {os.fsencode(k): os.fsencode(v) for k, v in command.full_environment().items()}
    arguments = [os.fsencode(argument) for argument in command.argv]
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            fix_addresses()
            for descriptor, source in enumerate((feed, stdout, stderr)):
                os.dup2(source, descriptor)
            os.closerange(3, 1 << 20)
            os.setpgid(0, 0)
            os.chdir(os.fsencode(command.cwd))
            limit_self()
            signal.pthread_sigmask(signal.SIG_SETMASK, set())  # the mask survives an exec
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and that survives an exec too
                signal.signal(ignored, signal.SIG_DFL)
            trace_me()
            os.execve(os.fsencode(command.program.path), arguments, environment)
        finally:
            os._exit(127)
    os.close(feed)
    status = os.waitpid(pid, WAIT_ALL)[1]
    if not os.WIFSTOPPED(status):
        raise CannotStart(f"{command.program.path} cannot be started, or not be traced")
    return pid
