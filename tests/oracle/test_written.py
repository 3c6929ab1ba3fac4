"""Files that an observed run wrote: where a replayed test finds them, and what is there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import compile_program
from talking import make_replay

from pytest_causechain.model.runs import Command, Observation, Program, Run
from pytest_causechain.oracle.starts import WrittenFiles, relocate_files
from pytest_causechain.oracle.symptom import learn_symptom
from pytest_causechain.recording.programs import identify_program

PROGRAM = Program("/bin/prog", "1")


class TestPlaces:
    @pytest.mark.parametrize(
        ("argv", "cwd", "written", "expected"),
        [
            (("x",), "/now", "/then/out", "/now/out"),
            (("x",), "/now", "/then/sub/out", "/now/sub/out"),
            (("x",), "/then", "/then/out", "/then/out"),
            (("-o", "/tmp/b0/out"), "/then", "/tmp/a0/out", "/tmp/b0/out"),
            (("-o", "/tmp/b0/out"), "/then", "/tmp/a0/log/more", "/tmp/b0/log/more"),
            (("--out=/tmp/b0/d/out",), "/then", "/tmp/a0/d/out.tmp", "/tmp/b0/d/out.tmp"),
            (("-o", "/tmp/b0/other"), "/then", "/tmp/a0/out", "/tmp/b0/other"),
            (("-o", "/tmp/b0/other"), "/then", "/tmp/a0/log", "/tmp/b0/log"),
            (("-o", "/tmp/b0/out"), "/now", "/elsewhere/out", "/elsewhere/out"),
        ],
    )
    def test_by_directory_and_arguments(self, argv, cwd, written, expected):
        arguments = {"-o": ("-o", "/tmp/a0/out"), "--out=/tmp/b0/d/out": ("--out=/tmp/a0/d/out",), "x": ("x",)}[argv[0]]
        origin = Command(PROGRAM, ("prog", *arguments), "/then")
        assert relocate_files(((written, b"1"),), [origin], ("prog", *argv), cwd) == ((expected, b"1"),)

    def test_the_longest_directory_counts(self):
        origin = Command(PROGRAM, ("prog", "/then/deep/in"), "/then")
        files = (("/then/out", b"1"), ("/then/deep/out", None))
        assert relocate_files(files, [origin], ("prog", "/other/in"), "/now") == (
            ("/now/out", b"1"),
            ("/other/out", None),
        )

    def test_of_another_command(self):
        origins = [Command(PROGRAM, ("prog", "/tmp/a0/in"), "/a"), Command(PROGRAM, ("prog", "-v", "/tmp/b0/in"), "/b")]
        files = (("/tmp/b0/out", b"1"), ("/b/log", b"2"))
        assert relocate_files(files, origins, ("prog", "/tmp/c0/in"), "/c") == (("/tmp/c0/out", b"1"), ("/c/log", b"2"))


def test_what_was_there_is_put_back(tmp_path):
    (tmp_path / "kept").write_text("before")
    (tmp_path / "removed").write_text("before")
    files = {"kept": b"now", "removed": None, "new": b"now", "deep/er/new": b"now"}
    with WrittenFiles() as written:
        written.write(tuple((str(tmp_path / name), content) for name, content in files.items()))
        for name, content in files.items():
            path = tmp_path / name
            assert (path.read_bytes() if path.exists() else None) == content
        (tmp_path / "new").unlink()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"kept": "before", "removed": "before"}


SAVE = r"""
#include <stdio.h>
int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "w");
    fprintf(file, "%s\n", argv[2]);
    return argc < 3;
}
"""
SUITE = """
import subprocess
from pathlib import Path

SAVE = Path(__file__).parent / "save"


def test_argument(tmp_path):
    subprocess.run([SAVE, tmp_path / "out", "52"])
    assert (tmp_path / "out").read_text() == "7\\n"

def test_directory(tmp_path):
    subprocess.run([SAVE, "out", "52"], cwd=tmp_path)
    assert (tmp_path / "out").exists()
    assert (tmp_path / "out").read_text() == "7\\n"

def test_own_directory():
    subprocess.run([SAVE, "out", "52"], cwd=SAVE.parent)
    assert (SAVE.parent / "out").read_text() == "7\\n"
"""


@pytest.fixture(scope="module")
def saving(tmp_path_factory):
    saving = tmp_path_factory.mktemp("saving")
    compile_program(saving / "save", SAVE)
    (saving / "pytest.ini").write_text("[pytest]\n")
    (saving / "test_save.py").write_text(SUITE)
    return saving


@pytest.fixture(scope="module")
def replay(saving):
    # Isolated, it would write to a view that nobody else sees.
    with make_replay(saving, "test_save.py", isolation="off") as replay:
        yield replay


class TestReplayed:
    """Observations made by hand, of runs in the temporary directories of another session."""

    @staticmethod
    def describe(saving: Path, test: str) -> tuple[Run, str]:
        """The run as it was recorded, and the path of its file."""
        program = identify_program(str(saving / "save"))
        directory = {"test_argument": "/tmp/then/test_argument0", "test_directory": "/tmp/then/test_directory0"}
        place = directory.get(test, str(saving))
        if test == "test_argument":
            return Run(Command(program, ("save", f"{place}/out", "52"), str(saving))), f"{place}/out"
        return Run(Command(program, ("save", "out", "52"), place)), f"{place}/out"

    @pytest.mark.parametrize("test", ["test_argument", "test_directory", "test_own_directory"])
    def test_the_test_finds_them(self, saving, replay, test):
        run, path = self.describe(saving, test)
        nodeid = f"test_save.py::{test}"

        def ask(content: bytes | None):
            return replay.verdict(nodeid, run, Observation("exit", 0, files=((path, content),)))

        assert replay.base(nodeid).comparison.left.text == r"'52\n'"
        assert ask(b"7\n").outcome == "passed"
        assert ask(b"8\n").comparison.left.text == r"'8\n'"
        assert ask(None).exception in ("FileNotFoundError", "AssertionError")
        if test == "test_own_directory":
            assert (saving / "out").read_text() == "52\n"  # what the real program wrote

    def test_symptom(self, saving, replay):
        run, path = self.describe(saving, "test_argument")
        other = Command(run.command.program, ("save", "/tmp/other0/out", "7"), "/tmp")
        oracle = learn_symptom(
            Observation("exit", 0, files=(("/tmp/other0/out", b"7\n"),)),
            Observation("exit", 0, files=((path, b"52\n"),)),
            lambda observation: replay.verdict("test_save.py::test_argument", run, observation, other),
        )
        assert oracle.rule.fails_when == "the text compared at test_save.py:10 contains '52' and lacks '7'"
