"""The standard streams of a started program: what it finds on its standard input and, where an Observation is put in
its place, what it seems to print.

Mostly there is no process then at all, which is fastest. Who goes on with the process id gets a small one that writes
what was observed and ends in the same way.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import signal
import stat
import termios
import threading
import weakref
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from pytest_causechain.model.runs import Observation

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# More than this is neither kept in memory nor compared with anything: a test that feeds more counts as unknown.
MAX_STDIN_BYTES = 64 * 1024 * 1024

# Descriptors of _execute_child that were not asked for.
NOT_GIVEN = -1

# A process of whatever kind of streams.
Process = Popen[Any]

# Where a raw file keeps its Feed.
_ATTRIBUTE = "_causechain_feed"


def read_given_stdin(read_end: int, write_end: int) -> bytes | None:
    """Reads the standard input of a program about to start, or returns None where it is not known (yet)."""
    if write_end != NOT_GIVEN:
        return None  # a pipe: its Feed knows later
    if read_end == NOT_GIVEN:
        return _read_ahead(0) if _is_regular(0) else b""
    if _is_regular(read_end):
        return _read_ahead(read_end)
    return b"" if os.fstat(read_end).st_rdev == Path(os.devnull).stat().st_rdev else None


def _is_regular(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # a closed standard input
        return False


def _read_ahead(descriptor: int) -> bytes | None:
    """Reads from the descriptor's position on, which does not move."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    size = os.fstat(descriptor).st_size - position
    if size > MAX_STDIN_BYTES:
        return None
    content = bytearray()
    while len(content) < size:
        part = os.pread(descriptor, size - len(content), position + len(content))
        if not part:
            break
        content += part
    return bytes(content)


class Feed:
    """Listens to what the test writes to a process through a pipe.

    Popen makes process.stdin before it starts the child. All writing by hand ends in the `write` of the raw
    file below it, looked up on the instance; only communicate writes around it, from `_input`, and asyncio, which
    tells by `keep`.
    """

    def __init__(self, process: Process) -> None:
        self._written: bytearray | None = bytearray()
        raw = process.stdin
        raw = getattr(raw, "buffer", raw)
        raw = getattr(raw, "raw", raw)
        # The raw file holds this function: by a weak reference back, files nobody closes still close at once.
        self._raw = itself = weakref.ref(raw)

        def write(data: ReadableBuffer) -> int | None:
            target = itself()
            assert target is not None
            try:
                count = io.FileIO.write(target, data)  # type: ignore[arg-type]
            except BrokenPipeError:
                self.keep(data)  # the program ended without reading all it was given
                raise
            self.keep(memoryview(data).cast("B")[: count or 0])
            return count

        raw.write = write  # type: ignore[method-assign, union-attr]
        setattr(raw, _ATTRIBUTE, self)

    def keep(self, data: ReadableBuffer) -> None:
        if self._written is None:
            return
        if len(self._written) + memoryview(data).nbytes > MAX_STDIN_BYTES:
            self._written = None
        else:
            self._written += data

    def bytes_given(self, process: Process) -> bytes | None:
        """Returns all that was fed; None as long as more may follow: the pipe is open and the process alive."""
        raw = self._raw()
        is_open = raw is not None and not raw.closed
        if self._written is None or (is_open and process.returncode is None):
            return None
        given = bytes(self._written) + bytes(getattr(process, "_input", None) or b"")
        return given if len(given) <= MAX_STDIN_BYTES else None


def find_feed(raw: object) -> Feed | None:
    """Finds the Feed that listens to this raw file."""
    return getattr(raw, _ATTRIBUTE, None)


# In a program's place

# No process ever has it: it is above the largest pid_max.
NO_PROCESS_ID = 0x7FFFFFFF

# What a pipe takes before its writer has to wait, where the kernel does not tell.
PIPE_CAPACITY = 65536

# Signals that leave a process running which does nothing about them; 0 only asks whether it exists.
HARMLESS_SIGNALS = {0, signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
HARMLESS_SIGNALS |= {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


class Descriptors(NamedTuple):
    """The descriptors given to _execute_child, under its names; -1: inherited."""

    p2cread: int
    p2cwrite: int
    c2pread: int
    c2pwrite: int
    errread: int
    errwrite: int


if TYPE_CHECKING:
    _ProcessBase = Process
else:
    _ProcessBase = object


class _Substituted(_ProcessBase):
    """Stands before a process's own class: everything that would ask the kernel for the child.

    As with a real child, the returncode is None until poll or wait is called. A run without end can be waited
    for only without a time limit; it then counts as killed by the limit it was observed under.
    """

    _causechain_returncode: int
    _causechain_hangs: bool
    _causechain_output: tuple[bytes | None, bytes | None]

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if self._causechain_hangs and timeout is not None:
                raise TimeoutExpired(self.args, timeout)
            self.returncode = self._causechain_returncode
        return self.returncode

    def _internal_poll(self, _deadstate: int | None = None, *_: object) -> int | None:
        # _deadstate is given when the process object goes away.
        if self.returncode is None and (not self._causechain_hangs or _deadstate is not None):
            self.returncode = self._causechain_returncode
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None and sig not in HARMLESS_SIGNALS:
            self.returncode = -sig

    def communicate(self, input: object = None, timeout: float | None = None) -> tuple[object, object]:
        __tracebackhide__ = True
        try:
            output: tuple[object, object] = super().communicate(input, timeout)
            return output
        except TimeoutExpired as expired:
            if self._causechain_hangs:
                # Raised by our _wait, which knows neither the whole timeout nor the output.
                expired.timeout = timeout or 0.0
                expired.output, expired.stderr = self._causechain_output
            raise


_classes: dict[type[Process], type[Process]] = {}


def _substituted_class(own: type[Process]) -> type[Process]:
    """Makes one for each class of processes, named like it: a test may look at the repr."""
    if own not in _classes:
        names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
        _classes[own] = type(own.__name__, (_Substituted, own), names)
    return _classes[own]


def substitute_process(process: Process, descriptors: Descriptors, observation: Observation) -> None:
    """Does what _execute_child does, but for the child."""
    to_stdout, to_stderr = _share_out(descriptors, observation)
    hangs = observation.ending == "timeout"
    vars(process).update(
        _causechain_returncode=-signal.SIGKILL if hangs else observation.returncode,
        _causechain_hangs=hangs,
        _causechain_output=(
            (to_stdout or None) if descriptors.c2pread != NOT_GIVEN else None,
            (to_stderr or None) if descriptors.errread != NOT_GIVEN else None,
        ),
    )
    process.__class__ = _substituted_class(type(process))
    deliver(1 if descriptors.c2pwrite == NOT_GIVEN else descriptors.c2pwrite, to_stdout)
    deliver(2 if descriptors.errwrite == NOT_GIVEN else descriptors.errwrite, to_stderr)
    if descriptors.p2cwrite != NOT_GIVEN:
        _swallow(descriptors.p2cwrite)
    process.pid = NO_PROCESS_ID
    process._child_created = True  # type: ignore[attr-defined]
    process._close_pipe_fds(*descriptors)  # type: ignore[attr-defined]


def _share_out(descriptors: Descriptors, observation: Observation) -> tuple[bytes, bytes]:
    """Returns what goes to the descriptors of stdout and stderr, which with stderr=STDOUT are one."""
    if descriptors.errwrite != NOT_GIVEN and descriptors.errwrite == descriptors.c2pwrite:
        # C keeps what is written to a stdout that is no terminal until the end, and stderr not at all.
        return observation.stderr + observation.stdout, b""
    return observation.stdout, observation.stderr


def _swallow(write_end: int) -> None:
    """Lets the test write as much as it likes to a program that is not there."""
    devnull = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(devnull, write_end, inheritable=False)
    finally:
        os.close(devnull)


def deliver(descriptor: int, content: bytes) -> None:
    """Writes without ever waiting for a reader, who may come only after our return, if at all."""
    if not content:
        return
    try:
        own = os.dup(descriptor)
    except OSError:  # a closed stdout or stderr: a real program's output would be lost as well
        return
    if _takes_at_once(own, len(content)):
        _write_all(own, content)
    else:
        threading.Thread(target=_write_all, args=(own, content), name="causechain-output", daemon=True).start()


def _takes_at_once(descriptor: int, size: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISFIFO(mode):
        return not stat.S_ISSOCK(mode)
    waiting = int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), "little")
    try:
        capacity = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    except OSError:
        capacity = PIPE_CAPACITY
    return waiting == 0 and size <= capacity


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    # A reader that has gone, a full disk: lost, as the output of a real program would be.
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    os.close(descriptor)


class StandIn(TypedDict):
    """The arguments of _execute_child, by name, that start the stand-in for a program.

    What it writes is in files without a name, `pass_fds`, to be closed when it has been started."""

    args: list[str]
    executable: str
    shell: bool
    close_fds: bool
    pass_fds: tuple[int, ...]


def describe_stand_in(descriptors: Descriptors, observation: Observation) -> StandIn:
    to_stdout, to_stderr = _share_out(descriptors, observation)
    files = [_keep(content) for content in (to_stdout, to_stderr)]
    steps = ["ulimit -c 0", f"/bin/cat /dev/fd/{files[0]}", f"/bin/cat /dev/fd/{files[1]} >&2"]
    if descriptors.p2cwrite != NOT_GIVEN:
        # The test may write as much as it likes, also when the stand-in is gone.
        steps.insert(0, "exec 3<&0; /bin/cat <&3 >/dev/null 2>&1 3<&- &")
    match observation.ending:
        case "exit":
            steps.append(f"exit {observation.code}")
        case "signal":
            steps.append(f"kill -{observation.code} $$")
        case "timeout":
            steps.append("exec /bin/sleep 2147483647")
    return {
        "args": ["/bin/sh", "-c", "\n".join(steps)],
        "executable": "/bin/sh",
        "shell": False,
        "close_fds": True,
        "pass_fds": tuple(files),
    }


def _keep(content: bytes) -> int:
    descriptor = os.memfd_create("causechain-output")
    _write_all(os.dup(descriptor), content)
    return descriptor
