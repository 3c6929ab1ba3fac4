"""Turns what two runs have not read yet of an input into edits, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_causechain.model.sequences import find_edits
from pytest_causechain.states.literals import show_text
from pytest_causechain.states.wording import Wording

ABSENT = ""
# Only what C's input functions take for the end of a line.
LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of the passing run's unread input and the failing run's lines in their place."""

    passing: tuple[bytes, ...]
    failing: tuple[bytes, ...]
    differs: bool


def input_edits(passing: bytes, failing: bytes) -> tuple[Edit, ...]:
    """Each line that differs is an edit by itself, so that it can be a cause of its own."""
    ours, theirs = LINE.findall(passing), LINE.findall(failing)
    edits: list[Edit] = []
    here = there = 0
    for i1, i2, j1, j2 in (*find_edits(ours, theirs), (len(ours), len(ours), len(theirs), len(theirs))):
        if here < i1:
            edits.append(Edit(tuple(ours[here:i1]), tuple(theirs[there:j1]), False))
        if i1 < i2 or j1 < j2:
            edits.append(Edit(tuple(ours[i1:i2]), tuple(theirs[j1:j2]), True))
        here, there = i2, j2
    return tuple(edits)


def join_lines(parts: Sequence[Sequence[bytes]]) -> bytes:
    """The last line of an input may lack its end; where others follow it, it gets one."""
    lines = [line for part in parts for line in part]
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]) + b"".join(lines[-1:])


def word_edits(edits: tuple[Edit, ...], lines_read: int, source: str = "stdin") -> Iterator[tuple[int, Wording]]:
    """Number and wording of each edit that makes a difference."""
    line = lines_read + 1
    hunk = 0
    for number, edit in enumerate(edits):
        if not edit.differs:
            hunk = number
        else:
            name = f"lines {line}-{line + len(edit.failing) - 1}" if len(edit.failing) > 1 else f"line {line}"
            yield (
                number,
                Wording(
                    key=source,  # which of its lines decides may change as it is read; it is one input
                    name=f"{source} {name}",
                    type="input",
                    passing=show_lines(edit.passing),
                    failing=show_lines(edit.failing),
                    # Lines that follow one another belong together.
                    group=("input", source, f"hunk {hunk}", name),
                ),
            )
        line += len(edit.failing)


def show_lines(lines: tuple[bytes, ...]) -> str:
    return show_text(b"".join(lines).rstrip(b"\n").replace(b"\0", b"\\0")) if lines else ABSENT
