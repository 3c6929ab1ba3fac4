"""Turns the starts seen while a test runs into its Recording."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import ABSENT, NO_FILE, Command, InputFile, Program, Recording, Run, read_input
from pytest_causechain.recording.environment import Environments
from pytest_causechain.recording.programs import find_executable, identify_program
from pytest_causechain.recording.sanitizers import settle_options
from pytest_causechain.recording.seam import Seam
from pytest_causechain.recording.start import Start

# Of a start that are looked at: who names more files has them made for it.
MOST_ARGUMENTS = 50
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
        """While this fixture of a wider scope is set up."""
        self._shared[fixture] = []
        self._setups.append((fixture, name))
        try:
            yield
        finally:
            self._setups.remove((fixture, name))

    def finish(self, outcome: Literal["passed", "failed", "skipped"], fixtures: Collection[object] = ()) -> Recording:
        """`fixtures` are those that the test used."""
        test, self._test = self._test, ""
        shared = [sighting for fixture in fixtures for sighting in self._shared.get(fixture, ())]
        runs: list[Run] = []
        refusals: dict[str, None] = {}
        counts: dict[str | None, int] = {}
        for _number, start, recognised, refusal, fixture, inputs in sorted([*shared, *self._sightings]):
            if recognised is None:
                refusals[refusal] = None
                continue
            ordinal = counts.get(fixture, 0)
            counts[fixture] = ordinal + 1
            if start.stdin is None:
                refusals[_explain_unknown_stdin(recognised.program)] = None
            else:
                command = self._describe_command(recognised, start.stdin, inputs)
                runs.append(Run(command, start.returncode, fixture, ordinal))
        self._sightings = []
        return Recording(test, outcome, tuple(runs), tuple(refusals))

    def _describe_command(self, recognised: Recognised, stdin: bytes, inputs: Iterable[InputFile]) -> Command:
        inner, program = recognised
        changes = self._environments.derive_changes(settle_options(program, inner.environment))
        # Of a word that names no file, nobody knows whether it should, unless there is one now.
        kept = tuple(file.keep() for file in inputs if file.digest != ABSENT or file.has_changed())
        return Command(program, inner.argv, inner.cwd, changes, stdin, kept)

    def _see(self, start: Start) -> None:
        if not self._test:
            return
        recognised, refusal = None, ""
        inputs: tuple[InputFile, ...] = ()
        try:
            recognised = recognise_start(start)
            inputs = _read_inputs(recognised.inner)
        except Refusal as problem:
            refusal = str(problem)
        self._count += 1
        fixture, name = self._setups[-1] if self._setups else (None, None)
        sightings = self._sightings if fixture is None else self._shared[fixture]
        sightings.append(_Sighting(self._count, start, recognised, refusal, name, inputs))


def recognise_start(start: Start) -> Recognised:
    """The program that is about to start; Refusal when it is none that can be diagnosed."""
    if start.unsupported is not None:
        name = Path(start.argv[0].partition(" ")[0]).name if start.argv else "a program"
        raise Refusal(f"{name} is started through {start.unsupported}: start it with subprocess.run instead.")
    for _ in range(MAX_WRAPPERS):
        # Somebody writes shells and debuggers, too: what can be diagnosed itself is not looked through.
        problem = None
        if start.wanted and not start.shell:
            try:
                program = identify_program(find_executable(start.wanted, start.cwd, start.environment))
                return Recognised(start, program)
            except Refusal as refusal:
                problem = refusal
        from pytest_causechain.recording.wrappers import unwrap

        inner = unwrap(start)
        if inner is None:
            raise problem or Refusal("the test starts an empty command: give the path of the program.")
        start = inner
    raise Refusal(f"{start.wanted} is started through too many others: start the program itself from the test.")


def _read_inputs(start: Start) -> tuple[InputFile, ...]:
    """Of all that its arguments may name."""
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
