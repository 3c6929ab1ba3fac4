"""Places in a program; apart from the chain, as an engine need not know of chains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """One stop on the way to a moment of the passing run: the visit-th execution of function + offset, which may lie
    in a shared library."""

    function: str
    file: str
    offset: int
    visit: int
    library: str | None = None
