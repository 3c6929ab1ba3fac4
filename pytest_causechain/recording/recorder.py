"""Turns the starts seen while a test runs into its Recording, and has pytest record each test."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import (
    ABSENT,
    ATTRIBUTE,
    NO_FILE,
    Command,
    InputFile,
    Marker,
    Program,
    Recording,
    Run,
    pack,
    read_input,
)
from pytest_causechain.recording.programs import Recognised, Start, recognise_start
from pytest_causechain.recording.seam import Seam

TestOutcome = Literal["passed", "failed", "skipped"]

# Of an environment; removed variables have None.
Changes = tuple[tuple[str, str | None], ...]

# Set by pytest and its plugins for each test; a program has no business with them.
_PYTEST_VARIABLES = "PYTEST_"

_OPTIONS = "ASAN_OPTIONS"
_LEAKS = "detect_leaks"

# Of a start that are looked at: who names more files has them made for it.
MOST_ARGUMENTS = 50


class _Sighting(NamedTuple):
    """A start and what was found out about its program at that time: it may be gone or rebuilt at the end.

    `number` counts all starts of the session."""

    number: int
    # Or why it cannot be diagnosed.
    found: Recognised | str
    fixture: str | None
    inputs: tuple[InputFile, ...]


class Recorder:
    """Records one test at a time: `begin` before its setup, `finish` after its teardown; `close` after the last.

    Make it at the start of the session: environments are kept as changes against the one found then. What a fixture of
    a wider scope starts belongs to all tests that use it.
    """

    def __init__(self) -> None:
        self._environments = Environments()
        # Empty between tests.
        self._test = ""
        self._count = 0
        self._sightings: list[_Sighting] = []
        # The fixtures of a wider scope by what pytest knows them by, with their name: those being set up, innermost
        # last, and what each has started.
        self._setups: list[tuple[object, str]] = []
        self._shared: dict[object, list[_Sighting]] = {}
        self._seam = Seam(self._see)

    def begin(self, nodeid: str) -> None:
        self._test = nodeid
        self._sightings = []
        self._setups = []
        if not self._seam.is_installed:
            self._seam.install()

    def close(self) -> None:
        self._seam.remove()

    @contextlib.contextmanager
    def set_up(self, fixture: object, name: str) -> Iterator[None]:
        """Counts what is started in this block as the fixture's, one of a wider scope than a test."""
        self._shared[fixture] = []
        self._setups.append((fixture, name))
        try:
            yield
        finally:
            self._setups.remove((fixture, name))

    def finish(self, outcome: TestOutcome, fixtures: Collection[object] = ()) -> Recording:
        """Returns the recording of the test that has ended; `fixtures` are those that it used."""
        test, self._test = self._test, ""
        shared = [sighting for fixture in fixtures for sighting in self._shared.get(fixture, ())]
        runs: list[Run] = []
        refusals: dict[str, None] = {}
        counts: Counter[str | None] = Counter()
        for _number, found, fixture, inputs in sorted([*shared, *self._sightings]):
            if isinstance(found, str):
                refusals[found] = None
                continue
            ordinal = counts[fixture]
            counts[fixture] += 1
            stdin, returncode = found.start.stdin, found.start.returncode
            if stdin is None:
                refusals[_explain_unknown_stdin(found.program)] = None
            else:
                runs.append(Run(self._describe_command(found, stdin, inputs), returncode, fixture, ordinal))
        self._sightings = []
        return Recording(test, outcome, tuple(runs), tuple(refusals))

    def _describe_command(self, recognised: Recognised, stdin: bytes, inputs: Iterable[InputFile]) -> Command:
        inner, program = recognised.inner, recognised.program
        changes = self._environments.derive_changes(settle_options(program, inner.environment))
        # Of a word that names no file, nobody knows whether it should, unless there is one now.
        kept = tuple(file.keep() for file in inputs if file.digest != ABSENT or file.has_changed())
        return Command(program, inner.argv, inner.cwd, changes, stdin, kept)

    def _see(self, start: Start) -> None:
        if not self._test:
            return
        found: Recognised | str
        inputs: tuple[InputFile, ...] = ()
        try:
            found = recognise_start(start)
            inputs = _read_inputs(found.inner)
        except Refusal as refusal:
            found = str(refusal)
        self._count += 1
        fixture, name = self._setups[-1] if self._setups else (None, None)
        sightings = self._sightings if fixture is None else self._shared[fixture]
        sightings.append(_Sighting(self._count, found, name, inputs))


def _read_inputs(start: Start) -> tuple[InputFile, ...]:
    """Reads the files that its arguments may name."""
    found: dict[str, InputFile] = {}
    for word in start.argv[1 : 1 + MOST_ARGUMENTS]:
        name = word.rpartition("=")[2]
        # Every start passes through here: a Path takes longer than to look whether there is something.
        path = name if name.startswith("/") else f"{start.cwd}/{name}"
        if name and path not in found:
            file = read_input(path)
            if file.digest != NO_FILE:
                found[path] = file
    return tuple(found.values())


def _explain_unknown_stdin(program: Program) -> str:
    name = Path(program.path).name
    return f"{name} reads from a pipe or terminal we cannot see: pass its standard input with input= or as a file."


# The environment


class Environments:
    """Tells environments as changes against the one found when this was made."""

    def __init__(self) -> None:
        self._base = dict(os.environ)
        # The one asked about last, and the answer.
        self._last: tuple[Mapping[str, str], Changes] = {}, ()

    def derive_changes(self, environment: Mapping[str, str]) -> Changes:
        """Returns what turns the base into `environment`."""
        if environment is not self._last[0]:
            names = {name for name, _value in environment.items() - self._base.items()}
            names |= self._base.keys() - environment.keys()
            told = sorted(name for name in names if not name.startswith(_PYTEST_VARIABLES))
            self._last = environment, tuple((name, environment.get(name)) for name in told)
        return self._last[1]


def settle_options(program: Program, environment: dict[str, str]) -> dict[str, str]:
    """Returns the environment for experiments: LeakSanitizer, which refuses to work under ptrace and ends the program,
    is switched off unless the test has decided that itself."""
    given = environment.get(_OPTIONS, "")
    if _LEAKS in given or not _has_address_sanitizer(program):
        return environment
    return {**environment, _OPTIONS: ":".join(filter(None, (given, f"{_LEAKS}=0")))}


@functools.lru_cache(maxsize=1000)
def _has_address_sanitizer(program: Program) -> bool:
    try:
        with Path(program.path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b"__asan_init") != -1
    except (OSError, ValueError):
        return False


# The plugin


class RecordingPlugin:
    """Records what tests start, in the only process of pytest or in a worker of pytest-xdist.

    The last report of a test gets the attribute ATTRIBUTE: its Recording."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # So far, of the test under way.
        self.has_failed = self._is_skipped = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._recorder.close()

    # Not around the whole protocol: a plugin may repeat what is within it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        self.has_failed = self._is_skipped = False
        self._recorder.begin(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        with self._recorder.set_up(fixturedef, fixturedef.argname):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self.has_failed |= report.failed
        self._is_skipped |= report.skipped
        if report.when == "teardown":
            outcome: TestOutcome = "failed" if self.has_failed else "skipped" if self._is_skipped else "passed"
            recording = self._recorder.finish(outcome, find_fixtures(item))
            if recording.runs or recording.refusals:
                recording = recording._replace(marker=read_marker(item))
                setattr(report, ATTRIBUTE, pack(recording) if hasattr(item.config, "workerinput") else recording)
        return report


def find_fixtures(item: pytest.Item) -> list[object]:
    """Lists the fixtures that the test used; pytest has no public way to them."""
    request = getattr(item, "_request", None)
    return list(getattr(request, "_fixture_defs", {}).values())


def read_marker(item: pytest.Item) -> Marker:
    """Says what the controller must know of the marker; `fails_when` is asked for where the test is replayed."""
    marker = item.get_closest_marker("cause_chain")
    if marker is None:
        return Marker()
    program, neighbour = (str(given) if (given := marker.kwargs.get(n)) else None for n in ("program", "neighbour"))
    is_parallel, is_skipped = bool(marker.kwargs.get("parallel", True)), bool(marker.kwargs.get("skip"))
    return Marker(program, neighbour, is_parallel, is_skipped)
