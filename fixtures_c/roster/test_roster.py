import subprocess

import pytest

MEMBERS = "Ruth;Leeds;1990\nAnton;Graz;1985\nMarguerite;Lyon;1990\n"


def run_roster(program, members, *arguments):
    run = subprocess.run([program, *arguments], input=members, capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("name", ["Anton", "Marguerite", "Ruth"]),
        ("town", ["Anton", "Ruth", "Marguerite"]),
        ("year", ["Anton", "Marguerite", "Ruth"]),
    ],
)
def test_orders(program, order, names):
    assert [line.split(",")[0] for line in run_roster(program, MEMBERS, order)] == names


@pytest.mark.parametrize("name", ["Jo", "Wilhelm", "Dorothea", "Alexander"])
def test_names_of_all_lengths(program, name):
    assert run_roster(program, f"{name};Bonn;1979\n") == [f"{name}, Bonn, 1979"]


def test_many_members_need_more_blocks(program):
    members = [f"Member{number:03};Bern;{2000 - number}" for number in range(60)]
    output = run_roster(program, "\n".join(members) + "\n", "year")
    assert output[0] == "Member059, Bern, 1941"
    assert len(output) == 60


def test_empty_lines_do_not_count(program):
    assert run_roster(program, "\nRuth;Leeds;1990\n\n") == ["Ruth, Leeds, 1990"]


def test_unknown_order(program):
    run = subprocess.run([program, "size"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (2, "usage: roster [name|town|year]\n")
