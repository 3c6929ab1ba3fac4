"""Turns the starts seen while a test runs into its Recording."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_causechain.model.command import Command, Program
from pytest_causechain.model.recording import Recording, Run
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.recording.seam import Seam, Start

# Set by pytest and its plugins for each test; a program has no business with them.
_PYTEST_VARIABLES = "PYTEST_"

_SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})

# As much of a command as a sentence can bear.
_COMMAND_WIDTH = 40


class _Sighting(NamedTuple):
    """A start and what was found out about its program at that time: it may be gone or rebuilt at the end."""

    start: Start
    program: Program | None
    refusal: str


class Recorder:
    """Records one test at a time: `begin` before its setup, `finish` after its teardown.

    Make it at the start of the session: environments are kept as changes against the one found then.
    """

    def __init__(self) -> None:
        self._base = dict(os.environ)
        self._test = ""
        self._sightings: list[_Sighting] = []
        self._seam = Seam(self._see)

    def begin(self, nodeid: str) -> None:
        self._seam.remove()  # of a test that never finished
        self._test = nodeid
        self._sightings = []
        self._seam.install()

    def finish(self, outcome: Literal["passed", "failed", "skipped"]) -> Recording:
        self._seam.remove()
        runs: list[Run] = []
        refusals: dict[str, None] = {}
        for start, program, refusal in self._sightings:
            if program is None:
                refusals[refusal] = None
            elif start.stdin is None:
                refusals[_explain_unknown_stdin(program)] = None
            else:
                runs.append(Run(_describe_command(start, program, start.stdin, self._base), start.returncode))
        self._sightings = []
        return Recording(self._test, outcome, tuple(runs), tuple(refusals))

    def _see(self, start: Start) -> None:
        try:
            sighting = _Sighting(start, recognise_program(start), "")
        except Refusal as refusal:
            sighting = _Sighting(start, None, str(refusal))
        self._sightings.append(sighting)


def recognise_program(start: Start) -> Program:
    """The program that is about to start; Refusal when it is none that can be diagnosed."""
    if start.shell:
        command = _shorten(start.argv[0] if start.argv else "")
        raise Refusal(f"{command} is started through a shell (shell=True): pass a list of arguments instead.")
    wanted = start.executable or (start.argv[0] if start.argv else "")
    if not wanted:
        raise Refusal("the test starts an empty command: give the path of the program.")
    if Path(wanted).name in _SHELLS:
        command = _shorten(shlex.join(start.argv))
        raise Refusal(f"{command} starts a shell: start the compiled program itself from the test.")
    if start.library is not None:
        raise Refusal(f"{Path(wanted).name} is started through {start.library}: start it with subprocess.run instead.")
    return identify_program(find_executable(wanted, start.cwd, start.environment))


def find_executable(wanted: str, cwd: str, environment: Mapping[str, str]) -> str:
    """The path that execvpe finds for `wanted` in `cwd`."""
    if "/" in wanted:
        return str(Path(cwd, wanted))
    for directory in os.get_exec_path(environment):
        path = Path(cwd, directory, wanted)
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise Refusal(f"{wanted} is in no directory of PATH: give the path of the program.")


def _describe_command(start: Start, program: Program, stdin: bytes, base: Mapping[str, str]) -> Command:
    return Command(program, start.argv, start.cwd, _derive_changes(base, start.environment), stdin)


def _derive_changes(base: Mapping[str, str], environment: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """What turns `base` into `environment`; removed variables have None."""
    names = {name for name, value in environment.items() if base.get(name) != value}
    names.update(name for name in base if name not in environment)
    return tuple((name, environment.get(name)) for name in sorted(names) if not name.startswith(_PYTEST_VARIABLES))


def _explain_unknown_stdin(program: Program) -> str:
    name = Path(program.path).name
    return f"{name} reads from a pipe or terminal we cannot see: pass its standard input with input= or as a file."


def _shorten(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= _COMMAND_WIDTH else line[: _COMMAND_WIDTH - 3] + "..."
