"""The hooks by which a project chooses neighbours and judges runs, from a conftest.py; all in one session."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import compile_program
from suites import (
    COUNT,
    SUITE_INI,
    Session,
    ShareSession,
    read_chain,
    read_sentence,
    run_session,
)

CONFTEST = """
import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_causechain_select_neighbour(config, test, run, candidates):
    assert config.rootpath.name == "suite" and run.command.argv[1:] == ("x", "x")
    if test.endswith("test_judged"):
        return candidates[-1].recording.test
    return "nothing of this name" if test.endswith("test_selected_wrongly") else None


@pytest.hookimpl(optionalhook=True)
def pytest_causechain_judge(item, run):
    if item.name == "test_judged":
        return "unresolved" if run.returncode < 0 else "fail" if run.returncode else "pass"
    return "maybe" if item.name == "test_judged_wrongly" else None
"""
TEST_HOOKS = """
import subprocess

import pytest


def count(number):
    return subprocess.run(["./count", *"x" * number], capture_output=True, text=True)


@pytest.mark.parametrize("number", [0, 1])
def test_few(number):
    assert count(number).returncode == 0


def test_judged():
    assert count(2).returncode == "whatever it is, this fails"


def test_judged_wrongly():
    assert count(2).returncode == 0


def test_selected_wrongly():
    assert count(2).returncode == 0
"""


def run_hooks(directory: Path) -> Session:
    compile_program(directory / "count", COUNT)
    (directory / "pytest.ini").write_text(SUITE_INI)
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_hooks.py").write_text(TEST_HOOKS)
    return run_session(directory, "--tb=no", "-n", "2")


@pytest.fixture
def hooked(share_session: ShareSession) -> Session:
    return share_session("hooked", run_hooks)


def test_projects_judge_tells_runs_apart_that_the_test_cannot(hooked):
    chain = read_chain(hooked.directory, "test_hooks.py::test_judged")
    assert (chain["status"], chain["oracle"]["kind"]) == ("complete", "user")
    assert chain["oracle"]["fails_when"] == "the project's pytest_causechain_judge says so"
    assert [cause["variable"] for link in chain["chain"] for cause in link["causes"]] == ["argc"]


def test_judge_that_says_something_else(hooked):
    assert read_sentence(hooked.output, "test_judged_wrongly") == (
        'pytest_causechain_judge returned \'maybe\' for test_hooks.py::test_judged_wrongly: return "pass", "fail", '
        '"unresolved" or None.'
    )


def test_selected_neighbour_is_taken(hooked):
    """The one further away."""
    chain = read_chain(hooked.directory, "test_hooks.py::test_judged")
    assert chain["passing"]["test"] == "test_hooks.py::test_few[0]"


def test_selection_of_something_else(hooked):
    assert read_sentence(hooked.output, "test_selected_wrongly") == (
        "pytest_causechain_select_neighbour returned 'nothing of this name': return the node id of one of the "
        "candidates or None."
    )
