"""The marker cause_chain; all marked tests of one session, whose markers come from workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import compile_program
from suites import (
    COUNT,
    SUITE_INI,
    Session,
    ShareSession,
    find_alternative,
    read_chain,
    read_sentence,
    run_session,
)

TEST_MARKED = """
import subprocess

import pytest


def count(number):
    return subprocess.run(["./count", *"x" * number], capture_output=True, text=True)


@pytest.mark.parametrize("number", [0, 1])
def test_few(number):
    assert count(number).returncode == 0


@pytest.mark.cause_chain(skip=True)
def test_skip():
    assert count(2).returncode == 0


@pytest.mark.cause_chain(neighbour="test_few[0]")
def test_neighbour():
    assert count(2).returncode == 0


@pytest.mark.cause_chain(program="count")
def test_program_of_several():
    run = count(2)
    subprocess.run(["./script"], check=True)
    subprocess.run(["./other"], check=True)
    assert run.returncode == 0


@pytest.mark.cause_chain(program="sort")
def test_program_not_started():
    assert count(2).returncode == 0


@pytest.mark.cause_chain(fails_when=lambda run: run.returncode == 1 and run.stdout == "")
def test_fails_when():
    assert count(2).returncode == 3


@pytest.mark.cause_chain(fails_when=lambda run: True)
def test_fails_always():
    assert count(2).returncode == 0
"""


def run_marked(directory: Path) -> Session:
    compile_program(directory / "count", COUNT)
    compile_program(directory / "other", COUNT)
    script = directory / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (directory / "pytest.ini").write_text(SUITE_INI)
    (directory / "test_marked.py").write_text(TEST_MARKED)
    return run_session(directory, "--strict-markers", "--tb=no", "-n", "2", "--cause-chain-neighbour=test_few[1]")


@pytest.fixture
def marked(share_session: ShareSession) -> Session:
    return share_session("marked", run_marked)


def test_outcomes_stay(marked):
    assert marked.returncode == 1
    assert marked.lines[-1].strip("= ").startswith("6 failed, 2 passed")


def test_skip(marked):
    assert "test_marked.py::test_skip" not in [line.removeprefix("cause-chain: ") for line in marked.lines]
    assert list((marked.directory / ".causechain").glob("test_marked-test_skip*")) == []


def test_neighbour_comes_before_that_of_the_option(marked):
    chosen = {
        test: find_alternative(read_chain(marked.directory, f"test_marked.py::{test}"))["passing"]["test"]
        for test in ("test_neighbour", "test_fails_when")
    }
    assert chosen == {
        "test_neighbour": "test_marked.py::test_few[0]",
        "test_fails_when": "test_marked.py::test_few[1]",
    }


def test_program_of_several(marked):
    """Without the marker it would be the last one that the test starts."""
    chain = read_chain(marked.directory, "test_marked.py::test_program_of_several")
    assert (chain["status"], chain["failing"]["argv"]) == ("complete", ["./count", "x", "x"])


def test_program_that_the_test_does_not_start(marked):
    assert read_sentence(marked.output, "test_program_not_started") == (
        "test_marked.py::test_program_not_started does not start sort: fix program= of its marker cause_chain."
    )


def test_fails_when(marked):
    """By the assertion, which fails for all runs, the two could not be told apart."""
    chain = read_chain(marked.directory, "test_marked.py::test_fails_when")
    assert (chain["status"], chain["oracle"]["kind"]) == ("complete", "user")
    beside = find_alternative(chain)
    assert beside["oracle"]["kind"] == "user"
    assert [cause["variable"] for link in beside["chain"] for cause in link["causes"]] == ["argc"]


def test_fails_when_that_is_true_for_both_runs(marked):
    assert read_sentence(marked.output, "test_fails_always") == (
        "fails_when of the marker cause_chain is true for the passing run: make it true for failing runs only."
    )
