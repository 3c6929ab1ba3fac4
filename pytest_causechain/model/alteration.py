"""What is done otherwise in a run: one intervention, other code, or the transfer of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_causechain.model.codec import Sendable
from pytest_causechain.model.moment import Stop

Kind = Literal["branch", "value", "argument", "return"]
Part = Literal["program", "heap", "stack", "library"]
# The two ways that a branch can be made to take, whichever it would take: on, or to its target.
AHEAD, ASIDE = b"\0", b"\1"
# Values seen at an address, by register ("" for memory).
SeenValues = dict[tuple[int, str], tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class Spot(Sendable):
    """An execution of an instruction: the last of the stops is before it. `register` holds what is passed or
    returned; `size` counts the bytes of a value, 0 where only the value can tell; `type` is a row of the program's
    table, where it is known."""

    kind: Kind
    stops: tuple[Stop, ...]
    register: str = ""
    size: int = 0
    type: int | None = None


@dataclass(frozen=True, slots=True)
class Anchor:
    """An address that holds for all runs: counted from where a part of the process begins."""

    part: Part
    offset: int


@dataclass(frozen=True, slots=True)
class Intervention(Sendable):
    """At the spot the other branch is taken (with `data`, the one that it names), or `data` put in the place of the
    value; where that is an address, the `anchor` tells it for runs that lie elsewhere in memory. With a `shift` the
    value there is so much more or less."""

    spot: Spot
    data: bytes = b""
    anchor: Anchor | None = None
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Patch:
    """Other code for an instruction, throughout the run, in the place of what it `was`."""

    address: int
    code: bytes
    was: bytes


@dataclass(frozen=True, slots=True)
class Like:
    """Another value of the same type that was in scope."""

    name: str
    data: bytes
    anchor: Anchor | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """The value at a spot, with the variable it is stored to and its type (a row of the program's table) where these
    are known."""

    was: bytes
    variable: str | None = None
    type: int | None = None
    likes: tuple[Like, ...] = ()


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
