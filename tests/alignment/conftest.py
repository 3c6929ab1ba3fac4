"""Compiles C text and finds the moments of two runs of it."""

from __future__ import annotations

import subprocess
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
def compare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compare]:
    """compare(source, passing arguments, failing arguments) runs it both ways; the same only once a module."""
    with ExitStack() as stack:
        known: dict[object, tuple[LocalLab, Timeline]] = {}
        programs: dict[str, str] = {}

        def build(source: str) -> str:
            if source not in programs:
                directory = tmp_path_factory.mktemp("program")
                (directory / "program.c").write_text(source)
                subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=directory, check=True)
                programs[source] = str(directory / "program")
            return programs[source]

        def compare_runs(source: str, passing: Sequence[str], failing: Sequence[str]) -> tuple[LocalLab, Timeline]:
            key = (source, tuple(passing), tuple(failing))
            if key not in known:
                path = build(source)
                commands = (
                    Command(Program(path, ""), (path, *words), str(Path(path).parent)) for words in (passing, failing)
                )
                lab = stack.enter_context(LocalLab(Open(*commands, deadline=time.monotonic() + 600)))
                known[key] = (lab, Timeline(lab))
            return known[key]

        yield compare_runs
