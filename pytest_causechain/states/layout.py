"""What the types of the debugger say about bytes: which values lie where, which of them are pointers, and how each
reads as a C programmer writes it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import IntEnum
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Literal

from pytest_causechain.debugger.types import (
    ArrayType,
    BoolType,
    CharType,
    ComplexType,
    ContainerType,
    EnumType,
    FloatType,
    FunctionType,
    IntType,
    Member,
    OptionalType,
    PointerType,
    RecordType,
    StructType,
    Type,
    TypeTable,
    UnionType,
    VoidType,
)

if TYPE_CHECKING:
    from pytest_causechain.states.shapes import Shape

POINTER_SIZE = 8
# The processor's own format: 80 bits, in 16 bytes of memory. Sign and exponent, 64 bits of the number.
EXTENDED, EXTENDED_SIZE = struct.Struct("<QH"), 16
# Their contents mean nothing outside the run they come from: locks, descriptors, saved registers.
OPAQUE = {"_IO_FILE", "FILE", "__jmp_buf_tag", "jmp_buf", "pthread_mutex_t", "pthread_cond_t", "DIR", "__dirstream"}
# The types of memory of which nothing else is known. Not in the table, whose numbers are the debugger's.
BYTE, INTEGER = -1, -2
OWN_TYPES: dict[int, Type] = {BYTE: CharType("char", 1, True), INTEGER: IntType("int", 4, True)}
# How the compiler names an object's pointer to the table of its class.
VTABLE = "_vptr"
# The leaves of a large array would take more memory than time is saved.
REMEMBERED_SIZE = 4096
Bytes = bytes | memoryview
# From and up to an offset.
Span = tuple[int, int]
FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
# Of the exponent of a long double, whose number has 64 bits.
EXTENDED_BIAS = 16383 + 63
# Enough of a union to recognise it by.
MEMBERS_SHOWN = 3
CHARACTERS_SHOWN = 8
ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
# From the value of a pointer and the type it points to.
Follow = Callable[[int, int], str]


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
    """Reads the type table; types may be appended to it while this is in use."""

    def __init__(self, types: TypeTable) -> None:
        self.types = types
        # Those worked out so far, by whatever tells them apart.
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self.first_shapes: dict[tuple[int, int, tuple[int, int] | None], tuple[Shape, bool, int]] = {}
        self.pointers = cache(
            lambda number: tuple((at, kind, path) for at, kind, path, is_sure in self._walk_pointers(number) if is_sure)
        )
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
        self.containers = cache(lambda number: tuple(self._walk_containers(number)))
        self._small_leaves = cache(lambda number: tuple(self._walk(number)))

    def shape(self, key: tuple[object, ...], make: Callable[[], Shape]) -> Shape:
        """The one of this key, made when it is first asked for."""
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = make()
        return found

    def type(self, number: int) -> Type:
        return self.types[number] if number >= 0 else OWN_TYPES[number]

    def size(self, number: int) -> int:
        return self.type(number).size

    def name(self, number: int) -> str:
        return self.type(number).name

    def target(self, number: int) -> int | None:
        """What a pointer leads to; None for all other types."""
        pointer = self.type(number)
        return pointer.target if isinstance(pointer, PointerType) else None

    def is_pointer(self, number: int) -> bool:
        return isinstance(self.type(number), PointerType)

    def is_struct(self, number: int) -> bool:
        return isinstance(self.type(number), StructType)

    def is_char(self, number: int) -> bool:
        return isinstance(self.type(number), CharType)

    def _is_opaque(self, number: int) -> bool:
        words = [word for word in self.name(number).split() if word not in ("const", "volatile", "struct", "union")]
        return len(words) == 1 and words[0] in OPAQUE

    def is_reference(self, number: int) -> bool:
        """A reference of C++: the debugger tells where what it refers to lies, not where it does itself."""
        return self.is_pointer(number) and self.name(number).endswith("&")

    def is_address_sized(self, leaf: Leaf) -> bool:
        """Of a number: `uintptr_t` and the like may hold what a pointer does."""
        return leaf.size == POINTER_SIZE and leaf.bits is None and isinstance(self.type(leaf.type), IntType)

    def _parts(self, number: int) -> Iterator[tuple[str, int, int]]:
        """Path, offset and type of what a type consists of, without bit-fields."""
        match self.type(number):
            case StructType(members=members) | UnionType(members=members):
                for member in members:
                    if not member.width:
                        yield self._member_path(member), member.offset, member.type
            case ArrayType(target=target, count=count):
                width = self.size(target)
                for i in range(count):
                    yield f"[{i}]", i * width, target

    def _part_types(self, number: int) -> Iterable[int]:
        whole = self.type(number)
        if isinstance(whole, ArrayType):
            return (whole.target,)
        return [member.type for member in whole.members if not member.width] if isinstance(whole, RecordType) else ()

    def _holds_pointer(self, number: int) -> bool:
        if self.is_opaque(number):
            return False
        return self.is_pointer(number) or any(map(self.holds_pointer, self._part_types(number)))

    def _holds_integer(self, number: int) -> bool:
        """Whether some part of a type is such a number."""
        match self.type(number):
            case IntType(size=size):
                return size == POINTER_SIZE
            case StructType() | ArrayType():
                return any(map(self.holds_integer, self._part_types(number)))
        return False

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
        if not any(self._holds_union(member.type) for member in self._struct_members(number)):
            return None
        first: Leaf | None = next(iter(self.leaves(number)), None)
        is_tag = first is not None and not first.offset and isinstance(self.type(first.type), EnumType)
        return first if is_tag else None

    def _struct_members(self, number: int) -> Sequence[Member]:
        record = self.type(number)
        return record.members if isinstance(record, StructType) else ()

    def _holds_union(self, number: int) -> bool:
        held = self.type(number)
        return isinstance(held, UnionType) or (isinstance(held, ArrayType) and self._holds_union(held.target))

    def is_text(self, number: int) -> bool:
        """An array of characters is one value."""
        array = self.type(number)
        return isinstance(array, ArrayType) and self.is_char(array.target)

    def is_text_leaf(self, leaf: Leaf) -> bool:
        return self.is_text(leaf.type) or (leaf.size > 1 and self.is_char(leaf.type))

    def end(self, number: int) -> int:
        """Of the last value, without the padding behind it."""
        leaves = self.leaves(number) if self.is_struct(number) else ()
        return max((leaf.offset + leaf.size for leaf in leaves), default=self.size(number))

    def ends_in_text(self, number: int, offset: int) -> bool:
        """Whether from this offset on there are only characters."""
        leaf = next((leaf for leaf in self.leaves(number) if leaf.offset + leaf.size > offset), None)
        return leaf is not None and all(other.offset <= leaf.offset for other in self.leaves(number))

    def is_possible(self, number: int, value: int) -> bool:
        """Whether a variable of an enumeration can have this value, given without its sign; flags may be combined."""
        enumeration = self.type(number)
        assert isinstance(enumeration, EnumType)
        mask = (1 << 8 * enumeration.size) - 1
        values = [named & mask for _, named in enumeration.values]
        return value in values or value <= reduce(or_, values, 0)

    def _gaps_of(self, number: int) -> list[Span]:
        """What lies between members."""
        return list(
            find_gaps([(leaf.offset, leaf.offset + leaf.size) for leaf in self.leaves(number)], self.size(number))
        )

    def has_gaps(self, number: int) -> bool:
        """Of a large type nobody asks: it would take long to tell."""
        return self.size(number) <= REMEMBERED_SIZE and bool(self.gaps(number))

    def flexible(self, number: int) -> Flexible | None:
        """By C's own notation `[]`, by `[0]`, or as it was written before these: `[1]`."""
        members = self._struct_members(number)
        last = self.type(members[-1].type) if members else None
        if not isinstance(last, ArrayType) or last.count > 1 or not self.size(last.target) or not members[-1].bit:
            return None
        return Flexible(f".{members[-1].name}", members[-1].offset, last.target)

    def leaves(self, number: int) -> Iterable[Leaf]:
        """All leaves of a type in the order of their offsets. Members of a union overlap: it is one leaf."""
        if self.size(number) <= REMEMBERED_SIZE:
            return self._small_leaves(number)
        return self._walk(number)

    def open_leaves(self, number: int, left: Bytes, right: Bytes, at: int) -> Iterator[Leaf]:
        """The leaves of a type at an offset at which two contents differ, and all that may refer to something."""
        return self._walk(number, "", at, (left, right))

    def _walk(
        self, number: int, path: str = "", offset: int = 0, contents: tuple[Bytes, Bytes] | None = None
    ) -> Iterator[Leaf]:
        if self.is_opaque(number):
            return
        is_closed = contents is not None and not self.holds_pointer(number)
        if is_closed and not differ(contents, offset, self.size(number)):
            return
        match self.type(number):
            case StructType(members=members):
                for member in members:
                    inner, start = path + self._member_path(member), offset + member.offset
                    if not member.width:
                        yield from self._walk(member.type, inner, start, contents)
                        continue
                    leaf = bit_field(member, inner, start)
                    if differ(contents, start, leaf.size):
                        yield leaf
            case ArrayType(target=target, count=count) if not self.is_text(number):
                width = self.size(target)
                for i in range(count) if contents is None else self.open_elements(target, count, *contents, offset):
                    yield from self._walk(target, f"{path}[{i}]", offset + i * width, contents)
            case value if value.size:
                yield Leaf(path, offset, self.value_size(number), number)

    def open_elements(self, number: int, count: int, left: Bytes, right: Bytes, at: int) -> Iterable[int]:
        """The elements of an array that have such leaves."""
        width = self.size(number)
        if self.holds_pointer(number) or not width:
            return range(count)
        return find_unequal(left, right, at, width, 0, count)

    def value_size(self, number: int) -> int:
        """Without the padding of a long double."""
        value = self.type(number)
        is_extended = isinstance(value, FloatType) and value.size == EXTENDED_SIZE and "long double" in value.name
        return EXTENDED.size if is_extended else value.size

    def _member_path(self, member: Member) -> str:
        """A base class is not written; nor is an anonymous struct. An anonymous union goes by the name of its first
        member. `*` and `<1>` are what an optional and a tuple have instead of members."""
        if member.name:
            return member.name if member.name[0] in "*<" else f".{member.name}"
        inner = self.type(member.type)
        return self._member_path(inner.members[0]) if isinstance(inner, UnionType) and inner.members else ""

    def path_to(self, number: int, offset: int, wanted: int) -> str | None:
        """Of a part of a type, which begins at an offset."""
        path = ""
        while number != wanted or offset:
            whole = self.type(number)
            if isinstance(whole, ArrayType) and self.size(whole.target):
                number = whole.target
                index, offset = divmod(offset, self.size(number))
                path += f"[{index}]"
                continue
            members = [m for m in self._struct_members(number) if m.holds(offset, self.size(m.type))]
            member = next((m for m in reversed(members) if self.weight(m.type)), None)
            if member is None:
                return None
            path += self._member_path(member)
            number, offset = member.type, offset - member.offset
        return path

    def _walk_containers(self, number: int) -> Iterator[tuple[int, int]]:
        """Offset and type of each container of the C++ library in a type, those in others behind them."""
        if self.container(number) is not None:
            yield 0, number
        is_closed = isinstance(self.type(number), UnionType) or self.is_opaque(number)
        if not is_closed and any(map(self.containers, self._part_types(number))):
            for _, offset, kind in self._parts(number):
                for at, inner in self.containers(kind):
                    yield offset + at, inner

    def container(self, number: int) -> ContainerType | None:
        """What a struct means, if it is a container of the C++ library."""
        record = self.type(number)
        return record.container if isinstance(record, StructType) else None

    def _find_conditions(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Of each optional where what it holds begins and ends, and the byte that tells whether it does."""
        for offset, kind in self.containers(number):
            optional = self.container(kind)
            if isinstance(optional, OptionalType):
                start = offset + optional.value
                yield start, start + self.size(optional.element), offset + optional.flag

    def _is_dynamic(self, number: int) -> bool:
        """Of a class with virtual functions: an object of it tells of which class it really is."""
        first = [member for member in self._struct_members(number) if not member.bit]
        return any(m.name.startswith(VTABLE) or (not m.name and self.is_dynamic(m.type)) for m in first)

    def class_name(self, number: int) -> str:
        """Of a class with virtual functions: there may be others in its place. What only holds such an object, for
        shared pointers, goes by its name."""
        if self.name(number).startswith("std::_Sp_counted_ptr_inplace<"):
            held = max(self._struct_members(number), key=lambda member: member.bit).type
            record = self.type(held)
            inner = record.members if isinstance(record, RecordType) else ()
            return self.class_name(max((member.type for member in inner), key=self.size, default=held))
        return self.name(number) if self.is_dynamic(number) else ""

    def _walk_pointers(
        self, number: int, path: str = "", offset: int = 0, is_sure: bool = True
    ) -> Iterator[tuple[int, int, str, bool]]:
        """Offset, type pointed to and path of all pointers in a type; of the member of a union only the value can tell
        whether it is one."""
        if not self.holds_pointer(number):
            return
        if (target := self.target(number)) is not None:
            yield offset, target, path, is_sure
        is_sure = is_sure and not isinstance(self.type(number), UnionType)
        for inner, at, kind in self._parts(number):
            yield from self._walk_pointers(kind, path + inner, offset + at, is_sure)

    def _rank(self, number: int) -> Rank:
        target = self.type(number)
        if isinstance(target, FunctionType) or self.is_opaque(number):
            return Rank.CLOSED
        if not target.size or isinstance(target, CharType | VoidType):
            return Rank.VAGUE
        return Rank.RECORD if isinstance(target, RecordType) else Rank.SCALAR

    def _find_inside(self, number: int, offset: int, wanted: int) -> Literal["part", "raw", "other"]:
        """What a type has at an offset, seen by a pointer to `wanted`: such a part, bytes free to be anything, or
        something else."""
        while number != wanted or offset:
            if self.is_text(number) or self.is_char(number):
                return "part" if self.is_char(wanted) else "raw"
            match self.type(number):
                case ArrayType(target=target, size=size):
                    width = self.size(target)
                    if not width or offset >= size:
                        return "other"
                    number, offset = target, offset % width
                case StructType(members=members):
                    around = [m for m in members if not m.width and m.holds(offset, self.size(m.type))]
                    if not around:
                        return "other"
                    number, offset = around[-1].type, offset - around[-1].offset
                case UnionType(members=members):
                    found = [self.inside(m.type, offset, wanted) for m in members if offset < self.size(m.type)]
                    return "part" if "part" in found else "raw" if "raw" in found else "other"
                case _:
                    return "other"
        return "part"

    def _guesses_of(self, number: int) -> dict[int, tuple[int, str]]:
        """By offset the type and path of what may be a pointer. Where members disagree on the type, nothing is known of
        what it leads to."""
        found: dict[int, tuple[int, str]] = {}
        for offset, kind, path, is_sure in self._walk_pointers(number):
            if not is_sure:
                known, first = found.get(offset, (kind, path))
                found[offset] = (kind if known == kind else BYTE, first)
        return found

    def _weigh(self, number: int) -> int:
        """How many leaves a type has."""
        if self.is_opaque(number):
            return 0
        match self.type(number):
            case StructType(members=members):
                return sum(1 if member.width else self.weight(member.type) for member in members)
            case ArrayType(target=target, count=count) if not self.is_text(number):
                return count * self.weight(target)
            case value:
                return 1 if value.size else 0


def bit_field(member: Member, path: str, offset: int) -> Leaf:
    first = member.bit % 8
    return Leaf(path, offset, (first + member.width + 7) // 8, member.type, (first, member.width))


def differ(contents: tuple[Bytes, Bytes] | None, start: int, size: int) -> bool:
    """Whether two contents do at this place; where there are none, all is taken to."""
    return contents is None or contents[0][start : start + size] != contents[1][start : start + size]


def find_gaps(spans: Iterable[Span], size: int) -> Iterator[Span]:
    """What lies between these, and behind the last of them."""
    end = 0
    for start, stop in sorted(spans):
        if start > end:
            yield end, start
        end = max(end, stop)
    if size > end:
        yield end, size


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
