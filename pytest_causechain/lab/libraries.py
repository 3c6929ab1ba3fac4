"""Finds the shared libraries of a program that the user wants to count as its own code."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pytest_causechain.kernel.elf import MAGIC, read_sections

DEBUG_SECTIONS = {b".debug_info", b".zdebug_info"}


@dataclass(frozen=True, slots=True)
class Libraries:
    """Paths of those that can be looked into, and a sentence on each that cannot."""

    paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose_libraries(mapped: Iterable[str], program: str, patterns: Sequence[str]) -> Libraries:
    """Of all files that are mapped in a run, those that one of the patterns is meant for."""
    paths, notes = [], []
    for path in dict.fromkeys(mapped):
        if path == program or not path.startswith("/") or not any(matches(path, pattern) for pattern in patterns):
            continue
        if has_debug_information(path):
            paths.append(path)
        else:
            notes.append(
                f"{Path(path).name} is named in cause_chain_libraries but has no debug information, so it was not "
                "looked into: build it with -g (and -O0 for exact variables)."
            )
    return Libraries(tuple(paths), tuple(notes))


def matches(path: str, pattern: str) -> bool:
    """A pattern without a directory is for the file's name. The version behind a name need not be given: the file
    that is loaded for libfoo.so is mostly a libfoo.so.1.2."""
    if "/" in pattern:
        wanted = Path(pattern)
        # Links lead to the file that is loaded.
        if path in {str(found.resolve()) for found in wanted.parent.glob(wanted.name)}:
            return True
    else:
        path = Path(path).name
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")


def has_debug_information(path: str) -> bool:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content[:4] == MAGIC and any(section.name in DEBUG_SECTIONS for section in read_sections(content))
