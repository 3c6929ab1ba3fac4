"""What programs built with a sanitizer need in order to run under experiments."""

from __future__ import annotations

import functools
import mmap
from pathlib import Path

from pytest_causechain.model.runs import Program

_OPTIONS = "ASAN_OPTIONS"
_LEAKS = "detect_leaks"


def settle_options(program: Program, environment: dict[str, str]) -> dict[str, str]:
    """The environment for experiments: the search for leaks refuses to work where ptrace does, and ends the program.

    Only what the test has not decided itself."""
    given = environment.get(_OPTIONS, "")
    if _LEAKS in given or not _has_address_sanitizer(program):
        return environment
    return {**environment, _OPTIONS: ":".join(filter(None, (given, f"{_LEAKS}=0")))}


@functools.lru_cache(maxsize=1000)
def _has_address_sanitizer(program: Program) -> bool:
    try:
        with Path(program.path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b"__asan_init") != -1
    except (OSError, ValueError):
        return False
