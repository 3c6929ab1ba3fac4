"""Observations in the place of programs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from pytest_causechain.model.runs import Observation
from pytest_causechain.recording.programs import Start
from pytest_causechain.recording.seam import Seam


def substituted(observation: Observation) -> Seam:
    return Seam(lambda start: observation)


LARGE = Observation("exit", 3, b"o" * 200_000, b"e" * 200_000)
HANGS = Observation("timeout", 0, b"some out", b"some err")


class TestSubstitution:
    def test_run(self):
        with substituted(Observation("exit", 3, b"out\n", b"err\n")):
            result = subprocess.run(["./not there", "x"], input="any", capture_output=True, text=True)
        assert (result.stdout, result.stderr, result.returncode) == ("out\n", "err\n", 3)
        assert result.args == ["./not there", "x"]

    def test_signal(self):
        with substituted(Observation("signal", signal.SIGSEGV)):
            assert subprocess.call(["./not there"]) == -signal.SIGSEGV

    def test_check(self):
        with (
            substituted(Observation("exit", 3, b"out", b"err")),
            pytest.raises(subprocess.CalledProcessError) as raised,
        ):
            subprocess.run(["./not there"], check=True, capture_output=True)
        assert (raised.value.returncode, raised.value.stdout, raised.value.stderr) == (3, b"out", b"err")

    def test_large_output_and_input(self):
        with substituted(LARGE):
            result = subprocess.run(["./not there"], input=b"i" * 300_000, capture_output=True)
        assert (result.stdout, result.stderr, result.returncode) == (LARGE.stdout, LARGE.stderr, 3)

    def test_large_output_read_by_hand(self):
        with substituted(LARGE), Popen(["./not there"], stdout=PIPE, stderr=PIPE, bufsize=0) as process:
            assert process.wait(timeout=60) == 3
            assert process.stderr.read() == LARGE.stderr
            assert process.stdout.read() == LARGE.stdout

    def test_large_output_nobody_reads(self):
        with substituted(LARGE), Popen(["./not there"], stdout=PIPE, stderr=PIPE) as process:
            pass
        assert process.returncode == 3

    def test_stderr_to_stdout(self):
        with substituted(LARGE):
            result = subprocess.run(["./not there"], stdout=PIPE, stderr=subprocess.STDOUT, text=True)
        assert result.stdout == "e" * 200_000 + "o" * 200_000
        assert result.stderr is None

    def test_files(self, tmp_path):
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err, substituted(LARGE):
            out.write(b"before ")
            out.flush()
            assert subprocess.call(["./not there"], stdout=out, stderr=err) == 3
            out.write(b" after")
        assert (tmp_path / "out").read_bytes() == b"before " + LARGE.stdout + b" after"
        assert (tmp_path / "err").read_bytes() == LARGE.stderr

    def test_a_pipe_of_the_test(self):
        reader, writer = os.pipe()
        with substituted(LARGE):
            assert subprocess.call(["./not there"], stdout=writer, stderr=DEVNULL) == 3
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            assert file.read() == LARGE.stdout

    def test_inherited(self, capfd):
        with substituted(Observation("exit", 0, b"out", b"err")):
            subprocess.run(["./not there"])
        assert capfd.readouterr() == ("out", "err")

    def test_devnull(self, capfd):
        with substituted(LARGE):
            subprocess.run(["./not there"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        assert capfd.readouterr() == ("", "")

    def test_writing_to_its_stdin_by_hand(self):
        starts = []
        observation = Observation("exit", 0, b"out")

        def watch(start: Start) -> Observation:
            starts.append(start)
            return observation

        with Seam(watch), Popen(["./not there"], stdin=PIPE, stdout=PIPE) as process:
            process.stdin.write(b"x" * 300_000)
            process.stdin.close()
            assert process.stdout.read() == b"out"
        assert starts[0].stdin == b"x" * 300_000
        assert starts[0].returncode == 0

    def test_looks_like_a_process(self):
        class Process(Popen):
            pass

        with substituted(Observation("exit", 4)):
            process = Process(["./not there"])
        assert isinstance(process, Process)
        assert repr(process) == "<Process: returncode: None args: ['./not there']>"
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        process.terminate()
        process.kill()
        assert process.poll() == process.wait() == process.wait(timeout=0) == process.returncode == 4

    def test_leaves_no_descriptor_open(self):
        before = set(Path("/proc/self/fd").iterdir())
        with substituted(Observation("exit", 0, b"out", b"err")):
            for _ in range(3):
                subprocess.run(["./not there"], input=b"in", capture_output=True)
                subprocess.run(["./not there"], stdin=DEVNULL, stdout=DEVNULL, stderr=subprocess.STDOUT)
        assert set(Path("/proc/self/fd").iterdir()) <= before

    def test_some_only(self, program):
        observation = Observation("exit", 9)
        with Seam(lambda start: observation if "this" in start.argv else None):
            assert subprocess.call([program, "this"]) == 9
            assert subprocess.call([program, "that"], stderr=DEVNULL) == 1


class TestHangingProgram:
    @pytest.mark.parametrize("text", [False, True])
    def test_run_with_timeout(self, text):
        with substituted(HANGS), pytest.raises(subprocess.TimeoutExpired) as raised:
            subprocess.run(["./not there"], timeout=3600, capture_output=True, text=text)
        # As subprocess itself: bytes even in text mode.
        assert (raised.value.stdout, raised.value.stderr) == (b"some out", b"some err")
        assert raised.value.timeout == 3600

    def test_output_elsewhere(self, capfd):
        with substituted(HANGS), pytest.raises(subprocess.TimeoutExpired) as raised:
            subprocess.run(["./not there"], timeout=3600)
        assert (raised.value.stdout, raised.value.stderr) == (None, None)
        assert capfd.readouterr() == ("some out", "some err")

    def test_call_with_timeout(self):
        with substituted(HANGS), pytest.raises(subprocess.TimeoutExpired):
            subprocess.call(["./not there"], timeout=3600, stdout=DEVNULL, stderr=DEVNULL)

    def test_without_timeout(self):
        with substituted(HANGS):
            result = subprocess.run(["./not there"], capture_output=True)
        assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGKILL, b"some out", b"some err")

    def test_killed_after_timeout(self):
        with substituted(HANGS), Popen(["./not there"], stdout=PIPE, text=True) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.communicate(timeout=3600)
            process.terminate()
            assert process.communicate() == ("some out", None)
        assert process.returncode == -signal.SIGTERM

    def test_runs_until_it_is_killed(self):
        with substituted(HANGS), Popen(["./not there"], stdout=DEVNULL, stderr=DEVNULL) as process:
            assert process.poll() is None
            process.send_signal(signal.SIGCONT)
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=3600)
            process.kill()
            assert process.poll() == -signal.SIGKILL
