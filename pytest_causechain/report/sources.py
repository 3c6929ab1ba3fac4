"""The program's source files: the lines around a place, and which suspect is worth a look."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.chain import Chain, Suspect

ReadSource = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a source file, with their numbers; `focus` is the number of the one that matters."""

    lines: tuple[tuple[int, str], ...]
    focus: int


def read_lines(file: str) -> Sequence[str]:
    """The lines of a source file; OSError when it is not there (any more)."""
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(file)
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")


def read_excerpt(file: str, line: int, read_source: ReadSource, around: int = 1) -> Excerpt | None:
    """The line between its neighbours; None when the source cannot be read or has no such line (any more)."""
    source = _read(file, read_source)
    if not _has_line(source, line):
        return None
    first, last = max(line - around, 1), min(line + around, len(source))
    while first < line and not source[first - 1].strip():
        first += 1
    while last > line and not source[last - 1].strip():
        last -= 1
    return Excerpt(tuple((number, source[number - 1].rstrip()) for number in range(first, last + 1)), line)


def read_line(file: str, line: int, read_source: ReadSource) -> str:
    """One line; empty when it cannot be read."""
    source = _read(file, read_source)
    return source[line - 1] if _has_line(source, line) else ""


def choose_suspect(chain: Chain, read_source: ReadSource, root: Path | None = None) -> Suspect | None:
    """The first suspect with something to read on its line: a closing brace only tells that a block ends."""
    ranked = sorted(chain.suspects, key=lambda one: one.rank)
    for suspect in ranked:
        text = read_line(locate_file(suspect.file, root), suspect.line, read_source)
        if not text.strip() or re.search(r"\w", text):
            return suspect
    return ranked[0] if ranked else None


def locate_file(file: str, root: Path | None) -> str:
    """Debug information may have a path from the directory the program was built in."""
    return file if root is None else str(root / file)


def show_path(path: str | Path, root: Path | None) -> str:
    """As seen from `root` where it lies below."""
    path = Path(path)
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)


def _read(file: str, read_source: ReadSource) -> Sequence[str]:
    try:
        return read_source(file)
    except (OSError, ValueError):
        return ()


def _has_line(source: Sequence[str], line: int) -> bool:
    return 1 <= line <= len(source) and bool(source[line - 1].strip())
