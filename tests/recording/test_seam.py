from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from pytest_causechain.model.runs import Observation
from pytest_causechain.recording import streams
from pytest_causechain.recording.programs import Start
from pytest_causechain.recording.seam import Seam

METHODS = ("_execute_child", "communicate", "wait", "poll")


class TestStarts:
    def test_run(self, starts, program, monkeypatch):
        monkeypatch.setenv("COLOUR", "blue")
        result = subprocess.run([program, "one"], capture_output=True, text=True)
        assert (result.stdout, result.stderr, result.returncode) == ("", "one\n", 1)
        (start,) = starts
        assert start.argv == (str(program), "one")
        assert start.executable is None
        assert not start.shell
        assert start.cwd == str(Path.cwd())
        assert start.environment["COLOUR"] == "blue"
        assert start.environment["PATH"] == os.environ["PATH"]
        assert start.stdin == b""
        assert (start.returncode, start.stdout, start.stderr) == (1, b"", b"one\n")
        assert start.unsupported is None

    def test_what_popen_was_told(self, starts, program, tmp_path, monkeypatch):
        (tmp_path / "sub").mkdir()
        monkeypatch.chdir(tmp_path)
        subprocess.run([b"other name", b"\xff"], executable=program, cwd="sub", env={"A": "1"}, stderr=DEVNULL)
        (start,) = starts
        assert start.argv == ("other name", "\udcff")
        assert start.executable == str(program)
        assert start.cwd == str(tmp_path / "sub")
        assert start.environment == {"A": "1"}

    def test_shell(self, starts):
        assert subprocess.getoutput("echo $((1 + 1))") == "2"
        (start,) = starts
        assert start.shell
        assert start.argv == ("echo $((1 + 1))",)

    @pytest.mark.parametrize(
        "start_program",
        [
            lambda program: subprocess.call([program, "a"], stderr=DEVNULL),
            lambda program: subprocess.run([program, "a"], stderr=DEVNULL),
            lambda program: Popen([program, "a"], stderr=DEVNULL).wait(),
            lambda program: Popen([program, "a"], stderr=DEVNULL).communicate(timeout=60),
        ],
    )
    def test_every_way_of_ending(self, starts, program, start_program):
        start_program(program)
        assert [(start.argv[1], start.returncode) for start in starts] == [("a", 1)]

    def test_returncode_of_poll(self, starts, program):
        process = Popen([program])
        while process.poll() is None:
            pass
        assert starts[0].returncode == 0

    def test_returncode_nobody_asked_for(self, starts, program):
        process = Popen([program], stdout=PIPE)
        assert process.stdout.read() == b""
        assert starts[0].returncode is None
        process.wait()
        process.stdout.close()

    def test_exceptions_of_popen_are_kept(self, starts, program):
        with pytest.raises(subprocess.CalledProcessError):
            subprocess.run([program, "x"], check=True, stderr=DEVNULL)
        with pytest.raises(FileNotFoundError):
            subprocess.run(["./not there"])
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["sleep", "30"], timeout=0.01)
        assert [start.returncode for start in starts] == [1, None, -signal.SIGKILL]

    def test_threads(self, starts, program):
        def start_some():
            for _ in range(5):
                subprocess.run([program, "x"], input=b"y", capture_output=True)

        threads = [threading.Thread(target=start_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(start.stdin, start.returncode) for start in starts] == [(b"y", 1)] * 20


class TestStdin:
    def test_bytes(self, starts, program):
        assert subprocess.check_output([program], input=b"a\0b") == b"a\0b"
        assert starts[0].stdin == b"a\0b"

    @pytest.mark.parametrize("output", [{}, {"capture_output": True}, {"timeout": 60}])
    def test_text_is_encoded_as_the_process_does(self, starts, program, output):
        subprocess.run([program], input="é\n", encoding="utf-16-le", **output)
        assert starts[0].stdin == "é\n".encode("utf-16-le")

    @pytest.mark.parametrize("output", [{}, {"capture_output": True}])
    def test_more_than_the_program_reads(self, starts, output):
        subprocess.run(["true"], input=b"x" * 300_000, **output)
        assert starts[0].stdin == b"x" * 300_000

    def test_a_file_from_where_it_stands(self, starts, program, tmp_path):
        (tmp_path / "input").write_bytes(b"0123456789")
        with (tmp_path / "input").open("rb", buffering=0) as file:
            file.read(4)
            assert subprocess.check_output([program], stdin=file) == b"456789"
        assert starts[0].stdin == b"456789"

    def test_a_file_too_large(self, starts, program, tmp_path, monkeypatch):
        monkeypatch.setattr(streams, "MAX_STDIN_BYTES", 9)
        (tmp_path / "input").write_bytes(b"0123456789")
        with (tmp_path / "input").open("rb") as file:
            subprocess.run([program], stdin=file, stdout=DEVNULL)
        assert starts[0].stdin is None

    def test_input_too_large(self, starts, program, monkeypatch):
        monkeypatch.setattr(streams, "MAX_STDIN_BYTES", 9)
        assert subprocess.check_output([program], input=b"0123456789") == b"0123456789"
        subprocess.run([program], input=b"0123456789", stdout=DEVNULL)
        assert [start.stdin for start in starts] == [None, None]

    def test_devnull(self, starts, program):
        subprocess.run([program], stdin=DEVNULL)
        assert starts[0].stdin == b""

    def test_a_pipe_from_elsewhere(self, starts, program):
        reader, writer = os.pipe()
        os.write(writer, b"from elsewhere")
        os.close(writer)
        assert subprocess.check_output([program], stdin=reader) == b"from elsewhere"
        os.close(reader)
        assert starts[0].stdin is None

    def test_inherited_file(self, program, tmp_path):
        """In a process of its own, since pytest has its own standard input."""
        (tmp_path / "input").write_bytes(b"0123456789")
        script = (
            "import subprocess\n"
            "from pytest_causechain.recording.seam import Seam\n"
            "starts = []\n"
            "with Seam(starts.append):\n"
            f"    subprocess.run([{str(program)!r}], check=True)\n"
            "print(starts[0].stdin)\n"
        )
        with (tmp_path / "input").open("rb") as file:
            result = subprocess.run([sys.executable, "-c", script], stdin=file, capture_output=True, text=True)
        assert result.stdout == "0123456789b'0123456789'\n", result.stderr

    def test_pipe_closed_untouched(self, starts, program):
        with Popen([program], stdin=PIPE, stdout=PIPE) as process:
            pass
        assert process.returncode == 0
        assert starts[0].stdin == b""

    def test_written_by_hand_then_communicate(self, starts, program):
        with Popen([program], stdin=PIPE, stdout=PIPE, text=True) as process:
            print("by hand", file=process.stdin)
            output, _ = process.communicate("the rest", timeout=60)
        assert output == "by hand\nthe rest"
        assert starts[0].stdin == b"by hand\nthe rest"

    @pytest.mark.parametrize("bufsize", [0, 1, -1])
    def test_written_by_hand_and_closed(self, starts, program, bufsize):
        with Popen([program], stdin=PIPE, stdout=PIPE, bufsize=bufsize, text=bufsize == 1) as process:
            text = "x" * 20_000 + "\n"
            process.stdin.write(text if bufsize == 1 else text.encode())
            process.stdin.close()
            assert len(process.stdout.read()) == 20_001
        assert starts[0].stdin == text.encode()

    def test_unknown_while_more_may_come(self, starts, program):
        with Popen([program], stdin=PIPE, stdout=PIPE) as process:
            process.stdin.write(b"a")
            process.stdin.flush()
            assert process.poll() is None
            assert starts[0].stdin is None
            process.communicate()
        assert starts[0].stdin == b"a"


def methods_of_popen():
    return [Popen.__dict__[name] for name in METHODS]


class TestInstallation:
    def test_popen_is_as_before(self):
        before = methods_of_popen()
        seam = Seam(lambda start: None)
        with seam:
            assert all(one is not other for one, other in zip(methods_of_popen(), before, strict=True))
        assert methods_of_popen() == before
        seam.remove()
        with seam:
            pass
        assert methods_of_popen() == before

    def test_the_latest_is_asked_first(self, program):
        outer, inner = [], []
        answer: Observation | None = Observation("exit", 7)

        def watch(start: Start) -> Observation | None:
            inner.append(start.argv[1])
            return answer

        with Seam(lambda start: outer.append(start.argv[1])), Seam(watch):
            assert subprocess.call([program, "substituted"]) == 7
            answer = None
            assert subprocess.call([program, "real"], stderr=DEVNULL) == 1
        assert inner == ["substituted", "real"]
        assert outer == ["real"]

    def test_removed_in_any_order(self, program):
        before = methods_of_popen()
        starts = []
        first, second = Seam(lambda start: None), Seam(starts.append)
        first.install()
        second.install()
        first.remove()
        subprocess.run([program])
        second.remove()
        subprocess.run([program])
        assert len(starts) == 1
        assert methods_of_popen() == before

    def test_patched_over_by_somebody_else(self, program, monkeypatch):
        before = methods_of_popen()
        starts = []
        seam = Seam(starts.append)
        seam.install()
        ours = Popen._execute_child
        with monkeypatch.context() as patch:
            patch.setattr(Popen, "_execute_child", lambda *args, **kwargs: ours(*args, **kwargs))
            seam.remove()
            subprocess.run([program])
            assert starts == []
            with seam:
                subprocess.run([program])
            assert len(starts) == 1
        subprocess.run([program])
        assert len(starts) == 1
        Popen._execute_child = before[0]
        assert methods_of_popen() == before

    def test_errors_of_ours_stay_with_us(self, program):
        def watch(start: Start) -> None:
            raise ZeroDivisionError

        with Seam(watch) as seam:
            assert subprocess.call([program, "x"], stderr=DEVNULL) == 1
        assert isinstance(seam.error, ZeroDivisionError)

    def test_errors_of_a_description_too(self, program, monkeypatch):
        def fail(call: object) -> Start:
            raise ZeroDivisionError

        monkeypatch.setattr("pytest_causechain.recording.seam.describe_start", fail)
        with Seam(lambda start: None) as seam:
            result = subprocess.run([program, "x"], input=b"in", capture_output=True)
        assert (result.returncode, result.stdout, result.stderr) == (1, b"in", b"x\n")
        assert isinstance(seam.error, ZeroDivisionError)
