"""What a run may use: an altered program may ask for anything."""

from __future__ import annotations

import contextlib
import math
import os
import resource
from dataclasses import dataclass

from pytest_causechain.model.isolation import NO_BOUNDS, Bounds

OUTPUT_BYTES = 64 << 20
STACK_BYTES = 8 << 20
# Beyond what the program had when it was stopped (a sanitizer maps terabytes at the start). What may be written counts,
# not what is only reserved, as the C library does by 128 MiB for each thread.
MEMORY_BYTES = 2 << 30
PROCESSES = 100
# Of what the original runs use; an altered one may need more, but not without end.
FACTOR, LEAST_MEMORY_BYTES, LEAST_OUTPUT_BYTES = 10, 256 << 20, 4 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What runs have used: memory at most, and the largest of what they wrote. Zero: not known yet."""

    memory: int = 0
    output: int = 0


NOTHING_USED = Usage()


def allow(used: Usage, wanted: Bounds) -> tuple[int, int, int]:
    """Bytes of memory and of output, and processes, for runs like those."""
    memory = min(max(LEAST_MEMORY_BYTES, FACTOR * used.memory), MEMORY_BYTES) if used.memory else MEMORY_BYTES
    output = min(max(LEAST_OUTPUT_BYTES, FACTOR * used.output), OUTPUT_BYTES) if used.memory else OUTPUT_BYTES
    return wanted.memory or memory, wanted.output or output, wanted.processes or PROCESSES


def limit_self(wanted: Bounds = NO_BOUNDS) -> None:
    """In a child, before exec; inherited by all its copies."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, wanted.output or OUTPUT_BYTES),
        # Hard: some programs raise their own soft limit, and an endless recursion then takes all memory.
        (resource.RLIMIT_STACK, wanted.stack or STACK_BYTES),
    ):
        _lower(0, kind, value)


def limit_run(pid: int, memory: int, output: int, cpu_seconds: float) -> int:
    """How many bytes it may keep in memory: so many more than it has now, and so many may it write to a file. For what
    it starts itself, each may use the processor as long as it may itself."""
    statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)  # a third of the time that open() takes
    pages = [int(number) for number in os.read(statm, 100).split()]
    os.close(statm)
    _lower(pid, resource.RLIMIT_DATA, pages[5] * resource.getpagesize() + memory)
    _lower(pid, resource.RLIMIT_FSIZE, output)
    if cpu_seconds < math.inf:
        _lower(pid, resource.RLIMIT_CPU, math.ceil(cpu_seconds) + 1)
    return pages[1] * resource.getpagesize() + memory


def _lower(pid: int, kind: int, value: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        hard = resource.prlimit(pid, kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.prlimit(pid, kind, (value, value))
