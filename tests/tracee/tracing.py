"""What a Tracer is to watch, and what it has recorded."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from pytest_causechain.tracee.stubs import Watched
from pytest_causechain.tracee.tracer import RECORD

LIMIT = 10_000_000
# Nothing waits that long unless it is broken.
PATIENCE_SECONDS = 60.0


class Clock:
    """Stands in for the module `time`: there it is late as soon as a condition holds, and not before."""

    def __init__(self, is_late: Callable[[], object]) -> None:
        self._is_late = is_late
        self.clock_gettime = time.clock_gettime

    def monotonic(self) -> float:
        return time.monotonic() + (PATIENCE_SECONDS if self._is_late() else 0.0)


def watch_functions(described):
    return [Watched(f.address, True, f.address, f.end) for f in described.functions]


def watch_lines(described):
    return watch_functions(described) + [
        Watched(s.address, False, f.address, f.end) for f in described.functions for s in f.statements
    ]


def watch(described, name):
    function = next(f for f in described.functions if f.name == name)
    return Watched(function.address, True, function.address, function.end)


def native(program, *words):
    return subprocess.run([program.path, *words], capture_output=True)


def events(tracer):
    return list(RECORD.iter_unpack(b"".join(tracer.pieces)))
