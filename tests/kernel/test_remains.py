"""Processes that a run leaves behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pytest_causechain.kernel import processes
from pytest_causechain.kernel.processes import await_writers, end_group, find_members, open_files

# Nothing here takes that long; where it is waited for, the wait must end by itself.
FAR_SECONDS = 60.0


@pytest.fixture
def start(tmp_path):
    """start(command) runs a shell command in a process group of its own, writing to the file `output`."""
    started = []

    def start_one(command: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(["sh", "-c", command], stdout=output, process_group=0)
        started.append(process)
        return process

    yield start_one
    for process in started:
        end_group(process.pid)
        process.wait()


def test_members(start):
    process = start("sleep 100 & sleep 100 & echo ready; wait")
    deadline = time.monotonic() + FAR_SECONDS
    while len(find_members(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(find_members(process.pid)) == 3
    assert process.pid in find_members(process.pid)
    end_group(process.pid)
    assert find_members(process.pid) == []
    assert process.wait() == -9


def test_zombies_do_not_count(start):
    process = start("exit 0")
    deadline = time.monotonic() + FAR_SECONDS
    while find_members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Path(f"/proc/{process.pid}").exists()
    assert find_members(process.pid) == []


def test_those_that_write_are_waited_for(start, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "gate")
    process = start(f"(read word < '{tmp_path}/gate'; echo $word) & echo early")
    process.wait()
    seen = []

    def look(pid: int) -> set[str]:
        seen.append(pid)
        if len(seen) == 5:
            (tmp_path / "gate").write_text("late\n")
        return open_files(pid)

    monkeypatch.setattr(processes, "open_files", look)
    await_writers(process.pid, [tmp_path / "output"], time.monotonic() + FAR_SECONDS)
    assert (tmp_path / "output").read_text() == "early\nlate\n"


def test_others_are_not(start, tmp_path):
    process = start("sleep 1000 >/dev/null & echo done")
    process.wait()
    begin = time.monotonic()
    await_writers(process.pid, [tmp_path / "output"], begin + FAR_SECONDS)
    assert time.monotonic() - begin < FAR_SECONDS
    assert len(find_members(process.pid)) == 1


def test_no_group():
    finished = subprocess.Popen(["true"], process_group=0)
    finished.wait()
    assert find_members(finished.pid) == []
    end_group(finished.pid)
