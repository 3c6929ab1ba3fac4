"""Tells on the terminal what the diagnoses are at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter


class Progress:
    """One line that is written over and over on a terminal; elsewhere one for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begun: set[str] = set()

    def show(self, activities: Mapping[str, str], busy: int, workers: int) -> None:
        """`activities` tells of each test whose diagnosis has begun what is being done; nothing any more when it is
        over. So many of the `workers` are `busy`."""
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or (reporter.verbosity < 0 and not reporter.isatty):
            return
        if activities and not self._begun and reporter._tw.width_of_current_line:
            # The tests' results stay; ensure_newline knows nothing of those that pytest-xdist or -q lets it write.
            reporter.currentfspath = None
            reporter.line("")
        for test in activities:
            if test not in self._begun:
                self._begun.add(test)
                if not reporter.isatty:
                    reporter.write_line(f"cause-chain: {test}")
        if reporter.isatty and any(activities.values()):
            line = describe_progress(activities, busy, workers, width=reporter._tw.fullwidth - 1)
            reporter.rewrite(line, erase=True)

    def clear(self) -> None:
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.isatty and self._begun:
            reporter.rewrite("", erase=True)


def describe_progress(activities: Mapping[str, str], busy: int, workers: int, width: int) -> str:
    """Of several tests each gets an equal part of the line, for its name without the file; how many workers are busy
    must not cut off what the only test is at."""
    told = {test: text for test, text in activities.items() if text}
    title, end = "cause-chain: ", f" ({busy} of {workers} workers busy)"
    if len(told) < 2:
        line = title + "".join(f"{test}: {text}" for test, text in told.items())
        return line + end if workers > 1 and len(line) + len(end) <= width else line[:width]
    room = (width - len(title) - len(end)) // len(told) - len(" | ")
    parts = (f"{test.rpartition('::')[2]}: {text}"[:room] for test, text in told.items())
    return title + " | ".join(parts) + end
