"""Diagnoses that are disturbed, and a count of what came of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from building import compile_program

# A program that writes a file, starts a child and takes a little time, so that there is something to leave behind.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int total;

static void add(int number) { total += number; }

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        add(atoi(argv[i]));
    FILE *file = fopen("ledger", "a");
    if (file != NULL) {
        fprintf(file, "%d\n", total);
        fclose(file);
    }
    if (fork() == 0)
        _exit(0);
    wait(NULL);
    usleep(2000);
    printf("%d\n", total);
    return total > 4;
}
"""
TESTS = """
import subprocess
import pytest

@pytest.mark.parametrize("numbers", [(1, 2), (1, 1, 2), (3, 4)], ids=str)
def test_sum(numbers):
    run = subprocess.run(["./adder", *map(str, numbers)], capture_output=True, text=True)
    assert run.returncode == 0
"""
# Other plugins take longer to load than all the rest.
INI = "[pytest]\naddopts = " + " ".join(
    f"-p no:{name}"
    for name in ("hypothesispytest", "html", "metadata", "allure_pytest", "reportlog", "pytest_cov", "rerunfailures")
)
RESULTS = "1 failed, 2 passed"
# Nothing waits that long unless it is broken.
PATIENCE_SECONDS = 180.0
# A named variable tells all processes that a session has started, whoever their parent is now.
TOKEN = "CAUSECHAIN_FAULTS"


@dataclass
class Tally:
    """What must stay zero comes last."""

    faults: int = 0
    sessions: int = 0
    proper: int = 0
    processes_left: int = 0
    directories_left: int = 0
    files_changed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.faults} faults in {self.sessions} sessions, {self.proper} of which ended properly; left behind: "
            f"{self.processes_left} processes, {self.directories_left} directories; files of the user changed: "
            f"{self.files_changed}"
        )


@dataclass
class Suite:
    """A directory with a program and its tests, and one for temporary files that nobody else uses."""

    directory: Path
    temporary: Path
    tally: Tally = field(default_factory=Tally)
    changed: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, parent: Path) -> Suite:
        directory, temporary = parent / "suite", parent / "temporary"
        directory.mkdir()
        temporary.mkdir()
        compile_program(directory / "adder", PROGRAM)
        (directory / "test_adder.py").write_text(TESTS)
        (directory / "pytest.ini").write_text(INI)
        return cls(directory, temporary)

    @contextlib.contextmanager
    def session(self, *arguments: str, prefix: Sequence[str] = ()) -> Iterator[Disturbed]:
        """A session of pytest that diagnoses; what it has left is counted behind it."""
        token = uuid.uuid4().hex
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {TOKEN: token, "TMPDIR": str(self.temporary), "COLUMNS": "80"}
        command = [*prefix, sys.executable, "-m", "pytest", "--cause-chain", "-p", "no:cacheprovider", *arguments]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, cwd=self.directory, env=environment, start_new_session=True, **pipes)
        disturbed = Disturbed(process, token)
        try:
            # The tests' own runs write to the ledger; from here on nobody may.
            disturbed.read_until(b"cause-chain: test_adder.py")
            before = self.checksum()
            yield disturbed
            disturbed.read_until(None)
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        self.tally.sessions += 1
        self.tally.faults += disturbed.faults
        self.tally.proper += process.returncode == 1 and RESULTS in disturbed.output and not disturbed.is_shattered
        self.tally.processes_left += len(await_end(token))
        self.tally.directories_left += len(self.leftovers())
        after = self.checksum()
        self.changed += [name for name in before | after if before.get(name) != after.get(name)]
        self.tally.files_changed += after != before

    def leftovers(self) -> list[str]:
        return [path.name for path in self.temporary.glob("causechain-*")]

    def checksum(self) -> dict[str, str]:
        """Of all that is the user's."""
        ours = {".causechain", "__pycache__", ".pytest_cache"}
        return {
            str(path.relative_to(self.directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.directory.rglob("*")
            if path.is_file() and not ours & set(path.relative_to(self.directory).parts)
        }


def assert_nothing_left(suite: Suite) -> None:
    tally = suite.tally
    assert (tally.processes_left, tally.directories_left, tally.files_changed) == (0, 0, 0), f"{tally} {suite.changed}"


@dataclass
class Disturbed:
    """A session on its way."""

    process: subprocess.Popen[bytes]
    token: str
    faults: int = 0
    written: bytes = b""

    @property
    def output(self) -> str:
        return self.written.decode(errors="replace")

    @property
    def is_shattered(self) -> bool:
        return "INTERNALERROR" in self.output or "Traceback" in self.output

    def read_until(self, text: bytes | None) -> None:
        assert self.process.stdout is not None
        while text is None or text not in self.written:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                break
            self.written += data

    def signal(self, sign: int) -> None:
        self.faults += 1
        self.process.send_signal(sign)

    def kill_all(self) -> list[str]:
        """All processes that the session has started; their command lines."""
        mine = {pid: read_command(pid) for pid in find_processes(self.token) if pid != self.process.pid}
        for pid in mine:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.faults += 1
        return list(mine.values())

    def kill_any(self, chance: random.Random, which: Callable[[str], bool] = lambda command: True) -> str | None:
        """One of the processes that the session has started, if there is one; its command line."""
        mine = [pid for pid in find_processes(self.token) if pid != self.process.pid and which(read_command(pid))]
        if not mine:
            return None
        pid = chance.choice(mine)
        command = read_command(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.faults += 1
            return command
        return None


def find_processes(token: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # not ours, or gone
            if f"{TOKEN}={token}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def read_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def await_end(token: str) -> list[int]:
    """Those just killed get a moment to vanish."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := find_processes(token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
