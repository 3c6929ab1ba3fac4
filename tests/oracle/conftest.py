"""The suite whose tests are replayed, compiled and written once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from talking import CACHE, CONFTEST, DECLINED, ENDING, PLAIN_MODULE, SUITE, TALK


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("suite")
    (directory / "talk.c").write_text(TALK)
    subprocess.run(["cc", "-g", "-o", "talk", "talk.c"], cwd=directory, check=True)
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "plain_module.py").write_text(PLAIN_MODULE)
    (directory / "test_suite.py").write_text(SUITE)
    (directory / "test_cache.py").write_text(CACHE)
    (directory / "test_declined.py").write_text(DECLINED)
    (directory / "test_ending.py").write_text(ENDING)
    return directory
