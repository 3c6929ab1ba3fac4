"""A living gdb, which describes a program and looks at stopped processes of it: spoken to over GDB/MI with replies
matched by token."""

from __future__ import annotations

import contextlib
import errno
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
from typing import Any

from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.linux import die_with_parent
from pytest_causechain.kernel.processes import roam
from pytest_causechain.model.refusal import Hopeless, Refusal

INSTALL = "install gdb 12 or newer (Debian, Ubuntu: apt-get install gdb)"
OLDEST = 12  # the first with MI commands written in Python
START = [
    "-nx",  # no configuration of the user's
    "-q",
    "--interpreter=mi3",
    "-iex", "set host-charset UTF-8",  # names of files, whatever the locale
    "-iex", "set auto-load no",  # no scripts from the directory under test
    "-iex", "set debuginfod enabled off",  # no network
    # Else the C library's debug file is read again for each backtrace, where one is installed: 250 ms instead of 15.
    "-iex", "set debug-file-directory",
    "-iex", "set auto-solib-add off",  # symbols of libraries are read when a backtrace needs them
    "-iex", "set confirm off",
    "-iex", "set pagination off",
    "-iex", "set print thread-events off",
    "-iex", "set print inferior-events off",
    "-iex", "set style enabled off",
    "-iex", "set width 0",
]  # fmt: skip
# In what it says: words in quotes, and what is not a bracket.
STRING, NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"'), re.compile(r"[^][{}]+")
READ_BYTES = 1 << 16
# An answer may have that much, and more.
LEAST_BYTES_FREE = 1 << 20
# How long gdb may take for what does not depend on the program under test.
PATIENCE_SECONDS = 30.0
# To begin with: one that hangs should be told as such while there is time for it.
START_SECONDS = 10.0
END_SECONDS = 2.0


class GdbFailure(Exception):
    """gdb answered with an error, or not at all."""


class GdbLost(GdbFailure):
    """It has ended, or does not answer any more: an accident, unless it happens again."""


def unusable(why: str) -> Refusal:
    return Hopeless(f"gdb cannot be used ({why}): {INSTALL} with Python support.")


def find_gdb() -> str:
    """The gdb to use; a Refusal names what to install."""
    path = shutil.which("gdb")
    if path is None:
        raise Hopeless(f"gdb was not found: {INSTALL}.")
    return path


def require_version(path: str) -> None:
    """A Refusal when this gdb is too old. It takes as long as many experiments: to be asked of one that fails."""
    try:
        ask = [path, "-nx", "--version"]
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=START_SECONDS, env=gdb_environment())
    except (OSError, subprocess.SubprocessError) as error:
        raise does_not_start(error) from None
    name = answer.stdout.partition("\n")[0]
    version = re.search(r"(\d+)\.\d+\S*\s*$", name)
    if version is None:
        raise Hopeless(f"{path} does not tell its version: {INSTALL}.")
    if int(version[1]) < OLDEST:
        raise Hopeless(f"{name} is too old: {INSTALL}.")


def does_not_start(error: Exception) -> Refusal:
    return Hopeless(f"gdb does not start ({error}): {INSTALL}.")


def gdb_environment() -> dict[str, str]:
    """Without what is meant for the user's Python and not for gdb's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def prepare() -> None:
    """In the new process. While it is at work gdb does not hear of our end."""
    die_with_parent()
    roam()


class Gdb(Closing):
    """Use as a context manager: leaving it ends gdb and the directory of side files."""

    def __init__(self, program: str) -> None:
        gdb = find_gdb()
        self.directory = Path(tempfile.mkdtemp(prefix="causechain-"))
        self._tokens = itertools.count(1)
        # The beginning of a line that is not complete yet.
        self._begun = b""
        agent = str(Path(__file__).with_name("agent.py"))
        # The mask is inherited, and a gdb that never hears of SIGCHLD waits for ever.
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            self._process = subprocess.Popen(
                [gdb, *START, "-x", agent, "--", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=gdb_environment(),
                start_new_session=True,  # so that Ctrl-C reaches pytest alone
                preexec_fn=prepare,
            )
        except OSError as error:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise does_not_start(error) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            self.command("-causechain-sync", START_SECONDS)
        except GdbFailure as failure:
            self.close()
            require_version(gdb)
            if isinstance(failure, GdbLost):
                raise
            raise unusable(str(failure)) from None
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        with contextlib.suppress(GdbFailure):
            self._send("-gdb-exit")
        self._end()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self) -> int:
        """Its status; it is about to end by itself."""
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

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

    def ask(self, request: dict[str, Any], timeout_seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Have the agent carry out a request; what it answers."""
        deadline = time.monotonic() + timeout_seconds
        request_file, reply_file = self.directory / "request.json", self.directory / "reply.json"
        request_file.write_text(json.dumps(request))
        reply_file.unlink(missing_ok=True)
        self._send(f'{next(self._tokens)}-causechain "{request_file}" "{reply_file}"')
        token = next(self._tokens)
        self._send(f"{token}-causechain-sync")
        reply = self._reply(token, deadline)
        if reply is None or not reply_file.exists():
            raise GdbLost("it does not answer any more")
        try:
            answer: dict[str, Any] = json.loads(reply_file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            if shutil.disk_usage(self.directory).free < LEAST_BYTES_FREE:  # it could not write it all
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(reply_file)) from None
            raise GdbFailure(f"gdb's answer cannot be read ({error})") from None
        if not isinstance(answer, dict):
            raise GdbFailure("gdb's answer is none")
        if "error" in answer:
            raise GdbFailure(answer["error"])
        return answer

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            if not select.select([], [self._process.stdin], [], PATIENCE_SECONDS)[1]:
                raise GdbLost("gdb does not listen")
            self._process.stdin.write(f"{line}\n".encode())
        except (OSError, ValueError):
            raise GdbLost(f"gdb has ended with status {self._end()}") from None

    def _reply(self, token: int, deadline: float) -> dict[str, Any] | None:
        """All other lines are of no interest."""
        begin = b"%d^" % token
        while (left := deadline - time.monotonic()) > 0:
            line = next((line for line in self._read_lines(left) if line.startswith(begin)), None)
            if line is not None:
                return parse_reply(line.decode(errors="replace"))
        return None

    def _read_lines(self, timeout_seconds: float) -> list[bytes]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_seconds)[0]:
            return []
        data = os.read(self._process.stdout.fileno(), READ_BYTES)
        if not data:
            raise GdbLost(f"gdb has ended with status {self._end()}")
        *lines, self._begun = (self._begun + data).split(b"\n")
        return lines


def parse_reply(line: str) -> dict[str, Any]:
    from pygdbmi.gdbmiparser import parse_response  # takes a while: only where it is needed

    # pygdbmi never returns from a list that is not closed.
    if is_open(line):
        raise GdbFailure("gdb says what cannot be understood (it has no end)")
    try:
        reply = dict(parse_response(line))
    except Exception as error:  # of whatever kind: pygdbmi trusts in what it reads
        raise GdbFailure(f"gdb says what cannot be understood ({error!r})") from None
    if reply["type"] != "result":
        raise GdbFailure("gdb says what cannot be understood (it is no reply)")
    return reply


def is_open(line: str) -> bool:
    """Whether some bracket of it is without its counterpart."""
    brackets = NO_BRACKETS.sub("", STRING.sub("", line))
    while (shorter := brackets.replace("[]", "").replace("{}", "")) != brackets:
        brackets = shorter
    return brackets != ""
