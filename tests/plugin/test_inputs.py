"""Which part of the input makes a program fail: a passing run is made that has all the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import compile_program
from suites import SUITE_INI, Session, ShareSession, find_alternative, read_chain, run_session

SHARE = r"""
#include <stdio.h>
#include <string.h>

static int sum;

static void add(int number)
{
    sum += number;
}

static void share(int persons)
{
    printf("%d each\n", sum / persons);
}

int main(void)
{
    char word[20];
    int number;
    while (scanf("%19s %d", word, &number) == 2) {
        if (strcmp(word, "add") == 0)
            add(number);
        else
            share(number);
    }
    return 0;
}
"""
TEST_SHARE = """
import subprocess

import pytest


@pytest.mark.parametrize("lines", [
    ["add 12", "share 4"],
    ["add 5", "add 15", "share 10", "add 30", "share 0", "add 2", "share 7"],
], ids=["right", "wrong"])
def test_share(lines):
    run = subprocess.run(["./share"], input="\\n".join(lines), capture_output=True, text=True)
    assert run.returncode == 0
"""


def run_share(directory: Path) -> Session:
    compile_program(directory / "share", SHARE)
    (directory / "pytest.ini").write_text(SUITE_INI)
    (directory / "test_share.py").write_text(TEST_SHARE)
    return run_session(directory)


@pytest.fixture
def shared(share_session: ShareSession) -> Session:
    return share_session("share", run_share)


def test_passing_run_is_made_from_the_failing_one(shared):
    beside = find_alternative(read_chain(shared.directory))
    assert beside["passing"]["is_made"]
    assert beside["passing"]["why"] == "its input made nearer to the failing run's: 1 edit"
    failing = ["add 5", "add 15", "share 10", "add 30", "share 0", "add 2", "share 7"]
    assert beside["passing"]["stdin"].splitlines() == [line for line in failing if line != "share 0"]


def test_chain_begins_with_the_line_that_decides(shared):
    links = find_alternative(read_chain(shared.directory))["chain"]
    (first,) = links[0]["causes"]
    assert (first["variable"], first["failing"]) == ("stdin line 5", '"share 0"')
    assert [cause["variable"] for cause in links[-1]["causes"]] == ["persons"]
