"""Compiles C text once a session, and opens cases on it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from cases import Case, OpenCase

from pytest_causechain.model.runs import Program


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    built: dict[str, Program] = {}

    def compile_program(source: str) -> Program:
        if source not in built:
            directory = tmp_path_factory.mktemp("case")
            (directory / "program.c").write_text(source)
            subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=directory, check=True)
            built[source] = Program(str(directory / "program"), f"build {len(built)}")
        return built[source]

    return compile_program


@pytest.fixture(scope="module")
def open_case(build) -> Iterator[OpenCase]:
    """open_case(source, passing, failing, stdin=...): the same one is opened once in a module."""
    with ExitStack() as stack:
        opened: dict[tuple[object, ...], Case] = {}

        def open_one(source: str, passing: list[str], failing: list[str], **options: object) -> Case:
            key = (source, *passing, "/", *failing, *options.values())
            if key not in opened:
                opened[key] = stack.enter_context(Case(build(source), source, passing, failing, **options))
            return opened[key]

        yield open_one
