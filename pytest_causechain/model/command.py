"""A program and one way of starting it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_causechain.model.input_file import InputFile
from pytest_causechain.model.refusal import Refusal


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
