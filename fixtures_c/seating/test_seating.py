import subprocess

import pytest


def run_seating(program, arguments):
    return subprocess.run([program, *arguments.split()], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("parties", "plan"),
    [
        pytest.param("3", ["aaa.....", "........"], id="one"),
        pytest.param("3 2", ["aaabb...", "........"], id="two"),
        pytest.param("5 4", ["aaaaa...", "bbbb...."], id="second-row"),
        pytest.param("6 2", ["aaaaaabb", "........"], id="full-row"),
        pytest.param("6 3 1", ["aaaaaac.", "bbb....."], id="single"),
        pytest.param("", ["........", "........"], id="nobody"),
    ],
)
def test_plan(program, parties, plan):
    run = run_seating(program, f"2 8 {parties}")
    assert run.returncode == 0
    assert [line.split()[1] for line in run.stdout.splitlines()[-2:]] == plan


def test_tells_where_parties_sit(program):
    run = run_seating(program, "3 10 4 8 3")
    assert run.stdout.splitlines()[:3] == ["a: row 1, seats 1 to 4", "b: row 2, seats 1 to 8", "c: row 1, seats 5 to 7"]


def test_no_seats(program):
    run = run_seating(program, "1 5 3 4")
    assert (run.returncode, run.stdout) == (1, "a: row 1, seats 1 to 3\nb: no seats\n 1 aaa..\n")


@pytest.mark.parametrize("arguments", ["", "0 10 1", "3 41"])
def test_usage(program, arguments):
    assert run_seating(program, arguments).returncode == 2
