"""What a Tracer is to watch, and what it has recorded."""

from __future__ import annotations

import subprocess

from pytest_causechain.tracee.stubs import Watched
from pytest_causechain.tracee.tracer import RECORD

LIMIT = 10_000_000


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
