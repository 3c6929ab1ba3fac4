"""Turns a matching into deltas: the atomic differences between two states."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pytest_causechain.states.graph import Object, Target
from pytest_causechain.states.layout import BYTE, FLOATS, POINTER_SIZE, Layouts, Leaf, show_text
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.names import element_path, is_written_out, key_part, name_part, seen_from
from pytest_causechain.states.showing import is_plain, reference, show_pointers, show_raw, show_value

# A longer unread input is one delta: comparing it line by line takes the square of its length.
INPUT_LINES_LIMIT = 2_000
ABSENT = ""
# Only what C's input functions take for the end of a line.
LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Slot:
    """The same bytes in a pair of objects; `is_whole`: all bytes, of which one of the two may have more."""

    passing: Object
    failing: Object
    offset: int
    size: int
    bits: tuple[int, int] | None = None
    is_pointer: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of the passing run's unread input and the failing run's lines in their place."""

    passing: tuple[bytes, ...]
    failing: tuple[bytes, ...]
    differs: bool


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """One difference: a slot of the memory, or one edit (by number) of the unread input.

    `key` names the variable independently of the calls on the stack, `name` as a programmer writes it here, in
    frame number `frame`. `assignment` makes this change in the passing run as a C statement, where one can.
    """

    key: str
    name: str
    type: str
    passing: str
    failing: str
    kind: Literal["value", "repoint", "create", "delete", "input"]
    frame: int | None = None
    assignment: str | None = None
    slot: Slot | None = None
    edit: int | None = None
    # Of a pointer: what it leads to in the failing run, by the key of that.
    value_key: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two matched states and all that differs between them."""

    matching: Matching
    edits: tuple[Edit, ...]
    deltas: tuple[Delta, ...]


def compare_states(matching: Matching, passing_stdin: bytes, failing_stdin: bytes) -> Comparison:
    edits = input_edits(
        passing_stdin[matching.passing.visit.stdin_position or 0 :],
        failing_stdin[matching.failing.visit.stdin_position or 0 :],
    )
    read = failing_stdin[: matching.failing.visit.stdin_position or 0].count(b"\n")
    deltas = [*input_deltas(edits, read), *memory_deltas(matching)]
    return Comparison(matching, edits, tuple(deltas))


def memory_deltas(matching: Matching) -> Iterator[Delta]:
    """In the order in which a programmer looks: the innermost frame's variables and what they lead to first."""
    passing, failing = matching.passing, matching.failing
    rank = {o: number for number, o in enumerate(failing.objects)}
    for ours, theirs in sorted(matching.pairs, key=lambda pair: rank[pair[1]]):
        left, right = passing.contents(ours)[: theirs.size], failing.contents(theirs)
        is_hiding = bool(passing.hidden_pointers(ours) or failing.hidden_pointers(theirs))
        if left == right and not is_hiding and not failing.layouts.holds_pointer(theirs.type):
            continue
        for element, leaf in failing.leaves(theirs):
            start, end = leaf.offset, leaf.offset + leaf.size
            # Equal addresses may lead to unequal objects.
            is_same = not is_hiding and left[start:end] == right[start:end]
            if is_same and failing.layouts.kind(leaf.type) != "pointer":
                continue
            if ours.holds(start, leaf.size):
                delta = leaf_delta(Spot(matching, ours, theirs, leaf, element))
                if delta is not None:
                    yield delta


@dataclass(frozen=True, slots=True)
class Spot:
    """One leaf of a pair of objects."""

    matching: Matching
    ours: Object
    theirs: Object
    leaf: Leaf
    element: int

    @property
    def layouts(self) -> Layouts:
        return self.matching.failing.layouts

    @property
    def values(self) -> tuple[bytes, bytes]:
        return self.matching.passing.value(self.ours, self.leaf), self.matching.failing.value(self.theirs, self.leaf)

    @property
    def is_whole(self) -> bool:
        """The object as one value, in whatever length it has."""
        return self.is_raw and self.theirs.kept is None

    @property
    def is_raw(self) -> bool:
        return self.matching.failing.is_raw(self.theirs)

    @property
    def path(self) -> str:
        return "" if self.is_raw else element_path(self.theirs, self.element) + self.leaf.path

    def delta(
        self,
        kind: Literal["value", "repoint", "create", "delete"],
        shown: tuple[str, str],
        literal: str | None,
        remark: str = "",
    ) -> Delta:
        """`literal` is the new value as it can be assigned to the leaf in the passing run."""
        is_pointer = self.layouts.kind(self.leaf.type) == "pointer"
        return Delta(
            # The pointer to raw memory has the same name but is another variable.
            key=key_part(self.theirs, self.theirs.key, "[]" if self.is_raw else self.path),
            name=name_part(self.theirs, self.theirs.name, self.path) + remark,
            type=self.layouts.name(self.leaf.type),
            passing=shown[0],
            failing=shown[1],
            kind=kind,
            frame=self.theirs.frame,
            assignment=self.assignment(literal),
            slot=Slot(
                self.ours, self.theirs, self.leaf.offset, self.leaf.size, self.leaf.bits, is_pointer, self.is_whole
            ),
        )

    def assignment(self, literal: str | None) -> str | None:
        """The place has another name in the passing run when another way leads to it."""
        name = name_part(self.ours, self.ours.name, self.path)
        place = seen_from(self.matching.passing, self.theirs.frame, name, self.ours.frame)
        if literal is None or place is None or not is_written_out(place + literal):
            return None
        if literal.startswith('"'):
            # Text is assigned to an array just long enough.
            size = len(self.values[1].partition(b"\0")[0]) + 1
            place = f"*(char (*)[{size}]) {'' if self.is_raw else '&'}{place}"
        return f"{place} = {literal}"


def leaf_delta(spot: Spot) -> Delta | None:
    layouts, leaf = spot.layouts, spot.leaf
    if layouts.kind(leaf.type) == "pointer":
        return pointer_delta(spot)
    left, right = comparable_values(spot)
    if left == right:
        return None
    if layouts.is_text_leaf(leaf):
        return text_delta(spot)
    shown = show_value(spot.matching.passing, spot.ours, leaf), show_value(spot.matching.failing, spot.theirs, leaf)
    if leaf.bits is not None and shown[0] == shown[1]:
        return None  # a neighbour in the same bytes differs
    if shown[0] == shown[1]:
        shown = "0x" + left[::-1].hex(), "0x" + right[::-1].hex()
    return spot.delta("value", shown, assignable(layouts, leaf, shown[1]))


def comparable_values(spot: Spot) -> tuple[bytes, bytes]:
    """Pointers among the bytes are made alike if they lead to the same, and different if they do not: their values
    differ from run to run, or happen to be the same."""
    left, right = spot.values
    if spot.layouts.kind(spot.leaf.type) not in ("union", "char"):
        return left, right
    matching, start, end = spot.matching, spot.leaf.offset, spot.leaf.offset + spot.leaf.size
    ours = {p.offset: p.value for p in matching.passing.hidden_pointers(spot.ours, start, end)}
    theirs = {p.offset: p.value for p in matching.failing.hidden_pointers(spot.theirs, start, end)}
    changed = bytearray(left)
    for offset in ours.keys() | theirs.keys():
        at = slice(offset - start, offset - start + POINTER_SIZE)
        if offset not in ours or offset not in theirs:
            is_same = False
        else:
            source, target = matching.passing.target(ours[offset]), matching.failing.target(theirs[offset])
            is_same = matching.same_target(source, target)
        changed[at] = right[at] if is_same else bytes(byte ^ 0xFF for byte in right[at])
    return bytes(changed), right


def assignable(layouts: Layouts, leaf: Leaf, shown: str) -> str | None:
    """A shown value as gdb reads it, whatever language the program is written in."""
    kind = layouts.kind(leaf.type)
    if kind == "bool":
        return {"false": "0", "true": "1"}.get(shown, shown)
    if kind in ("int", "enum", "char") and leaf.size <= POINTER_SIZE:
        return shown.partition(" ")[0]
    return shown if kind == "float" and leaf.size in FLOATS and shown.strip("-") not in ("inf", "nan") else None


def text_delta(spot: Spot) -> Delta:
    """An array of characters is one value; when only what follows its end differs, that is said."""
    left, right = spot.values
    if spot.leaf.type == BYTE and not (is_plain(left) and is_plain(right)):
        return bytes_delta(spot)
    if spot.is_whole:
        left = spot.matching.passing.contents(spot.ours)
    shown = show_text(left), show_text(right)
    if shown[0] != shown[1]:
        fits = b"\0" in right
        return spot.delta("value", shown, shown[1] if fits else None)
    end = len(right.partition(b"\0")[0]) + 1
    rest = left[end:], right[end:]
    shown = show_text(rest[0]), show_text(rest[1])
    if shown[0] == shown[1]:
        shown = "0x" + rest[0].hex(), "0x" + rest[1].hex()
    return spot.delta("value", shown, None, " behind its end")


def bytes_delta(spot: Spot) -> Delta:
    left, right = comparable_values(spot)
    first = next((at // POINTER_SIZE for at in range(len(right)) if left[at] != right[at]), 0)
    shown = (
        show_raw(spot.matching.passing, spot.ours, spot.leaf.offset, first),
        show_raw(spot.matching.failing, spot.theirs, spot.leaf.offset, first),
    )
    return spot.delta("value", shown, None)


def pointer_delta(spot: Spot) -> Delta | None:
    matching = spot.matching
    left, right = (WORD.unpack(value)[0] for value in spot.values)
    source, target = matching.passing.target(left), matching.failing.target(right)
    if matching.same_target(source, target) or not is_transferable(spot, right, target):
        return None
    mate = matching.mates.get(target.object) if target.object is not None else None
    kind: Literal["repoint", "create", "delete"] = "repoint"
    if target.object is not None and mate is None:
        kind = "create"
    elif not right and source.object is not None and source.object not in matching.mates:
        kind = "delete"
    pointed = spot.layouts.target(spot.leaf.type)
    shown = show_pointers(matching, left, right, pointed)
    value = "0" if not right else None
    if mate is not None:
        way = reference(matching.passing, mate, target.offset)
        value = seen_from(matching.passing, spot.theirs.frame, way, mate.frame) if way is not None else None
    elif target.image and spot.layouts.kind(pointed) == "function" and not shown[1].startswith("0x"):
        value = shown[1]
    delta = spot.delta(kind, shown, value)
    if target.object is not None and target.object.kind == "variable":
        # Its name depends on who looks: input[4], line[4].
        return replace(delta, value_key=f"{target.object.key}+{target.offset}")
    return delta


def is_transferable(spot: Spot, value: int, target: Target) -> bool:
    """Not a pointer into a frame that is gone, or one never set, nor one to a variable that the other run has not:
    its value means nothing there. Nor one to an object that cannot be made, such as an open file."""
    failing = spot.matching.failing
    if target.object is not None:
        return target.object.kind != "variable" or target.object in spot.matching.mates
    if target.image or not value:
        return True
    if spot.layouts.is_opaque(spot.layouts.target(spot.leaf.type)):
        return failing.memory.block(value) is None
    return not failing.memory.is_stack(value)


def input_edits(passing: bytes, failing: bytes) -> tuple[Edit, ...]:
    ours, theirs = LINE.findall(passing), LINE.findall(failing)
    if max(len(ours), len(theirs)) > INPUT_LINES_LIMIT:
        return (Edit((passing,), (failing,), passing != failing),)
    edits: list[Edit] = []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        shared = min(i2 - i1, j2 - j1)
        if tag == "replace":
            # Line by line as far as they go together, so that each can be a cause of its own.
            edits += (Edit((ours[i1 + k],), (theirs[j1 + k],), True) for k in range(shared))
            i1, j1 = i1 + shared, j1 + shared
        if i1 < i2 or j1 < j2:
            edits.append(Edit(tuple(ours[i1:i2]), tuple(theirs[j1:j2]), tag != "equal"))
    return tuple(edits)


def input_deltas(edits: tuple[Edit, ...], lines_read: int) -> Iterator[Delta]:
    line = lines_read + 1
    for number, edit in enumerate(edits):
        if edit.differs:
            plural = f"lines {line}-{line + len(edit.failing) - 1}" if len(edit.failing) > 1 else f"line {line}"
            yield Delta(
                key="stdin",  # which of its lines decides may change as it is read; it is one input
                name=f"stdin {plural}",
                type="input",
                passing=show_lines(edit.passing),
                failing=show_lines(edit.failing),
                kind="input",
                edit=number,
            )
        line += len(edit.failing)


def show_lines(lines: tuple[bytes, ...]) -> str:
    return show_text(b"".join(lines).rstrip(b"\n").replace(b"\0", b"\\0")) if lines else ABSENT
