"""pytest's hooks and options. Without --cause-chain nothing of ours but this, hookspecs.py and
settings.py is loaded."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_causechain.settings import add_options, is_wanted, read_settings

if TYPE_CHECKING:
    from pytest_causechain.model.runs import Marker
    from pytest_causechain.recording.recorder import Recorder

MARKER = (
    "cause_chain(program=None, fails_when=None, neighbour=None, parallel=True, skip=False): for pytest --cause-chain: "
    "the program to look at when the test starts several, a function that tells from a finished run (returncode, "
    "stdout, stderr) whether it shows the failure, the node id of the passing test to compare with, whether the "
    "program may run several times at once, whether to leave this test alone."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_causechain import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if not is_wanted(config):
        return
    from pytest_causechain.recording.recorder import Recorder

    settings = read_settings(config)
    config.pluginmanager.register(Recording(Recorder()), "causechain-recording")
    if not hasattr(config, "workerinput"):
        from pytest_causechain.controller.collect import Collector

        config.pluginmanager.register(Collector(config, settings), "causechain-results")


class Recording:
    """Records what tests start, wherever they run: here, or in a worker of pytest-xdist."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._failed = self._skipped = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._recorder.close()

    # Not around the whole protocol: a plugin may repeat what is within it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        self._failed = self._skipped = False
        self._recorder.begin(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        with self._recorder.set_up(fixturedef, fixturedef.argname):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._failed |= report.failed
        self._skipped |= report.skipped
        if report.when == "teardown":
            from pytest_causechain.model.runs import ATTRIBUTE, Record, pack

            outcome = "failed" if self._failed else "skipped" if self._skipped else "passed"
            recording = self._recorder.finish(outcome, find_fixtures(item))  # type: ignore[arg-type]
            if recording.runs or recording.refusals:
                record = Record(recording, read_marker(item))
                setattr(report, ATTRIBUTE, pack(record) if hasattr(item.config, "workerinput") else record)
                if outcome == "failed":
                    from pytest_causechain.controller.outputs import promise_attachment

                    promise_attachment(item.config, item.nodeid)
        return report


def find_fixtures(item: pytest.Item) -> list[object]:
    """Those that the test used; pytest tells of them in private only."""
    request = getattr(item, "_request", None)
    return list(getattr(request, "_fixture_defs", {}).values())


def read_marker(item: pytest.Item) -> Marker:
    """What the controller must know of the marker; `fails_when` is asked for where the test is replayed."""
    from pytest_causechain.model.runs import Marker

    marker = item.get_closest_marker("cause_chain")
    if marker is None:
        return Marker()
    program, neighbour = (str(given) if (given := marker.kwargs.get(n)) else None for n in ("program", "neighbour"))
    is_parallel, is_skipped = bool(marker.kwargs.get("parallel", True)), bool(marker.kwargs.get("skip"))
    return Marker(program, neighbour, is_parallel, is_skipped)
