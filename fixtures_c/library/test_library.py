import subprocess

import pytest

BOOKS = ["add K1 1 the trial", "add K2 2 the castle", "add M1 1 the magic mountain"]


def run_library(program, *commands):
    run = subprocess.run([program], input="\n".join([*BOOKS, *commands]) + "\n", capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("waiting", "next_reader"),
    [
        pytest.param(["Bob"], [], id="one"),
        pytest.param(["Bob", "Cleo"], ["Cleo has K1"], id="first"),
        pytest.param(["Cleo", "Bob"], ["Cleo has K1"], id="last"),
        pytest.param(["Bob", "Cleo", "Bob"], ["Cleo has K1"], id="twice"),
        pytest.param(["Bob", "Bob", "Cleo"], ["Cleo has K1"], id="twice-in-a-row"),
    ],
)
def test_return_after_a_reader_left(program, waiting, next_reader):
    queue = [f"borrow {reader} K1" for reader in waiting]
    output = run_library(program, "borrow Ada K1", *queue, "leave Bob", "return Ada K1")
    assert output[1 + len(waiting) :] == next_reader


def test_who_waits_longest_is_next(program):
    output = run_library(program, "borrow Ada K1", "borrow Bob K1", "borrow Cleo K1", "return Ada K1", "list")
    assert output[3:] == ["Bob has K1", "K1: 0 in, 1 waiting", "K2: 2 in, 0 waiting", "M1: 1 in, 0 waiting"]


def test_second_copy(program):
    assert run_library(program, "borrow Ada K2", "borrow Bob K2") == ["Ada has K2", "Bob has K2"]


def test_return_of_what_was_not_borrowed(program):
    assert run_library(program, "return Ada M1", "list")[-1] == "M1: 1 in, 0 waiting"


def test_find_words_of_titles(program):
    assert run_library(program, "find castle", "find the") == ["K2", "K1", "K2", "M1"]


def test_unknown_command(program):
    run = subprocess.run([program], input="burn K1\n", capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (1, "library: cannot obey: burn K1\n")
