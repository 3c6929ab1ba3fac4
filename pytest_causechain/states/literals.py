"""How values read: bytes become what a C programmer writes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

from pytest_causechain.debugger.types import (
    ArrayType,
    BoolType,
    CharType,
    ComplexType,
    EnumType,
    FloatType,
    IntType,
    Member,
    PointerType,
    StructType,
    Type,
    UnionType,
)
from pytest_causechain.states.layout import EXTENDED, Layouts, Leaf

FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
# Of the exponent of a long double, whose number has 64 bits.
EXTENDED_BIAS = 16383 + 63
# Enough of a union to recognise it by.
MEMBERS_SHOWN = 3
CHARACTERS_SHOWN = 8
ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
# From the value of a pointer and the type it points to.
Follow = Callable[[int, int], str]


def show_leaf(layouts: Layouts, leaf: Leaf, data: bytes, follow: Follow = lambda value, kind: hex(value)) -> str:
    """A value as a C programmer writes it; pointers are shown by `follow`, which knows what they lead to."""
    value = layouts.type(leaf.type)
    if leaf.bits is not None:
        return show_integer(value, extract_bits(data, leaf.bits, is_signed(value)))
    if layouts.is_text_leaf(leaf):
        return show_text(data)
    match value:
        case IntType() | EnumType() | BoolType() | CharType():
            return show_integer(value, int.from_bytes(data, "little", signed=is_signed(value)))
        case PointerType(target=target):
            return follow(int.from_bytes(data, "little"), target) if any(data) else "NULL"
        case FloatType() if len(data) in FLOATS:
            return show_float(data)
        case FloatType() if len(data) == EXTENDED.size:
            return show_extended(data)
        case ComplexType(target=target):
            half = len(data) // 2
            part = Leaf("", 0, layouts.value_size(target), target)
            real, imaginary = (show_leaf(layouts, part, data[at : at + part.size], follow) for at in (0, half))
            return f"{real} {'-' if imaginary.startswith('-') else '+'} {imaginary.removeprefix('-')}i"
        case UnionType(members=members):
            return show_members(layouts, members, data, follow)
    return "0x" + data[::-1].hex()


def show_integer(kind: Type, value: int) -> str:
    match kind:
        case EnumType():
            return kind.name_of(value)
        case BoolType():
            return {0: "false", 1: "true"}.get(value, str(value))
        case CharType() if 32 <= value < 127 or value in ESCAPES:
            shown = {34: '"', 39: "\\'"}.get(value) or ESCAPES.get(value) or chr(value)
            return f"{value} '{shown}'"
    return str(value)


def show_members(layouts: Layouts, members: Sequence[Member], data: bytes, follow: Follow) -> str:
    """A union as the debugger prints it: each member's reading of the same bytes."""
    texts = []
    for member in members[:MEMBERS_SHOWN]:
        bits = (member.bit % 8, member.width) if member.width else None
        leaf = Leaf("", member.offset, layouts.size(member.type), member.type, bits)
        held = layouts.type(member.type)
        is_nested = isinstance(held, StructType) or (isinstance(held, ArrayType) and not layouts.is_text(member.type))
        shown = "{...}" if is_nested else show_leaf(layouts, leaf, data[leaf.offset : leaf.offset + leaf.size], follow)
        texts.append(f"{member.name} = {shown}" if member.name else shown)
    if len(members) > MEMBERS_SHOWN:
        texts.append("...")
    return "{" + ", ".join(texts) + "}"


def is_signed(kind: Type) -> bool:
    """Of an enumeration the debugger tells only the values."""
    if isinstance(kind, EnumType):
        return any(value < 0 for _, value in kind.values)
    return isinstance(kind, IntType | CharType) and kind.signed


def extract_bits(data: bytes, bits: tuple[int, int], signed: bool) -> int:
    first, width = bits
    value = int.from_bytes(data, "little") >> first & (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def show_float(data: bytes) -> str:
    """With as few digits as tell the value from all others of its type."""
    value = FLOATS[len(data)].unpack(data)[0]
    if not math.isfinite(value):
        return str(value)
    for digits in range(6, 17):
        shown = f"{value:.{digits}g}"
        if FLOATS[len(data)].pack(float(shown)) == data:
            return shown
    return f"{value:.17g}"


def show_extended(data: bytes) -> str:
    """With the digits that a long double has."""
    number, exponent = EXTENDED.unpack(data)
    sign = "-" if exponent >> 15 else ""
    exponent &= 0x7FFF
    if exponent == 0x7FFF:
        return sign + ("nan" if number & (1 << 63) - 1 else "inf")
    with localcontext() as context:
        context.prec = 40
        value = Decimal(number) * Decimal(2) ** (max(exponent, 1) - EXTENDED_BIAS)
        context.prec = 20
        shown = f"{(+value).normalize():g}"
    return sign + shown


def show_characters(data: bytes) -> str:
    """The first elements of an array that is no text."""
    shown = [f"'{chr(byte)}'" if chr(byte).isalnum() and byte < 127 else str(byte) for byte in data[:CHARACTERS_SHOWN]]
    return "{" + ", ".join([*shown, "..."] if len(data) > len(shown) else shown) + "}"


def show_text(data: bytes) -> str:
    """A C string literal up to the first NUL, in ASCII.

    Octal, because a hexadecimal escape takes in whatever digits follow it."""
    text = data.partition(b"\0")[0]
    return '"' + "".join(ESCAPES.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text) + '"'
