"""A living gdb: one process for all runs of a program, spoken to over GDB/MI with replies matched by token."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_causechain.model.refusal import Refusal

INSTALL = "install gdb 12 or newer (Debian, Ubuntu: apt-get install gdb)"
OLDEST = 12  # the first with MI commands written in Python
START = [
    "-nx",  # no configuration of the user's
    "-q",
    "--interpreter=mi3",
    "-iex", "set auto-load no",  # no scripts from the directory under test
    "-iex", "set debuginfod enabled off",  # no network
    # Else every run reads the C library's debug file again, where one is installed: 250 ms instead of 15.
    "-iex", "set debug-file-directory",
    "-iex", "set auto-solib-add off",  # symbols of libraries are read when a backtrace needs them
    "-iex", "set confirm off",
    "-iex", "set pagination off",
    "-iex", "set print thread-events off",
    "-iex", "set print inferior-events off",
    "-iex", "set style enabled off",
    "-iex", "set width 0",
    "-iex", "set startup-with-shell on",
    "-iex", "set disable-randomization on",
]  # fmt: skip
# How long gdb may take for what does not depend on the program under test.
PATIENCE_SECONDS = 30.0


class GdbFailure(Exception):
    """gdb answered with an error, or not at all."""


def find_gdb() -> str:
    """The gdb to use; a Refusal names what to install."""
    path = shutil.which("gdb")
    if path is None:
        raise Refusal(f"gdb was not found: {INSTALL}.")
    try:
        text = subprocess.run([path, "-nx", "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Refusal(f"gdb does not start ({error}): {INSTALL}.") from None
    version = re.search(r"(\d+)\.\d+\S*\s*$", text.partition("\n")[0])
    if version is None or int(version[1]) < OLDEST:
        raise Refusal(f"{text.partition(chr(10))[0] or 'this gdb'} is too old: {INSTALL}.")
    return path


class Gdb:
    """Use as a context manager: leaving it ends gdb, the program it runs and the directory of side files."""

    def __init__(self, program: str) -> None:
        from pygdbmi.gdbcontroller import GdbController  # takes a while: only where it is needed

        gdb = find_gdb()
        self.program = program
        self.directory = Path(tempfile.mkdtemp(prefix="causechain-"))
        agent = str(Path(__file__).with_name("agent.py"))
        self._tokens = itertools.count(1)
        # A session of its own, so that Ctrl-C reaches pytest alone.
        command = ["setsid", gdb, *START, "-x", agent, "--", program]
        self._controller = GdbController(command)
        try:
            self.command("-causechain-sync")
        except GdbFailure as failure:
            self.close()
            raise Refusal(f"gdb cannot be used ({failure}): {INSTALL} with Python support.") from None

    def __enter__(self) -> Gdb:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        process = self._controller.gdb_process
        if process is not None:
            # The program under test is gdb's child in a process group of its own; gdb takes it along when it
            # is asked to end, and the kernel does (PTRACE_O_EXITKILL) when gdb has to be killed.
            with contextlib.suppress(OSError, ValueError):
                self._controller.write("-gdb-exit", read_response=False)
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def command(self, text: str, timeout_seconds: float = PATIENCE_SECONDS) -> Any:
        """Send one MI command; the payload of the reply that carries its token."""
        token = next(self._tokens)
        self._send(f"{token}{text}")
        reply = self._reply(token, time.monotonic() + timeout_seconds)
        if reply is None:
            raise GdbFailure(f"no reply to {text.split()[0]}")
        if reply["message"] == "error":
            raise GdbFailure(reply["payload"].get("msg", "error"))
        return reply["payload"]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Have the agent carry out a request that runs no program."""
        return self._carry(request, time.monotonic() + PATIENCE_SECONDS, None)

    def run(self, request: dict[str, Any], pid_file: Path, timeout_seconds: float) -> dict[str, Any]:
        """Have the agent carry out a request that runs the program, which is halted when its time is over."""
        pid_file.unlink(missing_ok=True)
        return self._carry(request, time.monotonic() + timeout_seconds, pid_file)

    def _carry(self, request: dict[str, Any], deadline: float, pid_file: Path | None) -> dict[str, Any]:
        request_file, reply_file = self.directory / "request.json", self.directory / "reply.json"
        request_file.write_text(json.dumps(request))
        reply_file.unlink(missing_ok=True)
        self._send(f'{next(self._tokens)}-causechain "{request_file}" "{reply_file}"')
        token = next(self._tokens)
        self._send(f"{token}-causechain-sync")
        reply = self._reply(token, deadline)
        if reply is None and pid_file is not None:
            # Halted rather than killed: the agent then tells where it was. Killed where that does not help.
            for sign in (signal.SIGSTOP, signal.SIGKILL):
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(pid_file.read_text()), sign)
                reply = self._reply(token, time.monotonic() + 2.0)
                if reply is not None:
                    break
        if reply is None or not reply_file.exists():
            raise GdbFailure("gdb does not answer any more")
        answer: dict[str, Any] = json.loads(reply_file.read_bytes())
        if "error" in answer:
            raise GdbFailure(answer["error"])
        return answer

    def _send(self, line: str) -> None:
        try:
            self._controller.write(line, read_response=False)
        except (OSError, ValueError) as error:
            raise GdbFailure(f"gdb has ended ({error})") from None

    def _reply(self, token: int, deadline: float) -> dict[str, Any] | None:
        """pygdbmi's own waiting takes 0.2 s a command and mistakes a slow reply for the next one's."""
        io, process = self._controller.io_manager, self._controller.gdb_process
        assert process is not None
        streams = [io.stdout_fileno, io.stderr_fileno]
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(streams, [], [], min(left, 1.0))
            if not ready:
                if process.poll() is not None:
                    raise GdbFailure(f"gdb has ended with status {process.returncode}")
                continue
            for message in io.get_gdb_response(timeout_sec=0, raise_error_on_timeout=False):
                if message["type"] == "result" and message["token"] == token:
                    return dict(message)
            if process.poll() is not None:
                raise GdbFailure(f"gdb has ended with status {process.returncode}")
        return None
