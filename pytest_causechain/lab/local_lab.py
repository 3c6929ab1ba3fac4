"""The laboratory itself, made of parts that are alive: starts, captures, flights, executions, interventions.

Used in a process with a single thread: SIGCHLD is blocked there until it is closed."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.elf import list_producers
from pytest_causechain.lab.captures import Captures
from pytest_causechain.lab.executions import Executions, Interventions
from pytest_causechain.lab.flights import Flights
from pytest_causechain.lab.laboratory import RECORDABLE, Open
from pytest_causechain.lab.starts import Starts, find_libraries
from pytest_causechain.report.wording import count_of
from pytest_causechain.sandbox.stage import Stage

# How gcc notes the options it was called with; an -O0 behind another one would win, but who does that.
OPTIMISED = re.compile(rb"GNU .* -O(?:[123sgz]|fast)?(?: |$)")


class LocalLab(Closing):
    """A Lab in this process."""

    recordable = RECORDABLE

    def __init__(self, opening: Open, stage: Stage | None = None) -> None:
        """Runs work on `stage`; without one, where the tests did."""
        with contextlib.ExitStack() as parts:
            parts.enter_context(blocking_children())
            found = find_libraries(opening)
            self._debugger = parts.enter_context(Debugger(opening.failing.program.path, found.paths, opening.cache))
            self.program: ProgramMap = self._debugger.program
            self.starts = parts.enter_context(Starts(opening, self.program, stage))
            self.captures = Captures(self.starts, self._debugger)
            self.flights = Flights(self.starts, self.captures)
            self.executions = parts.enter_context(Executions(self.starts, self.captures, self.flights))
            self._interventions = Interventions(self.starts, self.captures, self._debugger)
            self._parts = parts.pop_all()
        # Sentences for the user on what is left out.
        self.notes = found.notes
        self.begins_inside = opening.begins_inside
        # What a Laboratory is asked, its parts answer.
        self.visit = self.captures.visit
        flights, executions, chosen = self.flights, self.executions, self._interventions
        self.experiment, self.experiments, self.speculate = flights.experiment, flights.experiments, flights.speculate
        self.interventions, self.observe = flights.interventions, flights.observe
        self.trace, self.cover, self.count = executions.trace, executions.cover, executions.count
        self.layout, self.find_writer = executions.layout, executions.find_writer
        self.signatures, self.effects = chosen.signatures, chosen.effects
        self.values, self.sights, self.follow = chosen.values, chosen.sights, chosen.follow

    def close(self) -> None:
        self._parts.close()

    @property
    def name(self) -> str:
        return self.starts.name

    @property
    def width(self) -> int:
        return self.flights.width

    def widen(self, width: int) -> None:
        self.flights.width = width

    def limit_runs(self, run_seconds: float, run_cpu_seconds: float) -> None:
        self.starts.run_seconds, self.flights.run_cpu_seconds = run_seconds, run_cpu_seconds

    def processes(self) -> list[int]:
        """Those that it keeps between two calls."""
        return [*self._debugger.processes(), *self.starts.processes()]


@contextlib.contextmanager
def blocking_children() -> Iterator[None]:
    """Waiting for a process sleeps until SIGCHLD."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def find_weaknesses(program: ProgramMap) -> tuple[str, ...]:
    """What makes the program's diagnosis poorer than it could be: a sentence on each."""
    name, path = Path(program.path).name, Path(program.path)
    sentences = []
    if is_optimised(path):
        sentences.append(f"{name} is optimised, so that only some of its variables are seen: build it with -O0.")
    files = sorted({Path(function.file) for function in program.functions if function.file})
    there = [file for file in files if file.is_file()]
    sentences += tell_missing([str(file) for file in files if file not in there], name)
    built = path.stat().st_mtime
    newer = [file.name for file in there if file.stat().st_mtime > built]
    sentences += [f"{file} is newer than {name}: build it again, or lines are shown that never ran." for file in newer]
    return tuple(sentences)


def tell_missing(files: Sequence[str], name: str) -> list[str]:
    """In one sentence: all sources of a program may be elsewhere."""
    if not files:
        return []
    first, more = files[0], len(files) - 1
    told = f"{first} is not there" if not more else f"{first} and {count_of(more, 'more source file')} are not there"
    lines = "their lines" if more else "its lines"
    return [f"{told}, so that {lines} cannot be shown: test where {name} was built."]


def is_optimised(path: Path) -> bool:
    return any(OPTIMISED.match(producer) for producer in list_producers(path))
