"""Runs between two commands, without any process: a function says which of them fail."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.causes.approach import LEVELS, MOST_RUNS, Mixture, approach
from pytest_causechain.model.runs import Command, Observation, Outcome, Program

PROGRAM = Program("/bin/program", "build")
WORDS = st.lists(st.text(string.ascii_letters + " /,", max_size=6), max_size=5)
LINES = st.lists(st.text(string.ascii_lowercase + " ", max_size=6), max_size=6)


def make_command(words: list[str], lines: list[str], cwd: str = "/", **environment: str | None) -> Command:
    stdin = "".join(f"{line}\n" for line in lines).encode()
    return Command(PROGRAM, ("program", *words), cwd, tuple(sorted(environment.items())), stdin)


def find(passing: Command, failing: Command, fails: Callable[[Command], bool]) -> tuple[Command | None, int]:
    """With the number of runs it took."""
    tried: list[Command] = []

    def run(command: Command) -> Observation:
        tried.append(command)
        return Observation("exit", int(fails(command)), b"")

    def judge(observation: Observation) -> Outcome:
        return Outcome.FAIL if observation.code else Outcome.PASS

    nearer = approach(passing, failing, run, judge)
    return (nearer.command if nearer is not None else None), len(tried)


@given(WORDS, LINES, WORDS, LINES, st.sampled_from(range(len(LEVELS))))
def test_all_edits_make_the_failing_command_and_none_the_passing_one(words, lines, other_words, other_lines, level):
    passing, failing = make_command(words, lines, "/one", A="1"), make_command(other_words, other_lines, "/two", B="2")
    mixture = Mixture(passing, failing, level)
    assert mixture.compose(frozenset(range(len(mixture.edits)))) == failing
    undone = mixture.compose(frozenset())
    assert (undone.argv, undone.stdin, undone.cwd) == (passing.argv, passing.stdin, passing.cwd)
    assert dict(undone.environment) == {"A": "1", "B": None}


def test_one_line_of_many():
    failing = make_command(["-q"], [f"add {i}" for i in range(50)] + ["drop 7"])
    passing = make_command([], ["add 1", "list"])
    nearer, runs = find(passing, failing, lambda command: b"drop" in command.stdin)
    assert nearer is not None
    assert (nearer.argv, nearer.stdin) == (failing.argv, failing.stdin.replace(b"drop 7\n", b""))
    assert runs < 30


def test_one_word_of_a_line_then_one_character():
    nearer, _ = find(
        make_command([], ["pay +15 now"]),
        make_command([], ["pay -12 then"]),
        lambda command: b"-" in command.stdin,
    )
    assert nearer is not None
    assert nearer.stdin == b"pay +12 then\n"


def test_one_argument():
    nearer, _ = find(
        make_command(["-a", "3", "x"], []), make_command(["-v", "0", "y"], []), lambda command: "0" in command.argv
    )
    assert nearer is not None
    assert nearer.argv == ("program", "-v", "3", "y")


def test_environment_and_directory():
    failing = make_command([], [], "/two", LANG="x", HOME="h")
    nearer, _ = find(
        make_command([], [], "/one"), failing, lambda command: dict(command.environment).get("LANG") == "x"
    )
    assert nearer is not None
    assert (nearer.cwd, dict(nearer.environment)) == ("/two", {"LANG": None, "HOME": "h"})


def test_paths_stay_whole():
    nearer, _ = find(
        make_command(["/a/long", "1"], []),
        make_command(["/a/late", "2"], []),
        lambda command: "/a/late" in command.argv,
    )
    assert nearer is not None
    assert nearer.argv == ("program", "/a/long", "2")


def test_of_two_that_are_needed_together_one_is_undone():
    failing = make_command(["1", "2"], [])
    nearer, _ = find(make_command(["a", "b"], []), failing, lambda command: command.argv[1:] == ("1", "2"))
    assert nearer is not None
    assert sum(one != other for one, other in zip(nearer.argv, failing.argv, strict=True)) == 1


@pytest.mark.parametrize("outcome", [True, False])
def test_runs_that_are_not_told_apart(outcome):
    nearer, runs = find(make_command(["a"], []), make_command(["b"], []), lambda command: outcome)
    assert (nearer, runs) == (None, 2 - outcome)


def test_passing_run_that_is_next_to_it_stays():
    assert find(make_command(["a"], []), make_command(["b"], []), lambda command: command.argv[1] == "b")[0] is None


def test_number_of_runs_is_limited():
    passing, failing = make_command([], [f"a{i}" for i in range(400)]), make_command([], [f"b{i}" for i in range(400)])
    count = 0

    def run(command: Command) -> Observation:
        nonlocal count
        count += 1
        return Observation("exit", 0, command.stdin)

    def judge(observation: Observation) -> Outcome:
        known = {passing.stdin: Outcome.PASS, failing.stdin: Outcome.FAIL}
        return known.get(observation.stdout, Outcome.UNRESOLVED)

    assert approach(passing, failing, run, judge) is None
    assert count <= MOST_RUNS
