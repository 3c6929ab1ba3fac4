"""Compiles sources once a session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build({"file.c": text, ...}, *flags) compiles a program, the same one only once."""
    built: dict[object, Path] = {}

    def compile_program(sources: dict[str, str], *flags: str, compiler: str = "cc") -> Path:
        key = (tuple(sources.items()), flags)
        if key not in built:
            directory = tmp_path_factory.mktemp("program")
            for name, text in sources.items():
                (directory / name).write_text(text)
            units = [name for name in sources if not name.endswith(".h")]
            subprocess.run([compiler, "-g", "-O0", "-o", "program", *flags, *units], cwd=directory, check=True)
            built[key] = directory / "program"
        return built[key]

    return compile_program


@pytest.fixture
def side_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which directories for side files are made."""
    directory = tmp_path / "side files"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory
