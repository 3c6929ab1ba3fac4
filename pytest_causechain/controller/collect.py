"""Collects what the tests of a session have done, keeps it for later ones, and has the failing tests diagnosed.

That comes after the last test: only then are all passing ones known, and no time limit of a test runs any more; pytest
prints failures later still. Most sessions have nothing to diagnose: what that takes is loaded with the first failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_causechain.model.runs import ATTRIBUTE, unpack
from pytest_causechain.settings import Settings, find_cache

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_causechain.controller.conductor import Conductor
    from pytest_causechain.lab.pool import Node
    from pytest_causechain.model.runs import Recording


class Collector:
    """Lives where the reports come together: in the only process, or in the controller of pytest-xdist."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        # By test: the report of its failure; its recording.
        self._failed: dict[str, pytest.TestReport] = {}
        self._recordings: dict[str, Recording] = {}
        self._nodes: list[Node] = []
        self._conductor: Conductor | None = None

    def pytest_report_header(self) -> str:
        limit = f"{self._settings.most_tests} failing tests, {self._settings.timeout_seconds:g} s each"
        return f"cause-chain: on (at most {limit})"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when in ("setup", "call"):
            self._failed[report.nodeid] = report
        packed = getattr(report, ATTRIBUTE, None)
        if packed is not None:
            # On its way from where the test ran; nobody else needs to see it.
            delattr(report, ATTRIBUTE)
            recording = unpack(packed) if isinstance(packed, str) else packed
            self._recordings[report.nodeid] = recording
            if report.nodeid in self._failed:
                from pytest_causechain.controller.failing_test import CollectedFailure

                failure = CollectedFailure(self._failed[report.nodeid], recording)
                self._open_conductor().expect(failure, report)

    def _open_conductor(self) -> Conductor:
        if self._conductor is None:
            from pytest_causechain.controller.conductor import Conductor

            self._conductor = Conductor(self._config, self._settings, self._nodes)
        return self._conductor

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Node) -> None:
        self._nodes.append(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Node, error: object) -> None:
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
        if self._conductor is not None:
            self._conductor.diagnose_all(list(self._recordings.values()))

    def _keep_recordings(self) -> None:
        directory = find_cache(self._config)
        if directory is not None:
            from pytest_causechain.recording.store import RecordingStore

            RecordingStore(directory).save(self._recordings.values())

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self._conductor is not None:
            self._conductor.outputs.summarise(terminalreporter)
