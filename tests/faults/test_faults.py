"""Whatever happens during a diagnosis: the session ends as it would, and nothing is left of it.

A short form of what `make soak` does for longer: SOAK is the number of kills."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from injection import RESULTS, Suite

KILLS = int(os.environ.get("SOAK", "6"))
# The whole diagnosis is not of interest here: enough for all kinds of processes to be there, or for a beginning.
SECONDS, FEW_SECONDS = "--cause-chain-timeout=8", "--cause-chain-timeout=3"
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
            self._engine._companion.check()
            time.sleep(0.01)
    RemoteLab.experiments = experiments
"""


@pytest.fixture
def suite(tmp_path):
    return Suite.make(tmp_path)


def assert_nothing_left(suite: Suite) -> None:
    tally = suite.tally
    assert (tally.processes_left, tally.directories_left, tally.files_changed) == (0, 0, 0), f"{tally} {suite.changed}"


def test_kills_at_random_moments(suite):
    chance = random.Random(KILLS)
    while suite.tally.faults < KILLS:
        with suite.session(SECONDS) as session:
            for _ in range(3):
                time.sleep(chance.expovariate(1.0))
                session.kill_any(chance)
        assert session.output.count(RESULTS) == 1, session.output
    print(f"\n{suite.tally}")
    assert suite.tally.proper == suite.tally.sessions
    assert_nothing_left(suite)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_the_user_ends_it(suite, sign):
    (suite.directory / "conftest.py").write_text(HELD)
    with suite.session(PLENTY_SECONDS) as session:
        session.read_until(b"held")
        session.signal(sign)
    assert suite.tally.proper == 1, session.output
    assert "interrupted; the tests' own results are complete." in session.output
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
