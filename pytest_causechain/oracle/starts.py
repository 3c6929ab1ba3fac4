"""Finds, among all programs a test starts, the run whose output is to be replaced.

The first run of a test, with real programs, shows which starts of the program under test there are; the last one is
the guilty one. A replay counts again and puts the observation in its place. Fixtures of a wider scope than the test
run once for many replays, so starts in their setup are counted only where there are no others.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_causechain.model.command import Program
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.recording.recorder import recognise_program
from pytest_causechain.recording.seam import Start

# What stands for a directory that has another name in each run.
_ANY_DIRECTORY = "<temporary>"


@dataclass(frozen=True, slots=True)
class Plan:
    """The starts a replay has to meet, by their argv, the guilty one last.

    `by_name`: the program was built again in this session and got another build id, so that its file name tells it.
    `is_shared`: the starts are in fixtures of a wider scope, which therefore must be set up anew for each replay.
    """

    argvs: tuple[tuple[str, ...], ...]
    by_name: bool
    is_shared: bool


@dataclass(slots=True)
class Survey:
    """Watches the real programs of one run of a test."""

    in_shared_setup: Callable[[], bool]
    sightings: list[tuple[Program, tuple[str, ...], bool]] = field(default_factory=list)

    def watch(self, start: Start) -> None:
        try:
            program = recognise_program(start)
        except Refusal:
            return
        self.sightings.append((program, start.argv, self.in_shared_setup()))

    def make_plan(self, program: Program) -> Plan | None:
        """None when the test did not start the program."""
        for by_name in (False, True):
            for is_shared in (False, True):
                argvs = [
                    argv
                    for seen, argv, shared in self.sightings
                    if shared == is_shared and _is_same_program(seen, program, by_name)
                ]
                if argvs:
                    return Plan(tuple(argvs), by_name, is_shared)
        return None


@dataclass(slots=True)
class Substitution:
    """Watches one replay: puts `observation` in the guilty run's place, if the way there is the planned one."""

    program: Program
    plan: Plan
    observation: Observation
    basetemp: str
    in_shared_setup: Callable[[], bool]
    count: int = 0
    diverged: bool = False

    def watch(self, start: Start) -> Observation | None:
        try:
            program = recognise_program(start)
        except Refusal:
            return None
        if self.in_shared_setup() != self.plan.is_shared:
            return None
        if not _is_same_program(program, self.program, self.plan.by_name):
            return None
        index = self.count
        self.count += 1
        # Behind the guilty run a test that now passes may go on to start more than before.
        if index >= len(self.plan.argvs):
            return None
        if _settle(start.argv, self.basetemp) != _settle(self.plan.argvs[index], self.basetemp):
            self.diverged = True
        return self.observation if index == len(self.plan.argvs) - 1 else None

    @property
    def is_done(self) -> bool:
        """Whether the observation took its place as planned."""
        return not self.diverged and self.count >= len(self.plan.argvs)


def _is_same_program(one: Program, other: Program, by_name: bool) -> bool:
    return Path(one.path).name == Path(other.path).name if by_name else one.build_id == other.build_id


def _settle(argv: tuple[str, ...], basetemp: str) -> tuple[str, ...]:
    """The arguments without the names of temporary directories and files, which change from run to run."""
    # Below basetemp it is the next directory that is numbered anew.
    pattern = "|".join(re.escape(directory) + r"/[^/]+" for directory in (basetemp, tempfile.gettempdir()))
    return tuple(re.sub(pattern, _ANY_DIRECTORY, argument) for argument in argv)
