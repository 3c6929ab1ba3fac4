"""Diagnoses the failing tests of a session after the last test has run, and puts the chains into the report.

Only then are all passing tests known, and no time limit of a test runs any more; pytest prints failures later still.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_causechain.model.chain import Chain
from pytest_causechain.model.codec import decode
from pytest_causechain.model.recording import ATTRIBUTE, Recording, Run
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.oracle.replay import Replay, Replays
from pytest_causechain.oracle.unreplayable import Unreplayable
from pytest_causechain.oracle.values import locate_crash
from pytest_causechain.publishing import Publisher
from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_causechain.case import Case
    from pytest_causechain.neighbours.ranking import Neighbour

# Of the time for a failing test, for finding out which of its runs is guilty.
GUILT_SHARE = 0.25


@dataclass(slots=True)
class Failure:
    """A failed test: its report, once more in what it started, and what its marker says."""

    report: pytest.TestReport
    recording: Recording | None = None
    marker: dict[str, Any] | None = None


class SessionDiagnosis:
    """Lives where the results come together: in the only process, or in the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self._failures: dict[str, Failure] = {}
        self._recordings: dict[str, Recording] = {}
        # Tests of earlier sessions only: whether they still pass has not been seen.
        self._recalled: set[str] = set()
        # A Refusal where there can be none.
        self._cases: dict[str, Case | Refusal] = {}
        self._replays = Replays(self._open_replay)
        self._publisher = Publisher(config, settings)
        self._notes = self._publisher.notes
        self._current = ""
        self._announced = False

    def pytest_report_header(self) -> str:
        limit = f"{self._settings.most_tests} failing tests, {self._settings.timeout_seconds:g} s each"
        return f"cause-chain: on (at most {limit})"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when in ("setup", "call"):
            self._failures[report.nodeid] = Failure(report)
        record = getattr(report, ATTRIBUTE, None)
        if record is not None:
            # On its way from where the test ran; nobody else needs to see it.
            delattr(report, ATTRIBUTE)
            plain = json.loads(record)
            recording: Recording = decode(Recording, plain["recording"])
            self._recordings[report.nodeid] = recording
            if report.nodeid in self._failures:
                failure = self._failures[report.nodeid]
                failure.recording, failure.marker = recording, plain["marker"]
                self._publisher.expect(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            result = yield
        except session.Failed:
            self._diagnose_all()
            raise
        except KeyboardInterrupt as interrupt:
            # -x and --maxfail under pytest-xdist are subclasses; who presses Ctrl-C wants no more work.
            if type(interrupt) is not KeyboardInterrupt:
                self._diagnose_all()
            raise
        self._diagnose_all()
        return result

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        self._publisher.summarise(terminalreporter)

    def _diagnose_all(self) -> None:
        """Whatever goes wrong here becomes a note: the session's own results must not suffer."""
        try:
            self._publisher.write_results()
            self._recall()
            native = [f for f in self._failures.values() if f.recording is not None and not skipped(f)]
            for failure in native[: self._settings.most_tests]:
                self._diagnose(failure)
            left = len(native) - self._settings.most_tests
            if left > 0:
                tests = "1 more failing test was" if left == 1 else f"{left} more failing tests were"
                self._notes.append(f"{tests} not diagnosed: raise --cause-chain-max.")
        except KeyboardInterrupt:
            self._notes.append("interrupted; the tests' own results are complete.")
        except Exception as error:
            self._notes.append(f"gave up after an internal error, please report it: {error!r}")
        finally:
            self._replays.close()
            self._progress(None)
        self._publisher.finish()

    def _recall(self) -> None:
        """Passing tests of earlier sessions are candidates too, those of this one first."""
        directory = self._cache_directory()
        if directory is None or not self._recordings:
            return
        from pytest_causechain.recording.store import RecordingStore

        store = RecordingStore(directory)
        store.save(list(self._recordings.values()))
        builds = {run.command.program.build_id for f in self._failures.values() for run in runs_of(f)}
        for build in sorted(builds):
            for recording in store.load(build):
                if recording.test not in self._recordings:
                    self._recordings[recording.test] = recording
                    self._recalled.add(recording.test)

    def _cache_directory(self) -> Path | None:
        cache = getattr(self._config, "cache", None)
        try:
            return None if cache is None else Path(cache.mkdir("causechain"))
        except OSError:
            return None  # pytest itself warns of a cache directory that cannot be written

    def _diagnose(self, failure: Failure) -> None:
        from pytest_causechain.diagnosis import Interrupted

        self._announce(failure.report.nodeid)
        interrupted = False
        try:
            chain = self._find_chain(failure)
        except Refusal as refusal:
            chain = Chain(failure.report.nodeid, "none", str(refusal))
        except Interrupted as interruption:
            chain, interrupted = interruption.chain, True
        except Exception as error:
            chain = Chain(failure.report.nodeid, "none", f"an internal error came up ({error!r}): please report it.")
        self._publisher.publish(failure.report, chain)
        if interrupted:
            raise KeyboardInterrupt

    def _find_chain(self, failure: Failure) -> Chain:
        case = self._open_case(failure)
        build = case.command.program.build_id
        for other in self._failures.values():
            if other is not failure and any(run.command.program.build_id == build for run in runs_of(other)):
                with contextlib.suppress(Refusal):
                    case.also_failing.append(self._open_case(other))
        return case.find_chain()

    def _open_case(self, failure: Failure) -> Case:
        """Once for each failing test: what was learned of it is of use to others."""
        test = failure.report.nodeid
        if test not in self._cases:
            try:
                self._cases[test] = self._make_case(failure)
            except Refusal as refusal:
                self._cases[test] = refusal
        case = self._cases[test]
        if isinstance(case, Refusal):
            raise case
        return case

    def _make_case(self, failure: Failure) -> Case:
        from pytest_causechain.case import Case

        recording, run = self._choose_run(failure)
        neighbours, absence = self._choose_neighbours(failure, recording, run)
        settings = replace(self._settings, cache=self._cache_directory())
        crash = locate_crash(failure.report)
        return Case(recording, run, crash, neighbours, absence, self._recalled, settings, self._replays, self._progress)

    def _choose_run(self, failure: Failure) -> tuple[Recording, Run]:
        """The guilty one."""
        from pytest_causechain.neighbours.ranking import guilty_run

        assert failure.recording is not None
        recording = failure.recording
        if is_unexpected_pass(failure.report):
            raise Refusal(f"{recording.test} passes although it is marked xfail(strict=True): remove the mark.")
        wanted = (failure.marker or {}).get("program")
        if wanted:
            runs = tuple(run for run in recording.runs if is_program(run, wanted))
            if recording.runs and not runs:
                raise Refusal(f"{recording.test} does not start {wanted}: mend program= of its marker cause_chain.")
            recording = replace(recording, runs=runs)
        if len(recording.runs) > 1:
            return recording, self._find_guilty(recording)
        return recording, guilty_run(recording)

    def _find_guilty(self, recording: Recording) -> Run:
        """By asking the test; of one that cannot be asked, the last run that was killed, else the last."""
        from pytest_causechain.oracle.guilt import find_guilty

        self._progress(f"looking for the guilty one of {len(recording.runs)} runs")
        test = recording.test
        replay = self._replays.find([test])
        replay.timeout_seconds = self._settings.timeout_seconds
        try:
            failure = replay.base(test)
            if failure.outcome == "failed":
                ask = partial(replay.verdict, test)
                deadline = time.monotonic() + GUILT_SHARE * self._settings.timeout_seconds
                return find_guilty(test, recording.runs, failure, replay.shown(test), ask, deadline)
        except Unreplayable:
            pass  # whether that matters will turn out
        killed = [run for run in recording.runs if run.returncode is not None and run.returncode < 0]
        return (killed or recording.runs)[-1]

    def _choose_neighbours(
        self, failure: Failure, recording: Recording, run: Run
    ) -> tuple[list[Neighbour], str | None]:
        """The nearest first; or why there is none."""
        from pytest_causechain.neighbours.ranking import explain_absence, find_named, rank_neighbours

        candidates = list(self._recordings.values())
        named = (failure.marker or {}).get("neighbour") or self._settings.neighbour
        if named:
            return [find_named(named, candidates, run)], None
        ranked = rank_neighbours(recording, run, candidates)
        return ranked, None if ranked else explain_absence(recording, run, candidates)

    def _open_replay(self, files: Collection[str]) -> Replay:
        return Replay(
            rootdir=self._config.rootpath,
            invocation_dir=self._config.invocation_params.dir,
            arguments=own_arguments(self._config),
            files=files,
            timeout_seconds=self._settings.timeout_seconds,
            inifile=self._config.inipath,
        )

    # The terminal

    def _reporter(self) -> TerminalReporter | None:
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    def _announce(self, test: str) -> None:
        self._current = test
        reporter = self._reporter()
        if reporter is None or (reporter.verbosity < 0 and not reporter.isatty):
            return
        if not self._announced and reporter._tw.width_of_current_line:
            # The tests' results stay; ensure_newline knows nothing of those that pytest-xdist or -q lets it write.
            reporter.currentfspath = None
            reporter.line("")
        self._announced = True
        if not reporter.isatty:
            reporter.write_line(f"cause-chain: {test}")

    def _progress(self, text: str | None) -> None:
        """One line that is written over and over, on a terminal only; None takes it away."""
        reporter = self._reporter()
        if reporter is None or not reporter.isatty or not self._current:
            return
        if text is None:
            reporter.rewrite("", erase=True)
            return
        width = reporter._tw.fullwidth - 1
        reporter.rewrite(f"cause-chain: {self._current}: {text}"[:width], erase=True)


def is_unexpected_pass(report: pytest.TestReport) -> bool:
    return isinstance(report.longrepr, str) and report.longrepr.startswith("[XPASS(strict)]")


def skipped(failure: Failure) -> bool:
    return bool((failure.marker or {}).get("skip"))


def runs_of(failure: Failure) -> tuple[Run, ...]:
    return failure.recording.runs if failure.recording is not None else ()


def is_program(run: Run, wanted: str) -> bool:
    path = Path(run.command.program.path)
    return wanted in (str(path), path.name) or Path(run.command.cwd, wanted).resolve() == path


def own_arguments(config: pytest.Config) -> list[str]:
    """The user's arguments without the paths."""
    paths = list(config.option.file_or_dir or [])
    arguments = []
    for argument in config.invocation_params.args:
        if argument in paths:
            paths.remove(str(argument))
        else:
            arguments.append(str(argument))
    return arguments
