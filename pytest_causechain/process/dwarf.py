"""Reads the heads of DWARF's compilation units: with which options the code in a file was compiled."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from pytest_causechain.process.elf import SECTION_COMPRESSED, read_sections

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


def list_producers(path: Path) -> set[bytes]:
    """What compiled the code, with its options, as it says itself.

    Units without code do not count: with a sanitizer the linker adds one of the compiler's own. Of what is compressed,
    damaged or of a kind not known here nothing is told."""
    found: set[bytes] = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
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


def _read_text(texts: bytes, at: int) -> bytes:
    return texts[at : texts.index(b"\0", at)]


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
