"""A program and one way of starting it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A native executable with debug information; two files with one build id are one program."""

    path: str
    build_id: str


@dataclass(frozen=True, slots=True)
class Command:
    """How a test started its program. Text that is not UTF-8 is kept by surrogate escapes."""

    program: Program
    argv: tuple[str, ...]
    cwd: str
    # Changes against the environment pytest itself runs in (None: removed), so that what is kept on disk
    # holds nothing of the user's environment that the test did not name.
    environment: tuple[tuple[str, str | None], ...] = ()
    stdin: bytes = b""

    def full_environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        result = dict(os.environ if base is None else base)
        for name, value in self.environment:
            if value is None:
                result.pop(name, None)
            else:
                result[name] = value
        return result
