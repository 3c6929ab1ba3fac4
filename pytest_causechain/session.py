"""Diagnoses the failing tests of a session after the last test has run, and puts the chains into the report.

Only then are all passing tests known, and no time limit of a test runs any more; pytest prints failures later still.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_causechain.model.chain import Chain
from pytest_causechain.model.codec import decode
from pytest_causechain.model.recording import ATTRIBUTE, Recording, Run
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.oracle.replay import Replay
from pytest_causechain.oracle.symptom import learn_symptom
from pytest_causechain.oracle.unreplayable import Unreplayable
from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_causechain.model.observation import Observation
    from pytest_causechain.model.verdict import Oracle
    from pytest_causechain.neighbours.ranking import Neighbour

TITLE = "cause-effect chain"
# When the nearest passing run gives no chain, the next ones are asked, as long as there is time.
NEIGHBOURS_TRIED = 3
# Of `--tb`: with these pytest prints no section under a failure.
BARE_STYLES = ("no", "line")


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
        self._texts: list[tuple[str, str]] = []
        self._notes: list[str] = []

    def pytest_report_header(self) -> str:
        limit = f"{self._settings.most_tests} failing tests, {self._settings.timeout_seconds:g} s each"
        return f"cause-chain: on (at most {limit})"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when in ("setup", "call"):
            self._failures[report.nodeid] = Failure(report)
        record = getattr(report, ATTRIBUTE, None)
        if record is not None:
            plain = json.loads(record)
            recording: Recording = decode(Recording, plain["recording"])
            self._recordings[report.nodeid] = recording
            if report.nodeid in self._failures:
                failure = self._failures[report.nodeid]
                failure.recording, failure.marker = recording, plain["marker"]

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
        for test, text in self._texts:
            terminalreporter.section(f"{TITLE}: {test}", "-")
            terminalreporter.write_line(text)
        for note in self._notes:
            terminalreporter.write_line(f"cause-chain: {note}")

    def _diagnose_all(self) -> None:
        """Whatever goes wrong here becomes a note: the session's own results must not suffer."""
        chains: list[Chain] = []
        try:
            self._recall()
            native = [f for f in self._failures.values() if f.recording is not None and not skipped(f)]
            for failure in native[: self._settings.most_tests]:
                chains.append(self._diagnose(failure))
            left = len(native) - self._settings.most_tests
            if left > 0:
                self._notes.append(f"{left} more failing tests were not diagnosed: raise --cause-chain-max.")
        except KeyboardInterrupt:
            self._notes.append("interrupted; the tests' own results are complete.")
        except Exception as error:
            self._notes.append(f"gave up after an internal error, please report it: {error!r}")
        finally:
            self._progress(None)
        self._keep(chains)

    def _recall(self) -> None:
        """Passing tests of earlier sessions are candidates too, those of this one first."""
        cache = getattr(self._config, "cache", None)
        if cache is None or not self._recordings:
            return
        from pytest_causechain.recording.store import RecordingStore

        store = RecordingStore(cache.mkdir("causechain"))
        store.save(list(self._recordings.values()))
        builds = {run.command.program.build_id for f in self._failures.values() for run in runs_of(f)}
        for build in sorted(builds):
            for recording in store.load(build):
                self._recordings.setdefault(recording.test, recording)

    def _keep(self, chains: list[Chain]) -> None:
        if not chains:
            return
        from pytest_causechain.report.artefacts import write_index

        try:
            write_index(chains, self._settings.directory)
        except Refusal as refusal:
            self._notes.append(str(refusal))

    def _diagnose(self, failure: Failure) -> Chain:
        from pytest_causechain.diagnosis import Interrupted

        self._announce(failure.report.nodeid)
        interrupted = False
        try:
            chain = self._find_chain(failure)
        except Refusal as refusal:
            chain = Chain(failure.report.nodeid, "none", str(refusal))
        except Interrupted as interruption:
            chain, interrupted = interruption.chain, True
        self._publish(failure, chain)
        if interrupted:
            raise KeyboardInterrupt
        return chain

    def _find_chain(self, failure: Failure) -> Chain:
        """The chain against the nearest neighbour that gives one."""
        from pytest_causechain.diagnosis import Pair, diagnose_pair

        deadline = time.monotonic() + self._settings.timeout_seconds
        recording, run = self._choose_run(failure)
        best: Chain | None = None
        for neighbour in self._choose_neighbours(failure, recording, run)[:NEIGHBOURS_TRIED]:
            left = deadline - time.monotonic()
            if best is not None and left <= 0:
                break
            test = neighbour.recording.test
            pair = Pair(neighbour.run.command, run.command, test, recording.test, neighbour.distance, neighbour.why)
            with self._replay(recording.test, neighbour, left) as replay:
                chain = diagnose_pair(
                    pair,
                    partial(learn_oracle, replay, test, recording.test),
                    replace(self._settings, timeout_seconds=left),
                    self._progress,
                )
            if best is None or chain.status != "none":
                best = chain
            if chain.status != "none":
                break
        assert best is not None  # there is at least one neighbour
        return best

    def _choose_run(self, failure: Failure) -> tuple[Recording, Run]:
        from pytest_causechain.neighbours.ranking import guilty_run

        assert failure.recording is not None
        recording = failure.recording
        wanted = (failure.marker or {}).get("program")
        if wanted:
            runs = tuple(run for run in recording.runs if is_program(run, wanted))
            if recording.runs and not runs:
                raise Refusal(f"{recording.test} does not start {wanted}: mend program= of its marker cause_chain.")
            recording = replace(recording, runs=runs)
        return recording, guilty_run(recording)

    def _choose_neighbours(self, failure: Failure, recording: Recording, run: Run) -> list[Neighbour]:
        from pytest_causechain.neighbours.ranking import explain_absence, find_named, rank_neighbours

        candidates = list(self._recordings.values())
        named = (failure.marker or {}).get("neighbour") or self._settings.neighbour
        if named:
            return [find_named(named, candidates, run)]
        ranked = rank_neighbours(recording, run, candidates)
        if not ranked:
            raise Refusal(explain_absence(recording, run, candidates))
        return ranked

    def _replay(self, test: str, neighbour: Neighbour, timeout_seconds: float) -> Replay:
        return Replay(
            rootdir=self._config.rootpath,
            invocation_dir=self._config.invocation_params.dir,
            arguments=own_arguments(self._config),
            tests=(test, neighbour.recording.test),
            program=neighbour.run.command.program,
            timeout_seconds=timeout_seconds,
            inifile=self._config.inipath,
        )

    def _publish(self, failure: Failure, chain: Chain) -> None:
        from pytest_causechain.report.artefacts import write_artefacts
        from pytest_causechain.report.text import render_text

        artefacts: Path | None = None
        try:
            artefacts = write_artefacts(chain, self._settings.directory)
        except Refusal as refusal:
            self._notes.append(str(refusal))
        text = render_text(chain, root=self._config.invocation_params.dir, artefacts=artefacts)
        longrepr: Any = failure.report.longrepr
        if self._config.option.tbstyle in BARE_STYLES or not hasattr(longrepr, "addsection"):
            self._texts.append((failure.report.nodeid, text))
        else:
            longrepr.addsection(TITLE, text, "-")

    # The terminal

    def _reporter(self) -> TerminalReporter | None:
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    def _announce(self, test: str) -> None:
        self._current = test
        reporter = self._reporter()
        if reporter is not None and not reporter.isatty and reporter.verbosity >= 0:
            reporter.ensure_newline()
            reporter.write_line(f"cause-chain: {test}")

    def _progress(self, text: str | None) -> None:
        """One line that is written over and over, on a terminal only; None takes it away."""
        reporter = self._reporter()
        if reporter is None or not reporter.isatty:
            return
        if text is None:
            reporter.rewrite("", erase=True)
            return
        width = reporter._tw.fullwidth - 1
        reporter.rewrite(f"cause-chain: {self._current}: {text}"[:width], erase=True)


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


def learn_oracle(replay: Replay, neighbour: str, test: str, passing: Observation, failing: Observation) -> Oracle:
    """The neighbour's own test must still pass; then the failing test says what the failure is."""
    try:
        verdict = replay.verdict(neighbour, passing)
    except Unreplayable:
        pass  # the oracle learned below will judge the passing run too
    else:
        if verdict.outcome != "passed":
            raise Refusal(
                f"{neighbour} does not pass again: run it anew, or choose another by --cause-chain-neighbour."
            )
    return learn_symptom(passing, failing, lambda observation: replay.verdict(test, observation))
