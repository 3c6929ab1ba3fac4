"""An open file of a run, as the program itself sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class OpenFile:
    """`content` up to `position` has been read or written by the program; what stdio has only read ahead has not.

    An "input" is only read, a "scratch" file has no name by which others could find it, an "output" is one of the two
    that the run is judged by, and has a negative number. Of all "other" ones the content is not known, and `name` tells
    what they are. `pending` was written by the program and waits in a buffer of stdio, of `buffer_size` bytes;
    `is_at_end`: stdio has seen the end, and tells so until it is asked to look again."""

    number: int
    name: str
    role: Literal["input", "scratch", "output", "other"]
    content: bytes = b""
    position: int = 0
    pending: bytes = b""
    buffer_size: int = 0
    is_at_end: bool = False
    modified_ns: int = 0
