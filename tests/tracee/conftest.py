"""Traces what a program executes."""

from __future__ import annotations

import pytest
from tracing import LIMIT, watch_functions, watch_lines

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.tracee.tracer import Tracer


@pytest.fixture(autouse=True)
def in_an_engine(blocked_children: None) -> None:
    """All tests here wait for processes."""


@pytest.fixture(scope="session")
def describe():
    """What the debug information says of a program."""
    described = {}

    def describe_one(program):
        if program not in described:
            with Debugger(program.path) as debugger:
                described[program] = debugger.program
        return described[program]

    return describe_one


@pytest.fixture
def trace(start, describe, deadline):
    """trace(program, *words) runs it under a Tracer of all functions, or of what `watched` says."""

    def trace_one(program, *words, lines=False, watched=None, use_stubs=True, until=None, limit=LIMIT):
        subject = start(program, *words)
        described = describe(program)
        watched = watched or (watch_lines if lines else watch_functions)(described)
        tracer = Tracer(subject, watched, frozenset(described.rows), use_stubs)
        return tracer, tracer.run(until, limit, deadline)

    return trace_one
