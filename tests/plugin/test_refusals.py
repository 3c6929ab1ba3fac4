"""What cannot be diagnosed: one sentence with the remedy, and the test's outcome as it was."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from building import compile_program
from suites import (
    COUNT,
    FAILING,
    SUITE_INI,
    TEST_COUNT,
    Session,
    ShareSession,
    read_chain,
    read_index,
    read_sections,
    read_sentence,
    run_session,
)

# Wrong for numbers above 2; with "flaky" for all numbers, and otherwise in each run.
TWICE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int tick(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_nsec / 1000 + 1;
}

int main(int argc, char **argv)
{
    int number = atoi(argv[argc - 1]);
    if (strcmp(argv[1], "flaky") == 0)
        number += tick();
    if (number > 2)
        number++;
    printf("%d\n", 2 * number);
    return 0;
}
"""
TEST_TWICE = """
import subprocess
import unittest

import pytest


def twice(program, *arguments):
    return int(subprocess.run([f"./{program}", *arguments], capture_output=True).stdout)


@pytest.mark.parametrize("number", ["1", "3"])
@pytest.mark.parametrize("program", ["plain", "stripped", "script", "absent"])
def test_program(program, number):
    if program == "absent":
        pytest.importorskip("nothing_of_this_name")
    assert twice(program, number) == 2 * int(number)


@pytest.mark.parametrize("number", ["1", "3"])
def test_shell(number):
    command = f"./twice {number} | cat"
    assert int(subprocess.run(command, shell=True, capture_output=True).stdout) == 2 * int(number)


@pytest.mark.parametrize("mode", ["steady", "flaky"])
def test_flaky(mode):
    run = subprocess.run(["./twice", mode, "1"], capture_output=True, text=True)
    assert run.stdout == "2\\n"


class TestUnit(unittest.TestCase):
    def test_good(self):
        self.assertEqual(twice("twice", "1"), 2)

    def test_bad(self):
        self.assertEqual(twice("twice", "3"), 6)


def test_other_build():
    assert twice("other", "1") == 2


def test_lonely():
    assert twice("lonely", "3") == 6


@pytest.mark.cause_chain(neighbour="test_other_build")
def test_neighbour_of_another_program():
    assert twice("twice", "3") == 6


@pytest.mark.cause_chain(neighbour="test_nowhere")
def test_unknown_neighbour():
    assert twice("twice", "3") == 6


@pytest.mark.cause_chain(neighbour="test_lonely")
def test_failing_neighbour():
    assert twice("twice", "3") == 6


@pytest.mark.cause_chain(neighbour="test_nothing_started")
def test_idle_neighbour():
    assert twice("twice", "3") == 6


def test_nothing_started():
    pass


def test_without_program():
    assert 1 + 1 == 3
"""


def run_refused(directory: Path) -> Session:
    for name in ("twice", "other", "lonely", "stripped"):
        # Builds that differ in nothing but their identity.
        compile_program(directory / name, TWICE, f"-Wl,--build-id=0x{name.encode().hex()}")
    subprocess.run(["strip", "stripped"], cwd=directory, check=True)
    compile_program(directory / "plain", TWICE, "-g0")
    script = directory / "script"
    script.write_text('#!/bin/sh\nexec ./twice "$@"\n')
    script.chmod(0o755)
    (directory / "ticks").write_text("1\n")
    (directory / "pytest.ini").write_text(SUITE_INI)
    (directory / "test_twice.py").write_text(TEST_TWICE)
    return run_session(directory, "--tb=no", "-rA", "--cause-chain-max=50", COLUMNS="80")


@pytest.fixture
def refused(share_session: ShareSession) -> Session:
    return share_session("refused", run_refused)


SENTENCES = {
    "test_program[plain-3]": r"plain has no debug information: build it with -g \(and -O0 for exact variables\)\.",
    "test_program[stripped-3]": r"stripped is stripped: build it with -g, link without -s and do not strip it\.",
    "test_program[script-3]": r"script is a script run by /bin/sh: start the compiled program itself from the test\.",
    "test_shell[3]": r"\./twice 3 \| cat uses a pipe of the shell: start the compiled program itself from the test\.",
    "test_flaky[flaky]": r"test_twice\.py::test_flaky\[flaky\] is flaky: of 3 more runs of its program 1 failed; "
    r"make it independent of time, addresses and chance first\.",
    "TestUnit::test_bad": r"test_twice\.py::TestUnit::test_bad is a unittest\.TestCase method, which cannot be "
    r"replayed: write a function\.",
    "test_neighbour_of_another_program": r"\S+::test_other_build runs another program \(.+\) than the failing test "
    r"\(.+\): use a passing test that runs twice\.",
    "test_unknown_neighbour": r"No passing test test_nowhere is known: run it in the same session, or check its name\.",
    "test_failing_neighbour": r"The neighbour asked for, test_lonely, does not pass: name a test that passes\.",
    "test_idle_neighbour": r"No passing test test_nothing_started is known: run it in the same session, or check its "
    r"name\.",
}


class TestRefused:
    @pytest.mark.parametrize("test", SENTENCES)
    def test_one_sentence_with_the_remedy(self, refused, test):
        chain = read_chain(refused.directory, f"test_twice.py::{test}")
        assert (chain["status"], chain["chain"]) == ("none", [])
        assert re.fullmatch(SENTENCES[test], chain["reason"])
        assert re.search(r"[.!?] [A-Z]", chain["reason"]) is None
        shown = read_sentence(refused.output, f": test_twice.py::{test} ")
        # Words longer than a line, such as paths, are broken.
        assert shown.replace(" ", "") == chain["reason"].replace(" ", "")

    def test_nothing_is_said_of_the_others(self, refused):
        assert len(list(read_sections(refused.output))) == len(SENTENCES) + 1
        told = [line.removeprefix("cause-chain: ") for line in refused.lines if line.startswith("cause-chain: test")]
        # Two that begin at the same time are announced in any order.
        assert sorted(entry["test"] for entry in read_index(refused.directory)) == sorted(told)

    def test_without_neighbour_there_is_the_twin(self, refused):
        chain = read_chain(refused.directory, "test_twice.py::test_lonely")
        assert (chain["status"], chain["peer"]["kind"], chain["alternatives"]) == ("complete", "twin", [])
        told = [cause["variable"] for link in chain["chain"] for cause in link["causes"]]
        assert told == ["the constant in lonely.c:20", "number"]

    def test_outcomes_are_those_without_us(self, refused):
        expected = {f"test_twice.py::{test}": "FAILED" for test in (*SENTENCES, "test_lonely", "test_without_program")}
        failed = {test: outcome for test, outcome in refused.outcomes().items() if outcome != "PASSED"}
        assert refused.returncode == 1
        assert failed == expected


def test_without_gdb(count_suite, monkeypatch):
    monkeypatch.setenv("PATH", str(count_suite.path))
    result = count_suite.runpytest_subprocess("--cause-chain")
    assert result.ret == 1
    sentence = read_sentence(result.stdout.str())
    assert re.fullmatch(r"gdb was not found: install .*gdb.*\.", sentence)


# A test that no change of a single value makes pass.
TEST_LETTERS = """
import subprocess

import pytest


@pytest.mark.parametrize("number", [2])
def test_count(number):
    run = subprocess.run(["./count", *"x" * number], capture_output=True, text=True)
    assert run.stdout == "far from what the program prints"
"""


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        (
            "[2]",
            "no passing neighbour, since no other test runs count: add a passing test that runs the same program.",
        ),
        (
            "[2, 3]",
            "no passing neighbour for count, since the only other test that runs it fails too: add a passing test that "
            "runs the same program.",
        ),
    ],
    ids=["only-test", "all-fail"],
)
def test_without_passing_neighbour_or_repair(count_suite, numbers, sentence):
    count_suite.makepyfile(test_count=TEST_LETTERS.replace("[2]", numbers))
    result = count_suite.runpytest_subprocess("--cause-chain", "--tb=no")
    assert read_sentence(result.stdout.str(), FAILING) == sentence


def test_flaky_test_that_passes_when_run_again(count_suite):
    """Here nothing about the program is flaky, but the test itself."""
    count_suite.makepyfile(
        test_count=TEST_COUNT.replace("== 0", "== 0 or is_known(number)") + "\ndef is_known(number):\n"
        "    known = open('known').read().split() if __import__('os').path.exists('known') else []\n"
        "    open('known', 'a').write(f'{number} ')\n"
        "    return str(number) in known\n"
    )
    result = count_suite.runpytest_subprocess("--cause-chain", "--cause-chain-neighbour=test_count[1]")
    assert read_sentence(result.stdout.str()) == (
        f"{FAILING} does not fail when it is run again, so it is flaky or depends on other tests: make it independent "
        "of time, chance and order first."
    )


def test_internal_error_spoils_nothing_but_its_own_diagnosis(count_suite):
    count_suite.makepyfile(test_count=TEST_COUNT.replace("[0, 1, 2]", "[0, 2, 3]"))
    count_suite.makeconftest(
        """
        from pytest_causechain.controller import method

        def break_down(*arguments):
            raise LookupError("no such thing")

        method.find_chain = break_down
        """
    )
    result = count_suite.runpytest_subprocess("--cause-chain", "--tb=no")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=2)
    for number in (2, 3):
        sentence = read_sentence(result.stdout.str(), f"[{number}]")
        assert sentence == "an internal error came up (LookupError('no such thing')): please report it."
    assert [entry["status"] for entry in read_index(count_suite.path)] == ["none", "none"]


# Which limit is met first depends on how fast the machine is.
LIMIT = r"the time limit of \S+ s"
LIMITS = (
    rf"{LIMIT} was reached|all the work that {LIMIT} allows was done|the share of {LIMIT} that is for this was used up"
)
# On a busy machine the time may be over as early as amid the first replay.
LATE_REPLAY = rf"{re.escape(FAILING)} cannot be replayed because it does not end within \S+ s: raise \S+-timeout\."
OUT_OF_TIME = rf"({LIMITS}): raise --cause-chain-timeout\.|{LATE_REPLAY}"


class TestBudget:
    def test_hardly_any(self, count_suite):
        result = count_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=0.001")
        assert result.ret == 1
        sentence = read_sentence(result.stdout.str())
        assert re.match(OUT_OF_TIME, sentence)
        assert "0.001 s" in sentence
        assert "was cut short" in sentence

    def test_too_little_for_a_slow_program(self, count_suite):
        """Each run takes 0.1 s, of which a whole diagnosis needs dozens."""
        source = COUNT.replace("(void)argv;", "(void)argv; usleep(100000);")
        compile_program(count_suite.path / "count", f"#include <unistd.h>\n{source}")
        result = count_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=1")
        assert result.ret == 1
        chain = read_chain(count_suite.path)
        assert chain["status"] in ("partial", "none")
        assert re.fullmatch(OUT_OF_TIME, chain["reason"])
        assert chain["reason"] in " ".join(result.outlines)

    def test_replayed_tests_count_too(self, count_suite):
        """Each replay takes 0.4 s, and a whole diagnosis needs twenty."""
        slow = "    open('begun', 'a').write('.')\n    __import__('time').sleep(0.4)\n    assert"
        count_suite.makepyfile(test_count=TEST_COUNT.replace("    assert", slow).replace("[0, 1, 2]", "[1, 2]"))
        count_suite.makeini(f"{SUITE_INI}cause_chain_isolation = off\n")
        result = count_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=1")
        assert re.match(OUT_OF_TIME, read_sentence(result.stdout.str()))
        # The tests themselves, and what can be begun in 1 s.
        assert len((count_suite.path / "begun").read_text()) <= 2 + 3


@pytest.fixture
def hanging_suite(count_suite: pytest.Pytester) -> pytest.Pytester:
    """The failing test gives up after a while; its program would go on for ever."""
    source = COUNT.replace("return argc > 2;", "while (argc > 2)\n        pause();\n    return 0;")
    compile_program(count_suite.path / "count", f"#include <unistd.h>\n{source}")
    # Other runs of it end in time on a busy machine, too.
    test = TEST_COUNT.replace("number])", "number], timeout=0.2 if number == 2 else 60)")
    count_suite.makepyfile(test_count=test.replace("[0, 1, 2]", "[1, 2]"))
    # Each of a dozen runs is waited for that long, and by itself for a second.
    count_suite.makeini(f"{SUITE_INI}cause_chain_limits = seconds=0.5\n")
    return count_suite


class TestHang:
    def test_chain(self, hanging_suite):
        result = hanging_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=150")
        result.assert_outcomes(passed=1, failed=1)
        chain = read_chain(hanging_suite.path)
        assert (chain["status"], chain["oracle"]["kind"]) == ("complete", "hang")
        assert [cause["variable"] for link in chain["chain"] for cause in link["causes"]] == [
            "the constant in count.c:6"
        ]
        assert "so the program did not end in time. The test fails." in result.stdout.str()

    def test_budget_holds(self, hanging_suite):
        result = hanging_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=1")
        result.assert_outcomes(passed=1, failed=1)
        assert re.match(OUT_OF_TIME, read_sentence(result.stdout.str()))
