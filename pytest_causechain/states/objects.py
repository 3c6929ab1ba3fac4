"""What a memory graph is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_causechain.states.shapes import Shape, Span

Kind = Literal["variable", "heap", "vector", "text", "alloca"]
# The module of a target in the program itself.
IMAGE = "image"


class Object:
    """A variable, a block of the heap or of alloca, or a vector or text the system put above the first frame.

    It is what is paired, moved and made as one. What lies in it, its `shape` tells; `parts` are offset and type of
    each object in it that something refers to, in order, where that is not just one at its start. `kept` is the part
    of a block given back to the allocator that still holds what the program left there, from and up to an offset."""

    __slots__ = ("address", "kept", "kind", "parts", "shape", "size")
    is_unset = False

    # There may be a million of them: a dataclass would take twice as long to make.
    def __init__(self, kind: Kind, address: int, size: int, shape: Shape, kept: Span | None = None) -> None:
        self.kind = kind
        self.address = address
        self.size = size
        self.shape = shape
        self.kept = kept
        self.parts: list[tuple[int, int]] | None = None

    @property
    def type(self) -> int:
        """Of its elements; BYTE when it holds several types, or one of which nothing is known."""
        return self.shape.type

    @property
    def count(self) -> int:
        return self.shape.runs[0].count if self.shape.runs else 0

    def holds(self, offset: int, size: int) -> bool:
        """Whether the program, not the allocator, put these bytes there."""
        return self.kept is None or self.shape.holds(offset, size)


class Variable(Object):
    """`name` is as a programmer writes it at this moment, `key` stays while functions are called and return, `frame`
    is counted from the innermost (None: global). `is_unset`: its line has not been executed yet."""

    __slots__ = ("frame", "is_unset", "key", "name")

    def __init__(
        self,
        address: int,
        shape: Shape,
        name: str,
        key: str,
        frame: int | None = None,
        is_unset: bool = False,
    ) -> None:
        super().__init__("variable", address, shape.size, shape)
        self.name, self.key, self.frame, self.is_unset = name, key, frame, is_unset


@dataclass(frozen=True, slots=True)
class Target:
    """What a pointer leads to: a place in an object or in a module, or just a number."""

    object: Object | None
    offset: int
    module: str | None = None


@dataclass(frozen=True, slots=True)
class Pointer:
    """`path` is what stands behind the name of the run at `base`; `type` is the one pointed to."""

    offset: int
    type: int
    path: str
    value: int
    base: int = 0
