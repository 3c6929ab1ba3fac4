import subprocess

import pytest

BOOKS = "title,author,year\nEmma,Jane Austen,1815\nUlysses,James Joyce,1922\n"


def run_csvcut(program, text, *columns):
    return subprocess.run([program, *columns], input=text, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param("Emma", "Emma", id="plain"),
        pytest.param('"Emma"', "Emma", id="quoted"),
        pytest.param('"Dombey, and Son"', "Dombey, and Son", id="comma"),
        pytest.param('"The ""Genius"" and more"', 'The "Genius" and more', id="doubled"),
        pytest.param("", "", id="empty"),
        pytest.param('""', "", id="empty-quoted"),
    ],
)
def test_field(program, field, expected):
    run = run_csvcut(program, f"title,year\n{field},1850\n", "title", "year")
    assert run.returncode == 0
    assert run.stdout.splitlines()[1] == f"{expected}\t1850"


@pytest.mark.parametrize("columns", [("year", "title"), ("3", "1")])
def test_columns_by_name_and_number(program, columns):
    run = run_csvcut(program, BOOKS, *columns)
    assert run.stdout.splitlines() == ["year\ttitle", "1815\tEmma", "1922\tUlysses"]


def test_short_record(program):
    assert run_csvcut(program, "a,b,c\n1,2\n", "c", "b").stdout == "c\tb\n\t2\n"


def test_no_such_column(program):
    run = run_csvcut(program, BOOKS, "price")
    assert (run.returncode, run.stderr) == (1, "csvcut: no column price\n")


def test_missing_mark(program):
    run = run_csvcut(program, 'a,b\n"1,2\n', "a")
    assert (run.returncode, run.stdout, run.stderr) == (1, "a\n", "csvcut: a quotation mark is missing\n")
