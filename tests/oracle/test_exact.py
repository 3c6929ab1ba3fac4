"""Between a run and its twin only the failing run's own output is the failure."""

from __future__ import annotations

import pytest

from pytest_causechain.model.observation import Observation, Outcome
from pytest_causechain.oracle.oracles import ExactOracle

TWIN = Observation("exit", 0, b"right")


def make_oracle(failing: Observation, twin: Observation = TWIN) -> ExactOracle:
    return ExactOracle(twin, failing, lambda run: run.ending == "exit" and run.stdout == b"right")


@pytest.mark.parametrize(
    ("failing", "kind"),
    [
        (Observation("exit", 0, b"wrong"), "output"),
        (Observation("exit", 3, b"right"), "exit"),
        (Observation("signal", 11, b""), "crash"),
        (Observation("timeout", 9, b"wrong wrong"), "hang"),
    ],
)
def test_tells_both_runs_apart(failing, kind):
    oracle = make_oracle(failing)
    assert (oracle.judge(failing), oracle.judge(TWIN)) == (Outcome.FAIL, Outcome.PASS)
    assert oracle.rule.kind == kind


@pytest.mark.parametrize(
    "other",
    [
        Observation("exit", 0, b"another"),
        Observation("exit", 1, b"wrong"),
        Observation("exit", 0, b"wrong", b"and a message"),
        Observation("signal", 11, b"wrong"),
    ],
)
def test_anything_else_is_unresolved(other):
    assert make_oracle(Observation("exit", 0, b"wrong")).judge(other) is Outcome.UNRESOLVED


def test_how_much_a_run_without_end_printed_is_chance():
    oracle = make_oracle(Observation("timeout", 9, b"x" * 100))
    assert oracle.judge(Observation("timeout", 9, b"x" * 90)) is Outcome.FAIL


def test_status_is_told():
    rule = make_oracle(Observation("exit", 3, b"right")).rule
    assert rule.fails_when == "it exits with status 3 (0 in its twin)"


def test_file_is_told_where_nothing_else_differs():
    kept, wrong, right = ("/t/a.log", b"same"), ("/t/b.c", b"2147483647"), ("/t/b.c", b"2")
    twin = Observation("exit", 0, files=(kept, right))
    rule = make_oracle(Observation("exit", 0, files=(kept, wrong)), twin).rule
    assert (rule.kind, rule.fails_when) == ("output", "it writes to b.c exactly what the failing run wrote")
    rule = make_oracle(Observation("exit", 0, files=(kept,)), twin).rule
    assert (rule.kind, rule.fails_when) == ("output", "it writes to b.c exactly what the failing run wrote")
    rule = make_oracle(Observation("exit", 3, files=(kept, wrong)), twin).rule
    assert rule.fails_when == "it exits with status 3 (0 in its twin)"
