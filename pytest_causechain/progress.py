"""Tells on the terminal what the diagnoses are at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter


class Progress:
    """One line that is written over and over on a terminal; elsewhere one for each test. Tests may be diagnosed side by
    side, each in a thread of its own. `count_workers` tells how many workers are busy, and how many there are."""

    def __init__(self, config: pytest.Config, count_workers: Callable[[], tuple[int, int]]) -> None:
        self._config, self._count_workers = config, count_workers
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}
        self._has_begun = False

    def begin(self, test: str) -> None:
        with self._lock:
            self._texts[test] = ""
            reporter = self._reporter()
            if reporter is None or (reporter.verbosity < 0 and not reporter.isatty):
                return
            if not self._has_begun and reporter._tw.width_of_current_line:
                # The tests' results stay; ensure_newline knows nothing of those that pytest-xdist or -q lets it write.
                reporter.currentfspath = None
                reporter.line("")
            self._has_begun = True
            if not reporter.isatty:
                reporter.write_line(f"cause-chain: {test}")

    def show(self, test: str, text: str) -> None:
        with self._lock:
            reporter = self._reporter()
            if test not in self._texts or reporter is None or not reporter.isatty:
                return
            self._texts[test] = text
            line = describe_progress(self._texts, *self._count_workers(), width=reporter._tw.fullwidth - 1)
            reporter.rewrite(line, erase=True)

    def end(self, test: str) -> None:
        with self._lock:
            self._texts.pop(test, None)

    def clear(self) -> None:
        with self._lock:
            reporter = self._reporter()
            if reporter is not None and reporter.isatty and self._has_begun:
                reporter.rewrite("", erase=True)

    def _reporter(self) -> TerminalReporter | None:
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter


def describe_progress(texts: dict[str, str], busy: int, workers: int, width: int) -> str:
    """Of several tests each gets an equal part of the line, for its name without the file; how many workers are busy
    must not cut off what the only test is at."""
    told = {test: text for test, text in texts.items() if text}
    title, end = "cause-chain: ", f" ({busy} of {workers} workers busy)"
    if len(told) < 2:
        line = title + "".join(f"{test}: {text}" for test, text in told.items())
        return line + end if workers > 1 and len(line) + len(end) <= width else line[:width]
    room = (width - len(title) - len(end)) // len(told) - len(" | ")
    parts = (f"{test.rpartition('::')[2]}: {text}"[:room] for test, text in told.items())
    return title + " | ".join(parts) + end
