"""The second ranking of candidates, by traces of their runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.runs import Command, Frame, Observation, Program, Recording, Run
from pytest_causechain.neighbours import traces
from pytest_causechain.neighbours.ranking import Neighbour
from pytest_causechain.neighbours.traces import SHOWS_THE_SAME, Likeness, count_moves, is_alike, rank_by_traces

# Each letter of the first argument is a call, the second one is printed.
LETTERS = r"""
#include <stdio.h>

static int calls;

static void a(void) { calls++; }
static void b(void) { calls++; }
static void c(void) { calls++; }

int main(int argc, char **argv)
{
    for (const char *p = argv[1]; *p != '\0'; p++)
        if (*p == 'a')
            a();
        else if (*p == 'b')
            b();
        else
            c();
    puts(argv[argc - 1]);
    return 0;
}
"""


class TestMoves:
    @pytest.mark.parametrize(
        ("passing", "failing", "moves"),
        [
            ("", "", 0),
            ("abb", "aabbb", 0),
            ("abb", "aab", 1),
            ("abbccc", "aaabbc", 2),
            ("abbccc", "aabbbc", 1),
            # What is not called at all stands in front.
            ("bb", "abbb", 0),
            ("a", "b", 1),
        ],
    )
    def test_functions_by_their_number_of_calls(self, passing, failing, moves):
        assert count_moves([*map(ord, passing)], [*map(ord, failing)]) == moves
        assert count_moves([*map(ord, failing)], [*map(ord, passing)]) == moves


def test_distance_is_the_share_of_calls_that_only_one_run_makes():
    assert Likeness(3, 4, 0).distance == 0.25
    assert Likeness(0, 0, 0).distance == 0.0


def test_where_a_run_was_does_not_count():
    one = Observation("signal", 11, b"x", b"", (Frame("f"),))
    assert is_alike(one, Observation("signal", 11, b"x", b"", (Frame("g"),)))
    assert not is_alike(one, Observation("signal", 11, b"x", b"y", (Frame("f"),)))


@pytest.fixture(scope="module")
def program(compiled: Callable[..., Path]) -> Path:
    return compiled(LETTERS, name="letters")


def command(program: Path, *arguments: str) -> Command:
    return Command(Program(str(program), "b1"), (str(program), *arguments), str(program.parent))


def candidate(program: Path, test: str, *arguments: str) -> Neighbour:
    run = Run(command(program, *arguments), 0)
    return Neighbour(Recording(f"t.py::{test}", "passed", (run,)), run, 1.0, "another test")


def rank(failing: Command, *candidates: Neighbour) -> traces.Ranked:
    return rank_by_traces(failing, candidates, Budget(120), LabSetup())


class TestRanking:
    def test_runs_that_are_alike_come_first(self, program):
        gone = candidate(program, "gone", "abc", "1")
        gone = replace(gone, run=gone.run._replace(command=gone.run.command._replace(cwd="/nonexistent")))
        ranked = rank(
            command(program, "abcab", "wrong"),
            candidate(program, "far", "cc", "1"),
            candidate(program, "same", "abcab", "wrong"),
            gone,
            candidate(program, "order", "abcba", "1"),
            candidate(program, "near", "abcab", "1"),
        )
        assert [(near.recording.test, near.distance) for near in ranked.neighbours] == [
            ("t.py::near", 0.0),
            ("t.py::order", 0.286),
            ("t.py::far", 0.714),
        ]
        assert ranked.traced == 3
        assert ranked.neighbours[1].why == "another test, 5 of 7 calls in common"
        assert [(near.recording.test, reason) for near, reason in ranked.refused] == [
            ("t.py::same", SHOWS_THE_SAME),
            ("t.py::gone", ranked.refused[1][1]),
        ]
        assert ranked.refused[1][1].startswith("/nonexistent is gone")

    def test_those_that_are_not_traced_keep_their_order_behind(self, program, monkeypatch):
        monkeypatch.setattr(traces, "MOST_TRACED", 2)
        given = [candidate(program, test, calls, "1") for test, calls in (("p", "c"), ("q", "ab"), ("r", "a"))]
        ranked = rank(command(program, "ab", "2"), *given, candidate(program, "s", "ab"))
        assert [near.recording.test[-1] for near in ranked.neighbours] == ["q", "p", "r", "s"]
        assert [near.distance for near in ranked.neighbours[2:]] == [1.0, 1.0]
        assert ranked.traced == 2

    def test_what_cannot_be_traced_stays_as_it_is(self, program):
        given = (candidate(program, "a", "c", "1"), candidate(program, "b", "ab", "1"))
        ranked = rank_by_traces(command(program, "ab", "2"), given, Budget(0), LabSetup())
        assert (ranked.neighbours, ranked.traced, ranked.refused) == (given, 0, ())
