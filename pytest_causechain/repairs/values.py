"""Other values that a variable might have had."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pytest_causechain.model.intervention import Anchor, Sighting
from pytest_causechain.tracee.effects import NOTHING_COMPARED, Compared, turn_comparisons

FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
# Of each kind of guess; of neighbours, before others.
MOST_SEEN, MOST_LIKES, MOST_NAMED, MOST_NEAR = 8, 8, 8, 4
# Where programs and what they allocate begin; below are numbers.
LEAST_ADDRESS = 1 << 16
POINTER_SIZE = 8


class Candidate(NamedTuple):
    data: bytes
    text: str
    anchor: Anchor | None = None


def guess_values(
    sighting: Sighting,
    row: dict[str, Any] | None,
    is_float: bool,
    seen: Sequence[bytes],
    expected: Sequence[str] = (),
    compared: Compared = NOTHING_COMPARED,
) -> list[Candidate]:
    """Different from the value there, the likely ones first: neighbours, numbers that the test expects, what lets a
    comparison come out otherwise, values seen in passing runs, other variables, other enumerators."""
    was = sighting.was
    kind = classify(was, row, is_float)
    nearest = list(near(was, kind, row))
    guesses = [*nearest[:MOST_NEAR], *expect(expected, len(was), kind), *turn(was, kind, row, compared)]
    guesses += nearest[MOST_NEAR:]
    if kind == "pointer":
        # Addresses of another run mean nothing here.
        seen = [data for data in seen if not any(data)]
    guesses += [Candidate(data, show(data, kind, row)) for data in seen[:MOST_SEEN] if len(data) == len(was)]
    for like in sighting.likes[:MOST_LIKES]:
        text = like.name if kind == "pointer" else show(like.data, kind, row)
        guesses.append(Candidate(like.data, text, like.anchor))
    distinct: dict[bytes, Candidate] = {}
    for guess in guesses:
        if guess.data != was:
            distinct.setdefault(guess.data, guess)
    return list(distinct.values())


def classify(was: bytes, row: dict[str, Any] | None, is_float: bool) -> str:
    if is_float or (row is not None and row["kind"] == "float"):
        return "float" if len(was) in FLOATS else "int"
    if row is not None:
        return str(row["kind"])
    is_address = len(was) == POINTER_SIZE and LEAST_ADDRESS <= int.from_bytes(was, "little") < 1 << 47
    return "pointer" if is_address else "int"


def expect(numbers: Sequence[str], size: int, kind: str) -> Iterator[Candidate]:
    for number in numbers:
        if kind == "float":
            yield from _float(FLOATS[size], float(number))
        elif kind == "int" and number.lstrip("-").isdecimal() and -(1 << 8 * size - 1) <= int(number) < 1 << 8 * size:
            yield Candidate(_wrap(int(number), size), number)


def near(was: bytes, kind: str, row: dict[str, Any] | None) -> Iterator[Candidate]:
    size = len(was)
    if kind == "pointer":
        yield Candidate(bytes(size), "NULL")
        return
    if kind == "float":
        layout = FLOATS[size]
        (value,) = layout.unpack(was)
        for other in (value + 1, value - 1, 0.0, 1.0, -value):
            yield from _float(layout, other)
        return
    if kind == "enum" and row is not None:
        for name, number in list(row["values"].items())[:MOST_NAMED]:
            yield Candidate(_wrap(number, size), name)
        return
    number = int.from_bytes(was, "little", signed=True)
    others = (1 - number,) if kind == "bool" else (number + 1, number - 1, 0, 1, -number, -1, number + 2, number - 2)
    for value in others:
        data = _wrap(value, size)
        yield Candidate(data, show(data, kind, row))


def turn(was: bytes, kind: str, row: dict[str, Any] | None, compared: Compared) -> Iterator[Candidate]:
    if kind in ("int", "char"):
        for value in turn_comparisons(int.from_bytes(was, "little", signed=True), compared):
            data = _wrap(value, len(was))
            yield Candidate(data, show(data, kind, row))


def _float(layout: struct.Struct, value: float) -> Iterator[Candidate]:
    try:
        yield Candidate(layout.pack(value), f"{value:g}")
    except OverflowError:
        return


def _wrap(value: int, size: int) -> bytes:
    return (value % (1 << 8 * size)).to_bytes(size, "little")


def show(data: bytes, kind: str, row: dict[str, Any] | None) -> str:
    """A value as a C programmer writes it."""
    if kind == "float" and len(data) in FLOATS:
        return f"{FLOATS[len(data)].unpack(data)[0]:g}"
    if kind == "pointer":
        return hex(int.from_bytes(data, "little")) if any(data) else "NULL"
    signed = row.get("signed", True) if row is not None else True
    number = int.from_bytes(data, "little", signed=bool(signed))
    if kind == "enum" and row is not None:
        names = {value: name for name, value in row["values"].items()}
        return str(names.get(number, number))
    if kind == "char" and 32 <= number < 127:
        return f"'{chr(number)}'" if chr(number) not in "'\\" else f"'\\{chr(number)}'"
    return str(number)
