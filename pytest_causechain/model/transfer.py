"""What is written into a stopped run to apply a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_causechain.model.open_file import OpenFile
from pytest_causechain.model.sendable import Sendable


@dataclass(frozen=True, slots=True)
class Allocation:
    """New memory, by the program's own malloc, with these first contents."""

    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Reference:
    """A pointer into an allocation, to be written at an address (holder None) or into another allocation."""

    holder: int | None
    at: int
    block: int
    offset: int


@dataclass(frozen=True, slots=True)
class Transfer(Sendable):
    """`files` are what the descriptors of these numbers are to become, `directory` and `umask` those of the process."""

    writes: tuple[tuple[int, bytes], ...] = ()
    allocations: tuple[Allocation, ...] = ()
    references: tuple[Reference, ...] = ()
    files: tuple[OpenFile, ...] = ()
    directory: str | None = None
    umask: int | None = None


NOTHING = Transfer()
