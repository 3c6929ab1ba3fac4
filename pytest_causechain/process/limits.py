"""What a run may use: an altered program may ask for anything."""

from __future__ import annotations

import contextlib
import os
import resource

OUTPUT_BYTES = 64 << 20
STACK_BYTES = 8 << 20
# Beyond what the program had when it was stopped (a sanitizer maps terabytes at the start). What may be written counts,
# not what is only reserved, as the C library does by 128 MiB for each thread.
MEMORY_BYTES = 2 << 30


def limit_self() -> None:
    """In a child, before exec; inherited by all its copies."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        # Hard: some programs raise their own soft limit, and an endless recursion then takes all memory.
        (resource.RLIMIT_STACK, STACK_BYTES),
    ):
        _lower(0, kind, value)


def limit_memory(pid: int) -> None:
    statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)  # a third of the time that open() takes
    writable = int(os.read(statm, 100).split()[5]) * resource.getpagesize()
    os.close(statm)
    _lower(pid, resource.RLIMIT_DATA, writable + MEMORY_BYTES)


def limit_output(pid: int, count: int) -> None:
    _lower(pid, resource.RLIMIT_FSIZE, count)


def _lower(pid: int, kind: int, value: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        hard = resource.prlimit(pid, kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.prlimit(pid, kind, (value, value))
