"""Compiles C text once a session, and opens laboratories on it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.command import Command, Program

Build = Callable[..., Program]
MakeLab = Callable[..., RemoteLab]

# No test here comes near it on a machine that is not broken.
PLENTY_SECONDS = 300.0


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build(source, *flags) compiles a program, the same one only once."""
    built: dict[tuple[str, ...], Program] = {}

    def compile_program(source: str, *flags: str) -> Program:
        key = (source, *flags)
        if key not in built:
            directory = tmp_path_factory.mktemp("program")
            (directory / "program.c").write_text(source)
            command = ["cc", "-g", "-O0", "-o", "program", "program.c", *flags]
            subprocess.run(command, cwd=directory, check=True)
            built[key] = Program(str(directory / "program"), f"build {len(built)}")
        return built[key]

    return compile_program


@pytest.fixture(scope="session", params=["fork", "rerun", "gdb"])
def kind(request: pytest.FixtureRequest) -> str:
    """All laboratories must see the same: every test that opens one is run with each."""
    return request.param


@pytest.fixture(scope="session")
def make_lab(kind: str) -> MakeLab:
    """make_lab(program, *arguments, stdin=...) is a laboratory whose both runs are that one; to be closed.

    `failing` and `failing_stdin` make the failing run another one."""

    def make_one(
        program: Program,
        *passing: str,
        stdin: bytes = b"",
        failing: Sequence[str] | None = None,
        failing_stdin: bytes | None = None,
        seconds: float = PLENTY_SECONDS,
    ) -> RemoteLab:
        sides = (
            (passing, stdin),
            (passing if failing is None else failing, stdin if failing_stdin is None else failing_stdin),
        )
        directory = str(Path(program.path).parent)
        commands = (Command(program, (program.path, *words), directory, (), text) for words, text in sides)
        return RemoteLab(*commands, time.monotonic() + seconds, kind)

    return make_one


@pytest.fixture
def open_lab(make_lab: MakeLab) -> Iterator[MakeLab]:
    """The same, closed behind the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **more: stack.enter_context(make_lab(*arguments, **more))
