"""Runs compiled text twice and finds the moments of two runs of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_causechain.alignment.timeline import Timeline
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.runs import Command, Program

Compare = Callable[..., tuple[LocalLab, Timeline]]


@pytest.fixture(scope="module")
def compare(build: Callable[..., Program]) -> Iterator[Compare]:
    """compare(source, passing arguments, failing arguments) runs it both ways; the same only once a module."""
    with ExitStack() as stack:
        known: dict[object, tuple[LocalLab, Timeline]] = {}

        def compare_runs(source: str, passing: Sequence[str], failing: Sequence[str]) -> tuple[LocalLab, Timeline]:
            key = (source, tuple(passing), tuple(failing))
            if key not in known:
                program = build(source)
                commands = (
                    Command(program, (program.path, *words), str(Path(program.path).parent))
                    for words in (passing, failing)
                )
                lab = stack.enter_context(LocalLab(Open(*commands, deadline=time.monotonic() + 600)))
                known[key] = (lab, Timeline(lab))
            return known[key]

        yield compare_runs
