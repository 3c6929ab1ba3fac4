"""The isolated session: what it declines, what it keeps, what it must not do, how it ends."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from talking import TALK, TIMEOUT_SECONDS, ask_last, make_replay, printed

from pytest_causechain.model.refusal import Unreplayable
from pytest_causechain.oracle.replay import Replay, find_last_words


@pytest.fixture(scope="module")
def declined(suite: Path) -> Iterator[Replay]:
    with make_replay(suite, "test_declined.py", arguments=("--doctest-modules",)) as replay:
        yield replay


class TestDeclined:
    @pytest.mark.parametrize(
        ("test", "sentence"),
        [
            ("TestUnit::test_method", "is a unittest.TestCase method"),
            ("test_hypothesis", "is a hypothesis test"),
            ("test_subtests", "uses subtests"),
            ("test_declined.documented", "is no test function"),
            ("test_without_program", "did not start talk as before"),
        ],
    )
    def test_with_the_reason(self, declined, suite, test, sentence):
        for _ in range(2):
            with pytest.raises(Unreplayable, match=f"test_declined.py::{test} {sentence}"):
                ask_last(declined, suite, f"test_declined.py::{test}", printed(""))


BUILDING = """
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def talk(tmp_path_factory):
    directory = tmp_path_factory.mktemp("build")
    subprocess.run(["cc", "-g", "-o", "talk", HERE / "talk.c"], cwd=directory, check=True)
    with (HERE / "builds").open("a") as file:
        file.write("built\\n")
    subprocess.run([directory / "talk", "0", "works"], check=True)
    yield directory / "talk"
    with (HERE / "builds").open("a") as file:
        file.write("torn down\\n")


def test_built(talk):
    assert subprocess.run([talk, "0", "0"], capture_output=True, text=True).stdout == "1\\n"
"""


class TestBuild:
    def test_program_built_by_a_session_fixture(self, suite, tmp_path):
        (tmp_path / "talk.c").write_text(TALK)
        (tmp_path / "test_building.py").write_text(BUILDING)
        (tmp_path / "test_other.py").write_text(BUILDING.replace("test_built", "test_other"))
        tests = "test_building.py::test_built", "test_other.py::test_other"
        # Built elsewhere, it has another build id: the paths in its debug information differ.
        # What is counted is seen by nobody else, were it isolated.
        files = ("test_building.py", "test_other.py")
        with make_replay(tmp_path, *files, isolation="off") as replay:
            for test in (tests[0], tests[1], tests[0]):
                assert replay.base(test).outcome == "failed"
                assert ask_last(replay, suite, test, printed("1\n")).outcome == "passed"
                assert ask_last(replay, suite, test, printed("5\n")).outcome == "failed"
        lines = (tmp_path / "builds").read_text().splitlines()
        assert lines == ["built"] * 2 + ["torn down"] * 2


class TestDisarmed:
    ARGUMENTS = (
        *("-n", "2", "--lf", "--cache-clear", "-x", "-k", "nothing", "-m", "nothing", "--pdb", "--setup-plan"),
        *("--junitxml=report.xml", "--log-file=log.txt", "--debug=debug.txt", "--basetemp=mine", "-W", "error"),
        *("--deselect=test_suite.py::test_list", "-vv", "--durations=0", "--sw", "-s", "--color=yes"),
    )

    def test_options_take_no_second_effect(self, suite, tmp_path, monkeypatch):
        monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only --junitxml=other.xml")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "precious").touch()
        cache = tmp_path / "kept" / "v"
        cache.mkdir(parents=True)
        (cache / "word").write_text('"kept"')
        before = {path: path.read_bytes() for path in suite.rglob("*") if path.is_file()}
        files, arguments = ["test_suite.py", "test_cache.py"], (*self.ARGUMENTS, "-o", f"cache_dir={tmp_path / 'kept'}")
        test = "test_suite.py::test_list"
        with make_replay(suite, *files, arguments=arguments, invocation_dir=tmp_path) as replay:
            assert replay.base(test).comparison.left.elements == ("'0'", "'11'")
            assert ask_last(replay, suite, test, printed("11 14\n")).outcome == "passed"
            # The cache is read, and what is written to it is forgotten.
            assert replay.base("test_cache.py::test_cache").comparison.left.text == "['kept', 'changed']"
        assert (cache / "word").read_text() == '"kept"'
        left = ["kept", "kept/v", "kept/v/word", "mine", "mine/precious"]
        assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == left
        after = {path: path.read_bytes() for path in suite.rglob("*") if path.is_file() if path.suffix != ".pyc"}
        assert after == {path: content for path, content in before.items() if path.suffix != ".pyc"}


class TestEndings:
    HANGING = "test_ending.py::test_hangs"
    EXITING = "test_ending.py::test_exits"
    LEAVING = "test_ending.py::test_leaves_process"

    def test_a_body_that_hangs_is_stopped_twice_at_most(self, suite):
        with make_replay(suite, "test_ending.py") as replay:
            replay.base(self.HANGING)
            replay.timeout_seconds = 0.2
            verdict = ask_last(replay, suite, self.HANGING, printed("hang\n"))
            assert verdict.outcome == "diverged"
            assert verdict.message == (
                f"{self.HANGING} cannot be replayed because it does not end within 0.2 s: raise --cause-chain-timeout."
            )
            replay.timeout_seconds = TIMEOUT_SECONDS
            assert ask_last(replay, suite, self.HANGING, printed("1\n")).outcome == "passed"
            replay.timeout_seconds = 0.2
            for _ in range(2):
                with pytest.raises(Unreplayable, match=r"does not end within 0\.2 s"):
                    ask_last(replay, suite, self.HANGING, printed("hang\n"))

    def test_a_body_that_ends_the_session(self, suite):
        with make_replay(suite, "test_ending.py") as replay:
            assert ask_last(replay, suite, self.EXITING, printed("exit\n")).outcome == "diverged"
            with pytest.raises(Unreplayable, match=r"session ended \(.*Exit: enough is enough *\): run it alone"):
                ask_last(replay, suite, self.EXITING, printed("stop\n"))

    @pytest.mark.parametrize(
        ("conftest", "sentence"),
        [
            ("import nonexistent_module", "No module named 'nonexistent_module'"),
            ("import os; os._exit(0)", "without a word"),
        ],
    )
    def test_a_session_that_does_not_start(self, suite, tmp_path, conftest, sentence):
        test = "test_a.py::test_a"
        (tmp_path / "conftest.py").write_text(conftest)
        (tmp_path / "test_a.py").write_text("def test_a(): pass")
        with make_replay(tmp_path, "test_a.py") as replay:
            for _ in range(2):
                with pytest.raises(Unreplayable, match=rf"{test} cannot be replayed because .*{sentence}"):
                    ask_last(replay, suite, test, printed(""))

    def test_a_module_that_is_not_collected(self, suite, tmp_path):
        (tmp_path / "test_a.py").write_text("import nonexistent_module\ndef test_a(): pass")
        (tmp_path / "test_b.py").write_text("def test_b(): pass")
        tests = ("test_a.py::test_a", "test_b.py::test_c")
        sentences = (
            r"test_a is not collected when run alone \(ModuleNotFoundError: No module named 'nonexistent_module'\): ",
            r"test_c is not collected when run alone: ",
        )
        with make_replay(tmp_path, "test_a.py", "test_b.py") as replay:
            for test, sentence in zip(tests, sentences, strict=True):
                with pytest.raises(Unreplayable, match=sentence):
                    replay.base(test)

    @pytest.fixture
    def left(self, suite: Path) -> Iterator[int]:
        """Open for reading what the process that a test leaves has open for writing: it need not be there yet."""
        os.mkfifo(suite / "fifo")
        descriptor = os.open(suite / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        yield descriptor
        os.close(descriptor)
        (suite / "fifo").unlink()

    def test_nothing_is_left_behind(self, suite, tmp_path, monkeypatch, left):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        # A view has a fifo of its own.
        with make_replay(suite, "test_ending.py", isolation="off") as replay:
            assert replay.base(self.LEAVING).outcome == "passed"
            assert read_next(left) == b"started\n"
            assert [path.name[:11] for path in tmp_path.iterdir()] == ["causechain-"]
        assert read_next(left) == b""  # the last process that has it open is gone
        assert list(tmp_path.iterdir()) == []

    def test_it_dies_with_its_parent(self, suite, left):
        source = f"""
from pathlib import Path
from pytest_causechain.oracle.replay import Replay, ReplaySetup
from pytest_causechain.recording.programs import identify_program
suite, test = Path({str(suite)!r}), {self.LEAVING!r}
setup = ReplaySetup(suite, (), suite, {TIMEOUT_SECONDS}, isolation="off")
with Replay(setup, ["test_ending.py"]) as replay:
    replay.base(test)
    print(replay._process.directory, flush=True)
    input()
"""
        parent = subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with parent:
            assert read_next(left) == b"started\n"
            directory = parent.stdout.readline().strip()
            parent.kill()
            assert read_next(left) == b""
        shutil.rmtree(directory)  # nobody is left who could


def read_next(fifo: int) -> bytes:
    """What is written to it next; nothing once all who had it open for writing are gone."""
    ready, _, _ = select.select([fifo], [], [], TIMEOUT_SECONDS)
    assert ready
    return os.read(fifo, 100)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("collected 1 item\n", "without a word"),
        ("ERROR: not found: a\n(no match in b)\n", "ERROR: not found: a"),
        ("E   ImportError: x\n=== 1 error ===\n", "ImportError: x"),
        ("!!!!! _pytest.outcomes.Exit: x !!!!!\n", "_pytest.outcomes.Exit: x"),
        ("INTERNALERROR> KeyError: 'x'\n", "KeyError: 'x'"),
    ],
)
def test_last_words(log, words):
    assert find_last_words(log) == words
