"""Runs passing tests of earlier sessions again: what they start now can be compared with.

Their recordings tell of builds and of temporary files that may be gone. The session in which they run again stays open,
and its files with it, until the diagnoses are over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from pytest_causechain.model.recording import ATTRIBUTE, Recording
from pytest_causechain.oracle import session
from pytest_causechain.oracle.replay import Replay
from pytest_causechain.oracle.unreplayable import Unreplayable
from pytest_causechain.recording.recorder import Recorder, RecordingPlugin


class Recall(Replay):
    """The tests of earlier sessions, kept ready to be run."""

    MODULE = "pytest_causechain.recall"

    def rerun(self, tests: Iterable[str], seconds: float) -> list[Recording]:
        """What they do now, as far as the time allows; those that are no more there are left out."""
        deadline = time.monotonic() + seconds
        found = []
        for test in tests:
            self.timeout_seconds = max(deadline - time.monotonic(), 0.0)
            try:
                if self._process is None:
                    self._process = self._start_process(test)
                recording = self._process.exchange(test, self.timeout_seconds)
            except Unreplayable:  # the session is lost, or the time is over
                break
            if isinstance(recording, Recording):
                found.append(recording)
        return found


def serve(connection: Connection[Any, Any]) -> int:
    return session.serve(connection, RecallSession)


class RecallSession(session.ReplaySession):
    """Answers a test's node id with its recording; None when there is no such test, or it starts nothing."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.register(RecordingPlugin(Recorder()))

    def answer(self, question: str) -> Recording | None:
        item = next((item for item in self.collected if item.nodeid == question), None)
        if item is None:
            return None
        self.reports = []
        item.ihook.pytest_runtest_protocol(item=item, nextitem=session.Sibling(item))
        records = [record for report in self.reports if (record := getattr(report, ATTRIBUTE, None)) is not None]
        return records[0][0] if records else None
