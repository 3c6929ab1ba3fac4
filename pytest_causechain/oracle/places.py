"""Finds where a replayed test has the files that an observed run wrote: its temporary directories have other names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_causechain.model.runs import Command

_PATH = re.compile(r"(?:^|[=:,])(/[^=:,]+)")

Files = tuple[tuple[str, bytes | None], ...]


def relocate_files(files: Files, origins: Sequence[Command], argv: Sequence[str], cwd: str) -> Files:
    """The files by the paths at which a start with these arguments in this directory would have written them.

    `origins` are the commands whose run may have written them, the likeliest first."""
    if not files:
        return ()
    moves: dict[str, str] = {}
    for origin in origins:
        for before, now in _find_moves(origin, argv, cwd):
            moves.setdefault(before, now)
    return tuple((_relocate(path, moves), content) for path, content in files)


def _find_moves(origin: Command, argv: Sequence[str], cwd: str) -> Iterator[tuple[str, str]]:
    """Directories and files then and now: the working directory, and paths among the arguments, in order."""
    yield origin.cwd, cwd
    pairs = list(zip(_list_paths(origin.argv), _list_paths(argv), strict=False))
    for before, now in pairs:
        yield before, now
    # Of files with other names, the directories are told by what the paths end in.
    for before, now in pairs:
        ours, theirs = before.split("/"), now.split("/")
        while len(ours) > 1 < len(theirs) and (ours[-1] == theirs[-1] or len(ours) == before.count("/") + 1):
            ours.pop()
            theirs.pop()
        yield "/".join(ours), "/".join(theirs)


def _list_paths(argv: Sequence[str]) -> list[str]:
    """The absolute ones, as in --file=/tmp/a/in; the program itself is none of them."""
    return [path for argument in argv[1:] for path in _PATH.findall(argument)]


def _relocate(path: str, moves: dict[str, str]) -> str:
    """By the longest directory that it is in."""
    for parent in (Path(path), *Path(path).parents):
        if (moved := moves.get(str(parent))) is not None:
            return str(Path(moved, Path(path).relative_to(parent)))
    return path
