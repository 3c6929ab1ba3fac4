import subprocess

import pytest


def run_spool(program, *commands):
    run = subprocess.run([program], input="\n".join(commands) + "\n", capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("cancelled", "expected"),
    [
        pytest.param(
            ["letter"], ["poster: 1 pages, 0 ahead", "thesis: 90 pages, 1 ahead", "91 pages in all"], id="first"
        ),
        pytest.param(
            ["poster"], ["letter: 2 pages, 0 ahead", "thesis: 90 pages, 2 ahead", "92 pages in all"], id="last"
        ),
        pytest.param(["letter", "poster"], ["thesis: 90 pages, 0 ahead", "90 pages in all"], id="both"),
    ],
)
def test_add_after_cancel(program, cancelled, expected):
    cancels = [f"cancel {name}" for name in cancelled]
    assert run_spool(program, "add letter 2", "add poster 1", *cancels, "add thesis 90", "list") == expected


def test_prints_in_order(program):
    output = run_spool(program, "add letter 2", "add poster 1", "print", "print")
    assert output == ["printed letter", "printed poster"]


@pytest.mark.parametrize("name", ["letter", "poster", "thesis"])
def test_urgent_is_next(program, name):
    output = run_spool(program, "add letter 2", "add poster 1", "add thesis 90", f"urgent {name}", "print", "list")
    assert output[0] == f"printed {name}"
    assert len(output) == 4


def test_list_after_urgent(program):
    output = run_spool(program, "add letter 2", "add poster 1", "urgent poster", "add thesis 90", "list")
    assert [line.split(":")[0] for line in output] == ["poster", "letter", "thesis", "93 pages in all"]


def test_nothing_to_print(program):
    assert run_spool(program, "print") == ["nothing to print"]


def test_unknown_job(program):
    assert run_spool(program, "add letter 2", "cancel poster") == ["cannot: cancel poster"]
