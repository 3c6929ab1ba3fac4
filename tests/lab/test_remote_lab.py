"""The engine process: it may die, it is replaced, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from places import find_processes
from waiting import comes_true

from pytest_causechain.debugger.types import ArrayType, PointerType
from pytest_causechain.kernel.processes import list_children
from pytest_causechain.lab import remote_lab, starts
from pytest_causechain.lab.laboratory import Lab, Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import NOTHING
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.runs import Command, Program
from pytest_causechain.sandbox import subject
from pytest_causechain.sandbox.copies import CannotCopy

PROGRAM = r"""
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static void *wait_until(void *x) { pthread_mutex_lock(x); return NULL; }
static void amid(void) {}
static int twice(int n) { return 2 * n; }
static int table(int n)
{
    int cells[n], tail = n;
    for (int i = 0; i < n; i++)
        cells[i] = i;
    return twice(cells[n - 1]) + tail;
}
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "writing") == 0)
        open("output", O_WRONLY | O_CREAT, 0600);
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        pthread_t thread;
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&mutex);
        pthread_create(&thread, NULL, wait_until, &mutex);
        amid();
        pthread_mutex_unlock(&mutex);
        pthread_join(thread, NULL);
    }
    if (argc > 1 && strcmp(argv[1], "crash") == 0)
        *(volatile int *)8 = twice(1);
    if (argc > 1 && strcmp(argv[1], "endless") == 0) {
        if (fork() == 0) {
            prctl(PR_SET_NAME, "amid the run");
            pause();
        }
        for (;;)
            twice(1);
    }
    printf("%d\n", twice(21));
    printf("%d %d\n", table(5), table(50));
    return 3;
}
"""
STDOUT = b"42\n13 148\n"
PLENTY_SECONDS = 120.0
SESSION = """
import sys, tempfile
tempfile.tempdir, path, *sys.path[:] = sys.argv[1:]
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.runs import Command, Program
command = Command(Program(path, ""), (path, "endless"), tempfile.tempdir)
lab = RemoteLab(Open(command, command), Budget(100))
lab.run_seconds = 100
lab.experiment("failing")
"""
OpenRemote = Callable[..., RemoteLab]


@pytest.fixture(scope="module")
def command(build) -> Callable[..., Command]:
    program = build(PROGRAM, "-pthread")
    return lambda *words: Command(program, (program.path, *words), str(Path(program.path).parent))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all temporary files of the test go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def open_remote(command, temporary) -> Iterator[OpenRemote]:
    """Closed behind the test, when neither a process nor a temporary file may be left."""
    with contextlib.ExitStack() as stack:

        def open_one(*words: str, kind: str = "fork", seconds: float = PLENTY_SECONDS) -> RemoteLab:
            one = command(*words)
            return stack.enter_context(RemoteLab(Open(one, one, kind=kind), Budget(seconds)))

        yield open_one
    assert_nothing_left(command, temporary)


def assert_nothing_left(command, temporary: Path) -> None:
    # The kernel takes a moment to end a process that it was told to kill.
    assert comes_true(lambda: not processes_of(command().program.path)), processes_of(command().program.path)
    assert list(temporary.iterdir()) == []


def processes_of(path: str) -> list[str]:
    """Those that execute the program, and gdbs that were started for it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(path) in words:
                found.append(" ".join(map(os.fsdecode, words)))
    return found


def stop_at(lab: Lab, name: str, visit: int = 1) -> tuple[Stop, Stop]:
    function = next(f for f in lab.program.functions if f.name == name)
    return Stop(function.address, visit), Stop(function.body, 1)


def engine_of(lab: RemoteLab) -> int:
    """The copy of the engine's process that has the lab."""
    assert lab._channel is not None
    (copy,) = list_children(lab._channel._process.pid)
    return copy


def gdb_of(lab: RemoteLab) -> int:
    (gdb,) = (p for p in list_children(engine_of(lab)) if Path(f"/proc/{p}/comm").read_text() == "gdb\n")
    return gdb


def is_amid_a_run(program: Program) -> bool:
    """Whether an endless run has got as far as to start its child."""
    for pid in find_processes(program):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "amid the run\n":
                return True
    return False


@contextlib.contextmanager
def once_amid_a_run(program: Program, action: Callable[[], object]) -> Iterator[None]:
    """In a thread of its own, while the block waits for the run."""

    def act() -> None:
        if comes_true(lambda: is_amid_a_run(program)):
            action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


class TestLostEngine:
    @pytest.mark.parametrize("kind", ["fork", "rerun"])
    def test_while_idle(self, open_remote, kind):
        lab = open_remote(kind=kind)
        lab.run_seconds = 7.0
        stops = stop_at(lab, "twice")
        before = lab.experiment("failing", stops)
        first = engine_of(lab)
        os.kill(first, signal.SIGKILL)
        assert lab.experiment("failing", stops) == before
        assert before.stdout == STDOUT
        assert engine_of(lab) != first
        assert (lab.name, lab.run_seconds) == (kind, 7.0)

    def test_at_work(self, open_remote, command):
        lab = open_remote("endless", kind="fork")
        lab.run_seconds = PLENTY_SECONDS
        first = engine_of(lab)

        def kill_engine() -> None:
            # The run under way cannot end by itself any more, but the one in the next engine does.
            lab._limits = (1.0, math.inf)
            os.kill(first, signal.SIGKILL)

        with once_amid_a_run(command().program, kill_engine):
            seen = lab.experiment("failing")
        assert seen.ending == "timeout"
        assert engine_of(lab) != first

    def test_its_visits_are_right_with_the_new_numbers_of_types(self, open_remote):
        lab = open_remote(kind="fork")
        # In this order, which is not that of the new engine.
        lab.visit("failing", stop_at(lab, "twice"))
        before = lab.visit("failing", stop_at(lab, "table"))
        os.kill(engine_of(lab), signal.SIGKILL)
        after = lab.visit("failing", stop_at(lab, "table"))

        def resolve(visit, number):
            found = visit.types[number]
            is_pointing = isinstance(found, PointerType | ArrayType)
            return replace(found, target=resolve(visit, found.target)) if is_pointing else found

        def types(visit):
            return [[(v.name, resolve(visit, v.type)) for v in f.variables] for f in visit.frames]

        assert types(after) == types(before)
        assert after.types == lab.program.types

    def test_the_session_too(self, command, tmp_path):
        """Killed amid a run, whose children nobody traces."""
        program = command().program
        session = subprocess.Popen([sys.executable, "-c", SESSION, str(tmp_path), program.path, *sys.path])
        try:
            assert comes_true(lambda: is_amid_a_run(program))
        finally:
            session.kill()
            session.wait()
        assert comes_true(lambda: not processes_of(program.path))

    def test_twice_at_the_same_work(self, open_remote):
        lab = open_remote("endless", kind="fork")
        lab.run_seconds = 100.0
        killed: set[int] = set()

        def kill_each() -> None:
            deadline = time.monotonic() + PLENTY_SECONDS
            while len(killed) < 2 and time.monotonic() < deadline:
                # Only amid the work: once it has started the program.
                with contextlib.suppress(AssertionError, OSError, ValueError):
                    engine = engine_of(lab)
                    if engine not in killed and len(list_children(engine)) > 1:
                        os.kill(engine, signal.SIGKILL)
                        killed.add(engine)
                time.sleep(0.02)

        thread = threading.Thread(target=kill_each)
        thread.start()
        with pytest.raises(Refusal, match=r"the engine failed twice at the same work \(.*\): please report this\.$"):
            lab.experiment("failing")
        thread.join()

    def test_one_that_cannot_start(self, command, temporary, monkeypatch):
        monkeypatch.setattr("sys.path", ["/nowhere"])
        with pytest.raises(Refusal, match="ModuleNotFoundError"):
            RemoteLab(Open(command(), command()), Budget(PLENTY_SECONDS))
        assert_nothing_left(command, temporary)


class TestLostGdb:
    @pytest.mark.parametrize("kind", ["fork", "rerun"])
    def test_visit(self, open_remote, kind):
        lab = open_remote(kind=kind)
        os.kill(gdb_of(lab), signal.SIGKILL)
        visit = lab.visit("failing", stop_at(lab, "twice"))
        assert [f.function for f in visit.frames][:2] == ["twice", "main"]

    def test_backtrace_of_a_crash(self, open_remote):
        lab = open_remote("crash", kind="fork")
        os.kill(gdb_of(lab), signal.SIGKILL)
        seen = lab.experiment("failing", stop_at(lab, "twice"))
        assert (seen.ending, seen.code) == ("signal", signal.SIGSEGV)
        assert seen.backtrace[0].function == "main"


class TestChoice:
    def test_plain(self, open_remote):
        lab = open_remote()
        lab.experiment("failing", stop_at(lab, "twice"))
        assert lab.name == "fork"

    def test_a_file_open_for_writing_when_met(self, open_remote):
        lab = open_remote("writing")
        lab.experiment("failing")
        assert lab.name == "fork"
        assert lab.experiment("failing", stop_at(lab, "twice")).stdout == STDOUT
        assert lab.name == "rerun"

    def test_threads(self, open_remote):
        lab = open_remote("threads")
        assert lab.experiment("failing", stop_at(lab, "twice")).stdout == STDOUT
        assert lab.name == "fork"  # they have ended by then
        assert lab.experiment("failing", stop_at(lab, "amid")).stdout == STDOUT
        assert lab.name == "rerun"


def test_frames_with_an_array_of_computed_length(open_remote):
    """What was learned of a function at one visit must not be believed at another of other lengths."""
    lab = open_remote()
    for visit in (1, 2, 1):
        # Through twice, so that table is an outer frame too.
        stops = (*stop_at(lab, "table", visit), stop_at(lab, "twice")[1])
        # A new one has learned nothing yet.
        seen, expected = (one.visit("failing", stops) for one in (lab, open_remote()))

        def places(visit):
            sp = visit.frames[-1].sp
            return [(f.function, f.line, [(v.name, v.address - sp) for v in f.variables]) for f in visit.frames[:3]]

        assert places(seen) == places(expected)


class TestTime:
    @pytest.mark.parametrize("kind", ["fork", "rerun"])
    def test_is_over_amid_a_run(self, open_remote, command, kind, monkeypatch):
        """Which may not be a hanging one, then."""
        # The opening may take all the time on a busy machine: what comes behind it is told so.
        monkeypatch.setattr(remote_lab, "GRACE_SECONDS", PLENTY_SECONDS)
        lab = open_remote("endless", kind=kind, seconds=1.0)
        lab.run_seconds = PLENTY_SECONDS
        with pytest.raises(BudgetUsedUp, match="--cause-chain-timeout"):
            lab.experiment("failing")
        assert find_processes(command().program) == []
        with pytest.raises(BudgetUsedUp):
            lab.visit("failing", ())
        with pytest.raises(BudgetUsedUp):
            lab.trace("failing", (), ())

    def test_an_engine_that_does_not_answer_is_not_asked_again(self, open_remote, monkeypatch):
        """Whatever keeps it busy."""
        lab = open_remote("endless")
        opened: list[None] = []
        monkeypatch.setattr(lab, "_open_channel", lambda: opened.append(None))
        # Asked before the time is over; patience ends a little later.
        monkeypatch.setattr(remote_lab, "GRACE_SECONDS", 0.1)
        os.kill(engine_of(lab), signal.SIGSTOP)
        lab.budget.deadline = time.monotonic() + 0.3
        with pytest.raises(BudgetUsedUp):
            lab.experiment("failing")
        assert opened == []

    def test_where_nobody_else_looks(self, command, temporary):
        """What is decoded, patched or captured notices by itself that the time is over."""
        one = command()
        with LocalLab(Open(one, one, deadline=time.monotonic() + PLENTY_SECONDS)) as lab:
            functions = [function.address for function in lab.program.functions]
            lab.starts.start("failing", lab.starts.deadline).kill()
            began, lab.starts.begin = lab.starts.begin(), lambda: began
            lab.starts.deadline = time.monotonic()
            for work in (
                lambda: lab.effects(functions),
                lambda: lab.trace("failing", (), functions),
                lambda: lab._make_marks("failing", frozenset(functions), began),
                lambda: lab.visit("failing", ()),
            ):
                with pytest.raises(BudgetUsedUp):
                    work()


class TestInterrupt:
    @pytest.mark.parametrize("kind", ["fork", "rerun"])
    def test_closing_amid_a_run(self, command, temporary, kind):
        one = command("endless")
        with (
            pytest.raises(KeyboardInterrupt),
            RemoteLab(Open(one, one, kind=kind), Budget(PLENTY_SECONDS)) as lab,
        ):
            lab.run_seconds = PLENTY_SECONDS
            with once_amid_a_run(one.program, interrupt):
                lab.experiment("failing")
        assert_nothing_left(command, temporary)

    def test_while_its_engine_is_started(self, command, temporary, monkeypatch):
        class Interrupting(subprocess.Popen):
            def __init__(self, *arguments, **more):
                super().__init__(*arguments, **more)
                interrupt()

        monkeypatch.setattr(subprocess, "Popen", Interrupting)
        with pytest.raises(KeyboardInterrupt):
            RemoteLab(Open(command(), command()), Budget(PLENTY_SECONDS))
        assert_nothing_left(command, temporary)

    def test_while_it_opens(self, command, temporary, tmp_path_factory, monkeypatch):
        """As it waits for a gdb that interrupts us instead of an answer."""
        place = tmp_path_factory.mktemp("gdb")
        os.mkfifo(place / "never written to")
        (place / "gdb").write_text(
            f'#!/bin/sh\ncase $* in *version*) exec {shutil.which("gdb")} "$@" ;; esac\n'
            f"kill -INT {os.getpid()}\nread nothing < '{place}/never written to'\n"
        )
        (place / "gdb").chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        with pytest.raises(KeyboardInterrupt):
            RemoteLab(Open(command(), command()), Budget(PLENTY_SECONDS))
        assert comes_true(lambda: not processes_of(str(place / "gdb")))
        assert_nothing_left(command, temporary)


def count_entries(directory: str) -> int:
    return len(list(Path(directory).iterdir()))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_refusal_at_the_opening_leaves_nothing(build, temporary, tmp_path_factory):
    program = build("int main(void) { return 0; } /* stripped below */")
    subprocess.run(["strip", "--strip-debug", program.path], check=True)
    one = Command(program, (program.path,), str(tmp_path_factory.mktemp("cwd")))
    before, children = count_entries("/proc/self/fd"), list_children(os.getpid())
    with pytest.raises(Refusal, match="debug information"):
        RemoteLab(Open(one, one), Budget(PLENTY_SECONDS))
    assert count_entries("/proc/self/fd") == before
    assert list_children(os.getpid()) == children
    assert list(temporary.iterdir()) == []


@pytest.fixture
def varying(command, temporary, monkeypatch) -> Iterator[LocalLab]:
    """A lab where a container forbids personality()."""
    monkeypatch.setattr(subject, "fix_addresses", lambda: None)
    with LocalLab(Open(command(), command("threads"), deadline=time.monotonic() + PLENTY_SECONDS)) as lab:
        yield lab
    # Else programs that later tests start would inherit that.
    assert signal.SIGCHLD not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert_nothing_left(command, temporary)


def test_addresses_may_vary(varying):
    stops = stop_at(varying, "table", 2)
    seen = {varying.experiment("failing", stops) for _ in range(3)} | {varying.experiment("passing")}
    assert {observation.stdout for observation in seen} == {STDOUT}
    visits = [varying.visit(side, stops) for side in ("passing", "failing", "passing", "failing")]
    bases = [visit.load_map.base for visit in visits]
    assert bases[:2] == bases[2:]
    if Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0":
        assert bases[0] != bases[1]


def test_addresses_may_vary_with_threads(varying):
    stops = stop_at(varying, "amid")
    seen = {varying.experiment("failing", stops).stdout for _ in range(3)}
    assert seen == {STDOUT}
    assert varying.name == "rerun"
    visits = [varying.visit("failing", stops) for _ in range(3)]
    assert len({tuple((region.start, region.end) for region in visit.regions) for visit in visits}) == 1


def test_addresses_that_vary_are_refused_without_copies(varying, monkeypatch):
    monkeypatch.setattr(starts, "Template", refuse_to_copy)
    calls = iter(range(100))
    monkeypatch.setattr(starts, "find_addresses", lambda command, deadline: [(next(calls), "")])
    with pytest.raises(Refusal, match=r"change from run to run.*seccomp=unconfined\.$"):
        varying.experiment("passing")


def refuse_to_copy(subject, is_root, roams):
    raise CannotCopy("files open for writing")


def test_three_thousand_experiments_leave_nothing_behind(open_remote):
    lab = open_remote(kind="fork")
    stops = stop_at(lab, "twice")
    expected = lab.experiment("failing", stops)
    engine = engine_of(lab)

    def left() -> tuple[int, int, int]:
        return count_entries(f"/proc/{engine}/fd"), count_entries("/proc/self/fd"), len(list_children(engine))

    before, shared = left(), set(Path("/dev/shm").iterdir())
    files = sorted(Path(tempfile.gettempdir()).rglob("*"))
    seen = {lab.experiment("failing", stops) for _ in range(500)}
    for _ in range(25):
        seen |= set(lab.experiments("failing", stops, [NOTHING] * 100))
    assert seen == {expected}
    assert expected.stdout == subprocess.run([lab.program.path], capture_output=True).stdout
    assert left() == before
    assert sorted(Path(tempfile.gettempdir()).rglob("*")) == files
    # Others on this machine have some of their own there for a while.
    assert comes_true(lambda: set(Path("/dev/shm").iterdir()) <= shared)


def test_copies_where_they_can_be_made(command):
    """One moment amid threads does not make all others as slow."""
    with LocalLab(Open(command(), command("threads"), deadline=time.monotonic() + PLENTY_SECONDS)) as lab:
        lab.experiment("failing", stop_at(lab, "amid"))
        before = len(lab.processes())
        lab.experiment("failing", stop_at(lab, "amid"))
        assert len(lab.processes()) == before
        lab.experiment("failing", stop_at(lab, "twice"))
        assert len(lab.processes()) == before + 1
