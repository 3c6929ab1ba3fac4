"""How closely two runs are compared."""

from __future__ import annotations

import subprocess

import pytest
from pytest_causechain.diagnosis import Judge, Pair, diagnose_pair

from pytest_causechain import diagnosis
from pytest_causechain.model.chain import Chain
from pytest_causechain.model.command import Command
from pytest_causechain.model.observation import Outcome
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.settings import Settings

SOURCE = r"""
#include <stdio.h>

static int tripled(int number)
{
    int doubled = number + number;
    int sum = doubled + number;
    return sum;
}

int main(int argc, char **argv)
{
    int first = argc, second = first + 1;
    int third = tripled(second);
    int fourth = third + 1;
    printf("%d\n", fourth);
    return argv == 0;
}
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Pair:
    directory = tmp_path_factory.mktemp("program")
    (directory / "program.c").write_text(SOURCE)
    subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=directory, check=True)
    program = identify_program(str(directory / "program"))
    passing, failing = (Command(program, ("program", *words), str(directory)) for words in ((), ("x",)))
    return Pair(passing, failing)


def diagnose(pair: Pair, is_told: bool) -> Chain:
    def judge(_passing: object, _failing: object) -> Judge:
        return Judge(lambda run: Outcome.FAIL if run.stdout == b"10\n" else Outcome.PASS)

    return diagnose_pair(pair, judge, Settings(), lambda _text: None, lambda: is_told)


def list_causes(chain: Chain) -> list[str]:
    assert chain.status == "complete"
    return [cause.variable for link in chain.chain for cause in link.causes]


@pytest.fixture(scope="module")
def whole(pair) -> Chain:
    return diagnose(pair, is_told=False)


def test_a_short_chain_is_whole_beside_another_too(pair, whole):
    told = list_causes(whole)
    assert {"argc", "number", "fourth"} <= set(told)
    assert list_causes(diagnose(pair, is_told=True)) == told


def test_a_long_one_is_not_known_to_the_last_statement_then(pair, whole, monkeypatch):
    monkeypatch.setattr(diagnosis, "ENOUGH_MOMENTS", 3)
    beside = diagnose(pair, is_told=True)
    assert beside.statistics.moments.tried < whole.statistics.moments.tried
    assert set(list_causes(beside)) < set(list_causes(whole))
    assert list_causes(diagnose(pair, is_told=False)) == list_causes(whole)
