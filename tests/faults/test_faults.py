"""Whatever happens during a diagnosis: the session ends as it would, and nothing is left of it."""

from __future__ import annotations

import signal

import pytest
from injection import RESULTS, Suite, assert_nothing_left

# The whole diagnosis is not of interest here.
FEW_SECONDS = "--cause-chain-timeout=3"
# For a diagnosis that ends by itself, or waits for us.
PLENTY_SECONDS = "--cause-chain-timeout=300"
# Such a one waits before its first experiment, when its engine is there, and says so.
HELD = """
import os
import time

import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    from pytest_causechain.lab.remote_lab import RemoteLab
    def experiments(self, *arguments, **more):
        os.write(1, b"held")
        while True:
            self.budget.check()
            time.sleep(0.01)
    RemoteLab.experiments = experiments
"""
# One that waits only once, until it may go on.
HELD_ONCE = """
import os
import tempfile
import time
from pathlib import Path

import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    from pytest_causechain.lab.remote_lab import RemoteLab
    go_on = RemoteLab.experiments
    def experiments(self, *arguments, **more):
        RemoteLab.experiments = go_on
        os.write(1, b"held")
        while not Path(tempfile.gettempdir(), "go").exists():
            time.sleep(0.01)
        return self.experiments(*arguments, **more)
    RemoteLab.experiments = experiments
"""


@pytest.fixture
def suite(tmp_path):
    return Suite.make(tmp_path)


def test_all_that_it_has_started_is_killed(suite):
    """Its engine, with the run and the gdb that this has, and the session that replays the test."""
    (suite.directory / "conftest.py").write_text(HELD_ONCE)
    with suite.session(FEW_SECONDS) as session:
        session.read_until(b"held")
        killed = session.kill_all()
        (suite.temporary / "go").touch()
    assert any("pytest_causechain.lab.engine" in command for command in killed)
    assert session.output.count(RESULTS) == 1, session.output
    assert suite.tally.proper == 1, session.output
    assert_nothing_left(suite)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_the_user_ends_it(suite, sign):
    (suite.directory / "conftest.py").write_text(HELD)
    with suite.session(PLENTY_SECONDS) as session:
        session.read_until(b"held")
        session.signal(sign)
    assert suite.tally.proper == 1, session.output
    assert "interrupted; the tests' own results are complete." in session.output
    assert "Incomplete: interrupted." in session.output or "No cause-effect chain: interrupted." in session.output
    assert_nothing_left(suite)


def test_the_next_session_cleans_up(suite):
    (suite.directory / "conftest.py").write_text(HELD)
    with suite.session(PLENTY_SECONDS) as session:
        session.read_until(b"held")
        session.signal(signal.SIGKILL)
    assert (suite.tally.processes_left, suite.tally.files_changed) == (0, 0)
    left = suite.leftovers()
    assert left
    (suite.directory / "conftest.py").unlink()
    with suite.session(FEW_SECONDS):
        assert not set(left) & set(suite.leftovers())
    assert suite.leftovers() == []


BROKEN = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    from pytest_causechain.lab.remote_lab import RemoteLab
    def experiments(self, *arguments, **more):
        raise RuntimeError("broken on purpose")
    RemoteLab.experiments = experiments
"""


def test_an_error_of_our_own(suite):
    (suite.directory / "conftest.py").write_text(BROKEN)
    with suite.session(PLENTY_SECONDS) as session:
        session.faults += 1
    assert suite.tally.proper == 1, session.output
    told = " ".join(session.output.split())
    assert "an internal error came up (RuntimeError('broken on purpose')): please report it." in told
    assert_nothing_left(suite)


# In namespaces of its own a session gets a poor system.
POOR = {
    "full disk": "mount -t tmpfs -o size=64k none {temporary} && head -c 60000 /dev/zero > {temporary}/filling",
    "no room at all": "mount -t tmpfs -o size=4k,nr_inodes=2 none {temporary} && touch {temporary}/filling",
    "directory read-only": "mount --bind {directory} {directory} && mount -o remount,bind,ro {directory}",
    "no shared memory": "mount -t tmpfs -o ro none /dev/shm",
}


@pytest.mark.parametrize("how", POOR)
def test_a_poor_system(suite, how):
    poor = POOR[how].format(temporary=suite.temporary, directory=suite.directory)
    prefix = ["unshare", "-rm", "sh", "-c", f'{{ {poor}; }} 2>/dev/null; exec "$@"', "sh"]
    with suite.session(PLENTY_SECONDS if how == "full disk" else FEW_SECONDS, prefix=prefix) as session:
        session.faults += 1
    assert suite.tally.proper == 1, session.output
    told = " ".join(session.output.split())
    assert "please report" not in told
    assert ("let TMPDIR name a directory" in told) is (how == "full disk")
    assert_nothing_left(suite)
