"""One thing done otherwise in a run: a branch, a stored, passed or returned value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_causechain.model.moment import Stop
from pytest_causechain.model.sendable import Sendable

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
