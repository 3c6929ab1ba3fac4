"""Turns a matching into deltas: the atomic differences between two states."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pytest_causechain.states.graph import MemoryGraph, Object, Target, element_path, member
from pytest_causechain.states.layout import Leaf, show_text
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD

# A longer unread input is one delta: comparing it line by line takes the square of its length.
INPUT_LINES_LIMIT = 2_000
ABSENT = ""
# Enough to recognise an element of a list.
MEMBERS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """The same bytes in a pair of objects."""

    passing: Object
    failing: Object
    offset: int
    size: int
    bits: tuple[int, int] | None = None
    is_pointer: bool = False


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
    layouts = matching.failing.layouts
    rank = {o: number for number, o in enumerate(matching.failing.objects)}
    for ours, theirs in sorted(matching.pairs, key=lambda pair: rank[pair[1]]):
        has_pointers = bool(layouts.pointers(theirs.type))
        if not has_pointers and matching.passing.contents(ours)[: theirs.size] == matching.failing.contents(theirs):
            continue
        if theirs.kind != "variable" and layouts.kind(theirs.type) == "char":
            whole = Leaf("", 0, theirs.size, theirs.type)
            yield text_delta(matching, ours, theirs, whole, "")
            continue
        width = layouts.size(theirs.type)
        for element in range(theirs.count):
            where = element_path(theirs, element)
            for leaf in layouts.leaves(theirs.type):
                shifted = Leaf(leaf.path, element * width + leaf.offset, leaf.size, leaf.type, leaf.bits)
                delta = leaf_delta(matching, ours, theirs, shifted, where + leaf.path)
                if delta is not None:
                    yield delta


def leaf_delta(matching: Matching, ours: Object, theirs: Object, leaf: Leaf, path: str) -> Delta | None:
    layouts = matching.failing.layouts
    if layouts.kind(leaf.type) == "pointer":
        return pointer_delta(matching, ours, theirs, leaf, path)
    left, right = matching.passing.value(ours, leaf), matching.failing.value(theirs, leaf)
    if left == right:
        return None
    if layouts.is_text(leaf.type):
        return text_delta(matching, ours, theirs, leaf, path)
    shown_left, shown_right = layouts.show(leaf, left), layouts.show(leaf, right)
    if leaf.bits is not None and shown_left == shown_right:
        return None  # a neighbour in the same bytes differs
    name = member(theirs, theirs.name, path)
    plain = layouts.kind(leaf.type) in ("int", "enum", "bool", "char", "float") and leaf.size <= 8
    return Delta(
        key=member(theirs, theirs.key, path),
        name=name,
        type=layouts.name(leaf.type),
        passing=shown_left,
        failing=shown_right,
        kind="value",
        frame=theirs.frame,
        assignment=f"{name} = {shown_right.partition(' ')[0]}" if plain else None,
        slot=Slot(ours, theirs, leaf.offset, leaf.size, leaf.bits),
    )


def text_delta(matching: Matching, ours: Object, theirs: Object, leaf: Leaf, path: str) -> Delta:
    """An array of characters is one value; when only what follows its end differs, that is said."""
    left, right = matching.passing.value(ours, leaf), matching.failing.value(theirs, leaf)
    name = member(theirs, theirs.name, path)
    shown_left, shown_right = show_text(left), show_text(right)
    if shown_left == shown_right:
        end = len(right.partition(b"\0")[0]) + 1
        name, shown_left, shown_right = f"{name} behind its end", show_text(left[end:]), show_text(right[end:])
    size = len(right.partition(b"\0")[0]) + 1
    address = f"&{name}" if theirs.kind == "variable" else name
    return Delta(
        key=member(theirs, theirs.key, path),
        name=name,
        type=matching.failing.layouts.name(leaf.type),
        passing=shown_left,
        failing=shown_right,
        kind="value",
        frame=theirs.frame,
        assignment=f"*(char (*)[{size}]) {address} = {shown_right}" if "behind" not in name else None,
        slot=Slot(ours, theirs, leaf.offset, leaf.size),
    )


def pointer_delta(matching: Matching, ours: Object, theirs: Object, leaf: Leaf, path: str) -> Delta | None:
    left = WORD.unpack(matching.passing.value(ours, leaf))[0]
    right = WORD.unpack(matching.failing.value(theirs, leaf))[0]
    source, target = matching.passing.target(left), matching.failing.target(right)
    if matching.same_target(source, target):
        return None
    if is_stale(matching.failing, target):
        return None
    mate = matching.mates.get(target.object) if target.object is not None else None
    kind: Literal["repoint", "create", "delete"] = "repoint"
    if target.object is not None and mate is None:
        kind = "create"
    elif not right and source.object is not None and source.object not in matching.mates:
        kind = "delete"
    name = member(theirs, theirs.name, path)
    value = "0" if not right else reference(mate, target.offset) if mate is not None else None
    return Delta(
        key=member(theirs, theirs.key, path),
        name=name,
        type=matching.failing.layouts.name(leaf.type),
        passing=show_pointer(matching.passing, leaf, left, source),
        failing=show_pointer(matching.failing, leaf, right, target),
        kind=kind,
        frame=theirs.frame,
        assignment=f"{name} = {value}" if value is not None else None,
        slot=Slot(ours, theirs, leaf.offset, leaf.size, is_pointer=True),
    )


def is_stale(graph: MemoryGraph, target: Target) -> bool:
    """A pointer into a frame that is gone, or one never set: its value means nothing in another run."""
    if target.object is not None or target.image or not target.offset:
        return False
    region = graph.memory.region(target.offset)
    return region is not None and region.kind == "stack"


def reference(o: Object, offset: int) -> str | None:
    if offset:
        return None
    return f"&{o.name}" if o.kind == "variable" else o.name


def show_pointer(graph: MemoryGraph, leaf: Leaf, value: int, target: Target) -> str:
    """By the text it leads to, by the name of the object, by its number where nothing better is known."""
    if not value:
        return "NULL"
    if graph.layouts.kind(graph.layouts.target(leaf.type)) == "char":
        text = graph.memory.read_text(value)
        if text is not None:
            return show_text(text)
    if target.object is not None and target.object.kind == "variable":
        return f"&{target.object.name}" + (f" + {target.offset} bytes" if target.offset else "")
    if target.object is not None and graph.layouts.kind(target.object.type) == "struct":
        return show_struct(graph, target.object, target.offset // graph.layouts.size(target.object.type))
    return hex(value)


def show_struct(graph: MemoryGraph, o: Object, element: int) -> str:
    """The first members as an initialiser; an address would say nothing to a reader."""
    members = []
    for leaf in islice(graph.layouts.leaves(o.type), MEMBERS_SHOWN + 1):
        data = graph.value(o, leaf, element)
        if graph.layouts.kind(leaf.type) != "pointer" or not any(data):
            members.append(graph.layouts.show(leaf, data))
        else:
            text = None
            if graph.layouts.kind(graph.layouts.target(leaf.type)) == "char":
                text = graph.memory.read_text(WORD.unpack(data)[0])
            members.append(show_text(text) if text is not None else "...")
    if len(members) > MEMBERS_SHOWN:
        members[MEMBERS_SHOWN:] = ["..."]
    return "{" + ", ".join(members) + "}"


def input_edits(passing: bytes, failing: bytes) -> tuple[Edit, ...]:
    ours, theirs = passing.splitlines(keepends=True), failing.splitlines(keepends=True)
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
                key=f"stdin:{line}",
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
