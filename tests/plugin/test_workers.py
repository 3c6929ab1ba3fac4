"""Failing tests diagnosed side by side, on workers of our own, of pytest-xdist and on other machines; and beside
plugins that repeat, end, measure or order tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import execnet
import pytest
from suites import (
    FAILING,
    SUITE_INI,
    UNUSED_PLUGINS,
    compile_program,
    read_chain,
    read_index,
    run_session,
    user_environment,
)
from test_options import check_section, read_outcome

# Two defects, of which each test shows one. A run takes a while, so that workers are asked to help.
GATE = """
#include <string.h>
#include <unistd.h>
static int count_words(int argc) { return argc - 1; }
static int has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc - 1; i++)
        if (strcmp(argv[i], word) == 0)
            return 1;
    return 0;
}
int main(int argc, char **argv)
{
    int words = count_words(argc);
    usleep(3000);
    if (words > 3)
        return 3;
    return has_word(argc, argv, "open") ? 0 : 1;
}
"""
TEST_GATE = """
import subprocess

import pytest


def run(*words):
    return subprocess.run(["./gate", *words]).returncode


@pytest.mark.parametrize("words", [["open", "a"], ["a", "open", "b"]])
def test_opens(words):
    assert run(*words) == 0


def test_last_word():
    assert run("a", "open") == 0


def test_many_words():
    assert run("a", "b", "open", "c") == 0


@pytest.mark.cause_chain(parallel=False)
def test_alone():
    assert run("b", "open") == 0
"""
TESTS = [f"test_gate.py::{name}" for name in ("test_last_word", "test_many_words", "test_alone")]
INI = f"[pytest]\naddopts = {' '.join(f'-p no:{name}' for name in UNUSED_PLUGINS)}\n"


@pytest.fixture
def gate_suite(pytester: pytest.Pytester) -> Path:
    compile_program(pytester.path / "gate", GATE)
    pytester.makeini(SUITE_INI)
    pytester.makepyfile(test_gate=TEST_GATE)
    return pytester.path


def read_timeless(directory: Path, test: str) -> dict[str, Any]:
    """All that does not depend on how fast the machine is, or how many workers there were."""
    chain = read_chain(directory, test)
    del chain["statistics"]["seconds"]
    del chain["statistics"]["workers"]
    return chain


class TestSideBySide:
    def test_chains_do_not_depend_on_the_number_of_workers(self, gate_suite):
        told = []
        for jobs in (1, 2, 3):
            tests = TESTS if jobs == 2 else TESTS[:2]
            chosen = () if jobs == 2 else ("--deselect", TESTS[2])
            session = run_session(gate_suite, f"--cause-chain-jobs={jobs}", "--cause-chain-timeout=300", *chosen)
            assert "cause-chain: worker" not in session.output
            assert [entry["test"] for entry in read_index(gate_suite)] == tests
            workers = [read_chain(gate_suite, test)["statistics"]["workers"] for test in tests]
            assert workers == [jobs, jobs, 1][: len(tests)]
            told.append([read_timeless(gate_suite, test) for test in TESTS[:2]])
        assert [chain["status"] for chain in told[0]] == ["complete"] * 2
        assert [chain["suspects"][0]["function"] for chain in told[0]] == ["has_word", "main"]
        assert told[0] == told[1] == told[2]


@pytest.fixture
def server(gate_suite):
    """The address at which a process of its own listens, as execnet's script does on another machine."""
    script = Path(execnet.__file__).parent / "script" / "socketserver.py"
    process = subprocess.Popen(
        [sys.executable, "-u", script, "127.0.0.1:0"],
        cwd=gate_suite,
        env=user_environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "Accept" in line)
        yield f"127.0.0.1:{line.strip().rstrip(')').rpartition(' ')[2]}"
        os.killpg(process.pid, signal.SIGKILL)


class TestOtherMachines:
    def test_tests_and_experiments_on_a_socket(self, gate_suite, server):
        specs = ("--tx", "popen", "--tx", f"socket={server}//chdir={gate_suite}")
        session = run_session(gate_suite, *specs, "--dist=each", "--cause-chain-timeout=300", "-k", "opens or last")
        chain = read_chain(gate_suite, TESTS[0])
        assert (chain["status"], chain["statistics"]["workers"]) == ("complete", 2)
        assert chain["suspects"][0]["function"] == "has_word"
        assert "takes no part" not in session.output


class TestBesideOtherPlugins:
    """All of them are loaded each time."""

    @pytest.mark.parametrize(
        ("options", "outcomes"),
        [
            pytest.param(
                ("-n2", "--dist=loadgroup", "--reruns=1", "--timeout=200", "-p", "no:randomly"),
                {"passed": 2, "failed": 1, "rerun": 1},
                id="loadgroup-reruns-timeout",
            ),
            pytest.param(
                ("-n2", "--dist=worksteal", "--maxfail=9", "--cov=.", "--cov-report=", "--randomly-seed=7"),
                {"passed": 2, "failed": 1},
                id="worksteal-cov-randomly",
            ),
            pytest.param(
                ("-p", "no:xdist", "-p", "no:cacheprovider", "--reruns=1", "--randomly-seed=7", "--timeout=200"),
                {"passed": 2, "failed": 1, "rerun": 1},
                id="no-xdist-no-cache-reruns-randomly-timeout",
            ),
        ],
    )
    def test_neither_disturbs_the_other(self, count_suite, options, outcomes):
        count_suite.makeini(INI)
        result = count_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=300", *options)
        check_section(result.stdout.str())
        assert read_outcome(result) == (1, outcomes)
        assert read_chain(count_suite.path)["test"] == FAILING
