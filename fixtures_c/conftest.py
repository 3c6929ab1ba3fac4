"""Compiles the program a test is about: all C or C++ files of the test's directory, with debug information."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest


def build_program(directory: Path) -> Path:
    """The program in build/, named like its directory; compiled only when a source is newer."""
    program = directory / "build" / directory.name
    sources = sorted([*directory.glob("*.[ch]"), *directory.glob("*.[ch]pp")])
    if program.exists() and all(source.stat().st_mtime <= program.stat().st_mtime for source in sources):
        return program
    program.parent.mkdir(exist_ok=True)
    # Renamed into place when finished, because another pytest worker may be running the program or building it too.
    with tempfile.TemporaryDirectory(dir=program.parent) as workplace:
        unfinished = Path(workplace) / program.name
        # Relative names, from the sources' own directory, so that debuggers show "sample.c".
        units = [source.name for source in sources if source.suffix in (".c", ".cpp")]
        options = ["-g", "-O0", "-Wall", "-Wextra"]
        subprocess.run([*choose_compiler(units), *options, "-o", unfinished, *units], cwd=directory, check=True)
        unfinished.replace(program)
    return program


def choose_compiler(units: list[str]) -> list[str]:
    if any(unit.endswith(".cpp") for unit in units):
        return [os.environ.get("CXX", "c++"), "-std=c++17"]
    return [os.environ.get("CC", "cc")]


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest) -> Path:
    return build_program(request.path.parent)
