"""A process beside ours that answers messages: it may be lost, and must not be left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from pytest_causechain.kernel.companion import Companion, CompanionLost
from pytest_causechain.kernel.processes import find_sessions, read_processes

SERVANT = """
import os, signal, subprocess, sys, time

def serve(connection):
    while (message := connection.recv()) is not None:
        word, *rest = message
        if word == "say":
            print(*rest, flush=True)
        elif word == "fail":
            raise RuntimeError(*rest)
        elif word == "sleep":
            time.sleep(rest[0])
        elif word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "start":  # one that leaves the process group, and one that leaves the session
            subprocess.Popen(["sleep", "1000"], process_group=0)
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
        connection.send((word, os.getpid(), os.getcwd(), dict(os.environ), sys.path))
    with open("farewell", "w"):
        pass
    return 0
"""
PLENTY_SECONDS = 60.0


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Where companions put their files; the module they run is known to this process only."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "causechain_servant.py").write_text(SERVANT)
    monkeypatch.syspath_prepend(str(modules))
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def companion(directory, tmp_path, leaves_nothing):
    made = Companion("causechain_servant", cwd=tmp_path)
    yield made
    made.close()
    assert list(directory.iterdir()) == []


def pid_of(companion) -> int:
    return companion.exchange(("pid",), PLENTY_SECONDS)[1]


def is_living(pid: int) -> bool:
    return any(process.pid == pid for process in read_processes())


def test_answers_one_after_the_other(companion, tmp_path):
    first, second = (companion.exchange((word,), PLENTY_SECONDS) for word in ("one", "two"))
    assert (first[0], second[0]) == ("one", "two")
    assert first[1] == second[1] != os.getpid()
    assert first[2] == str(tmp_path)
    assert first[4] == sys.path


def test_environment(directory, tmp_path, leaves_nothing):
    companion = Companion("causechain_servant", environment={"ONLY": "this"})
    seen = companion.exchange(("environment",), PLENTY_SECONDS)[3]
    companion.close()
    assert seen.pop("LC_CTYPE", None) in (None, "C.UTF-8")  # Python's own
    assert seen == {"ONLY": "this"}


class TestLost:
    def test_killed_while_idle(self, companion):
        os.kill(pid_of(companion), signal.SIGKILL)
        with pytest.raises(CompanionLost) as lost:
            companion.exchange(("word",), PLENTY_SECONDS)
        assert (lost.value.is_late, lost.value.log) == (False, "")

    def test_killed_at_work(self, companion):
        with pytest.raises(CompanionLost) as lost:
            companion.exchange(("kill",), PLENTY_SECONDS)
        assert not lost.value.is_late

    def test_the_log_tells(self, companion):
        companion.exchange(("say", "so far so good"), PLENTY_SECONDS)
        with pytest.raises(CompanionLost) as lost:
            companion.exchange(("fail", "but then"), PLENTY_SECONDS)
        assert lost.value.log.startswith("so far so good\nTraceback")
        assert lost.value.log.endswith("RuntimeError: but then\n")

    def test_late(self, companion):
        with pytest.raises(CompanionLost) as lost:
            companion.exchange(("sleep", 1000), 0.2)
        assert lost.value.is_late

    def test_a_module_that_is_not_there(self, directory, leaves_nothing):
        companion = Companion("causechain_nowhere")
        with pytest.raises(CompanionLost) as lost:
            companion.exchange(("word",), PLENTY_SECONDS)
        companion.close()
        assert "No module named 'causechain_nowhere'" in lost.value.log


class TestClose:
    def test_an_idle_one_may_take_its_leave(self, directory, tmp_path, leaves_nothing):
        companion = Companion("causechain_servant", cwd=tmp_path)
        pid = pid_of(companion)
        companion.close(PLENTY_SECONDS)
        assert (tmp_path / "farewell").exists()
        assert not is_living(pid)
        assert list(directory.iterdir()) == []

    def test_a_busy_one_is_not_waited_for(self, directory, tmp_path, leaves_nothing):
        companion = Companion("causechain_servant", cwd=tmp_path)
        pid = pid_of(companion)
        with pytest.raises(CompanionLost):
            companion.exchange(("sleep", 1000), 0.1)
        begin = time.monotonic()
        companion.close(PLENTY_SECONDS)
        assert time.monotonic() - begin < PLENTY_SECONDS / 2
        assert not (tmp_path / "farewell").exists()
        assert not is_living(pid)
        assert list(directory.iterdir()) == []

    def test_what_it_started_ends_too(self, directory, tmp_path, leaves_nothing):
        companion = Companion("causechain_servant", cwd=tmp_path)
        companion.exchange(("start",), PLENTY_SECONDS)
        sessions = find_sessions(pid_of(companion))
        assert len(sessions) == 2
        companion.close()
        assert [process for process in read_processes() if process.session in sessions] == []

    def test_what_a_killed_one_started_ends_too(self, directory, tmp_path, leaves_nothing):
        """As far as it stayed in the session."""
        companion = Companion("causechain_servant", cwd=tmp_path)
        companion.exchange(("start",), PLENTY_SECONDS)
        pid = pid_of(companion)
        (away,) = find_sessions(pid) - {pid}
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(CompanionLost):
            companion.exchange(("word",), PLENTY_SECONDS)
        companion.close()
        try:
            assert [process for process in read_processes() if process.session == pid] == []
        finally:
            os.kill(away, signal.SIGKILL)


def test_it_dies_with_its_parent(directory, tmp_path):
    """Even amid work, and however the parent ends."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *sys.path], stdout=subprocess.PIPE, cwd=tmp_path, text=True
    )
    pid = int(parent.stdout.readline())
    assert is_living(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + PLENTY_SECONDS
    while is_living(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_living(pid)


PARENT = """
import sys, tempfile
sys.path[:] = sys.argv[1:]
tempfile.tempdir = "temporary"
from pytest_causechain.kernel.companion import Companion
companion = Companion("causechain_servant")
print(companion.exchange(("pid",), 60)[1], flush=True)
companion.exchange(("sleep", 1000), 1000)
"""
