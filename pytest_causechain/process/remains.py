"""Deals with the processes that a run of the program leaves behind: its children, nearly all in one process group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from pytest_causechain.process.maps import list_children

POLL_SECONDS = 0.005
# A process that waits for a device may survive even SIGKILL for a while.
END_SECONDS = 2.0


def await_writers(group: int, files: Collection[Path], deadline: float, most: int = 1000) -> None:
    """Wait for those that still have the run's output open, as the reader of a pipe would; not when they are so many
    that they only multiply."""
    wanted = {str(file) for file in files}
    while time.monotonic() < deadline:
        members = find_members(group)
        if len(members) > most or not any(wanted & open_files(pid) for pid in members):
            return
        time.sleep(POLL_SECONDS)


def end_group(group: int) -> None:
    deadline = time.monotonic() + END_SECONDS
    while find_members(group) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def end_orphans(kept: Collection[int]) -> None:
    """All children of ours but these, and what they leave to us in turn: daemons, which leave the process group."""
    deadline = time.monotonic() + END_SECONDS
    while (orphans := set(list_children(os.getpid())) - set(kept)) and time.monotonic() < deadline:
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_SECONDS)


def find_members(group: int) -> list[int]:
    """Without zombies: where nobody reaps orphans, they stay for ever."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []  # nearly always, and told without a look at all processes
    except PermissionError:
        return []  # they have become another user's: out of our reach
    return [process.pid for process in read_processes() if process.group == group]


def find_sessions(root: int) -> set[int]:
    """Of a process and all that descend from it."""
    processes = read_processes()
    found, sessions = {root}, {root}
    size = 0
    while len(found) > size:
        size = len(found)
        found |= {process.pid for process in processes if process.parent in found}
    sessions |= {process.session for process in processes if process.pid in found}
    return sessions


def end_sessions(sessions: Collection[int]) -> None:
    """Those of a process of ours and what it started: orphans stay in the session, whoever adopts them."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        members = [process.pid for process in read_processes() if process.session in sessions]
        if not members:
            return
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int


def read_processes() -> list[Process]:
    """All that live."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                status = (process / "stat").read_text("utf-8", "surrogateescape").rpartition(")")[2].split()
                if status[0] not in "ZX":
                    found.append(Process(int(process.name), *map(int, status[1:4])))
    return found


def open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for link in Path("/proc", str(pid), "fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found
