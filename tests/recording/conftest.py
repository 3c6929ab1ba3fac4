"""A small program, built in the ways a user may have built it."""

from __future__ import annotations

import shutil
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


@pytest.fixture
def build(compiled: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """build(name, *flags) is a copy of the program that the test may change."""

    def copy(name: str, *flags: str) -> Path:
        return Path(shutil.copy2(compiled(SOURCE, *flags, name=name), tmp_path_factory.mktemp("built")))

    return copy


@pytest.fixture(scope="session")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled(SOURCE, name="echo")


@pytest.fixture
def starts():
    """What was started while this test ran."""
    seen: list[Start] = []
    with Seam(seen.append) as seam:
        yield seen
    assert seam.error is None
