"""Deals with the processes that a run of the program leaves behind: its children, all in one process group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

POLL_SECONDS = 0.005
# A process that waits for a device may survive even SIGKILL for a while.
END_SECONDS = 2.0


def await_writers(group: int, files: Collection[Path], deadline: float) -> None:
    """Wait for those that still have the run's output open, as the reader of a pipe would."""
    wanted = {str(file) for file in files}
    while time.monotonic() < deadline and any(wanted & open_files(pid) for pid in find_members(group)):
        time.sleep(POLL_SECONDS)


def end_group(group: int) -> None:
    deadline = time.monotonic() + END_SECONDS
    while find_members(group) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def find_members(group: int) -> list[int]:
    """Without zombies: where nobody reaps orphans, they stay for ever."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []  # nearly always, and told without a look at all processes
    except PermissionError:
        return []  # they have become another user's: out of our reach
    members = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, of_group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(of_group) == group and state not in "ZX":
                    members.append(int(process.name))
    return members


def open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for link in Path("/proc", str(pid), "fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found
