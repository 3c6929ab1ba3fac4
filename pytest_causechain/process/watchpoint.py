"""Finds out what writes to a place in memory, by the processor's debug registers."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_causechain.model.moment import Stop
from pytest_causechain.process.linux import POKEUSER, ptrace, read_user
from pytest_causechain.process.tracee import Tracee

# Of struct user, in bytes.
FIRST_REGISTER, STATUS_REGISTER, CONTROL_REGISTER = 848, 848 + 6 * 8, 848 + 7 * 8
HIT = 1
# For the first of four places: in use, writes only, and how its length is written.
IN_USE, WRITES, LENGTHS = 1, 1 << 16, {1: 0 << 18, 2: 1 << 18, 4: 3 << 18, 8: 2 << 18}


class TooOften(Exception):
    """There are more writes than anybody wants to see."""


class _Seen(Exception):
    """The wanted write has just happened."""


def watch_writes(
    process: Tracee, address: int, size: int, stops: Sequence[Stop], deadline: float, most: int, until: int = 0
) -> list[int]:
    """Run to the stops; behind which instructions the first thread wrote to the place meanwhile. With an `until` the
    process stays behind the write of that number."""
    writes: list[int] = []

    def note() -> None:
        if not read_user(process.pid, STATUS_REGISTER) & HIT:
            return
        ptrace(POKEUSER, process.pid, STATUS_REGISTER, 0)
        writes.append(process.registers().rip)
        if len(writes) == until:
            raise _Seen
        if len(writes) >= most:
            raise TooOften

    length = watched_length(address, size)
    ptrace(POKEUSER, process.pid, FIRST_REGISTER, address)
    ptrace(POKEUSER, process.pid, CONTROL_REGISTER, IN_USE | WRITES | LENGTHS[length])
    process.on_trap = note
    try:
        process.run_to(stops, deadline)
    except _Seen:
        pass
    finally:
        process.on_trap = None
    return writes


def watched_length(address: int, size: int) -> int:
    """The most that can be watched of the place's beginning."""
    return next(length for length in (8, 4, 2, 1) if length <= size and address % length == 0)
