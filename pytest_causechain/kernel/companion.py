"""Python processes of ours beside the user's, and all that must end with us.

A companion answers messages, one at a time, and dies with us; temporary directories that a killed process has left
are removed by the next one; SIGTERM ends a diagnosis as Ctrl-C does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing.connection import Pipe  # by this name: the other imports it only when it is called
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pytest_causechain.kernel.processes import end_sessions, find_sessions

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
PREFIX, LOCK = "causechain-", "lock"
REMOVE_SECONDS = 2.0
# How often we look, amid an exchange, whether anybody still waits for the answer.
LOOK_UP_SECONDS = 0.2

# The path of our own modules comes first: it may be known to this process only.
_START = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:], directory = connection.recv()
from importlib import import_module
from pytest_causechain.kernel.companion import attend
attend(connection, int(sys.argv[2]), directory)
sys.exit(import_module(sys.argv[3]).serve(connection))
"""


class Closing(ABC):
    """Leaving its `with` block closes it."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class OwnDirectory:
    """Locked as long as this process lives; made in `parent`."""

    def __init__(self, parent: str | None = None) -> None:
        remove_orphaned(Path(parent or tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Under another name until it is locked: nobody must find it unlocked while we live.
        new = self.path / f"{LOCK}.new"
        try:
            self._lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            new.rename(self.path / LOCK)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """What we have started ends a little later, and may write one file more."""
        deadline = time.monotonic() + REMOVE_SECONDS
        while True:
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists() or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        os.close(self._lock)


def remove_orphaned(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def handling(signs: Collection[int], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """These signals are handled so, and not blocked or ignored, which the programs we start would inherit."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    before = {sign: signal.signal(sign, handler) for sign in signs}
    try:
        yield
    finally:
        for sign, usual in before.items():
            signal.signal(sign, usual)


def termination_interrupts() -> contextlib.AbstractContextManager[None]:
    """Only where nobody else has an opinion on it."""
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    return handling([signal.SIGTERM] if is_free else [], signal.default_int_handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end: half a companion cannot be closed."""
    arrived: list[int] = []
    with handling((signal.SIGINT, signal.SIGTERM), lambda sign, frame: arrived.append(sign)):
        yield
    for pending in arrived[:1]:
        signal.raise_signal(pending)


def undisturbed() -> contextlib.AbstractContextManager[None]:
    """Ctrl-C reaches all processes of a terminal, but is meant for the session alone."""
    is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # and so it is by programs
    return handling([] if is_ignored else [signal.SIGINT], lambda sign, frame: None)


class CompanionLost(Exception):
    """No answer: `is_late` when its time was over, else the process has ended. `log` is all it has printed."""

    def __init__(self, is_late: bool, log: str = "") -> None:
        super().__init__()
        self.is_late = is_late
        self.log = log


def wait_patiently(wait: Callable[[float], T | None], cancelled: threading.Event, deadline: float) -> T:
    """What waiting for so many seconds, again and again, gives at last; CompanionLost behind the deadline, and a
    KeyboardInterrupt once `cancelled` is set."""
    while not (found := wait(max(0.0, min(LOOK_UP_SECONDS, deadline - time.monotonic())))):
        if cancelled.is_set():
            raise KeyboardInterrupt
        if time.monotonic() >= deadline:
            raise CompanionLost(is_late=True)
    return found


# In a companion: its end of the lifeline.
_lifeline = -1


def hold_lifeline() -> None:
    """In a companion, or in a copy of it: when the other end of the lifeline closes, the kernel kills our process group
    instead of the one that held it before, even amid work that hangs.

    A thread waiting for it would make every os.fork warn from Python 3.12 on."""
    fcntl.fcntl(_lifeline, fcntl.F_SETOWN, -os.getpgrp())


class Companion:
    """Runs `serve(connection)` of a module. Closing leaves neither process nor temporary directory behind."""

    def __init__(
        self,
        module: str,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        cancelled: threading.Event | None = None,
        temporary: str | None = None,
    ) -> None:
        """Without an environment of its own it takes no notice of variables meant for the user's Python. Waiting for an
        answer ends with a KeyboardInterrupt once `cancelled` is set. Its temporary directory is made in `temporary`."""
        # An answer is waited for, or was in vain.
        self.is_busy = False
        # Answers that nobody waits for.
        self._ignored = 0
        self._sending = threading.Lock()
        self.cancelled = cancelled or threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection, theirs = Pipe()
        # Nothing is ever written to it: its end tells the companion of our own.
        lifeline, self._lifeline = os.pipe()
        descriptors = (theirs.fileno(), lifeline)
        self._own = OwnDirectory(temporary)
        self.directory = self._own.path
        try:
            self._log = self.directory / "log"
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    # -P: until it knows our path, no module of the user's directory must come first.
                    [sys.executable, "-P" if environment else "-I", "-c", _START, *map(str, descriptors), module],
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=descriptors,
                    start_new_session=True,  # Ctrl-C is for us
                )
            with contextlib.suppress(OSError):  # it may have ended already; the first exchange tells
                self._connection.send((sys.path, str(self.directory)))
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    def exchange(self, message: object, timeout_seconds: float) -> Any:
        """Sends a message and waits for the answer to it; CompanionLost when none comes."""
        return pickle.loads(self.exchange_bytes(pickle.dumps(message), timeout_seconds))

    def exchange_bytes(self, message: bytes, timeout_seconds: float) -> bytes:
        """The same, pickled."""
        self.is_busy = True
        deadline = time.monotonic() + timeout_seconds
        try:
            with self._sending:
                self._connection.send_bytes(message)
            while self._ignored:
                self._receive(deadline)
                self._ignored -= 1
            answer = self._receive(deadline)
        except (EOFError, OSError):
            raise CompanionLost(is_late=False, log=self._log.read_text(errors="replace")) from None
        self.is_busy = False
        return answer

    def _receive(self, deadline: float) -> bytes:
        wait_patiently(self._connection.poll, self.cancelled, deadline)
        return self._connection.recv_bytes()

    def tell(self, message: object) -> None:
        """A message whose answer is not waited for."""
        self._ignored += 1
        self.send(message)

    def send(self, message: object) -> None:
        """Amid an exchange, from another thread: a message without an answer of its own."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(message)

    def close(self, patience_seconds: float = 0.0) -> None:
        """An idle companion is told to end and may take its time; a busy one is not waited for."""
        with contextlib.suppress(EOFError, OSError):
            if not self.is_busy and patience_seconds:
                self._connection.send(None)
                # Its end closes the connection.
                while self._connection.poll(patience_seconds):
                    self._connection.recv()
        self.end()
        self._connection.close()
        os.close(self._lifeline)
        self._own.remove()

    def end(self) -> None:
        """It and all it has started, even amid an exchange, which is lost then."""
        if self._process is None or self._process.returncode is not None:
            return
        # Before the process is waited for, which would set its number free for others.
        sessions = find_sessions(self._process.pid) - {os.getsid(0)}
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        end_sessions(sessions)
        self._process.wait()


def attend(connection: Connection[Any, Any], lifeline: int, directory: str) -> None:
    """In the companion: its descriptors are not for the programs under test, and it does not outlive us, nor do its
    own temporary files, even when it is killed."""
    global _lifeline
    _lifeline, tempfile.tempdir = lifeline, directory
    for descriptor in (connection.fileno(), lifeline):
        os.set_inheritable(descriptor, False)
    hold_lifeline()
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
