"""Runs of a program under ptrace, started just as the test started it.

A process has room for one tracer, and in experiments that is us: programs that trace themselves are found out in a run
that is not traced, whose calls of ptrace(2) the kernel shows us before it carries them out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pytest_causechain.kernel import linux
from pytest_causechain.kernel.elf import find_symbols
from pytest_causechain.kernel.linux import die_with_parent, fix_addresses, listen_to, ptrace
from pytest_causechain.kernel.processes import (
    NotMapped,
    end_group,
    entry_point,
    find_process,
    locate_modules,
    read_mappings,
    roam,
)
from pytest_causechain.model.isolation import NO_BOUNDS, Bounds
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.model.runs import Command
from pytest_causechain.sandbox.isolation import OPEN_STAGE, UNTOUCHED, Stage, View, limit_self
from pytest_causechain.tracee.tracee import (
    OPTIONS,
    SCRATCH,
    SCRATCH_DATA,
    UNKNOWN,
    Landmarks,
    NotReached,
    Tracee,
    inject,
)

# The name that the files have which runs write their output to.
OUTPUT = "causechain-output"
# Of all streams the first, and the variables of the environment.
LIBRARY_SYMBOLS = ("malloc", "_IO_list_all", "__environ")
GO = b"."
# struct seccomp_notif: its number, who calls, flags; then the call, kind of processor, where, and six arguments.
NOTIFICATION = struct.Struct("<QII iIQ6Q")
RESPONSE = struct.Struct("<QqiI")
# Those that do it, do it early.
MOST_SECONDS = 5.0


class CannotStart(Exception):
    """The program could not be started or traced."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Files of our own in memory. Of the input only which file it is: it is read, and nothing else."""

    stdin: tuple[int, int]
    stdout: int = field(default_factory=partial(os.memfd_create, OUTPUT))
    stderr: int = field(default_factory=partial(os.memfd_create, OUTPUT))

    def read(self) -> tuple[bytes, bytes]:
        return read_all(self.stdout), read_all(self.stderr)

    def close(self) -> None:
        os.close(self.stdout)
        os.close(self.stderr)


class Subject(Tracee):
    """A run of the program that a command starts, with a view of its own on a stage."""

    def __init__(
        self,
        pid: int,
        command: Command,
        streams: Streams,
        landmarks: Landmarks = UNKNOWN,
        stage: Stage = OPEN_STAGE,
    ) -> None:
        super().__init__(pid, landmarks)
        self.command = command
        self.streams = streams
        self.stage = stage
        self.view = UNTOUCHED

    def enter_stage(self, before: View) -> None:
        """`before` is what it has seen so far."""
        self.view = self.stage.enter(self, before)

    def close(self) -> None:
        super().close()
        self.streams.close()
        self.stage.leave(self.view)

    def outputs(self) -> tuple[bytes, bytes]:
        return self.streams.read()


def launch(
    command: Command,
    relocated: bool,
    deadline: float,
    libraries: Sequence[str] = (),
    stage: Stage = OPEN_STAGE,
    bounds: Bounds = NO_BOUNDS,
    roams: bool = True,
) -> Subject:
    """The program just as the test started it, stopped at its entry point: all libraries are in their places, and
    nothing of its own has run. `libraries` are those that count as its own code. Unless it `roams`, it stays on the
    processors that we are on."""
    command.require_directory()
    with open(os.memfd_create("stdin"), "wb") as stdin:
        stdin.write(command.stdin)
        stdin.flush()
        streams = Streams(identity(os.fstat(stdin.fileno())))
        try:
            pid = start(command, stdin.fileno(), streams, stage, bounds, roams)
            subject = Subject(pid, command, streams, stage=stage)
        except BaseException:
            streams.close()
            raise
    with subject.ended_by_errors():
        try:
            prepare(subject, relocated, deadline, libraries)
        except NotReached as missed:
            if missed.status is None:
                raise BudgetUsedUp from None
            raise CannotStart(f"{command.program.path} ends before its first instruction") from None
        except NotMapped as missing:
            if missing.path in libraries:
                raise Refusal(explain_other_libraries(missing.path)) from None
            raise CannotStart(str(missing)) from None
    return subject


def explain_other_libraries(path: str) -> str:
    return (
        f"only one of the two runs uses {path}: let both tests start the program with the same libraries, or take this "
        "one off cause_chain_libraries."
    )


def prepare(subject: Subject, relocated: bool, deadline: float, libraries: Sequence[str]) -> None:
    path, pid = subject.command.program.path, subject.pid
    mappings = read_mappings(pid)
    vdso = next(m for m in mappings if m.name == "[vdso]")  # there even in static programs
    code = subject.read(vdso.start, vdso.end - vdso.start)
    load_map = locate_modules(mappings, path, relocated)
    subject.landmarks = Landmarks(load_map, vdso.start + code.index(linux.SYSCALL_INSTRUCTION))
    # Before the libraries come, to which the kernel gives the next free places.
    for address, protection in ((SCRATCH, linux.PROT_READ_EXECUTE), (SCRATCH_DATA, linux.PROT_READ_WRITE)):
        inject(subject, "mmap", address, linux.PAGE, protection, linux.MAP_PRIVATE_FIXED_ANONYMOUS, linux.NO_FILE, 0)
    subject.write(SCRATCH, linux.INT3)
    stage, inputs = subject.stage, subject.command.inputs
    stage.admit(subject)
    stage.reserve(inputs)
    subject.enter_stage(UNTOUCHED)
    stage.restore(subject, subject.view, inputs)
    entry = entry_point(pid)
    if subject.registers().rip != entry:  # as it is in a static program
        subject.run_to([Stop(load_map.to_file(entry), 1)], deadline)
    load_map = locate_modules(read_mappings(pid), path, relocated, libraries)
    subject.landmarks = replace(subject.landmarks, load_map=load_map, symbols=find_library_symbols(subject))


def find_library_symbols(subject: Subject) -> dict[str, int]:
    """Addresses of what we need of the C library, from the program itself where it is static."""
    path = subject.command.program.path
    found: dict[str, int] = {}
    for mapping in read_mappings(subject.pid):
        if mapping.offset == 0 and (mapping.name == path or "libc.so" in mapping.name):
            base = subject.base if mapping.name == path else mapping.start
            for name, value in find_symbols(mapping.name, LIBRARY_SYMBOLS).items():
                found.setdefault(name, base + value)
    return found


def read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def is_ours(address: int) -> bool:
    """Whether a mapping is one of our own in the program."""
    return address in (SCRATCH, SCRATCH_DATA)


def require_tracing() -> None:
    """A Refusal where the kernel does not let a process trace its own children."""
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        os.read(gate, 1)
        os._exit(0)
    os.close(gate)
    try:
        ptrace(linux.SEIZE, pid)
    except OSError as error:
        raise Hopeless(
            f"this system does not let programs be traced ({error.strerror} from ptrace): in a container allow it "
            "(docker run --cap-add=SYS_PTRACE), elsewhere set kernel.yama.ptrace_scope to 1."
        ) from None
    finally:
        os.close(opener)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, linux.WAIT_ALL)


def start(command: Command, stdin: int, streams: Streams, stage: Stage, bounds: Bounds, roams: bool) -> int:
    """The pid of the program, stopped before its first instruction."""
    # Through /proc: a description of its own, read-only and at the beginning. Never a pipe: that is read once.
    feed = os.open(f"/proc/self/fd/{stdin}", os.O_RDONLY)
    environment = {os.fsencode(k): os.fsencode(v) for k, v in command.full_environment().items()}
    arguments = [os.fsencode(argument) for argument in command.argv]
    others = (os.getpid(), os.getppid())
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            os.close(opener)
            # Until it is traced; when its parent has been killed before, it must never run.
            if os.read(gate, 1) != GO:
                os._exit(127)
            fix_addresses()
            if roams:
                roam()
            for descriptor, source in enumerate((feed, streams.stdout, streams.stderr)):
                os.dup2(source, descriptor)
            os.closerange(3, 1 << 20)
            os.setpgid(0, 0)
            os.chdir(os.fsencode(command.cwd))
            limit_self(bounds)
            stage.admit_self(others)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())  # the mask survives an exec
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and that survives an exec too
                signal.signal(ignored, signal.SIG_DFL)
            os.execve(os.fsencode(command.program.path), arguments, environment)
        finally:
            os._exit(127)
    os.close(feed)
    os.close(gate)
    try:
        ptrace(linux.SEIZE, pid, 0, OPTIONS)
        os.write(opener, GO)
    except OSError:
        os.kill(pid, signal.SIGKILL)
    finally:
        os.close(opener)
    if not os.WIFSTOPPED(os.waitpid(pid, linux.WAIT_ALL)[1]):
        raise CannotStart(f"{command.program.path} cannot be started, or not be traced")
    # It is still within its execve(2), whose result would take the place of what we put into its registers.
    ptrace(linux.INTERRUPT, pid)
    ptrace(linux.CONT, pid)
    os.waitpid(pid, linux.WAIT_ALL)
    return pid


def traces_itself(command: Command, directory: str, deadline: float) -> bool:
    """It, or one that it has started for that, when it runs in this directory."""
    deadline = min(deadline, time.monotonic() + MOST_SECONDS)
    with _run(command, directory) as (process, listener), open(os.pidfd_open(process.pid), "rb", buffering=0) as ended:
        poll = select.poll()
        for descriptor in (listener, ended.fileno()):
            poll.register(descriptor, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = [descriptor for descriptor, _ in poll.poll(1000 * left)]
            if listener in ready and _is_self_tracing(listener, process.pid):
                return True
            if ended.fileno() in ready:
                break
    return False


def _is_self_tracing(listener: int, pid: int) -> bool:
    """What the next call is for; any other may go on."""
    notification = bytearray(NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, linux.NOTIFICATION_RECEIVE, notification)
        number, caller, *_, request, target = NOTIFICATION.unpack(notification)[:8]
        if request == linux.TRACEME:
            target = find_process(caller)
        if request in (linux.TRACEME, linux.ATTACH, linux.SEIZE) and target == pid:
            return True
        fcntl.ioctl(listener, linux.NOTIFICATION_SEND, RESPONSE.pack(number, 0, 0, linux.NOTIFICATION_CONTINUE))
    except OSError:  # the caller has been killed meanwhile
        pass
    return False


@contextlib.contextmanager
def _run(command: Command, directory: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program as the test started it, and where its calls are shown. An OSError where the kernel does not."""
    ours, theirs = socket.socketpair()

    def prepare() -> None:
        die_with_parent()
        limit_self()
        socket.send_fds(theirs, [b"."], [listen_to(linux.PTRACE)])

    with ours, theirs, open(os.memfd_create("stdin"), "w+b") as stdin:
        stdin.write(command.stdin)
        stdin.seek(0)
        process = subprocess.Popen(
            command.argv,
            executable=command.program.path,
            cwd=directory,
            env=command.full_environment(),
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,
        )
        _, (listener,), *_ = socket.recv_fds(ours, 1, 1)
    try:
        yield process, listener
    finally:
        os.close(listener)
        end_group(process.pid)
        process.kill()
        process.wait()
