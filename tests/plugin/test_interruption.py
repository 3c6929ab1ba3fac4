"""Ctrl-C during a diagnosis, and what a terminal shows meanwhile."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from building import compile_program
from suites import (
    COUNT,
    FAILING,
    PATIENCE_SECONDS,
    read_chain,
    read_index,
    read_section,
    user_environment,
)

INTERRUPTED = "cause-chain: interrupted; the tests' own results are complete."
COMMAND = [sys.executable, "-m", "pytest", "--cause-chain"]

# A diagnosis waits at each stage whose name begins so, until it is interrupted.
HOLDING = """
import time

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    from pytest_causechain.model.budget import Budget

    show = Budget.show

    def show_and_wait(self, activity):
        show(self, activity)
        while activity.startswith({stage!r}):
            self.check()
            time.sleep(0.01)

    Budget.show = show_and_wait
"""

# A diagnosis waits at each stage until a terminal has been told of it.
SHOWING_ALL = """
import time

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    from pytest_causechain.controller.progress import Progress
    from pytest_causechain.model.budget import Budget

    show_activity, show_progress, told = Budget.show, Progress.show, set()

    def show_and_wait(self, activity):
        show_activity(self, activity)
        while activity not in told and activity == self.activity:
            time.sleep(0.001)

    def note_and_show(self, activities, *arguments):
        told.update(activities.values())
        show_progress(self, activities, *arguments)

    Budget.show, Progress.show = show_and_wait, note_and_show
"""

TESTS_ARE_OVER = """
import pytest

@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session):
    result = yield
    (session.config.rootpath / "over").touch()
    return result
"""


@pytest.fixture
def hold(count_suite: pytest.Pytester) -> Callable[[str], Path]:
    """hold(stage) is a suite whose diagnosis does not get beyond it."""

    def hold_at(stage: str) -> Path:
        count_suite.makeconftest(HOLDING.format(stage=stage))
        return Path(count_suite.path)

    return hold_at


@pytest.fixture
def endless_suite(count_suite: pytest.Pytester) -> Path:
    """The program does not end any more once the tests are over."""
    endless = COUNT.replace("return", 'while (access("over", F_OK) == 0)\n        pause();\n    return')
    compile_program(count_suite.path / "count", f"#include <unistd.h>\n{endless}")
    count_suite.makeconftest(TESTS_ARE_OVER)
    return Path(count_suite.path)


class Terminal:
    """What a pytest session writes to a terminal of 80 columns."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.written = ""
        self._descriptor = descriptor

    def read_until(self, pattern: str | None) -> None:
        """Until the pattern has been written; None: until the end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while pattern is None or re.search(pattern, self.written) is None:
            ready, _, _ = select.select([self._descriptor], [], [], max(deadline - time.monotonic(), 0))
            assert ready, self.written
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:  # all who had the terminal open are gone
                data = b""
            if not data:
                break
            self.written += data.decode(errors="replace")
        assert pattern is None or re.search(pattern, self.written), self.written

    def finish(self) -> int:
        self.read_until(None)
        return self.process.wait(PATIENCE_SECONDS)

    def screen(self) -> list[str]:
        """The lines as they stand in the end, where later text has overwritten earlier."""
        lines = []
        for line in re.sub(r"\x1b\[[\d;]*m", "", self.written).replace("\r\n", "\n").split("\n"):
            shown = ""
            for text in line.split("\r"):
                shown = text + shown[len(text) :]
            lines.append(shown.rstrip())
        return lines


@contextmanager
def open_terminal(directory: Path, *options: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *options],
            cwd=directory,
            env=user_environment({"TERM": "xterm"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


class TestTerminal:
    def test_progress_line_comes_and_goes(self, count_suite):
        count_suite.makeconftest(SHOWING_ALL)
        with open_terminal(count_suite.path) as terminal:
            assert terminal.finish() == 1
        for stage in ("repeating both runs", "tracing both runs", "experiment 2, at main()"):
            assert f"\rcause-chain: {FAILING}: {stage}" in terminal.written
        screen = terminal.screen()
        assert [line for line in screen if line.startswith("cause-chain: ")] == [
            "cause-chain: on (at most 10 failing tests, 60 s each)"
        ]
        assert any(re.fullmatch(r"test_count\.py \.\.F +\[100%\]", line) for line in screen)
        assert len(read_section("\n".join(screen))) > 5

    @pytest.mark.parametrize("options", [["-q"], ["-n", "2"], ["-v"]], ids=["q", "workers", "v"])
    def test_results_stay_on_the_screen(self, count_suite, options):
        count_suite.makeconftest(SHOWING_ALL)
        with open_terminal(count_suite.path, *options) as terminal:
            assert terminal.finish() == 1
        assert f"\rcause-chain: {FAILING}: " in terminal.written
        results = [line for line in terminal.screen() if line.endswith("[100%]")]
        assert len(results) == 1
        assert not results[0].startswith("cause-chain")

    def test_results_stay_when_nothing_is_diagnosed(self, count_suite):
        with open_terminal(count_suite.path, "--deselect", FAILING) as terminal:
            assert terminal.finish() == 0
        assert any(re.fullmatch(r"test_count\.py \.\. +\[100%\]", line) for line in terminal.screen())


class TestInterruption:
    def test_what_is_known_is_printed(self, hold):
        # By then the first cause has been isolated.
        suite = hold("experiment 5,")
        with open_terminal(suite) as terminal:
            terminal.read_until(r"\bexperiment 5,")
            os.killpg(terminal.process.pid, signal.SIGINT)
            assert terminal.finish() == 1
        screen = terminal.screen()
        section = "\n".join(read_section("\n".join(screen)))
        assert "  1  count.c:" in section
        assert "Incomplete: interrupted." in section
        assert INTERRUPTED in screen
        assert "test_count[2]" in next(line for line in screen if line.startswith("____"))
        assert any("1 failed, 2 passed" in line for line in screen)
        chain = read_chain(suite)
        assert (chain["status"], chain["reason"]) == ("partial", "interrupted.")
        assert [entry["status"] for entry in read_index(suite)] == ["partial"]

    def test_before_anything_is_known(self, hold):
        with open_terminal(hold("")) as terminal:
            terminal.read_until(re.escape(f"cause-chain: {FAILING}: "))
            os.killpg(terminal.process.pid, signal.SIGINT)
            assert terminal.finish() == 1
        assert INTERRUPTED in terminal.screen()
        assert any("1 failed, 2 passed" in line for line in terminal.screen())

    def test_without_a_terminal(self, endless_suite):
        process = subprocess.Popen(
            COMMAND,
            cwd=endless_suite,
            env=user_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert any(line == f"cause-chain: {FAILING}\n" for line in process.stdout)
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
        assert process.returncode == 1
        assert "= FAILURES =" in rest
        assert INTERRUPTED in rest.splitlines()
        assert "= 1 failed, 2 passed in " in rest
