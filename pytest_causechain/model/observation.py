"""What one run of the program showed, and what that means."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from pytest_causechain.model.sendable import Sendable


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
