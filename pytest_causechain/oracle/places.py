"""Finds where a replayed test has the files that the original run wrote: its temporary directories have other names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_causechain.model.command import Command

_PATH = re.compile(r"(?:^|[=:,])(/.*)")

Files = tuple[tuple[str, bytes | None], ...]


def relocate_files(files: Files, original: Command, argv: Sequence[str], cwd: str) -> Files:
    """The files by the paths at which a start with these arguments in this directory would have written them."""
    if not files:
        return ()
    moves = dict(_find_moves(original, argv, cwd))
    return tuple((_relocate(path, moves), content) for path, content in files)


def _find_moves(original: Command, argv: Sequence[str], cwd: str) -> Iterator[tuple[str, str]]:
    """Directories then and now: the working directory, and what differs within arguments."""
    yield original.cwd, cwd
    for before, now in zip(original.argv, argv, strict=False):
        if before != now and (move := _compare_paths(before, now)) is not None:
            yield move


def _compare_paths(before: str, now: str) -> tuple[str, str] | None:
    """The absolute paths in two arguments, as in --file=/tmp/a/in, without the end they have in common."""
    found = _PATH.search(before), _PATH.search(now)
    if found[0] is None or found[1] is None:
        return None
    ours, theirs = (match[1].split("/") for match in found if match)
    while ours and theirs and ours[-1] == theirs[-1]:
        ours.pop()
        theirs.pop()
    return "/".join(ours), "/".join(theirs)


def _relocate(path: str, moves: dict[str, str]) -> str:
    """By the longest directory that it is in."""
    for parent in (Path(path), *Path(path).parents):
        if (moved := moves.get(str(parent))) is not None:
            return str(Path(moved, Path(path).relative_to(parent)))
    return path
