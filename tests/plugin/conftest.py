"""Programs and sessions that tests share, and the watch over what each leaves behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from suites import (
    COUNT,
    SUITE_INI,
    TEST_COUNT,
    TOKEN,
    Diagnosed,
    Session,
    ShareSession,
    find_processes,
    run_fixture,
)

MakeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def share_session(make_once: MakeOnce) -> ShareSession:
    """share_session(name, run) has `run` make a session in a new directory, once; it must leave nothing behind."""

    def share(name: str, run: Callable[[Path], Session]) -> Session:
        def fill(directory: Path) -> None:
            suite, temporary = directory / "suite", directory / "temporary"
            suite.mkdir()
            temporary.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", str(temporary))
                patch.setenv(TOKEN, str(directory))  # unique: another checkout may be tested beside this one
                session = run(suite)
            left = [find_processes(str(directory)), sorted(path.name for path in temporary.glob("causechain-*"))]
            (directory / "session.json").write_text(json.dumps([session.returncode, session.output, left]))

        directory = make_once(name, fill)
        returncode, output, left = json.loads((directory / "session.json").read_text())
        assert left == [[], []]
        return Session(directory / "suite", returncode, output)

    return share


@pytest.fixture(scope="session")
def diagnosed(share_session: ShareSession) -> Diagnosed:
    """diagnosed(name) is a session over that program of fixtures_c."""
    return lambda name: share_session(name, lambda directory: run_fixture(name, directory))


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test may leave a process, or a temporary directory of ours."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv(TOKEN, str(tmp_path))
    yield
    assert find_processes(str(tmp_path)) == []
    assert list(temporary.glob("causechain-*")) == []


@pytest.fixture(scope="session")
def count_program(compiled: Callable[..., Path]) -> Path:
    return compiled(COUNT, name="count")


@pytest.fixture
def count_suite(pytester: pytest.Pytester, count_program: Path) -> pytest.Pytester:
    """Two passing tests and a failing one, over the program with the smallest chain."""
    shutil.copy2(count_program, pytester.path)
    pytester.makeini(SUITE_INI)
    pytester.makepyfile(test_count=TEST_COUNT)
    return pytester
