import subprocess

import pytest

# Trailing white space in lines 1 and 5, nothing else.
LETTER = "Dear reader, \n\nnothing much happened today.\n\nYours, \nthe writer\n"


def run_tidy(program, *options):
    return subprocess.run([program, *options], input=LETTER, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        pytest.param("-w 2", 0, id="two-tolerated"),
        pytest.param("-w 1", 1, id="one-tolerated"),
        pytest.param("-q -w 0", 1, id="quiet"),
        pytest.param("-w 0 -b 1", 1, id="one-blank-line"),
        pytest.param("-w 0 -b 3", 1, id="three-blank-lines"),
        pytest.param("-b 3 -w 0", 1, id="blank-lines-first"),
        pytest.param("-w 2 -l 20", 1, id="short-lines"),
        pytest.param("-w 9 -b 0", 0, id="no-blank-lines"),
        pytest.param("-w", 2, id="no-number"),
        pytest.param("-x 1", 2, id="unknown"),
    ],
)
def test_exit_status(program, options, status):
    run = run_tidy(program, *options.split())
    assert run.returncode == status


def test_findings_are_printed(program):
    run = run_tidy(program, "-b", "0")
    assert run.stdout.splitlines() == [
        "1: trailing white space",
        "2: too many blank lines",
        "4: too many blank lines",
        "5: trailing white space",
    ]


def test_quiet_prints_nothing(program):
    assert run_tidy(program, "-q").stdout == ""
