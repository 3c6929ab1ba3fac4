"""Whether a process only waits for what cannot come."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from waiting import comes_true

from pytest_causechain.kernel.processes import cpu_seconds, is_waiting, list_children


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """start(script) runs a shell and gives its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(script: str) -> int:
        started.append(subprocess.Popen(["sh", "-c", script]))
        return started[-1].pid

    yield start_one
    for process in started:
        for child in list_children(process.pid):
            subprocess.run(["kill", str(child)], check=False)
        process.kill()
        process.wait()


def test_sleeper(start):
    pid = start("exec sleep 1000")
    assert comes_true(lambda: is_waiting(pid))


def test_one_that_waits_for_its_child(start):
    pid = start("sleep 1000; true")
    assert comes_true(lambda: list_children(pid) != [])
    assert not is_waiting(pid)


def test_one_that_computes(start):
    pid = start("while :; do :; done")
    assert comes_true(lambda: cpu_seconds(pid) > 0.1)
    assert not is_waiting(pid)
