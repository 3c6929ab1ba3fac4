"""What the type table of the debugger says about bytes: which values lie where, and which of them are pointers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, reduce
from operator import or_
from typing import Any, Literal

POINTER_SIZE = 8
# The processor's own format: 80 bits, in 16 bytes of memory. Sign and exponent, 64 bits of the number.
EXTENDED, EXTENDED_SIZE = struct.Struct("<QH"), 16
# Their contents mean nothing outside the run they come from: locks, descriptors, saved registers.
OPAQUE = {"_IO_FILE", "FILE", "__jmp_buf_tag", "jmp_buf", "pthread_mutex_t", "pthread_cond_t", "DIR", "__dirstream"}
# The types of memory of which nothing else is known. Not in the table, whose numbers are the debugger's.
BYTE, INTEGER = -1, -2
OWN_ROWS: dict[int, dict[str, Any]] = {
    BYTE: {"name": "char", "size": 1, "kind": "char", "signed": True},
    INTEGER: {"name": "int", "size": 4, "kind": "int", "signed": True},
}
# How the compiler names an object's pointer to the table of its class.
VTABLE = "_vptr"
# The leaves of a large array would take more memory than time is saved.
REMEMBERED_SIZE = 4096
Bytes = bytes | memoryview


class Rank(IntEnum):
    """How much the type of a pointer says of what it leads to. Those that say more are followed first."""

    RECORD = 0
    SCALAR = 1
    VAGUE = 2
    CLOSED = 3  # never followed


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value inside an object that is compared and written as one: a scalar, a pointer, a text, raw bytes.

    `path` is what a C programmer writes behind the object's name (".next", "[3].x"). `bits` are first bit and
    width of a bit-field within its bytes. A text that is no array in the program has the type of its characters."""

    path: str
    offset: int
    size: int
    type: int
    bits: tuple[int, int] | None = None

    def within(self, path: str, offset: int) -> Leaf:
        """The same leaf of a part that lies in something larger."""
        return Leaf(path + self.path, offset + self.offset, self.size, self.type, self.bits)


@dataclass(frozen=True, slots=True)
class Flexible:
    """The array without a length of its own at the end of a struct: it fills the rest of the struct's block."""

    path: str
    offset: int
    element: int


class Layouts:
    """Reads the type table; rows may be appended to it while this is in use."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        # Those worked out so far, by whatever tells them apart.
        self.shapes: dict[tuple[object, ...], Any] = {}
        self.first_shapes: dict[tuple[Any, ...], Any] = {}
        self.pointers = cache(self._pointers_of)
        self.pointer_paths = cache(lambda number: {at: (kind, path) for at, kind, path in self.pointers(number)})
        self.guesses = cache(self._guesses_of)
        self.holds_pointer = cache(self._holds_pointer)
        self.holds_integer = cache(self._holds_integer)
        self.is_opaque = cache(self._is_opaque)
        self.is_linked = cache(self._is_linked)
        self.tag = cache(self._find_tag)
        self.weight = cache(self._weigh)
        self.rank = cache(self._rank)
        self.inside = cache(self._find_inside)
        self.gaps = cache(self._gaps_of)
        self.is_dynamic = cache(self._is_dynamic)
        self.conditions = cache(lambda number: tuple(self._find_conditions(number)))
        self.containers = cache(lambda number: tuple(self._walk_containers(number, 0)))
        self._small_leaves = cache(lambda number: tuple(self._walk(number, "", 0)))

    def row(self, number: int) -> dict[str, Any]:
        return self.rows[number] if number >= 0 else OWN_ROWS[number]

    def kind(self, number: int) -> str:
        return str(self.row(number)["kind"])

    def size(self, number: int) -> int:
        return int(self.row(number)["size"])

    def name(self, number: int) -> str:
        return str(self.row(number)["name"])

    def target(self, number: int) -> int:
        return int(self.row(number)["target"])

    def _is_opaque(self, number: int) -> bool:
        words = [word for word in self.name(number).split() if word not in ("const", "volatile", "struct", "union")]
        return len(words) == 1 and words[0] in OPAQUE

    def is_reference(self, number: int) -> bool:
        """A reference of C++: the debugger tells where what it refers to lies, not where it does itself."""
        return self.kind(number) == "pointer" and self.name(number).endswith("&")

    def is_address_sized(self, leaf: Leaf) -> bool:
        """Of a number: `uintptr_t` and the like may hold what a pointer does."""
        return leaf.size == POINTER_SIZE and leaf.bits is None and self.kind(leaf.type) == "int"

    def _holds_integer(self, number: int) -> bool:
        """Whether some part of a type is such a number."""
        row = self.row(number)
        if row["kind"] == "struct":
            return any(self.holds_integer(field[3]) for field in row["fields"] if not field[2])
        if row["kind"] == "array":
            return self.holds_integer(row["target"])
        return bool(row["kind"] == "int" and row["size"] == POINTER_SIZE)

    def _is_linked(self, number: int) -> bool:
        """Whether pointers lead from a type to itself again, as in the links of lists and trees."""
        pending, seen = [number], set[int]()
        while pending:
            targets = {kind for _, kind, _ in self.pointers(pending.pop())}
            if number in targets:
                return True
            pending += targets - seen
            seen |= targets
        return False

    def _find_tag(self, number: int) -> Leaf | None:
        """The enumeration at the beginning of a struct that tells what the union in it holds."""
        row = self.row(number)
        fields = row["fields"] if row["kind"] == "struct" else []
        if not any(self._holds_union(field[3]) for field in fields):
            return None
        first: Leaf | None = next(iter(self.leaves(number)), None)
        return first if first is not None and not first.offset and self.kind(first.type) == "enum" else None

    def _holds_union(self, number: int) -> bool:
        return self.kind(number) == "union" or (self.kind(number) == "array" and self._holds_union(self.target(number)))

    def is_text(self, number: int) -> bool:
        """An array of characters is one value."""
        return self.kind(number) == "array" and self.kind(self.target(number)) == "char"

    def is_text_leaf(self, leaf: Leaf) -> bool:
        return self.is_text(leaf.type) or (self.kind(leaf.type) == "char" and leaf.size > 1)

    def end(self, number: int) -> int:
        """Of the last value, without the padding behind it."""
        leaves = self.leaves(number) if self.kind(number) == "struct" else ()
        return max((leaf.offset + leaf.size for leaf in leaves), default=self.size(number))

    def ends_in_text(self, number: int, offset: int) -> bool:
        """Whether from this offset on there are only characters."""
        leaf = next((leaf for leaf in self.leaves(number) if leaf.offset + leaf.size > offset), None)
        return leaf is not None and all(other.offset <= leaf.offset for other in self.leaves(number))

    def is_possible(self, number: int, value: int) -> bool:
        """Whether a variable of an enumeration can have this value, given without its sign; flags may be combined."""
        row = self.row(number)
        mask = (1 << 8 * row["size"]) - 1
        values = [named & mask for named in row["values"].values()]
        return value in values or value <= reduce(or_, values, 0)

    def _gaps_of(self, number: int) -> list[int]:
        """The offsets of bytes between members."""
        members = set[int]()
        for leaf in self.leaves(number):
            members.update(range(leaf.offset, leaf.offset + leaf.size))
        return [at for at in range(self.size(number)) if at not in members]

    def has_gaps(self, number: int) -> bool:
        """Of a large type nobody asks: it would take long to tell."""
        return self.size(number) <= REMEMBERED_SIZE and bool(self.gaps(number))

    def flexible(self, number: int) -> Flexible | None:
        """By C's own notation `[]`, by `[0]`, or as it was written before these: `[1]`."""
        row = self.row(number)
        if row["kind"] != "struct" or not row["fields"]:
            return None
        name, bit, _, kind = row["fields"][-1]
        last = self.row(kind)
        if last["kind"] != "array" or last["count"] > 1 or not self.size(last["target"]) or not bit:
            return None
        return Flexible(f".{name}", bit // 8, last["target"])

    def leaves(self, number: int) -> Iterable[Leaf]:
        """All leaves of a type in the order of their offsets. Members of a union overlap: it is one leaf."""
        if self.size(number) <= REMEMBERED_SIZE:
            return self._small_leaves(number)
        return self._walk(number, "", 0)

    def _walk(self, number: int, path: str, offset: int) -> Iterator[Leaf]:
        row = self.row(number)
        if self.is_opaque(number):
            return
        if row["kind"] == "struct":
            for field in row["fields"]:
                _, bit, width, kind = field
                inner = path + self._field_path(field)
                if width:
                    size = (bit % 8 + width + 7) // 8
                    yield Leaf(inner, offset + bit // 8, size, kind, (bit % 8, width))
                else:
                    yield from self._walk(kind, inner, offset + bit // 8)
        elif row["kind"] == "array" and not self.is_text(number):
            width = self.size(row["target"])
            for i in range(row["count"]):
                yield from self._walk(row["target"], f"{path}[{i}]", offset + i * width)
        elif row["size"]:
            yield Leaf(path, offset, self.value_size(number), number)

    def value_size(self, number: int) -> int:
        """Without the padding of a long double."""
        row = self.row(number)
        is_extended = row["kind"] == "float" and row["size"] == EXTENDED_SIZE and "long double" in row["name"]
        return EXTENDED.size if is_extended else int(row["size"])

    def _field_path(self, field: list[Any]) -> str:
        """A base class is not written; nor is an anonymous struct. An anonymous union goes by the name of its first
        member. `*` and `<1>` are what an optional and a tuple have instead of members."""
        name, _, _, kind = field
        row = self.row(kind)
        if name:
            return name if name[0] in "*<" else f".{name}"
        return self._field_path(row["fields"][0]) if row["kind"] == "union" and row["fields"] else ""

    def path_to(self, number: int, offset: int, wanted: int) -> str | None:
        """Of a part of a type, which begins at an offset."""
        path = ""
        while number != wanted or offset:
            row = self.row(number)
            if row["kind"] == "array" and self.size(row["target"]):
                number = row["target"]
                index, offset = divmod(offset, self.size(number))
                path += f"[{index}]"
                continue
            fields = [
                f for f in row.get("fields", ()) if 0 <= offset - f[1] // 8 < self.size(f[3]) and self.weight(f[3])
            ]
            if row["kind"] != "struct" or not fields:
                return None
            path += self._field_path(fields[-1])
            number, offset = fields[-1][3], offset - fields[-1][1] // 8
        return path

    def _walk_containers(self, number: int, offset: int) -> Iterator[tuple[int, int]]:
        """Offset and type of each container of the C++ library in a type, those in others behind them."""
        row = self.row(number)
        if "container" in row:
            yield offset, number
        if row["kind"] == "struct" and not self.is_opaque(number):
            for _, bit, _, kind in row["fields"]:
                yield from self._shift_containers(kind, offset + bit // 8)
        elif row["kind"] == "array":
            for i in range(row["count"]) if self.containers(row["target"]) else ():
                yield from self._shift_containers(row["target"], offset + i * self.size(row["target"]))

    def _find_conditions(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Of each optional where what it holds begins and ends, and the byte that tells whether it does."""
        for offset, kind in self.containers(number):
            plan = self.row(kind)["container"]
            if plan["kind"] == "optional":
                start = offset + plan["value"]
                yield start, start + self.size(plan["element"]), offset + plan["flag"]

    def _shift_containers(self, number: int, offset: int) -> Iterator[tuple[int, int]]:
        for at, kind in self.containers(number):
            yield offset + at, kind

    def _is_dynamic(self, number: int) -> bool:
        """Of a class with virtual functions: an object of it tells of which class it really is."""
        row = self.row(number)
        first = [field for field in row.get("fields", ()) if not field[1]] if row["kind"] == "struct" else []
        return any(name.startswith(VTABLE) or (not name and self.is_dynamic(kind)) for name, _, _, kind in first)

    def class_name(self, number: int) -> str:
        """Of a class with virtual functions: there may be others in its place. What only holds such an object, for
        shared pointers, goes by its name."""
        row = self.row(number)
        if row["name"].startswith("std::_Sp_counted_ptr_inplace<"):
            held = max((f for f in row["fields"]), key=lambda field: int(field[1]))[3]
            inner = max((f[3] for f in self.row(held).get("fields", ())), key=self.size, default=held)
            return self.class_name(inner)
        return str(row["name"]) if self.is_dynamic(number) else ""

    def _pointers_of(self, number: int) -> tuple[tuple[int, int, str], ...]:
        """(offset, type pointed to, path) of all pointers in a type."""
        return tuple(self._walk_pointers(number, "", 0))

    def _walk_pointers(self, number: int, path: str, offset: int) -> Iterator[tuple[int, int, str]]:
        if not self.holds_pointer(number):
            return
        row = self.row(number)
        if row["kind"] == "struct":
            for field in row["fields"]:
                if not field[2]:
                    yield from self._walk_pointers(field[3], path + self._field_path(field), offset + field[1] // 8)
        elif row["kind"] == "array":
            width = self.size(row["target"])
            for i in range(row["count"]):
                yield from self._walk_pointers(row["target"], f"{path}[{i}]", offset + i * width)
        elif row["kind"] == "pointer":
            yield offset, row["target"], path

    def _rank(self, number: int) -> Rank:
        row = self.row(number)
        if row["kind"] == "function" or self.is_opaque(number):
            return Rank.CLOSED
        if not row["size"] or row["kind"] in ("char", "void"):
            return Rank.VAGUE
        return Rank.RECORD if row["kind"] in ("struct", "union") else Rank.SCALAR

    def _find_inside(self, number: int, offset: int, wanted: int) -> Literal["part", "raw", "other"]:
        """What a type has at an offset, seen by a pointer to `wanted`: such a part, bytes free to be anything, or
        something else."""
        while number != wanted or offset:
            row = self.row(number)
            if self.is_text(number) or row["kind"] == "char":
                return "part" if self.kind(wanted) == "char" else "raw"
            if row["kind"] == "array":
                width = self.size(row["target"])
                if not width or offset >= row["size"]:
                    return "other"
                number, offset = row["target"], offset % width
            elif row["kind"] == "struct":
                fields = [f for f in row["fields"] if not f[2] and f[1] // 8 <= offset < f[1] // 8 + self.size(f[3])]
                if not fields:
                    return "other"
                number, offset = fields[-1][3], offset - fields[-1][1] // 8
            elif row["kind"] == "union":
                members = [self.inside(f[3], offset, wanted) for f in row["fields"] if offset < self.size(f[3])]
                return "part" if "part" in members else "raw" if "raw" in members else "other"
            else:
                return "other"
        return "part"

    def open_leaves(self, number: int, left: Bytes, right: Bytes, at: int, path: str = "") -> Iterator[Leaf]:
        """The leaves of a type at an offset at which two contents differ, and all that may refer to something."""
        row, end = self.row(number), at + self.size(number)
        holds_pointer = self.holds_pointer(number)
        if not holds_pointer and left[at:end] == right[at:end]:
            return
        if self.is_opaque(number):
            return
        if row["kind"] == "struct":
            for field in row["fields"]:
                _, bit, width, kind = field
                inner, start = path + self._field_path(field), at + bit // 8
                if not width:
                    yield from self.open_leaves(kind, left, right, start, inner)
                else:
                    size = (bit % 8 + width + 7) // 8
                    if left[start : start + size] != right[start : start + size]:
                        yield Leaf(inner, start, size, kind, (bit % 8, width))
        elif row["kind"] == "array" and not self.is_text(number):
            width = self.size(row["target"])
            for i in self.open_elements(row["target"], row["count"], left, right, at):
                yield from self.open_leaves(row["target"], left, right, at + i * width, f"{path}[{i}]")
        elif row["size"]:
            yield Leaf(path, at, self.value_size(number), number)

    def open_elements(self, number: int, count: int, left: Bytes, right: Bytes, at: int) -> Iterable[int]:
        """The elements of an array that have such leaves."""
        width = self.size(number)
        if self.holds_pointer(number) or not width:
            return range(count)
        return find_unequal(left, right, at, width, 0, count)

    def _guesses_of(self, number: int) -> dict[int, tuple[int, str]]:
        """By offset the type and path of what may be a pointer: a member of a union, of which only the value can
        tell. Where members disagree on the type, nothing is known of what it leads to."""
        found: dict[int, tuple[int, str]] = {}
        for offset, kind, path in self._walk_unions(number, "", 0, False) if self.holds_pointer(number) else ():
            known, first = found.get(offset, (kind, path))
            found[offset] = (kind if known == kind else BYTE, first)
        return found

    def _walk_unions(self, number: int, path: str, offset: int, inside: bool) -> Iterator[tuple[int, int, str]]:
        row = self.row(number)
        if self.is_opaque(number):
            return
        if row["kind"] in ("struct", "union"):
            for name, bit, _, kind in row["fields"]:
                inner = path + self._field_path([name, bit, 0, kind])
                yield from self._walk_unions(kind, inner, offset + bit // 8, inside or row["kind"] == "union")
        elif row["kind"] == "array":
            width = self.size(row["target"])
            for i in range(row["count"]):
                yield from self._walk_unions(row["target"], f"{path}[{i}]", offset + i * width, inside)
        elif row["kind"] == "pointer" and inside:
            yield offset, row["target"], path

    def _holds_pointer(self, number: int) -> bool:
        row = self.row(number)
        if row["kind"] in ("struct", "union"):
            return not self.is_opaque(number) and any(self.holds_pointer(field[3]) for field in row["fields"])
        return row["kind"] == "pointer" or (row["kind"] == "array" and self.holds_pointer(row["target"]))

    def _weigh(self, number: int) -> int:
        """How many leaves a type has."""
        row = self.row(number)
        if self.is_opaque(number):
            return 0
        if row["kind"] == "struct":
            return sum(1 if width else self.weight(kind) for _, _, width, kind in row["fields"])
        if row["kind"] == "array" and not self.is_text(number):
            return int(row["count"]) * self.weight(row["target"])
        return 1 if row["size"] else 0


def find_unequal(left: Bytes, right: Bytes, at: int, width: int, first: int, last: int) -> Iterator[int]:
    """Numbers of the elements from `first` up to `last` that differ: halves that are equal are not looked into."""
    pending = [(first, last)]
    while pending:
        first, last = pending.pop()
        if left[at + first * width : at + last * width] == right[at + first * width : at + last * width]:
            continue
        if last - first == 1:
            yield first
        else:
            middle = (first + last) // 2
            pending += [(middle, last), (first, middle)]
