"""Turns a collected failure into a failing test: which of its runs is diagnosed, and which passing runs are near it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_causechain.model.budget import Budget, Shortfall
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Marker, Recording, Run
from pytest_causechain.neighbours.ranking import Neighbour, explain_absence, find_named, rank_neighbours, take_selected
from pytest_causechain.oracle.facts import locate_crash
from pytest_causechain.oracle.replay import Replays
from pytest_causechain.oracle.symptom import ask_for_guilty, guilty_run
from pytest_causechain.recording.programs import require_same_build
from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True, slots=True)
class CollectedFailure:
    """A failed test as the session knows it: its report, what it started, and what its marker says."""

    report: pytest.TestReport
    recording: Recording

    @property
    def test(self) -> str:
        return self.report.nodeid

    @property
    def marker(self) -> Marker:
        return self.recording.marker


@dataclass(frozen=True, slots=True)
class FailingTest:
    """What a diagnosis is about. `neighbours` are the passing tests to compare with, the nearest first; `absence` says
    why there is none. `crash` is where the test failed, `shortfalls` what was cut short in choosing all this."""

    recording: Recording
    run: Run
    neighbours: tuple[Neighbour, ...] = ()
    absence: str | None = None
    crash: str | None = None
    is_parallel: bool = True
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def test(self) -> str:
        return self.recording.test

    @property
    def command(self) -> Command:
        return self.run.command

    def may_vote_for(self, other: FailingTest) -> bool:
        """Whether its repairs tell something of the other one's program. A test that must have its program for itself
        is left alone while others are diagnosed."""
        build = other.command.program.build_id
        is_same = any(run.command.program.build_id == build for run in self.recording.runs)
        return is_same and (self.is_parallel or not other.is_parallel)


def choose_failing_test(
    failure: CollectedFailure,
    recordings: Sequence[Recording],
    settings: Settings,
    replays: Replays,
    config: pytest.Config,
    budget: Budget,
) -> FailingTest:
    """A Refusal where it cannot be diagnosed. `recordings` are those of all tests; the budget is that of the test's
    whole diagnosis."""
    recording = _narrow(failure)
    run = guilty_run(recording) if len(recording.runs) < 2 else _find_guilty(recording, replays, budget)
    require_same_build(run.command.program)
    neighbours, absence = _choose_neighbours(failure.marker, recording, run, recordings, settings, config)
    crash = locate_crash(failure.report)
    return FailingTest(recording, run, tuple(neighbours), absence, crash, failure.marker.is_parallel, budget.shortfalls)


def _narrow(failure: CollectedFailure) -> Recording:
    """With the runs of the program that the marker names alone."""
    recording, wanted = failure.recording, failure.marker.program
    longrepr = failure.report.longrepr
    if isinstance(longrepr, str) and longrepr.startswith("[XPASS(strict)]"):
        raise Refusal(f"{recording.test} passes although it is marked xfail(strict=True): remove the mark.")
    if wanted is None:
        return recording
    runs = tuple(run for run in recording.runs if _is_program(run, wanted))
    if recording.runs and not runs:
        raise Refusal(f"{recording.test} does not start {wanted}: fix program= of its marker cause_chain.")
    return recording._replace(runs=runs)


def _is_program(run: Run, wanted: str) -> bool:
    path = Path(run.command.program.path)
    return wanted in (str(path), path.name) or Path(run.command.cwd, wanted).resolve() == path


def _find_guilty(recording: Recording, replays: Replays, budget: Budget) -> Run:
    with replays.borrow([recording.test]) as replay:
        return ask_for_guilty(replay, recording, budget.part("guilt"))


def _choose_neighbours(
    marker: Marker,
    recording: Recording,
    run: Run,
    candidates: Sequence[Recording],
    settings: Settings,
    config: pytest.Config,
) -> tuple[Sequence[Neighbour], str | None]:
    """The nearest first; or why there is none."""
    named = marker.neighbour or settings.neighbour
    if named:
        return [find_named(named, candidates, run)], None
    ranked = rank_neighbours(recording, run, candidates)
    if not ranked:
        return [], explain_absence(recording, run, candidates)
    ask = partial(config.hook.pytest_causechain_select_neighbour, config=config, test=recording.test, run=run)
    return take_selected(ask, ranked), None
