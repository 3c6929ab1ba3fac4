"""pytest's hooks and options. Without --cause-chain nothing of ours but this, hookspecs.py and
settings.py is loaded."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from pytest_causechain.settings import add_options, is_wanted, read_settings

if TYPE_CHECKING:
    from pytest_causechain.recording.recorder import RecordingPlugin

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
    from pytest_causechain.recording.recorder import Recorder, RecordingPlugin

    settings = read_settings(config)
    recording = RecordingPlugin(Recorder())
    config.pluginmanager.register(recording, "causechain-recording")
    config.pluginmanager.register(AllureAttachment(recording), "causechain-allure")
    if not hasattr(config, "workerinput"):
        from pytest_causechain.controller.collect import Collector

        config.pluginmanager.register(Collector(config, settings), "causechain-results")


class AllureAttachment:
    """Has allure refer to the page of a failing test that will be diagnosed, while allure's result for it is open."""

    def __init__(self, recording: RecordingPlugin) -> None:
        self._recording = recording

    # Outside of the recording plugin's own wrapper, which adds the attribute.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown" and self._recording.has_failed:
            from pytest_causechain.controller.outputs import promise_attachment
            from pytest_causechain.model.runs import ATTRIBUTE

            if hasattr(report, ATTRIBUTE):
                promise_attachment(item.config, item.nodeid)
        return report
