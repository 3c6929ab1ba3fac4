"""The values in sight of a stopped run: its variables, their members, and what their pointers lead to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_causechain.debugger.visit import Variable
from pytest_causechain.model.alteration import Like

# More would only be more of the same kind.
ELEMENTS, LEAVES, LIKES = 8, 400, 12
# How far behind a pointer an element of its array is looked for.
REACH = 1 << 16
# From here on a name is that of the C++ library's own members, which nobody writes.
LIBRARY_MEMBER = re.compile(r"(\.|->)_M_.*")
POINTER_SIZE = 8
RECORDS = ("struct", "union")

Read = Callable[[int, int], bytes]


class Leaf(NamedTuple):
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
    def __init__(self, types: list[dict[str, Any]], read: Read) -> None:
        self._types, self._read = types, read
        self.leaves: list[Leaf] = []
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
        row = self._types[kind]
        if len(self.leaves) >= LEAVES:
            return
        if row["kind"] in RECORDS:
            self._expand_members(f"{name}.", address, row, depth)
        elif row["kind"] == "array":
            self._arrays.append(_Array(name, address, row["target"], row["count"] * self._size(row["target"])))
            for index in range(min(row["count"], ELEMENTS)):
                offset = index * self._size(row["target"])
                self._expand(f"{name}[{index}]", address + offset, row["target"], 0)
        elif row["size"]:
            self.leaves.append(Leaf(name, address, kind))
            if row["kind"] == "pointer" and depth:
                self._follow(name, address, row["target"], depth - 1)

    def _expand_members(self, prefix: str, address: int, row: dict[str, Any], depth: int) -> None:
        for name, bit, width, kind in row["fields"]:
            if width:  # a bit-field
                continue
            if not name and self._types[kind]["kind"] in RECORDS:  # a base class
                self._expand_members(prefix, address + bit // 8, self._types[kind], depth)
            else:
                self._expand(name_member(prefix, name), address + bit // 8, kind, depth)

    def _follow(self, name: str, address: int, kind: int, depth: int) -> None:
        data = self.value(address, POINTER_SIZE)
        target = int.from_bytes(data, "little") if data else 0
        if not target or self.value(target, max(1, self._size(kind))) is None:
            return
        row = self._types[kind]
        if self._size(kind):
            self._arrays.append(_Array(name, target, kind, REACH))
        if row["kind"] in RECORDS:
            self._expand_members(f"{name}->", target, row, depth)
        elif row["kind"] not in ("char", "void", "function", "other"):
            self._expand(f"*{name}", target, kind, 0)

    def _size(self, kind: int) -> int:
        return int(self._types[kind]["size"])

    def value(self, address: int, size: int) -> bytes | None:
        """None where there is no memory."""
        try:
            data = self._read(address, size)
        except (OSError, OverflowError):
            return None
        return data if len(data) == size else None

    def locate(self, address: int, size: int) -> Leaf | None:
        """What a program would call the value at an address."""
        for leaf in self.leaves:
            if leaf.address == address and self._size(leaf.type) == size:
                return leaf
        around = [a for a in self._arrays if a.address <= address < a.address + a.length]
        for array in sorted(around, key=lambda a: address - a.address):
            index, offset = divmod(address - array.address, self._size(array.element) or 1)
            found = self._descend(f"{array.name}[{index}]", array.element, offset, size)
            if found is not None:
                return Leaf(found[0], address, found[1])
        return None

    def _descend(self, name: str, kind: int, offset: int, size: int) -> tuple[str, int] | None:
        row = self._types[kind]
        if row["kind"] in RECORDS:
            for member, bit, width, inner in row["fields"]:
                if not width and 0 <= offset - bit // 8 < self._size(inner):
                    return self._descend(name_member(f"{name}.", member), inner, offset - bit // 8, size)
            return None
        if row["kind"] == "array" and self._size(row["target"]):
            index, offset = divmod(offset, self._size(row["target"]))
            return self._descend(f"{name}[{index}]", row["target"], offset, size)
        return (name, kind) if not offset and row["size"] == size else None

    def likes(self, was: bytes, kind: int | None, at: int) -> tuple[Like, ...]:
        """Other values of a type; where that is not known, integers of the same size."""
        wanted = self._family(kind) if kind is not None else ("int", len(was))
        found = dict.fromkeys(self._values(wanted, len(was), at))
        seen: dict[bytes, Like] = {}
        for like in found:
            if like.data != was:
                seen.setdefault(like.data, like)
        return tuple(seen.values())[:LIKES]

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
            if wanted == ("pointer", array.element) and array.length != REACH:
                yield Like(LIBRARY_MEMBER.sub("", array.name), array.address.to_bytes(POINTER_SIZE, "little"))

    def _family(self, kind: int) -> tuple[object, ...]:
        """What may stand for one another."""
        row = self._types[kind]
        match row["kind"]:
            case "pointer":
                return ("pointer", row["target"])
            case "enum":
                return ("enum", kind)
            case "bool" | "int":
                return ("int", row["size"])
            case other:
                return (other, row["size"])


def name_member(prefix: str, name: str) -> str:
    """Behind `object.` or `pointer->`; what a container of the C++ library keeps goes by the container's name."""
    if name and name[0] not in "*<":
        return prefix + name
    whole = prefix[:-1] if prefix.endswith(".") else f"*{prefix[:-2]}"
    return f"*{whole}" if name == "*" else f"std::get{name}({whole})" if name else whole
