"""The values in sight of a stopped run: its variables, their members, and what their pointers lead to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pytest_causechain.debugger.types import (
    ArrayType,
    BoolType,
    CharType,
    EnumType,
    FunctionType,
    IntType,
    OtherType,
    PointerType,
    RecordType,
    StructType,
    TypeTable,
    UnionType,
    VoidType,
)
from pytest_causechain.debugger.visit import Variable
from pytest_causechain.model.alteration import Like

# More would only be more of the same kind.
ELEMENTS, LEAVES, LIKES = 8, 400, 12
# How far behind a pointer an element of its array is looked for.
REACH = 1 << 16
# From here on a name is that of the C++ library's own members, which nobody writes.
LIBRARY_MEMBER = re.compile(r"(\.|->)_M_.*")
POINTER_SIZE = 8

Read = Callable[[int, int], bytes]


class ScopedValue(NamedTuple):
    """A scalar or pointer that has a name; not `is_set` before its variable is initialised."""

    name: str
    address: int
    type: int
    is_set: bool = True


@dataclass(frozen=True, slots=True)
class _Array:
    """Elements of one type from an address on; of those behind a pointer nobody knows how many."""

    name: str
    address: int
    element: int
    length: int


class Scope:
    def __init__(self, types: TypeTable, read: Read) -> None:
        self._types, self._read = types, read
        self.leaves: list[ScopedValue] = []
        self._arrays: list[_Array] = []

    def add(self, variables: Iterable[Variable]) -> None:
        for variable in variables:
            depth = 0 if variable.pending else 1
            first = len(self.leaves)
            self._expand(variable.name, variable.address, variable.type, depth)
            if variable.pending:
                self.leaves[first:] = [leaf._replace(is_set=False) for leaf in self.leaves[first:]]

    def add_global(self, name: str, address: int, kind: int) -> None:
        self._expand(name, address, kind, 1)

    def _expand(self, name: str, address: int, kind: int, depth: int) -> None:
        if len(self.leaves) >= LEAVES:
            return
        match self._types[kind]:
            case StructType() | UnionType() as record:
                self._expand_members(f"{name}.", address, record, depth)
            case ArrayType(target=target, count=count):
                width = self._size(target)
                self._arrays.append(_Array(name, address, target, count * width))
                for index in range(min(count, ELEMENTS)):
                    self._expand(f"{name}[{index}]", address + index * width, target, 0)
            case value if value.size:
                self.leaves.append(ScopedValue(name, address, kind))
                if isinstance(value, PointerType) and depth:
                    self._follow(name, address, value.target, depth - 1)

    def _expand_members(self, prefix: str, address: int, record: RecordType, depth: int) -> None:
        for member in record.members:
            if member.width:  # a bit-field
                continue
            inner, place = self._types[member.type], address + member.offset
            if not member.name and isinstance(inner, RecordType):  # a base class
                self._expand_members(prefix, place, inner, depth)
            else:
                self._expand(name_member(prefix, member.name), place, member.type, depth)

    def _follow(self, name: str, address: int, kind: int, depth: int) -> None:
        data = self.value(address, POINTER_SIZE)
        target = int.from_bytes(data, "little") if data else 0
        if not target or self.value(target, max(1, self._size(kind))) is None:
            return
        if self._size(kind):
            self._arrays.append(_Array(name, target, kind, REACH))
        match self._types[kind]:
            case StructType() | UnionType() as record:
                self._expand_members(f"{name}->", target, record, depth)
            case CharType() | VoidType() | FunctionType() | OtherType():
                pass
            case _:
                self._expand(f"*{name}", target, kind, 0)

    def _size(self, kind: int) -> int:
        return self._types[kind].size

    def value(self, address: int, size: int) -> bytes | None:
        """None where there is no memory."""
        try:
            data = self._read(address, size)
        except (OSError, OverflowError):
            return None
        return data if len(data) == size else None

    def locate(self, address: int, size: int) -> ScopedValue | None:
        """What a program would call the value at an address."""
        for leaf in self.leaves:
            if leaf.address == address and self._size(leaf.type) == size:
                return leaf
        around = [a for a in self._arrays if a.address <= address < a.address + a.length]
        for array in sorted(around, key=lambda a: address - a.address):
            index, offset = divmod(address - array.address, self._size(array.element) or 1)
            found = self._descend(f"{array.name}[{index}]", array.element, offset, size)
            if found is not None:
                return ScopedValue(found[0], address, found[1])
        return None

    def _descend(self, name: str, kind: int, offset: int, size: int) -> tuple[str, int] | None:
        match self._types[kind]:
            case StructType(members=members) | UnionType(members=members):
                for member in members:
                    if not member.width and member.holds(offset, self._size(member.type)):
                        inner = name_member(f"{name}.", member.name)
                        return self._descend(inner, member.type, offset - member.offset, size)
                return None
            case ArrayType(target=target) if self._size(target):
                index, offset = divmod(offset, self._size(target))
                return self._descend(f"{name}[{index}]", target, offset, size)
            case value:
                return (name, kind) if not offset and value.size == size else None

    def likes(self, was: bytes, kind: int | None, at: int) -> tuple[Like, ...]:
        """Other values of a type; where that is not known, integers of the same size."""
        wanted = self._family(kind) if kind is not None else (IntType, len(was))
        found: dict[bytes, Like] = {}
        for like in self._values(wanted, len(was), at):
            if like.data != was:
                found.setdefault(like.data, like)
        return tuple(found.values())[:LIKES]

    def _values(self, wanted: tuple[object, ...], size: int, at: int) -> Iterator[Like]:
        for leaf in self.leaves:
            if (
                leaf.is_set
                and leaf.address != at
                and self._size(leaf.type) == size
                and self._family(leaf.type) == wanted
            ):
                data = self.value(leaf.address, size)
                if data is not None:
                    yield Like(LIBRARY_MEMBER.sub("", leaf.name), data)
        for array in self._arrays:
            if wanted == (PointerType, array.element) and array.length != REACH:
                yield Like(LIBRARY_MEMBER.sub("", array.name), array.address.to_bytes(POINTER_SIZE, "little"))

    def _family(self, kind: int) -> tuple[object, ...]:
        """What may stand for one another."""
        match self._types[kind]:
            case PointerType(target=target):
                return (PointerType, target)
            case EnumType():
                return (EnumType, kind)
            case BoolType(size=size) | IntType(size=size):
                return (IntType, size)
            case other:
                return (type(other), other.size)


def name_member(prefix: str, name: str) -> str:
    """Behind `object.` or `pointer->`; what a container of the C++ library keeps goes by the container's name."""
    if name and name[0] not in "*<":
        return prefix + name
    whole = prefix[:-1] if prefix.endswith(".") else f"*{prefix[:-2]}"
    return f"*{whole}" if name == "*" else f"std::get{name}({whole})" if name else whole
