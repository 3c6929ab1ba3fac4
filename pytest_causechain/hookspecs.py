"""The hooks that others can implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from pytest_causechain.model.chain import Chain
    from pytest_causechain.model.runs import Run
    from pytest_causechain.neighbours.ranking import Neighbour


@pytest.hookspec(firstresult=True)
def pytest_causechain_select_neighbour(
    config: pytest.Config, test: str, run: Run, candidates: Sequence[Neighbour]
) -> str | None:
    """Called for each failing test before it is diagnosed: the node id of the passing test to compare it with, or None
    to leave the choice to the next one, in the end to us.

    `run` is that of the failing test, with its `command` (argv, stdin, cwd, environment). `candidates` are the passing
    tests that run the same build with another command, nearest first: each has a `recording.test` (the node id), a
    `run`, a `distance` and `why`. Where the marker or an option names the neighbour nobody is asked. With pytest-xdist
    this is called where the results come together: have it in a plugin, or in the conftest.py of the directory that
    pytest is started in."""


@pytest.hookspec(firstresult=True)
def pytest_causechain_judge(
    item: pytest.Item, run: CompletedProcess[str]
) -> Literal["pass", "fail", "unresolved"] | None:
    """Called for the program's original runs and after each experiment: does this run show the failure of the test?

    "unresolved" is for a run that shows another failure, or of which nothing can be said; None leaves the judgement to
    the next one, in the end to the test itself. `run` has returncode (that of a run without end is -9), stdout and
    stderr as text, args. The original failing run must be "fail", the original passing one "pass". A marker's
    `fails_when` comes first. It is called in a session of its own, hundreds of times: it should be quick, and depend on
    nothing but the run."""


def pytest_causechain_report(config: pytest.Config, report: pytest.TestReport, chain: Chain) -> None:
    """Called for each diagnosed test, when its chain is found and its files are written.

    `report` is that of the failed phase; `report.cause_chain` is the chain too. An exception becomes a note in the
    terminal. A conftest.py that must also work without this plugin marks it `@pytest.hookimpl(optionalhook=True)`."""
