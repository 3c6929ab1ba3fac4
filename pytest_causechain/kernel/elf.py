"""Reads ELF files: headers, sections, build id, symbols, and the options their code was compiled with.

Of ELF only 64-bit little-endian files; of DWARF only the heads of compilation units.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

MAGIC = b"\x7fELF"
CLASS_AT, CLASS_64 = 4, 2
DATA_AT, LITTLE_ENDIAN = 5, 1
TYPE_EXECUTABLE = 2
TYPE_SHARED = 3  # position-independent executables too
MACHINE_X86_64 = 62
SECTION_SYMBOLS, SECTION_NOTE, SECTION_NOTHING, SECTION_DYNAMIC_SYMBOLS = 2, 7, 8, 11
SYMBOL_TABLES = (SECTION_SYMBOLS, SECTION_DYNAMIC_SYMBOLS)
SECTION_COMPRESSED = 1 << 11
SEGMENT_NOTE, SEGMENT_THREAD = 4, 7
KIND_OF_SYMBOL, SYMBOL_OBJECT, SYMBOL_THREAD = 0xF, 1, 6
WRITABLE_SECTIONS = (b".data", b".bss")
# The compiler's own start-up code is in every program.
START_UP_OBJECT = b"completed."
NOTE_BUILD_ID = 3

FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SEGMENT_HEADER = struct.Struct("<IIQQQQQQ")
NOTE_HEADER = struct.Struct("<III")
SYMBOL = struct.Struct("<IBBHQQ")
TAKES_CODE = LOW_ADDRESS, RANGES = 0x11, 0x55
PRODUCER = 0x25
UNIT_COMPILE = 1
FORM_STRING, FORM_STRP, FORM_LINE_STRP, FORM_IMPLICIT = 0x08, 0x0E, 0x1F, 0x21
# Of attributes as heads of units have them, in bytes.
FIXED_SIZES = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: 4, 0x17: 4, 0x19: 0, 0x1F: 4, 0x21: 0}
FIXED_SIZES |= {0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4, 0x29: 1, 0x2A: 2, 0x2B: 3, 0x2C: 4}
LEB_FORMS = (0x0D, 0x0F, 0x1A, 0x1B, 0x22, 0x23)

UNIT = struct.Struct("<IH")
# Behind it: from version 5 on, and before.
KIND_SIZE_ABBREVIATIONS, ABBREVIATIONS_SIZE = struct.Struct("<BBI"), struct.Struct("<IB")
OFFSET = struct.Struct("<I")


class Section(NamedTuple):
    name: bytes
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    alignment: int


def read_type(content: mmap.mmap | bytes) -> int:
    return int(FILE_HEADER.unpack_from(content)[1])


def read_machine(content: mmap.mmap | bytes) -> int:
    return int(FILE_HEADER.unpack_from(content)[2])


def read_sections(content: mmap.mmap) -> list[Section]:
    """A ValueError, or one of struct's, when the file is damaged."""
    header = FILE_HEADER.unpack_from(content)
    table, size, count, names_index = header[6], header[11], header[12], header[13]
    if table == 0:
        return []  # even the section headers have been stripped
    if table > len(content) or names_index >= count:
        raise ValueError("a table of sections that is not there")
    headers = [SECTION_HEADER.unpack_from(content, table + size * index) for index in range(count)]
    names = headers[names_index][4]
    if names > len(content) or any(header[6] >= count for header in headers):
        raise ValueError("a section that is not there")
    sections = []
    for name, kind, flags, _address, offset, length, link, _info, alignment, _entry in headers:
        if kind == SECTION_NOTHING:  # of no length in the file, and so perhaps behind its end
            offset = min(offset, len(content))
        elif offset + length > len(content):
            raise ValueError("a section that is not there")
        sections.append(Section(_read_text(content, names + name), kind, flags, offset, length, link, alignment))
    return sections


def find_build_id(content: mmap.mmap, sections: Collection[Section]) -> str | None:
    areas = [(s.offset, s.size, s.alignment) for s in sections if s.kind == SECTION_NOTE]
    for kind, _flags, offset, _address, _physical, length, _memory, alignment in _segments(content):
        if kind == SEGMENT_NOTE:
            areas.append((offset, length, alignment))
    for offset, length, alignment in areas:
        found = _find_build_id_note(content, offset, offset + length, 8 if alignment == 8 else 4)
        if found:
            return found
    return None


def _segments(content: mmap.mmap) -> Iterator[tuple[int, ...]]:
    """A ValueError when the file is damaged."""
    header = FILE_HEADER.unpack_from(content)
    table, size, count = header[5], header[9], header[10]
    if table + size * count > len(content):
        raise ValueError("a table of segments that is not there")
    for index in range(count):
        segment = SEGMENT_HEADER.unpack_from(content, table + size * index)
        if segment[2] + segment[5] > len(content):
            raise ValueError("a segment that is not there")
        yield segment


def _find_build_id_note(content: mmap.mmap, offset: int, end: int, alignment: int) -> str | None:
    while offset + NOTE_HEADER.size <= end:
        name_size, description_size, kind = NOTE_HEADER.unpack_from(content, offset)
        name_at = offset + NOTE_HEADER.size
        description_at = name_at + _round_up(name_size, alignment)
        if kind == NOTE_BUILD_ID and content[name_at : name_at + name_size] == b"GNU\0":
            return content[description_at : description_at + description_size].hex()
        offset = description_at + _round_up(description_size, alignment)
    return None


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


@contextlib.contextmanager
def map_file(path: str | Path) -> Iterator[mmap.mmap]:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _read_symbols(
    content: mmap.mmap, sections: list[Section], kinds: Collection[int] = SYMBOL_TABLES
) -> Iterator[tuple[int, ...]]:
    """Where the name of each begins in the file, its kind, the number of its section (0: it is only asked for), value
    and size; of all tables of these kinds."""
    for table in sections:
        if table.kind in kinds:
            names, size = sections[table.link].offset, table.size // SYMBOL.size * SYMBOL.size
            for name, info, _, number, value, length in SYMBOL.iter_unpack(content[table.offset : table.offset + size]):
                yield names + name, info & KIND_OF_SYMBOL, number, value, length


def _read_text(content: mmap.mmap | bytes, at: int) -> bytes:
    return content[at : content.find(b"\0", at)]


@cache
def find_symbols(path: str, names: tuple[str, ...]) -> dict[str, int]:
    """Values of the wanted symbols that the file defines: relative to the load base unless its type is fixed."""
    wanted = {name.encode(): name for name in names}
    found: dict[str, int] = {}
    with map_file(path) as content:
        for name_at, _kind, number, value, _size in _read_symbols(content, read_sections(content)):
            name = wanted.get(_read_text(content, name_at))
            if name is not None and number and value:
                found.setdefault(name, value)
    return found


def names_symbol(path: str, wanted: Collection[str]) -> bool:
    """Whether the file may define or ask for one of them: some symbol, of a million perhaps, ends like that."""
    with map_file(path) as content:
        sections = read_sections(content)
        tables = {sections[section.link] for section in sections if section.kind in SYMBOL_TABLES}
        texts = [content[table.offset : table.offset + table.size] for table in tables]
        # Linkers merge string-table suffixes: a name may be stored only as the tail of a longer one.
        ends = [name.encode() + behind for name in wanted for behind in (b"\0", b"@")]
        return any(end in text for text in texts for end in ends)


def find_objects(path: str) -> list[tuple[str, int, int]]:
    """Name, address and size of all that the symbol tables know of the program's own writable data."""
    found: dict[int, tuple[str, int, int]] = {}
    with map_file(path) as content:
        sections = read_sections(content)
        own = {number for number, section in enumerate(sections) if section.name in WRITABLE_SECTIONS}
        for name_at, kind, number, address, size in _read_symbols(content, sections):
            if number in own and size and kind == SYMBOL_OBJECT:
                text = _read_text(content, name_at).partition(b"@")[0]
                if not text.startswith(START_UP_OBJECT):
                    found.setdefault(address, (text.decode("utf-8", "replace"), address, size))
    return sorted(found.values(), key=lambda row: row[1])


def find_thread_symbols(path: str) -> dict[str, int]:
    """Where the variables of a thread lie, relative to its thread pointer, if the file is the program itself."""
    with map_file(path) as content:
        segments = _segments(content)
        # Only one, behind whose end, rounded up, the thread pointer points.
        size = next((_round_up(segment[6], segment[7] or 1) for segment in segments if segment[0] == SEGMENT_THREAD), 0)
        sections = read_sections(content) if size else []
        return {
            _read_text(content, name_at).decode("utf-8", "replace"): value - size
            for name_at, kind, number, value, _ in _read_symbols(content, sections, (SECTION_SYMBOLS,))
            if number and kind == SYMBOL_THREAD
        }


def list_producers(path: Path) -> set[bytes]:
    """What compiled the code, with its options, as it says itself.

    Units without code do not count: with a sanitizer the linker adds one of the compiler's own. Of what is compressed,
    damaged or of a kind not known here nothing is told."""
    found: set[bytes] = set()
    with map_file(path) as content:
        try:
            sections = {
                section.name: content[section.offset : section.offset + section.size]
                for section in read_sections(content)
                if section.name.startswith(b".debug_") and not section.flags & SECTION_COMPRESSED
            }
            found.update(_read_producers(sections))
        except (struct.error, LookupError, ValueError, OverflowError):
            pass
    return found


def _read_producers(sections: dict[bytes, bytes]) -> Iterator[bytes]:
    info, at = sections[b".debug_info"], 0
    while at < len(info):
        length, version = UNIT.unpack_from(info, at)
        end = at + OFFSET.size + length
        at += UNIT.size
        kind = UNIT_COMPILE
        if version >= 5:
            kind, _size, abbreviations = KIND_SIZE_ABBREVIATIONS.unpack_from(info, at)
            at += KIND_SIZE_ABBREVIATIONS.size
        else:
            abbreviations, _size = ABBREVIATIONS_SIZE.unpack_from(info, at)
            at += ABBREVIATIONS_SIZE.size
        if kind == UNIT_COMPILE:
            code, at = _read_leb(info, at)
            head = dict(_read_head(sections, _find_forms(sections[b".debug_abbrev"], abbreviations, code), at))
            if any(attribute in head for attribute in TAKES_CODE) and head.get(PRODUCER):
                yield head[PRODUCER]
        at = end


def _find_forms(table: bytes, at: int, wanted: int) -> list[tuple[int, int]]:
    """Attributes and forms of the entries with this code."""
    while True:
        code, at = _read_leb(table, at)
        _tag, at = _read_leb(table, at)
        at += 1  # whether it has children
        forms = []
        while True:
            attribute, at = _read_leb(table, at)
            form, at = _read_leb(table, at)
            if form == FORM_IMPLICIT:
                _value, at = _read_leb(table, at)
            if attribute == form == 0:
                break
            forms.append((attribute, form))
        if code == wanted:
            return forms


def _read_head(sections: dict[bytes, bytes], forms: list[tuple[int, int]], at: int) -> Iterator[tuple[int, bytes]]:
    """Attributes with their text, which is empty of those that are none."""
    info = sections[b".debug_info"]
    for attribute, form in forms:
        text = b""
        if form == FORM_STRING:
            text = _read_text(info, at)
            at += len(text) + 1
        elif form in LEB_FORMS:
            _value, at = _read_leb(info, at)
        else:
            if form in (FORM_STRP, FORM_LINE_STRP):
                texts = sections[b".debug_str" if form == FORM_STRP else b".debug_line_str"]
                text = _read_text(texts, *OFFSET.unpack_from(info, at))
            at += FIXED_SIZES[form]
        yield attribute, text


def _read_leb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of any length, and where it ends; a signed one has the same length."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
