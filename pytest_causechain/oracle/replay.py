"""Asks a test what it says of a run its program never made, or what it starts now.

The tests are kept ready in an isolated pytest session (session.py), which runs in a process group of its own and
dies with us; a verdict takes some milliseconds. The recordings of earlier sessions tell of builds and of temporary
files that may be gone: where passing tests are few, those of earlier sessions are run again, and the session stays
open, its files with it, until the diagnoses are over.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.kernel.companion import Closing, Companion, CompanionLost, uninterrupted
from pytest_causechain.model.isolation import Wish
from pytest_causechain.model.refusal import Refusal, Unreplayable
from pytest_causechain.model.runs import Command, Observation, Recording, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.session import Question, RecordQuestion, ReplayAnswer, SessionTask

# For the teardown of session fixtures, when nobody waits for a verdict any more.
CLOSING_SECONDS = 10.0

# A session lost to one run's strange output may be an accident; more are a waste of the user's time.
MAX_RESTARTS = 1

MAX_LAST_WORDS_CHARACTERS = 200

# Belong to the session we are in, or would have the new one measured as a part of it.
_VARIABLES_OF_A_SESSION = ("PYTEST_XDIST", "PYTEST_CURRENT_TEST", "COV_CORE_", "COVERAGE_PROCESS_")

# Lines of pytest's output that give a reason.
_TELLING = re.compile(r"E  |ERROR|INTERNALERROR>|Exit:|!!!|[\w.]+(Error|Exception|Exit)\b")


@dataclass(frozen=True, slots=True)
class ReplaySetup:
    """How to start a session in which tests are replayed."""

    rootdir: Path
    # The user's for pytest, without the paths, and where they were given.
    arguments: tuple[str, ...]
    invocation_dir: Path
    # For each answer.
    timeout_seconds: float
    # The configuration file in use there, which pytest may not find again from the tests alone.
    inifile: Path | None = None
    isolation: Wish = "auto"
    # Once it is set, waiting for an answer ends with a KeyboardInterrupt.
    cancelled: threading.Event | None = None

    def make_task(self, files: Collection[str], basetemp: str) -> SessionTask:
        inifile = ["-c", str(self.inifile)] if self.inifile is not None else []
        # Whole files: a test that is no longer there must not be a usage error that ends the session for all.
        paths = [f"{self.rootdir}/{file}" for file in files]
        arguments = (*self.arguments, f"--rootdir={self.rootdir}", *inifile, *paths)
        return SessionTask(arguments, basetemp, str(self.rootdir), self.isolation)


class Replay(Closing):
    """Gives verdicts of the tests in `files` (paths from rootdir). The session is started for the first question: where
    all runs crash, there is none. One that is lent by an `owner` goes back to it when it is closed."""

    def __init__(self, setup: ReplaySetup, files: Collection[str], owner: Replays | None = None) -> None:
        self._setup, self._files, self._owner = setup, tuple(files), owner
        # For each answer; may be changed between questions.
        self.timeout_seconds = setup.timeout_seconds
        self._process: Companion | None = None
        # Tests whose run with the real program the present session has seen.
        self._prepared: set[str] = set()
        self._restarts: Counter[str] = Counter()
        # Set when there is no use in another try, of all tests or of one.
        self._end: Unreplayable | None = None
        self._ends: dict[str, Unreplayable] = {}
        self._bases: dict[str, ReplayAnswer] = {}

    def close(self) -> None:
        if self._owner is not None:
            self._owner.take_back(self)
        else:
            self.end_session()

    def end_session(self) -> None:
        """Lets an idle session tear its fixtures down; one that is still busy is not waited for."""
        process, self._process = self._process, None
        self._prepared.clear()
        if process is not None:
            process.close(CLOSING_SECONDS)

    def has(self, files: Collection[str]) -> bool:
        """Tells whether the session has all of these files."""
        return set(files) <= set(self._files)

    def base(self, test: str) -> Verdict:
        """Returns what the test says with its real programs in the isolated session; it is run once for this."""
        return self._ask_base(test).verdict

    def shown(self, test: str) -> tuple[Observation, ...]:
        """Returns what its real programs showed then, as far as the test has seen it."""
        return self._ask_base(test).shown

    def verdict(self, test: str, run: Run, observation: Observation, *origins: Command) -> Verdict:
        """Returns what the test says when this run of it shows `observation`, which may come from one of `origins`.

        "diverged" when the test does not get to that start as it did with the real programs, and also when it does
        not end in time or takes the whole session with it; when that happens a second time, it is a Refusal.
        """
        self.base(test)
        try:
            return self._ask(Question(test, run, observation, (run.command, *origins))).verdict
        except _SessionLost as lost:
            if self._restarts[test] == MAX_RESTARTS:
                self._ends[test] = lost
                raise
            self._restarts[test] += 1
            return Verdict("diverged", message=str(lost))

    def rerun(self, tests: Iterable[str], seconds: float) -> list[Recording]:
        """Records what these tests start now, as far as the time allows; those that are gone are left out."""
        deadline = time.monotonic() + seconds
        found = []
        for test in tests:
            self.timeout_seconds = max(deadline - time.monotonic(), 0.0)
            try:
                recording = self._exchange(self._open_session(test), RecordQuestion(test))
            except Unreplayable:  # the session is lost, or the time is over
                break
            if isinstance(recording, Recording):
                found.append(recording)
        return found

    def _ask_base(self, test: str) -> ReplayAnswer:
        if test not in self._bases:
            self._bases[test] = self._ask(Question(test))
        return self._bases[test]

    def _ask(self, question: Question) -> ReplayAnswer:
        end = self._end or self._ends.get(question.test)
        if end is not None:
            raise end
        process = self._open_session(question.test)
        try:
            if question.observation is not None and question.test not in self._prepared:
                # A new session runs the real programs first, which may take longer than any replay.
                self._exchange(process, Question(question.test))
            answer = self._exchange(process, question)
        except _SessionLost as lost:
            self.end_session()
            raise _SessionLost(f"{question.test} cannot be replayed because {lost}") from None
        self._prepared.add(question.test)
        if isinstance(answer, Refusal):
            raise answer
        assert isinstance(answer, ReplayAnswer)
        return answer

    def _open_session(self, test: str) -> Companion:
        if self._process is not None:
            return self._process
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_VARIABLES_OF_A_SESSION)}
        try:
            with uninterrupted():
                module, setup = "pytest_causechain.oracle.session", self._setup
                process = self._process = Companion(module, setup.invocation_dir, environment, setup.cancelled)
            basetemp = str(Path(process.directory, "basetemp").resolve())
            self._exchange(process, setup.make_task(self._files, basetemp))
        except BaseException as error:
            self.end_session()
            if isinstance(error, _SessionLost):
                self._end = Unreplayable(f"{test} cannot be replayed because {error}")
                raise self._end from None
            raise
        return process

    def _exchange(self, process: Companion, message: object) -> object:
        """Sends a message and waits for the answer to it."""
        try:
            answer: object = process.exchange(message, self.timeout_seconds)
        except CompanionLost as lost:
            if lost.is_late:
                why = f"it does not end within {self.timeout_seconds:g} s: raise --cause-chain-timeout."
            else:
                why = f"its own pytest session ended ({find_last_words(lost.log)}): run it alone to see why."
            raise _SessionLost(why) from None
        return answer


class _SessionLost(Unreplayable):
    """The session gave no answer."""


def files_of(tests: Iterable[str]) -> list[str]:
    """Lists the files of these tests, as paths from rootdir."""
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


class Replays(Closing):
    """Keeps sessions for later cases: each takes a second to begin. Several threads may borrow from it."""

    def __init__(self, setup: ReplaySetup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._idle: list[Replay] = []

    def borrow(self, tests: Iterable[str]) -> Replay:
        """Returns a session that has these tests, until it is closed."""
        files = files_of(tests)
        with self._lock:
            found = next((replay for replay in self._idle if replay.has(files)), None)
            if found is not None:
                self._idle.remove(found)
        return found or Replay(self._setup, files, self)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().end_session()

    def take_back(self, replay: Replay) -> None:
        with self._lock:
            self._idle.append(replay)


def find_last_words(log: str) -> str:
    """Returns what pytest's output says of why it ended."""
    telling = [line for line in log.splitlines() if _TELLING.match(line)]
    words = re.sub(r"^(E |INTERNALERROR>)|!!+", "", telling[-1]).strip() if telling else "without a word"
    return words[:MAX_LAST_WORDS_CHARACTERS]
