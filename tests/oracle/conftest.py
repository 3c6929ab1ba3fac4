"""The suite whose tests are replayed, compiled and written once."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import compile_program
from talking import CACHE, CONFTEST, DECLINED, ENDING, PLAIN_MODULE, SUITE, TALK


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("suite")
    compile_program(directory / "talk", TALK)
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "plain_module.py").write_text(PLAIN_MODULE)
    (directory / "test_suite.py").write_text(SUITE)
    (directory / "test_cache.py").write_text(CACHE)
    (directory / "test_declined.py").write_text(DECLINED)
    (directory / "test_ending.py").write_text(ENDING)
    return directory
