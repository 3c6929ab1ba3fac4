"""Finds, among all programs a test starts, the run whose output is to be replaced, and the places of its files.

A first run of the test, with real programs, shows which starts there are. A replay counts again and puts the
observation in the place of the one that is asked about. Fixtures of a wider scope than the test run once for many
tests; the one whose setup has that start is set up anew for each replay. Temporary directories have other names each
time, so that the files which an observed run wrote are put where this test has its own.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_causechain.kernel.companion import Closing
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Observation, Program, Run
from pytest_causechain.recording.programs import Recognised, Start, recognise_start

# What stands for a directory that has another name in each run.
_ANY_DIRECTORY = "<temporary>"
# All directories of a path, wherever it stands in an argument.
_DIRECTORIES = re.compile(r"/[^\s=,:;]*/")


@dataclass(frozen=True, slots=True)
class FixtureSetup:
    """A fixture of a wider scope than the test that is being set up, and the request for it."""

    fixture: pytest.FixtureDef[object]
    request: pytest.FixtureRequest

    @property
    def name(self) -> str:
        return self.fixture.argname

    def undo(self) -> None:
        """Tears it down, and all that depends on it: pytest sets it up anew when it is needed next."""
        self.fixture.finish(self.request)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The starts a replay has to meet, by their argv, the one to be replaced last; in the fixture's `setup`, or in
    the test itself."""

    argvs: tuple[tuple[str, ...], ...]
    setup: FixtureSetup | None


def find_start(run: Run, seen: Sequence[Recognised]) -> int | None:
    """Finds the start with the run's number; else the only one that looks like it; else the one with its number all the
    same: names may be made up anew each time."""
    same = [i for i, start in enumerate(seen) if is_same_program(start.program, run.command.program)]
    alike = [i for i in same if _tell_names(seen[i].inner.argv) == _tell_names(run.command.argv)]
    if run.ordinal in alike:
        return run.ordinal
    if len(alike) == 1:
        return alike[0]
    return run.ordinal if run.ordinal in same else None


@dataclass(slots=True)
class Substitution:
    """Watches one replay: puts `observation` in the run's place, if the way there is the planned one, and the files it
    wrote where this test has its own."""

    plan: ReplayPlan
    observation: Observation
    origins: tuple[Command, ...]
    basetemp: str
    setups: Sequence[FixtureSetup]
    files: WrittenFiles
    count: int = 0
    diverged: bool = False

    def watch(self, start: Start) -> Observation | None:
        try:
            recognised = recognise_start(start)
        except Refusal:
            return None
        setup, planned = self.setups[-1] if self.setups else None, self.plan.setup
        if (setup and setup.name) != (planned and planned.name):
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
        """Tells whether the observation took its place as planned."""
        return not self.diverged and self.count >= len(self.plan.argvs)


def limit_observation(observation: Observation, limit_status: int | None) -> Observation:
    """Returns what is seen of it through a wrapper that ends a program after a while."""
    if limit_status is None or observation.ending != "timeout":
        return observation
    return Observation("exit", limit_status, observation.stdout, observation.stderr, files=observation.files)


def is_same_program(one: Program, other: Program) -> bool:
    """Compares build ids, and file names: a program that the session builds again may get another build id."""
    return one.build_id == other.build_id or Path(one.path).name == Path(other.path).name


def _settle(argv: tuple[str, ...], basetemp: str) -> tuple[str, ...]:
    """Strips the names of temporary directories and files, which change from run to run."""
    # Below basetemp it is the next directory that is numbered anew.
    pattern = "|".join(re.escape(directory) + r"/[^/]+" for directory in (basetemp, tempfile.gettempdir()))
    return tuple(re.sub(pattern, _ANY_DIRECTORY, argument) for argument in argv)


def _tell_names(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Strips all directories: another session has others."""
    return tuple(_DIRECTORIES.sub("/", argument) for argument in argv)


# Files

_PATH = re.compile(r"(?:^|[=:,])(/[^=:,]+)")

Files = tuple[tuple[str, bytes | None], ...]


def relocate_files(files: Files, origins: Sequence[Command], argv: Sequence[str], cwd: str) -> Files:
    """Moves the files to the paths at which a start with these arguments in this directory would have written them.

    `origins` are the commands whose run may have written them, the likeliest first."""
    if not files:
        return ()
    moves: dict[str, str] = {}
    for origin in origins:
        for before, now in _find_moves(origin, argv, cwd):
            moves.setdefault(before, now)
    return tuple((_relocate(path, moves), content) for path, content in files)


def _find_moves(origin: Command, argv: Sequence[str], cwd: str) -> Iterator[tuple[str, str]]:
    """Yields directories and files then and now: the working directory, and paths among the arguments, in order."""
    yield origin.cwd, cwd
    pairs = list(zip(_list_paths(origin.argv), _list_paths(argv), strict=False))
    for before, now in pairs:
        yield before, now
    # Of files with other names, the directories are told by what the paths end in.
    for before, now in pairs:
        ours, theirs = before.split("/"), now.split("/")
        while len(ours) > 1 < len(theirs) and (ours[-1] == theirs[-1] or len(ours) == before.count("/") + 1):
            ours.pop()
            theirs.pop()
        yield "/".join(ours), "/".join(theirs)


def _list_paths(argv: Sequence[str]) -> list[str]:
    """Lists the absolute ones, as in --file=/tmp/a/in, without the program itself."""
    return [path for argument in argv[1:] for path in _PATH.findall(argument)]


def _relocate(path: str, moves: dict[str, str]) -> str:
    """Moves a path by the longest directory that it is in."""
    for parent in (Path(path), *Path(path).parents):
        if (moved := moves.get(str(parent))) is not None:
            return str(Path(moved, Path(path).relative_to(parent)))
    return path


class WrittenFiles(Closing):
    """Puts files in place and, when closed, back what was there: the test's own directories may be the user's."""

    def __init__(self) -> None:
        # Content before; None: there was no file.
        self._before: dict[Path, bytes | None] = {}
        self._made: list[Path] = []

    def write(self, files: Files) -> None:
        for name, content in files:
            path = Path(name)
            if path not in self._before:
                self._before[path] = path.read_bytes() if path.is_file() else None
            self._put(path, content)

    def close(self) -> None:
        while self._before:
            path, content = self._before.popitem()
            with contextlib.suppress(OSError):  # a directory that the test has removed itself
                self._put(path, content)
        while self._made:
            with contextlib.suppress(OSError):
                self._made.pop().rmdir()

    def _put(self, path: Path, content: bytes | None) -> None:
        if content is None:
            path.unlink(missing_ok=True)
            return
        missing = [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._made += reversed(missing)
        path.write_bytes(content)
