"""Finds, among all programs a test starts, the run whose output is to be replaced.

A first run of the test, with real programs, shows which starts there are. A replay counts again and puts the
observation in the place of the one that is asked about. Fixtures of a wider scope than the test run once for many
tests; the one whose setup has that start is set up anew for each replay.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_causechain.model.command import Command, Program
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.recording import Run
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.oracle.places import relocate_files
from pytest_causechain.oracle.written import WrittenFiles
from pytest_causechain.recording.programs import Recognised, Start, recognise_start

# What stands for a directory that has another name in each run.
_ANY_DIRECTORY = "<temporary>"
# All directories of a path, wherever it stands in an argument.
_DIRECTORIES = re.compile(r"/[^\s=,:;]*/")


@dataclass(frozen=True, slots=True)
class Scene:
    """A fixture of a wider scope that is being set up, and for whom."""

    fixture: pytest.FixtureDef[Any]
    request: Any

    @property
    def name(self) -> str:
        return self.fixture.argname

    def undo(self) -> None:
        """Has it, and all that depends on it, set up anew when it is needed next."""
        self.fixture.finish(self.request)


@dataclass(frozen=True, slots=True)
class Sighting:
    """`start` is the test's own, with what is known of how it went; the rest belongs to the program behind it."""

    start: Start
    program: Program
    argv: tuple[str, ...]

    @property
    def shown(self) -> Observation | None:
        """What the program showed, as far as the test has seen it."""
        start = self.start
        if start.returncode is None or start.stdout is None:
            return None
        ending = "exit" if start.returncode >= 0 else "signal"
        return Observation(ending, abs(start.returncode), start.stdout, start.stderr or b"")  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Plan:
    """The starts a replay has to meet, by their argv, the one to be replaced last; in the setup of `scene`, or in the
    test itself."""

    argvs: tuple[tuple[str, ...], ...]
    scene: Scene | None


@dataclass(slots=True)
class Survey:
    """Watches the real programs of one run of a test."""

    current_scene: Callable[[], Scene | None]
    own: list[Sighting] = field(default_factory=list)
    shared: dict[str, tuple[Scene, list[Sighting]]] = field(default_factory=dict)

    def watch(self, start: Start) -> None:
        try:
            recognised = recognise_start(start)
        except Refusal:
            return
        sighting = Sighting(start, recognised.program, recognised.inner.argv)
        scene = self.current_scene()
        if scene is None:
            self.own.append(sighting)
        else:
            self.shared.setdefault(scene.name, (scene, []))[1].append(sighting)


def make_plan(run: Run, sightings: Sequence[Sighting], scene: Scene | None) -> Plan | None:
    """The way to the start that is this run; None where there is none."""
    index = find_start(run, sightings)
    return None if index is None else Plan(tuple(sighting.argv for sighting in sightings[: index + 1]), scene)


def find_start(run: Run, sightings: Sequence[Sighting]) -> int | None:
    """The one with the run's number; else the only one that looks like it; else that with its number all the same:
    names may be made up anew each time."""
    same = [i for i, seen in enumerate(sightings) if is_same_program(seen.program, run.command.program)]
    alike = [i for i in same if _tell_names(sightings[i].argv) == _tell_names(run.command.argv)]
    if run.ordinal in alike:
        return run.ordinal
    if len(alike) == 1:
        return alike[0]
    return run.ordinal if run.ordinal in same else None


@dataclass(slots=True)
class Substitution:
    """Watches one replay: puts `observation` in the run's place, if the way there is the planned one, and the files it
    wrote where this test has its own."""

    plan: Plan
    observation: Observation
    origins: tuple[Command, ...]
    basetemp: str
    current_scene: Callable[[], Scene | None]
    files: WrittenFiles
    count: int = 0
    diverged: bool = False

    def watch(self, start: Start) -> Observation | None:
        try:
            recognised = recognise_start(start)
        except Refusal:
            return None
        scene, planned = self.current_scene(), self.plan.scene
        if (scene and scene.name) != (planned and planned.name):
            return None
        index = self.count
        self.count += 1
        # Behind the run in question a test that now passes may go on to start more than before.
        if index >= len(self.plan.argvs):
            return None
        if _settle(recognised.inner.argv, self.basetemp) != _settle(self.plan.argvs[index], self.basetemp):
            self.diverged = True
        return self._deliver(recognised) if index == len(self.plan.argvs) - 1 else None

    def _deliver(self, recognised: Recognised) -> Observation:
        inner = recognised.inner
        self.files.write(relocate_files(self.observation.files, self.origins, inner.argv, inner.cwd))
        return limit_observation(self.observation, inner.limit_status)

    @property
    def is_done(self) -> bool:
        """Whether the observation took its place as planned."""
        return not self.diverged and self.count >= len(self.plan.argvs)


def limit_observation(observation: Observation, limit_status: int | None) -> Observation:
    """What is seen of it through a wrapper that ends a program after a while."""
    if limit_status is None or observation.ending != "timeout":
        return observation
    return Observation("exit", limit_status, observation.stdout, observation.stderr, files=observation.files)


def is_same_program(one: Program, other: Program) -> bool:
    """A program that is built again in the replayed session may get another build id: then its file name tells it."""
    return one.build_id == other.build_id or Path(one.path).name == Path(other.path).name


def _settle(argv: tuple[str, ...], basetemp: str) -> tuple[str, ...]:
    """The arguments without the names of temporary directories and files, which change from run to run."""
    # Below basetemp it is the next directory that is numbered anew.
    pattern = "|".join(re.escape(directory) + r"/[^/]+" for directory in (basetemp, tempfile.gettempdir()))
    return tuple(re.sub(pattern, _ANY_DIRECTORY, argument) for argument in argv)


def _tell_names(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without any directories: another session has others."""
    return tuple(_DIRECTORIES.sub("/", argument) for argument in argv)
