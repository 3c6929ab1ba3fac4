"""A small program, built in the ways a user may have built it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_causechain.recording.programs import Start
from pytest_causechain.recording.seam import Seam

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>

/* Echoes its input to stdout, its arguments to stderr, and returns the number of arguments. */
int main(int argc, char **argv)
{
    int c;
    while ((c = getchar()) != EOF)
        putchar(c);
    for (int i = 1; i < argc; i++)
        fprintf(stderr, "%s\n", argv[i]);
    return argc - 1;
}
"""

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build(name, *flags) compiles the program anew."""
    source = tmp_path_factory.mktemp("source") / "echo.c"
    source.write_text(SOURCE)

    def compile_program(name: str, *flags: str) -> Path:
        program = tmp_path_factory.mktemp("built") / name
        subprocess.run(["cc", *flags, "-o", program, source], check=True)
        return program

    return compile_program


@pytest.fixture(scope="session")
def program(build: Build) -> Path:
    return build("echo", "-g", "-O0")


@pytest.fixture
def starts():
    """What was started while this test ran."""
    seen: list[Start] = []
    with Seam(seen.append) as seam:
        yield seen
    assert seam.error is None
