"""Watches where files beside a program go."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def side_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which directories for side files are made."""
    directory = tmp_path / "side files"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory
