"""Turns C or C++ text into a program."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

# The text of the only file, or of each by its name.
Sources = str | Mapping[str, str]


def compile_program(path: Path, sources: Sources, *flags: str, compiler: str = "cc") -> Path:
    """Compiles the program at `path`, with debug information, from sources that are written beside it.

    A program of a single file gives it its name. Tests whose program may lie elsewhere take the fixture `compiled`,
    or `build`, which compile the same text only once."""
    if isinstance(sources, str):
        sources = {f"{path.stem}{'.c' if compiler == 'cc' else '.cpp'}": sources}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, text in sources.items():
        (path.parent / name).write_text(text)
    units = [name for name in sources if not name.endswith(".h")]
    run_compiler(path.parent, "-o", path.name, *units, *flags, compiler=compiler)
    return path


def run_compiler(directory: Path, *arguments: str, compiler: str = "cc") -> None:
    """Runs it in the directory, so that names of sources are relative; later flags outweigh these."""
    subprocess.run([compiler, "-g", "-O0", *arguments], cwd=directory, check=True)
