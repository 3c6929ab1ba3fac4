"""Programs that are started through asyncio, or around subprocess."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
from subprocess import DEVNULL, PIPE

import pytest

from pytest_causechain.model.runs import Observation
from pytest_causechain.recording.seam import Seam


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
