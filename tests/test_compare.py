"""The states of two runs at a place in the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_causechain.compare import compare_runs
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command

SAMPLE = Path(__file__).parents[1] / "fixtures_c" / "sample" / "sample.c"


@pytest.fixture
def pair(build) -> tuple[Command, Command]:
    program = build(SAMPLE.read_text(), name="sample")
    passing, failing = (
        Command(program, ("sample", *numbers), str(Path(program.path).parent))
        for numbers in (("9", "8", "7"), ("11", "14"))
    )
    return passing, failing


def find_call() -> str:
    lines = SAMPLE.read_text().splitlines()
    return f"sample.c:{next(n for n, line in enumerate(lines, 1) if 'shell_sort(a, argc);' in line)}"


def test_states_and_their_differences(pair):
    comparison = compare_runs(*pair, find_call())
    told = {delta.name: (delta.passing, delta.failing) for delta in comparison.deltas}
    assert told["argc"] == ("4", "3")
    assert told["a[2]"] == ("7", "0")
    names = {name for _, name in comparison.matching.failing.to_networkx().nodes(data="name")}
    assert {"argc", "a[2]"} <= names


@pytest.mark.parametrize(
    ("place", "visit", "expected"),
    [
        pytest.param("sample.c:1", 1, "no statement begins at sample.c:1: give the file", id="no-line"),
        pytest.param(find_call(), 2, "the passing run does not come to", id="not-reached"),
    ],
)
def test_refusals(pair, place, visit, expected):
    with pytest.raises(Refusal, match=expected):
        compare_runs(*pair, place, visit)
