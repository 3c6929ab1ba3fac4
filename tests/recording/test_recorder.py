"""What a Recorder keeps of a test's starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from pytest_causechain.model.runs import MOST_BYTES, Recording
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.recording.recorder import Recorder, settle_options
from pytest_causechain.states.outside import ABSENT


class Recorded:
    """with Recorded() as it: ...; it.recording is what was recorded inside."""

    recording: Recording

    def __init__(self) -> None:
        self.recorder = Recorder()

    def __enter__(self) -> Recorded:
        self.recorder.begin("test_x.py::test_x")
        return self

    def __exit__(self, *_: object) -> None:
        self.recording = self.recorder.finish("passed")
        self.recorder.close()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with closing(Recorder()) as recorder:
        yield recorder


class TestRuns:
    def test_one(self, program):
        with Recorded() as it:
            subprocess.run([program, "a", "b"], input=b"in", capture_output=True)
        (run,) = it.recording.runs
        assert run.command.program == identify_program(str(program))
        assert run.command.argv == (str(program), "a", "b")
        assert run.command.cwd == str(Path.cwd())
        assert run.command.environment == ()
        assert run.command.stdin == b"in"
        assert run.returncode == 2
        assert (it.recording.test, it.recording.outcome, it.recording.refusals) == ("test_x.py::test_x", "passed", ())

    def test_in_the_order_of_their_starts(self, program):
        with Recorded() as it:
            first = Popen([program, "first"], stdin=PIPE, stderr=DEVNULL)
            subprocess.run([program, "second"], stderr=DEVNULL)
            first.communicate(b"x")
        assert [(run.command.argv[1], run.command.stdin) for run in it.recording.runs] == [
            ("first", b"x"),
            ("second", b""),
        ]

    def test_each_test_by_itself(self, recorder, program):
        subprocess.run([program])
        for outcome in ("failed", "passed"):
            recorder.begin("never finished")
            subprocess.run([program])
            recorder.begin("one")
            subprocess.run([program])
            recording = recorder.finish(outcome)
            subprocess.run([program])
            assert (recording.test, recording.outcome, len(recording.runs)) == ("one", outcome, 1)

    def test_popen_is_left_as_it_was(self, recorder):
        before = Popen._execute_child
        recorder.begin("one")
        recorder.finish("passed")
        recorder.close()
        assert Popen._execute_child is before

    def test_program_that_is_gone_at_the_end(self, build):
        program = build("short-lived")
        with Recorded() as it:
            subprocess.run([program])
            program.unlink()
        assert [Path(run.command.program.path).name for run in it.recording.runs] == ["short-lived"]


class TestInputs:
    """Files named in arguments, as the program found them."""

    def test_kinds(self, program, tmp_path):
        large, edited, removed = (tmp_path / name for name in ("large", "edited", "removed"))
        for path in (large, edited, removed):
            path.write_bytes(b"x" * 5000)
        (tmp_path / "small").write_bytes(b"y")
        huge = tmp_path / "huge"
        huge.write_bytes(b"z" * (MOST_BYTES + 1))
        with Recorded() as it:
            subprocess.run(
                [
                    program,
                    "large",
                    f"--in={edited}",
                    "removed",
                    "small",
                    "huge",
                    "made",
                    "no file",
                    "",
                    ".",
                    "/dev/null",
                ],
                cwd=tmp_path,
                stderr=DEVNULL,
            )
            edited.write_text("edited")
            removed.unlink()
            (tmp_path / "made").write_text("made")
        (run,) = it.recording.runs
        known = {Path(file.path).name: file for file in run.command.inputs}
        assert [(name, file.content, file.has_changed()) for name, file in known.items()] == [
            ("large", None, False),
            ("edited", b"x" * 5000, True),
            ("removed", b"x" * 5000, True),
            ("small", b"y", False),
            ("huge", None, False),
            ("made", None, True),
        ]
        assert [name for name, file in known.items() if not file.can_be_restored] == ["large", "huge"]
        assert known["made"].digest == ABSENT
        huge.write_bytes(b"other")
        assert known["huge"].has_changed()


class TestFindingTheProgram:
    def test_by_path(self, program):
        environment = {**os.environ, "PATH": f"/nowhere:{program.parent}"}
        with Recorded() as it:
            subprocess.run([program.name, "x"], env=environment, stderr=DEVNULL)
        (run,) = it.recording.runs
        assert run.command.program.path == str(program.resolve())
        assert run.command.argv == ("echo", "x")
        assert run.command.environment == (("PATH", f"/nowhere:{program.parent}"),)

    def test_relative_to_the_directory_it_runs_in(self, program):
        with Recorded() as it:
            subprocess.run([f"./{program.name}"], cwd=program.parent)
        assert it.recording.runs[0].command.program.path == str(program.resolve())
        assert it.recording.runs[0].command.cwd == str(program.parent)

    def test_executable(self, program):
        with Recorded() as it:
            subprocess.run(["another name"], executable=program)
        assert it.recording.runs[0].command.program.path == str(program.resolve())
        assert it.recording.runs[0].command.argv == ("another name",)


class TestEnvironment:
    def test_changes_only(self, program, monkeypatch):
        monkeypatch.setenv("KEPT", "as it is")
        monkeypatch.setenv("CHANGED", "before")
        monkeypatch.setenv("REMOVED", "before")
        with Recorded() as it:
            subprocess.run([program])
            monkeypatch.setenv("CHANGED", "after")
            monkeypatch.delenv("REMOVED")
            monkeypatch.setenv("ADDED", "after")
            subprocess.run([program])
            monkeypatch.setenv("CHANGED", "before")
            subprocess.run([program], env={**os.environ, "KEPT": ""})
        before, run, after = it.recording.runs
        assert before.command.environment == ()
        assert run.command.environment == (("ADDED", "after"), ("CHANGED", "after"), ("REMOVED", None))
        assert after.command.environment == (("ADDED", "after"), ("KEPT", ""), ("REMOVED", None))
        assert run.command.full_environment()["KEPT"] == "as it is"

    def test_can_be_restored(self, program):
        environment = {"ONLY": "this"}
        with Recorded() as it:
            subprocess.run([program], env=environment)
        restored = it.recording.runs[0].command.full_environment()
        assert {name: value for name, value in restored.items() if not name.startswith("PYTEST_")} == environment


class TestRefusals:
    def refusals(self, *args, **kwargs) -> tuple[str, ...]:
        with Recorded() as it:
            subprocess.run(*args, **kwargs, stdout=DEVNULL, stderr=DEVNULL)
        assert it.recording.runs == ()
        return it.recording.refusals

    def test_each_sentence_once(self, build):
        plain = build("plain", "-g0")
        with Recorded() as it:
            for _ in range(3):
                subprocess.run([plain])
        assert it.recording.refusals == (
            "plain has no debug information: build it with -g (and -O0 for exact variables).",
        )

    def test_not_found(self, tmp_path):
        with Recorded() as it:
            with pytest.raises(FileNotFoundError):
                subprocess.run(["no-such-program"])
            with pytest.raises(FileNotFoundError):
                subprocess.run([tmp_path / "absent"])
        assert it.recording.refusals == (
            "no-such-program is in no directory of PATH: give the path of the program.",
            f"{tmp_path / 'absent'} does not exist: build it before the tests run.",
        )

    def test_unknown_stdin(self, program):
        reader, writer = os.pipe()
        os.close(writer)
        assert self.refusals([program], stdin=reader) == (
            "echo reads from a pipe or terminal we cannot see: pass its standard input with input= or as a file.",
        )
        os.close(reader)

    def test_around_subprocess(self, program):
        with Recorded() as it:
            os.system(f"{program} x 2>/dev/null")
        assert it.recording.refusals == ("echo is started through os.system: start it with subprocess.run instead.",)


class TestFixtures:
    """What a fixture of a wider scope starts belongs to all tests that use it."""

    def test_each_test_that_uses_it(self, recorder, program):
        recorder.begin("first")
        with recorder.set_up("F", "server"):
            subprocess.run([program, "a"], stderr=DEVNULL)
            with recorder.set_up("G", "inner"):
                subprocess.run([program, "b"], stderr=DEVNULL)
            subprocess.run([program, "c"], stderr=DEVNULL)
        subprocess.run([program, "own"], stderr=DEVNULL)
        first = recorder.finish("passed", ["F", "G"])
        recorder.begin("second")
        subprocess.run([program, "other"], stderr=DEVNULL)
        second = recorder.finish("failed", ["F"])
        recorder.begin("third")
        third = recorder.finish("failed", [])

        def tell(recording):
            return [(run.command.argv[1], run.fixture, run.ordinal) for run in recording.runs]

        assert tell(first) == [("a", "server", 0), ("b", "inner", 0), ("c", "server", 1), ("own", None, 0)]
        assert tell(second) == [("a", "server", 0), ("c", "server", 1), ("other", None, 0)]
        assert tell(third) == []

    def test_set_up_again(self, recorder, program):
        recorder.begin("test")
        for word in ("a", "b"):
            with recorder.set_up("F", "server"):
                subprocess.run([program, word], stderr=DEVNULL)
        assert [run.command.argv[1] for run in recorder.finish("passed", ["F"]).runs] == ["b"]


def test_errors_of_ours_do_not_reach_the_test(program, monkeypatch):
    def fail(path: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pytest_causechain.recording.programs.identify_program", fail)
    with Recorded() as it:
        assert subprocess.check_output([program], input=b"x") == b"x"
    assert it.recording.runs == ()


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ({}, {"ASAN_OPTIONS": "detect_leaks=0"}),
        ({"ASAN_OPTIONS": "verbosity=1"}, {"ASAN_OPTIONS": "verbosity=1:detect_leaks=0"}),
        ({"ASAN_OPTIONS": "detect_leaks=1"}, {"ASAN_OPTIONS": "detect_leaks=1"}),
    ],
)
def test_leaks_are_not_looked_for(build, given, settled):
    program = identify_program(str(build("checked", "-fsanitize=address")))
    assert settle_options(program, given) == settled


def test_other_programs_are_left_alone(program):
    assert settle_options(identify_program(str(program)), {"A": "1"}) == {"A": "1"}
