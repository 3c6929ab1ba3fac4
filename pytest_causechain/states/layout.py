"""What the type table of the debugger says about bytes: where pointers are, how values read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

POINTER_SIZE = 8
FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
# Their contents mean nothing outside the run they come from: locks, descriptors, saved registers.
OPAQUE = {"_IO_FILE", "FILE", "__jmp_buf_tag", "jmp_buf", "pthread_mutex_t", "pthread_cond_t", "DIR", "__dirstream"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value inside an object that is compared and written as one: a scalar, a pointer, a text, raw bytes.

    `path` is what a C programmer writes behind the object's name (".next", "[3].x"). `bits` are first bit and
    width of a bit-field within its bytes."""

    path: str
    offset: int
    size: int
    type: int
    bits: tuple[int, int] | None = None


class Layouts:
    """Reads the type table; rows may be appended to it while this is in use."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.pointers = cache(self._pointers)

    def kind(self, number: int) -> str:
        return str(self.rows[number]["kind"])

    def size(self, number: int) -> int:
        return int(self.rows[number]["size"])

    def name(self, number: int) -> str:
        return str(self.rows[number]["name"])

    def target(self, number: int) -> int:
        return int(self.rows[number]["target"])

    def is_opaque(self, number: int) -> bool:
        name = self.name(number).removeprefix("struct ").removeprefix("const ")
        return name in OPAQUE

    def is_text(self, number: int) -> bool:
        """An array of characters is one value."""
        return self.kind(number) == "array" and self.kind(self.target(number)) == "char"

    def leaves(self, number: int) -> Iterator[Leaf]:
        """All leaves of a type in the order of their offsets. Members of a union overlap: it is one leaf."""
        yield from self._leaves(number, "", 0)

    def _leaves(self, number: int, path: str, offset: int) -> Iterator[Leaf]:
        row = self.rows[number]
        if row["kind"] == "struct" and not self.is_opaque(number):
            for name, bit, width, kind in row["fields"]:
                # A base class or an anonymous member has no name of its own.
                inner = f"{path}.{name}" if name and not name.startswith("<") else path
                if width:
                    first = bit // 8
                    size = (bit % 8 + width + 7) // 8
                    yield Leaf(inner, offset + first, size, kind, (bit % 8, width))
                else:
                    yield from self._leaves(kind, inner, offset + bit // 8)
        elif row["kind"] == "array" and not self.is_text(number):
            width = self.size(row["target"])
            for i in range(row["count"]):
                yield from self._leaves(row["target"], f"{path}[{i}]", offset + i * width)
        elif row["size"] and not self.is_opaque(number):
            yield Leaf(path, offset, row["size"], number)

    def _pointers(self, number: int) -> tuple[tuple[int, int, str], ...]:
        """(offset, type pointed to, path) of all pointers in a type."""
        return tuple(
            (leaf.offset, self.target(leaf.type), leaf.path)
            for leaf in self.leaves(number)
            if self.kind(leaf.type) == "pointer"
        )

    def show(self, leaf: Leaf, data: bytes) -> str:
        """A value as a C programmer writes it; pointers are shown by whoever knows what they point to."""
        row = self.rows[leaf.type]
        if leaf.bits is not None:
            value = extract_bits(data, leaf.bits, row.get("signed", False))
            return self._integer(row, value)
        match row["kind"]:
            case "int" | "enum" | "bool" | "char" | "pointer":
                return self._integer(row, int.from_bytes(data, "little", signed=row.get("signed", False)))
            case "float" if len(data) in FLOATS:
                return f"{FLOATS[len(data)].unpack(data)[0]:g}"
            case "array" if self.is_text(leaf.type):
                return show_text(data)
        return "0x" + data[::-1].hex()

    def _integer(self, row: dict[str, Any], value: int) -> str:
        match row["kind"]:
            case "enum":
                names = {number: name for name, number in row["values"].items()}
                return str(names.get(value, value))
            case "bool":
                return {0: "false", 1: "true"}.get(value, str(value))
            case "char" if 32 <= value < 127:
                return f"{value} '{chr(value)}'"
            case "pointer":
                return hex(value) if value else "NULL"
        return str(value)


def extract_bits(data: bytes, bits: tuple[int, int], signed: bool) -> int:
    first, width = bits
    value = int.from_bytes(data, "little") >> first & (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def show_text(data: bytes) -> str:
    """A C string literal up to the first NUL."""
    text = data.partition(b"\0")[0]
    shown = text.decode("latin-1").encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{shown}"'
