"""Failing tests diagnosed side by side, on workers of our own, of pytest-xdist and on other machines; and beside
plugins that repeat, end, measure or order tests."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import compile_program
from suites import (
    FAILING,
    PATIENCE_SECONDS,
    SUITE_INI,
    UNUSED_PLUGINS,
    list_processes,
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
def gate_suite(pytester: pytest.Pytester, compiled: Callable[..., Path]) -> Path:
    shutil.copy2(compiled(GATE, name="gate"), pytester.path)
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
        for jobs, tests, option in (
            (1, TESTS[:2], "--cause-chain-jobs=1"),
            (3, TESTS, "--cause-chain-jobs=3"),
            (2, TESTS[:2], "-n2"),
        ):
            chosen = () if tests == TESTS else ("--deselect", TESTS[2])
            session = run_session(gate_suite, option, "--cause-chain-timeout=300", *chosen)
            assert "cause-chain: worker" not in session.output
            assert {entry["test"] for entry in read_index(gate_suite)} == set(tests)
            workers = [read_chain(gate_suite, test)["statistics"]["workers"] for test in tests]
            assert workers == [jobs, jobs, 1][: len(tests)]
            told.append([read_timeless(gate_suite, test) for test in TESTS[:2]])
        assert [chain["status"] for chain in told[0]] == ["complete"] * 2
        assert [chain["suspects"][0]["function"] for chain in told[0]] == ["has_word", "main"]
        assert told[0] == told[1] == told[2]


# What execnet calls to get to another machine: here it is the same one.
SSH = """#!/bin/sh
while [ "$1" != elsewhere ]; do shift; done
exec sh -c "$2"
"""


class TestOtherMachines:
    def test_tests_and_experiments_by_socket_and_ssh(self, gate_suite, socket_gateway, tmp_path):
        ssh = tmp_path / "ssh"
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        there = f"//chdir={gate_suite}"
        specs = ("popen", socket_gateway + there, f"ssh=elsewhere//python={shlex.quote(sys.executable)}{there}")
        options = [word for spec in specs for word in ("--tx", spec)]
        path = f"{tmp_path}:{os.environ['PATH']}"
        session = run_session(
            gate_suite, *options, "--dist=each", "--cause-chain-timeout=300", "-k", "opens or last", PATH=path
        )
        chain = read_chain(gate_suite, TESTS[0])
        assert (chain["status"], chain["statistics"]["workers"]) == ("complete", 3)
        assert chain["suspects"][0]["function"] == "has_word"
        assert "takes no part" not in session.output


def test_the_last_worker_lost_amid_a_diagnosis(gate_suite, tmp_path):
    compile_program(gate_suite / "gate", GATE.replace("usleep(3000)", "usleep(100000)"))
    command = [sys.executable, "-m", "pytest", "--cause-chain", "-n1", "-k", "opens or last"]
    session = subprocess.Popen(
        command, cwd=gate_suite, env=user_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with session:
        assert session.stdout is not None
        assert any(line == f"cause-chain: {TESTS[0]}\n" for line in session.stdout)
        # An engine of its own says that it is at work.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any("pytest_causechain.lab.engine" in command for command in list_processes(str(tmp_path)).values()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        processes = list_processes(str(tmp_path))
        (worker,) = (pid for pid, command in processes.items() if "stdin.readline" in command)
        os.kill(worker, signal.SIGKILL)
        output = session.stdout.read()
    assert session.returncode == 1
    assert "1 failed, 2 passed" in output
    chain = read_chain(gate_suite, TESTS[0])
    assert chain["status"] in ("partial", "none")
    lost = "the last one, gw0: its process or its connection has ended"
    assert chain["reason"] == f"all workers are lost ({lost}): run the failing test alone."


class TestBesideOtherPlugins:
    """All of them are loaded each time."""

    @pytest.mark.parametrize(
        ("options", "outcomes"),
        [
            pytest.param(
                ("--tx", "2*popen", "--dist=loadgroup", "--reruns=1", "--timeout=200", "-p", "no:randomly"),
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
