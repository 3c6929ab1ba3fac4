"""Turns the starts seen while a test runs into its Recording."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_causechain.model.command import Command, Program
from pytest_causechain.model.recording import Recording, Run
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.recording.programs import find_executable, identify_program
from pytest_causechain.recording.sanitizers import settle_options
from pytest_causechain.recording.seam import Seam
from pytest_causechain.recording.start import Start

# Set by pytest and its plugins for each test; a program has no business with them.
_PYTEST_VARIABLES = "PYTEST_"

# More than anybody nests.
MAX_WRAPPERS = 10


class Recognised(NamedTuple):
    """A start of a program that can be diagnosed: `inner` is its own, behind all wrappers."""

    inner: Start
    program: Program


class _Sighting(NamedTuple):
    """A start and what was found out about its program at that time: it may be gone or rebuilt at the end.

    `number` counts all starts of the session."""

    number: int
    start: Start
    recognised: Recognised | None
    refusal: str
    fixture: str | None


class Recorder:
    """Records one test at a time: `begin` before its setup, `finish` after its teardown.

    Make it at the start of the session: environments are kept as changes against the one found then. What a fixture of
    a wider scope starts belongs to all tests that use it.
    """

    def __init__(self) -> None:
        self._base = dict(os.environ)
        self._test = ""
        self._count = 0
        self._sightings: list[_Sighting] = []
        # The fixtures of a wider scope by what pytest knows them by, with their name: those being set up, innermost
        # last, and what each has started.
        self._setups: list[tuple[object, str]] = []
        self._shared: dict[object, list[_Sighting]] = {}
        self._seam = Seam(self._see)

    def begin(self, nodeid: str) -> None:
        self._seam.remove()  # of a test that never finished
        self._test = nodeid
        self._sightings = []
        self._setups = []
        self._seam.install()

    @contextlib.contextmanager
    def set_up(self, fixture: object, name: str) -> Iterator[None]:
        """While this fixture of a wider scope is set up."""
        self._shared[fixture] = []
        self._setups.append((fixture, name))
        try:
            yield
        finally:
            self._setups.remove((fixture, name))

    def finish(self, outcome: Literal["passed", "failed", "skipped"], fixtures: Collection[object] = ()) -> Recording:
        """`fixtures` are those that the test used."""
        self._seam.remove()
        shared = [sighting for fixture in fixtures for sighting in self._shared.get(fixture, ())]
        runs: list[Run] = []
        refusals: dict[str, None] = {}
        counts: Counter[str | None] = Counter()
        for _number, start, recognised, refusal, fixture in sorted([*shared, *self._sightings]):
            if recognised is None:
                refusals[refusal] = None
                continue
            ordinal = counts[fixture]
            counts[fixture] += 1
            if start.stdin is None:
                refusals[_explain_unknown_stdin(recognised.program)] = None
            else:
                command = _describe_command(recognised, start.stdin, self._base)
                runs.append(Run(command, start.returncode, fixture, ordinal))
        self._sightings = []
        return Recording(self._test, outcome, tuple(runs), tuple(refusals))

    def _see(self, start: Start) -> None:
        recognised, refusal = None, ""
        try:
            recognised = recognise_start(start)
        except Refusal as problem:
            refusal = str(problem)
        self._count += 1
        fixture, name = self._setups[-1] if self._setups else (None, None)
        sightings = self._sightings if fixture is None else self._shared[fixture]
        sightings.append(_Sighting(self._count, start, recognised, refusal, name))


def recognise_start(start: Start) -> Recognised:
    """The program that is about to start; Refusal when it is none that can be diagnosed."""
    if start.unsupported is not None:
        name = Path(start.argv[0].partition(" ")[0]).name if start.argv else "a program"
        raise Refusal(f"{name} is started through {start.unsupported}: start it with subprocess.run instead.")
    for _ in range(MAX_WRAPPERS):
        # Somebody writes shells and debuggers, too: what can be diagnosed itself is not looked through.
        problem = Refusal("the test starts an empty command: give the path of the program.")
        if start.wanted and not start.shell:
            try:
                program = identify_program(find_executable(start.wanted, start.cwd, start.environment))
                return Recognised(start, program)
            except Refusal as refusal:
                problem = refusal
        from pytest_causechain.recording.wrappers import unwrap

        inner = unwrap(start)
        if inner is None:
            raise problem
        start = inner
    raise Refusal(f"{start.wanted} is started through too many others: start the program itself from the test.")


def _describe_command(recognised: Recognised, stdin: bytes, base: Mapping[str, str]) -> Command:
    inner, program = recognised
    environment = settle_options(program, inner.environment)
    return Command(program, inner.argv, inner.cwd, _derive_changes(base, environment), stdin)


def _derive_changes(base: Mapping[str, str], environment: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """What turns `base` into `environment`; removed variables have None."""
    names = {name for name, value in environment.items() if base.get(name) != value}
    names.update(name for name in base if name not in environment)
    return tuple((name, environment.get(name)) for name in sorted(names) if not name.startswith(_PYTEST_VARIABLES))


def _explain_unknown_stdin(program: Program) -> str:
    name = Path(program.path).name
    return f"{name} reads from a pipe or terminal we cannot see: pass its standard input with input= or as a file."
