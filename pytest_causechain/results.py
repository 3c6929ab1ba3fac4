"""Gathers what the tests of a session have done, keeps it for later ones, and has the failing tests diagnosed.

That comes after the last test: only then are all passing ones known, and no time limit of a test runs any more; pytest
prints failures later still. Most sessions have nothing to diagnose: what that takes is loaded with the first failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_causechain.model.recording import ATTRIBUTE, unpack
from pytest_causechain.settings import Settings, find_cache

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_causechain.model.recording import Recording
    from pytest_causechain.session import SessionDiagnosis


class Results:
    """Lives where the results come together: in the only process, or in the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        # By test: the report of its failure; its recording.
        self._failed: dict[str, pytest.TestReport] = {}
        self._recordings: dict[str, Recording] = {}
        # WorkerController of pytest-xdist, which may not be there.
        self._nodes: list[Any] = []
        self._diagnosis: SessionDiagnosis | None = None

    def pytest_report_header(self) -> str:
        limit = f"{self._settings.most_tests} failing tests, {self._settings.timeout_seconds:g} s each"
        return f"cause-chain: on (at most {limit})"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when in ("setup", "call"):
            self._failed[report.nodeid] = report
        record = getattr(report, ATTRIBUTE, None)
        if record is not None:
            # On its way from where the test ran; nobody else needs to see it.
            delattr(report, ATTRIBUTE)
            recording, marker = unpack(record) if isinstance(record, str) else record
            self._recordings[report.nodeid] = recording
            if report.nodeid in self._failed:
                self._open_diagnosis().expect(self._failed[report.nodeid], report, recording, marker)

    def _open_diagnosis(self) -> SessionDiagnosis:
        if self._diagnosis is None:
            from pytest_causechain.session import SessionDiagnosis

            self._diagnosis = SessionDiagnosis(self._config, self._settings, self._nodes)
        return self._diagnosis

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._nodes.append(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error and node in self._nodes:  # one that has ended as it should keeps its gateway
            self._nodes.remove(node)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            result = yield
        except session.Failed:
            self._finish()
            raise
        except KeyboardInterrupt as interrupt:
            # -x and --maxfail under pytest-xdist are subclasses; who presses Ctrl-C wants no more work.
            if type(interrupt) is not KeyboardInterrupt:
                self._finish()
            raise
        self._finish()
        return result

    def _finish(self) -> None:
        if self._recordings:
            # What is kept is only a hint: it must not spoil a session.
            with contextlib.suppress(Exception):
                self._keep_recordings()
        if self._diagnosis is not None:
            self._diagnosis.diagnose_all(self._recordings)

    def _keep_recordings(self) -> None:
        directory = find_cache(self._config)
        if directory is not None:
            from pytest_causechain.recording.store import RecordingStore

            RecordingStore(directory).save(self._recordings.values())

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self._diagnosis is not None:
            self._diagnosis.publisher.summarise(terminalreporter)
