"""Compiles programs once a session, starts them under ptrace, and looks for what is left."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from building import Sources, compile_program

from pytest_causechain.kernel.elf import TYPE_SHARED, find_symbols, read_type
from pytest_causechain.model.runs import Command, Program
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.sandbox.subject import Subject, launch

# No test here comes near it on a machine that is not broken.
PLENTY_SECONDS = 60.0


@pytest.fixture
def blocked_children() -> Iterator[None]:
    """As in the engine: Tracee.wait sleeps until SIGCHLD."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


MakeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """make_once(name, fill) makes a directory, also when several workers of pytest-xdist ask for it."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        directory = root / name
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.exists():
                directory.mkdir()
                try:
                    fill(directory)
                except BaseException:
                    shutil.rmtree(directory)
                    raise
        return directory

    return make


@pytest.fixture(scope="session")
def compiled(make_once: MakeOnce) -> Callable[..., Path]:
    """compiled(sources, *flags, name=..., compiler=...) is a program to be looked at: all workers share it.

    The same sources are compiled once a session."""

    def compile_once(sources: Sources, *flags: str, name: str = "program", compiler: str = "cc") -> Path:
        content = sources if isinstance(sources, str) else tuple(sources.items())
        key = hashlib.sha256(repr((content, flags, name, compiler)).encode()).hexdigest()[:16]

        def fill(directory: Path) -> None:
            compile_program(directory / name, sources, *flags, compiler=compiler)

        return make_once(f"program-{key}", fill) / name

    return compile_once


@pytest.fixture(scope="session")
def build(compiled: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Program]:
    """build(sources, *flags, name=..., compiler=...) is a program to be run: a copy that only this worker has.

    Thus a test may look for the processes that execute it, and it may write to its directory."""
    copies: dict[Path, Program] = {}

    def copy_once(sources: Sources, *flags: str, **more: str) -> Program:
        path = compiled(sources, *flags, **more)
        if path not in copies:
            directory = tmp_path_factory.mktemp("program") / "copy"
            shutil.copytree(path.parent, directory)
            copies[path] = identify_program(str(directory / path.name))
        return copies[path]

    return copy_once


# Without PTRACE_SETREGSET of NT_X86_XSTATE and, for processors without that, PTRACE_SETFPREGS.
WITHOUT_EXTENDED_STATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

long ptrace(long request, long process, void *address, void *data)
{
    long (*known)(long, long, void *, void *) = dlsym(RTLD_NEXT, "ptrace");
    if (request != 15 && (request != 0x4205 || address != (void *) 0x202))
        return known(request, process, address, data);
    errno = EFAULT;
    return -1;
}
"""


@pytest.fixture(scope="session")
def amx(compiled: Callable[..., Path]) -> dict[str, str]:
    """The environment in which gdb fails as gdb 13 does on processors with AMX: it cannot write extended state."""
    return {"LD_PRELOAD": str(compiled(WITHOUT_EXTENDED_STATE, "-shared", "-fPIC", name="ptrace.so"))}


@pytest.fixture
def start() -> Iterator[Callable[..., Subject]]:
    """start(program, *arguments, stdin=...) is a Subject, killed behind the test."""
    with ExitStack() as stack:

        def start_one(program: Program, *words: str, stdin: bytes = b"", cwd: str | None = None) -> Subject:
            directory = cwd or str(Path(program.path).parent)
            command = Command(program, (program.path, *words), directory, (), stdin)
            subject = launch(command, is_relocated(program), time.monotonic() + PLENTY_SECONDS)
            stack.callback(subject.kill)
            return subject

        yield start_one


@pytest.fixture
def deadline() -> float:
    return time.monotonic() + PLENTY_SECONDS


@pytest.fixture
def symbol() -> Callable[[Program, str], int]:
    """The address of a symbol in the file."""
    return lambda program, name: find_symbols(program.path, (name,))[name]


@pytest.fixture
def open_descriptors() -> Callable[[], set[str]]:
    """Those of this process, without the one that the listing itself takes, which is closed by then."""
    return lambda: {link.name for link in list(Path("/proc/self/fd").iterdir()) if link.is_symlink()}


@pytest.fixture
def leaves_nothing(open_descriptors: Callable[[], set[str]]) -> Iterator[None]:
    """The test must close all descriptors it opened, and end all processes it started."""
    descriptors, processes = open_descriptors(), find_own_processes()
    yield
    assert open_descriptors() == descriptors
    # Only those that the test has started: what another one has left is not its fault.
    assert find_own_processes() - processes == set()


def find_own_processes() -> set[int]:
    """Children of this process, and what it traces: also those that have ended and were not waited for."""
    own = {f"{word}:\t{os.getpid()}\n" for word in ("PPid", "TracerPid")}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (process / "status").read_text("utf-8", "surrogateescape")
            if any(line in status for line in own):
                found.add(int(process.name))
    return found


def is_relocated(program: Program) -> bool:
    return read_type(Path(program.path).read_bytes()) == TYPE_SHARED
