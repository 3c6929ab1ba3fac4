"""A program that says what it is told, and the tests of it that are replayed."""

from __future__ import annotations

from pathlib import Path

from pytest_causechain.model.isolation import Wish
from pytest_causechain.model.runs import Command, Observation, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.replay import Replay, ReplaySetup
from pytest_causechain.recording.programs import identify_program

# Far more than any replay here takes: only a defect makes a test wait for it.
TIMEOUT_SECONDS = 60.0

# Exits with its first argument and prints the others, one word each.
TALK = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        printf(i + 1 < argc ? "%s " : "%s\n", argv[i]);
    return argc > 1 ? atoi(argv[1]) : 0;
}
"""

CONFTEST = """
import subprocess
from pathlib import Path

import pytest

TALK = Path(__file__).parent / "talk"


@pytest.fixture
def talk():
    def run(*arguments, **options):
        return subprocess.run([TALK, *arguments], capture_output=True, text=True, **options)
    return run


def pytest_configure(config):
    config.addinivalue_line("markers", "cause_chain")
"""

SUITE = """
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import plain_module

TALK = Path(__file__).parent / "talk"


def test_list(talk):
    assert talk("0", "0", "11").stdout.split() == ["11", "14"]

def test_numbers(talk):
    assert [int(word) for word in talk("0", "0", "11").stdout.split()] == [11, 14]

def test_text(talk):
    assert talk("0", "total", "52").stdout == "total 25\\n"

def test_number(talk):
    assert int(talk("0", "52").stdout) == 25

def test_dict(talk):
    out = talk("0", "a=3", "b=1").stdout
    assert dict(pair.split("=") for pair in out.split()) == {"a": "1", "b": "1"}

def test_in(talk):
    assert "sum 25" in talk("0", "sum", "52").stdout

def test_status(talk):
    run = talk("3", "text")
    assert run.returncode == 0
    assert run.stdout == "text\\n"

def test_check(talk):
    assert talk("3", "text", check=True).stdout == "text\\n"

def test_over_many_lines(talk):
    assert (
        talk("0", "0").stdout.split()
        == ["1"]
    ), "a message"

def check_list(text, expected):
    assert text.split() == expected

def test_function_of_the_module(talk):
    check_list(talk("0", "0", "11").stdout, ["11", "14"])

def test_function_of_a_plain_module(talk):
    plain_module.check_list(talk("0", "0", "11").stdout, ["11", "14"])

def test_earlier_comparison(talk):
    out = talk("0", "0").stdout
    with pytest.raises(AssertionError):
        assert out == "another"
    if "x" not in out:
        raise AssertionError("no x\\nin it")

def test_skipping(talk):
    if talk("0", "0").stdout == "none\\n":
        pytest.skip("nothing there")
    assert False

@pytest.mark.parametrize("words", ["0 11", "a/b::c[d]", ""])
def test_ids(talk, words):
    assert talk("0", *words.split()).stdout.split() == ["11"]

class TestMethods:
    def setup_method(self):
        self.calls = []

    def test_state(self, talk):
        self.calls.append(talk("0", "0").stdout)
        assert self.calls == ["1\\n"]

def test_tmp_path(tmp_path, talk):
    (tmp_path / "fresh").mkdir()
    talk("0", str(tmp_path))
    assert tmp_path.name == "test_tmp_path0"
    assert talk("0", str(tmp_path / "fresh")).stdout == "1\\n"

def test_changing_names(tmp_path_factory, talk):
    numbered = tmp_path_factory.mktemp("numbered")
    with tempfile.TemporaryDirectory() as directory:
        assert talk("0", directory, f"--file={numbered}/in").stdout == "1\\n"

@pytest.fixture
def greeting(talk):
    return talk("0", "hello").stdout

def test_fixture_start(greeting, talk):
    assert greeting + talk("0", "0").stdout == "hello\\n1\\n"

@pytest.fixture(scope="module")
def module_run():
    return subprocess.run([TALK, "0", "shared"], capture_output=True, text=True)

def test_module_fixture(module_run):
    assert module_run.stdout == "1\\n"

def test_module_fixture_too(module_run):
    assert module_run.stdout == "2\\n"

def test_module_fixture_and_own(module_run, talk):
    assert module_run.stdout == "shared\\n"
    assert talk("0", "0").stdout == "1\\n"

def test_loop(talk):
    for word, expected in [("a", "a\\n"), ("b", "c\\n"), ("d", "d\\n")]:
        assert talk("0", word).stdout == expected

def test_random(talk):
    talk("0", str(time.monotonic_ns()))
    assert talk("0", "0").stdout == "1\\n"

def test_another_program(talk):
    done = subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True, text=True)
    assert (talk("0", "0").stdout, done.stdout) == ("1\\n", "5\\n")

def says_zero(run):
    return run.stdout.split()[0] == "0" and run.returncode in (0, -9) and run.args[1:] == ["0", "0", "x"]

@pytest.mark.cause_chain(fails_when=says_zero)
def test_fails_when(talk):
    assert talk("0", "0", "x").stdout == "1\\n"

def test_sessions(talk):
    talk("0")
    assert os.getsid(0) == os.getpid()
    assert not {"PYTEST_XDIST_WORKER", "COV_CORE_SOURCE"} & set(os.environ)

def test_without_program():
    assert "0" == "1"
"""

DECLINED = """
import subprocess
import unittest
from pathlib import Path

from hypothesis import given, strategies

TALK = Path(__file__).parent / "talk"


def test_without_program():
    assert "0" == "1"

def test_subtests(subtests, talk):
    assert talk("0", "0").stdout == "1"

class TestUnit(unittest.TestCase):
    def test_method(self):
        self.assertEqual(subprocess.run([TALK, "0", "0"], capture_output=True).stdout, b"1")

@given(strategies.just("0"))
def test_hypothesis(word):
    assert subprocess.run([TALK, "0", word], capture_output=True).stdout == b"1"

def documented():
    \"\"\"
    >>> 1
    2
    \"\"\"
"""

CACHE = """
def test_cache(talk, request):
    talk("0", "0")
    words = [request.config.cache.get("word", None)]
    request.config.cache.set("word", "changed")
    assert [*words, request.config.cache.get("word", None)] == []
"""

PLAIN_MODULE = """
def check_list(text, expected):
    assert text.split() == expected
"""

# Each in a session of its own: they end it.
ENDING = """
import os
import time

import pytest


def test_hangs(talk):
    out = talk("0", "0").stdout
    while out == "hang\\n":
        time.sleep(1)
    assert out == "1\\n"

def test_exits(talk):
    out = talk("0", "0").stdout
    if out == "exit\\n":
        os._exit(3)
    if out == "stop\\n":
        pytest.exit("enough is enough")
    assert out == "1\\n"

def test_leaves_process(talk, request):
    import subprocess
    talk("0", "0")
    subprocess.Popen(["sh", "-c", "exec 9> fifo; echo started >&9; sleep 600"], cwd=request.path.parent)
"""


def printed(stdout: str, code: int = 0) -> Observation:
    return Observation("exit", code, stdout.encode())


def make_replay(
    directory: Path,
    *files: str,
    arguments: tuple[str, ...] = (),
    isolation: Wish = "auto",
    invocation_dir: Path | None = None,
) -> Replay:
    setup = ReplaySetup(directory, arguments, invocation_dir or directory, TIMEOUT_SECONDS, isolation=isolation)
    return Replay(setup, files)


def ask_last(replay: Replay, suite: Path, test: str, observation: Observation) -> Verdict:
    """What the test says when its last start of the program shows this."""
    return replay.verdict(test, find_last_run(replay, suite, test), observation)


def find_last_run(replay: Replay, suite: Path, test: str) -> Run:
    """Of the test itself, or of the module's fixture where it starts nothing."""
    starts = replay.base(test).starts
    command = Command(identify_program(str(suite / "talk")), ("talk",), str(suite))
    return Run(command, ordinal=starts - 1) if starts else Run(command, fixture="module_run")
