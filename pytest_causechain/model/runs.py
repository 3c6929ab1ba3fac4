"""A program, how a test started it, and what a run of it showed; as kept for the diagnosis and for later sessions."""

from __future__ import annotations

import enum
import hashlib
import json
import os
import signal
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_causechain.model.codec import Sendable, decode, write_json
from pytest_causechain.model.refusal import Refusal

# What is read of a file, and so what can be brought back; of larger ones size and time must tell.
MOST_BYTES = 1 << 20
# So much is kept even where the run left it as it was: later tests may not.
ALWAYS_KEPT_BYTES = 4096
# What stands for a file that is not there, and for what is none.
ABSENT, NO_FILE = "", "none"


class InputFile(NamedTuple):
    """`digest` tells whether it still is as it was; `content`, where it is known, what it was."""

    path: str
    digest: str
    content: bytes | None = None

    @property
    def can_be_restored(self) -> bool:
        return self.content is not None or self.digest == ABSENT

    def has_changed(self, place: str | None = None) -> bool:
        """Where it is to be found at another place now."""
        return read_input(place or self.path).digest != self.digest

    def keep(self) -> InputFile:
        """By its own name, and without what need not be kept, once the run is over."""
        is_kept = self.content is not None and (len(self.content) <= ALWAYS_KEPT_BYTES or self.has_changed())
        return InputFile(os.path.realpath(self.path), self.digest, self.content if is_kept else None)

    def is_as(self, content: bytes | None) -> bool:
        """Whether a run that left this behind has not changed it; None: no file."""
        return content == self.content if self.content is not None else self.digest == ABSENT and content is None

    def restore(self, root: str = "") -> None:
        """Below another root: as somebody else sees it."""
        place = Path(f"{root}{self.path}")
        if self.content is None:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(self.content)


def read_input(path: str) -> InputFile:
    try:
        # Most arguments name no file, and every start passes through here: an exception takes longer than all the rest.
        if not os.access(path, os.F_OK):
            return InputFile(path, ABSENT)
        status = os.stat(path)  # noqa: PTH116, a quarter of the time
        if not stat.S_ISREG(status.st_mode):
            return InputFile(path, NO_FILE)
        if status.st_size > MOST_BYTES:
            return InputFile(path, f"{status.st_size} {status.st_mtime_ns}")
        content = Path(path).read_bytes()
    except (OSError, ValueError):
        return InputFile(path, ABSENT)
    return InputFile(path, hashlib.blake2b(content, digest_size=16).hexdigest(), content)


@dataclass(frozen=True, slots=True)
class Program:
    """A native executable with debug information; two files with one build id are one program."""

    path: str
    build_id: str


# A named tuple, as all that is recorded of every test: made several times faster.
class Command(NamedTuple):
    """How a test started its program. Text that is not UTF-8 is kept by surrogate escapes."""

    program: Program
    argv: tuple[str, ...]
    cwd: str
    # Changes against the environment pytest itself runs in (None: removed), so that what is kept on disk
    # holds nothing of the user's environment that the test did not name.
    environment: tuple[tuple[str, str | None], ...] = ()
    stdin: bytes = b""
    # Files that its arguments name, as it found them; in a laboratory those that are to be restored for each run.
    inputs: tuple[InputFile, ...] = ()

    def require_directory(self, place: str | None = None) -> None:
        """A Refusal when the directory it was started in, to be found at `place`, does not exist any more."""
        if not Path(place or self.cwd).is_dir():
            raise Refusal(
                f"{self.cwd} is gone, in which {self.argv[0]} was started: keep it until the end of the session "
                "(with tmp_path: tmp_path_retention_policy = all)."
            )

    def full_environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        result = dict(os.environ if base is None else base)
        for name, value in self.environment:
            if value is None:
                result.pop(name, None)
            else:
                result[name] = value
        return result


class Outcome(enum.Enum):
    PASS = "pass"
    FAIL = "fail"
    UNRESOLVED = "unresolved"


Shown = tuple[str, int, bytes, bytes, tuple[tuple[str, bytes | None], ...]]


@dataclass(frozen=True, slots=True)
class Frame(Sendable):
    """One line of a backtrace; file is None for code without debug information."""

    function: str
    file: str | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Observation(Sendable):
    """How a run ended and all it wrote.

    `code` is the exit status or the signal number; a run stopped by a limit of ours has the ending "timeout".
    `backtrace` tells where it was then, innermost frame first, for "signal" and "timeout".
    `files` are those that the run wrote below its working directory and the directories named to it, by absolute path
    as the original run named them, sorted, with their content up to a bound (None: removed).
    """

    ending: Literal["exit", "signal", "timeout"]
    code: int
    stdout: bytes = b""
    stderr: bytes = b""
    backtrace: tuple[Frame, ...] = ()
    files: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def shown(self) -> Shown:
        """All that a test can see of it."""
        return self.ending, self.code, self.stdout, self.stderr, self.files

    @property
    def returncode(self) -> int:
        """The status as subprocess has it."""
        return -self.code if self.ending == "signal" else self.code

    @property
    def signal_name(self) -> str:
        """That of the signal it was killed by."""
        try:
            return signal.Signals(self.code).name
        except ValueError:  # a real-time signal
            return f"signal {self.code}"


# Of a test's last report, which carries its recording to where the reports come together.
ATTRIBUTE = "cause_chain_record"


class Run(NamedTuple):
    """One start of a program by a test; `returncode` is None where the test never asked for it.

    `fixture` names the fixture of a wider scope than the test in whose setup it was started. `ordinal` counts, from 0,
    the starts of programs that can be diagnosed: those of that fixture, else those of the test itself.
    """

    command: Command
    returncode: int | None = None
    fixture: str | None = None
    ordinal: int = 0


class Marker(NamedTuple):
    """What the controller must know of a test's marker `cause_chain`; what it says of runs is asked for where the test
    is replayed."""

    program: str | None = None
    neighbour: str | None = None
    is_parallel: bool = True
    is_skipped: bool = False


class Recording(NamedTuple):
    """The runs of one test in the order they were started.

    `refusals` holds one sentence for each start of something that cannot be diagnosed (a script, a program
    without debug information, ...).
    """

    test: str
    outcome: Literal["passed", "failed", "skipped"]
    runs: tuple[Run, ...] = ()
    refusals: tuple[str, ...] = ()
    marker: Marker = Marker()


def pack(recording: Recording) -> str:
    """For the way from another process: as text, which anything can carry."""
    return write_json(recording)


def unpack(text: str) -> Recording:
    recording: Recording = decode(Recording, json.loads(text))
    return recording
