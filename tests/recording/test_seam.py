from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

from pytest_causechain.model.observation import Observation
from pytest_causechain.recording import standard_input
from pytest_causechain.recording.seam import Seam
from pytest_causechain.recording.start import Start

METHODS = ("_execute_child", "communicate", "wait", "poll")


@pytest.fixture
def starts():
    """What was started while this test ran."""
    seen: list[Start] = []
    with Seam(seen.append) as seam:
        yield seen
    assert seam.error is None


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
        monkeypatch.setattr(standard_input, "MAX_STDIN_BYTES", 9)
        (tmp_path / "input").write_bytes(b"0123456789")
        with (tmp_path / "input").open("rb") as file:
            subprocess.run([program], stdin=file, stdout=DEVNULL)
        assert starts[0].stdin is None

    def test_input_too_large(self, starts, program, monkeypatch):
        monkeypatch.setattr(standard_input, "MAX_STDIN_BYTES", 9)
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


class TestAsyncio:
    @staticmethod
    def communicate(*argv, given=None, **options):
        async def start_program():
            stdin = DEVNULL if given is None else PIPE
            process = await asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=PIPE, stderr=PIPE, **options)
            output = await process.communicate(given)
            return (*output, process.returncode)

        return asyncio.run(start_program())

    @pytest.mark.parametrize("given", [None, b"", b"some", b"x" * 1_000_000], ids=["none", "empty", "some", "much"])
    def test_what_is_fed_and_returned(self, starts, program, given):
        assert self.communicate(program, "a", given=given) == (given or b"", b"a\n", 1)
        (start,) = starts
        assert (start.argv, start.stdin, start.returncode) == ((str(program), "a"), given or b"", 1)

    def test_asyncio_is_left_as_it_was(self, program):
        from asyncio import base_subprocess, unix_events

        before = base_subprocess.BaseSubprocessTransport._process_exited, unix_events._UnixWritePipeTransport.write
        with Seam(lambda start: None):
            self.communicate(program)
        after = base_subprocess.BaseSubprocessTransport._process_exited, unix_events._UnixWritePipeTransport.write
        assert after == before

    @pytest.mark.parametrize("given", [None, b"x" * 1_000_000], ids=["none", "much"])
    @pytest.mark.parametrize(
        ("observation", "shown"),
        [
            (Observation("exit", 3, b"out", b"err"), (b"out", b"err", 3)),
            (Observation("exit", 0, b"o" * 500_000, b"e" * 500_000), (b"o" * 500_000, b"e" * 500_000, 0)),
            (Observation("signal", signal.SIGSEGV), (b"", b"", -signal.SIGSEGV)),
            (Observation("signal", signal.SIGABRT, b"x"), (b"x", b"", -signal.SIGABRT)),
        ],
        ids=["exit", "much", "crash", "abort"],
    )
    def test_stand_in(self, program, observation, shown, given):
        with Seam(lambda start: observation) as seam:
            assert self.communicate(program, given=given) == shown
        assert seam.error is None

    def test_stand_in_without_end(self, program):
        async def start_program():
            process = await asyncio.create_subprocess_exec(program, stdin=DEVNULL, stdout=PIPE)
            assert await process.stdout.readline() == b"so far\n"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), 0.01)
            process.kill()
            return await process.wait()

        with Seam(lambda start: Observation("timeout", 0, b"so far\n")):
            assert asyncio.run(start_program()) == -signal.SIGKILL


class TestDetours:
    @pytest.mark.parametrize(
        ("start_program", "way", "argv"),
        [
            (lambda program: os.system(f"{program} a 2>/dev/null"), "os.system", "{} a 2>/dev/null"),
            (lambda program: wait(os.posix_spawn(program, ["x", "a"], os.environ)), "os.posix_spawn", "x a"),
            (lambda program: wait(os.posix_spawnp(program, ["x", "a"], {})), "os.posix_spawnp", "x a"),
            (lambda program: os.spawnl(os.P_WAIT, program, "x", "a"), "os.spawn*", "x a"),
            (lambda program: os.spawnve(os.P_WAIT, program, ["x", "a"], {}), "os.spawn*", "x a"),
        ],
        ids=["system", "posix_spawn", "posix_spawnp", "spawnl", "spawnve"],
    )
    def test_named(self, starts, program, capfd, start_program, way, argv):
        start_program(program)
        (start,) = starts
        assert (start.unsupported, " ".join(start.argv)) == (way, argv.format(program))

    def test_terminals(self, starts):
        pid, descriptor = pty.fork()
        if pid == 0:
            os._exit(0)
        os.close(descriptor)
        wait(pid)
        assert [start.unsupported for start in starts] == ["pty.fork"]

    def test_popen_is_seen_once(self, starts, program):
        """Without descriptors to close it uses posix_spawn."""
        subprocess.run([program], close_fds=False)
        assert [start.unsupported for start in starts] == [None]

    def test_os_is_left_as_it_was(self):
        before = os.system, os.posix_spawn, os.forkpty
        with Seam(lambda start: None):
            assert os.system is not before[0]
        assert (os.system, os.posix_spawn, os.forkpty) == before


def wait(pid: int) -> None:
    os.waitpid(pid, 0)
