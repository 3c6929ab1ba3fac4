import subprocess

import pytest


def run_draft(program, text, commands):
    return subprocess.run([program, text, *commands.split()], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        pytest.param("insert 0 un", "unknown", id="insert"),
        pytest.param("erase 0 1", "nown", id="erase"),
        pytest.param("swap n m", "kmowm", id="swap"),
        pytest.param("erase 0 1 insert 4 here", "nownhere", id="two"),
    ],
)
def test_edits(program, commands, expected):
    run = run_draft(program, "known", commands)
    assert (run.returncode, run.stdout) == (0, expected + "\n")


@pytest.mark.parametrize("edit", ["insert 2 the", "erase 1 3", "swap r l"])
@pytest.mark.parametrize("again", [[], ["redo", "undo"]], ids=["once", "twice"])
def test_undone(program, edit, again):
    run = run_draft(program, "program", " ".join([edit, "undo", *again]))
    assert run.stdout.splitlines()[-1] == "program"


@pytest.mark.parametrize("edit", ["insert 2 the", "erase 1 3", "swap r l"])
def test_redone(program, edit):
    once = run_draft(program, "program", edit).stdout.splitlines()
    again = run_draft(program, "program", f"{edit} undo redo").stdout.splitlines()
    assert again[-1:] == once


def test_undo_in_reverse_order(program):
    run = run_draft(program, "abc", "swap a b erase 0 2 undo undo undo")
    assert run.stdout.splitlines() == ["undo erase", "undo swap", "undo nothing", "abc"]


def test_new_edit_forgets_what_was_undone(program):
    run = run_draft(program, "abc", "erase 0 1 undo insert 3 d redo")
    assert run.stdout.splitlines() == ["undo erase", "redo nothing", "abcd"]


def test_unknown_edit(program):
    run = run_draft(program, "abc", "reverse")
    assert (run.returncode, run.stderr) == (1, "draft: what is reverse?\n")
