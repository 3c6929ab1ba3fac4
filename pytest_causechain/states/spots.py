"""One value of a pair of objects: whether it differs, and how that is told."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

from pytest_causechain.debugger.types import (
    BoolType,
    CharType,
    EnumType,
    FloatType,
    FunctionType,
    IntType,
    PointerType,
    UnionType,
)
from pytest_causechain.debugger.visit import RETURN_VALUE
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import BYTE, POINTER_SIZE, Layouts, Leaf
from pytest_causechain.states.literals import FLOATS, extract_bits, show_characters, show_text
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.names import drop_this, is_written_out, seen_from, write_part
from pytest_causechain.states.objects import IMAGE, Object, Target, Variable
from pytest_causechain.states.shapes import Place
from pytest_causechain.states.showing import is_plain, reference, show_pointers, show_raw, show_value

Kind = Literal["value", "repoint", "create", "delete", "alias"]
# Kinds of values that functions return in a register of this name.
IN_ACCUMULATOR = (IntType, EnumType, CharType, BoolType, PointerType)
# The members and elements of a path: ".at", "[3]", ".x".
PATH_PART = re.compile(r"\.[^.\[]+|\[\d*\]|@\d+")


class Spot:
    """One leaf of a pair of objects, as a delta tells it."""

    def __init__(self, matching: Matching, ours: Object, theirs: Object, place: Place) -> None:
        self.matching, self.ours, self.theirs, self.place = matching, ours, theirs, place
        self.leaf: Leaf = place.leaf

    # What differs

    @property
    def layouts(self) -> Layouts:
        return self.matching.failing.layouts

    @property
    def values(self) -> tuple[bytes, bytes]:
        return self.matching.passing.value(self.ours, self.leaf), self.matching.failing.value(self.theirs, self.leaf)

    @property
    def base(self) -> int:
        return 0 if self.place.run is None else self.place.run.base

    @cached_property
    def is_pointer(self) -> bool:
        """Also of a number that is the address of an object."""
        if self.layouts.is_address_sized(self.leaf):
            left, right = (WORD.unpack(value)[0] for value in self.values)
            return right in self.matching.failing.starts or (not right and left in self.matching.passing.starts)
        return self.layouts.is_pointer(self.leaf.type)

    @property
    def pointed(self) -> int:
        """The type pointed to."""
        target = self.layouts.target(self.leaf.type)
        return BYTE if target is None else target

    @property
    def is_raw(self) -> bool:
        return self.theirs.shape.is_text

    @property
    def is_whole(self) -> bool:
        """The object as one value, in whatever length it has."""
        return self.is_raw and self.theirs.kept is None

    def find_kind(self) -> Kind | None:
        """None when both runs have the same here, or what differs means nothing in another run."""
        if self.theirs.is_unset:
            return "value" if self._differs_unset() else None
        if self.is_pointer:
            return self._find_pointer_kind()
        left, right = self.comparable_values
        return "value" if self.extract(left) != self.extract(right) else None

    def _differs_unset(self) -> bool:
        """Of a variable that nothing has been put into yet: what an earlier call left there may be a number that
        matters, but an address is none."""
        if self.layouts.is_pointer(self.leaf.type):
            return False
        left, right = (bytearray(value) for value in self.values)
        sides = ((self.matching.passing, self.ours), (self.matching.failing, self.theirs))
        start, end = self.leaf.offset, self.leaf.offset + self.leaf.size
        for graph, o in sides:
            first = -((o.address + start) % POINTER_SIZE)
            for at in range(start + first, end, POINTER_SIZE):
                word = graph.memory.word(o.address + at)
                if word and graph.memory.is_mapped(word):
                    part = slice(max(at - start, 0), at - start + POINTER_SIZE)
                    left[part] = right[part] = bytes(len(left[part]))
        return self.extract(bytes(left)) != self.extract(bytes(right))

    def extract(self, data: bytes) -> bytes | int:
        """The value itself: a bit-field has neighbours in the same bytes."""
        return data if self.leaf.bits is None else extract_bits(data, self.leaf.bits, False)

    @cached_property
    def comparable_values(self) -> tuple[bytes, bytes]:
        """Pointers among the bytes are made alike if they lead to the same, and different if they do not: their values
        differ from run to run, or happen to be the same."""
        left, right = self.values
        if not isinstance(self.layouts.type(self.leaf.type), UnionType | CharType):
            return left, right
        matching, start, end = self.matching, self.leaf.offset, self.leaf.offset + self.leaf.size
        ours = {p.offset: p.value for p in matching.passing.pointers_within(self.ours, start, end)}
        theirs = {p.offset: p.value for p in matching.failing.pointers_within(self.theirs, start, end)}
        if not ours and not theirs:
            return left, right
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

    @cached_property
    def targets(self) -> tuple[Target, Target]:
        """What the pointer leads to in either run."""
        left, right = (WORD.unpack(value)[0] for value in self.values)
        return self.matching.passing.target(left), self.matching.failing.target(right)

    def _find_pointer_kind(self) -> Kind | None:
        source, target = self.targets
        matching = self.matching
        if matching.same_target(source, target) or not self._is_transferable(target):
            return None
        if target.object is None:
            is_gone = source.object is not None and source.object not in matching.mates
            return "delete" if is_gone and not target.offset and target.module is None else "repoint"
        mate = matching.mates.get(target.object)
        if mate is None:
            # The passing run has one object here for which the failing run has two.
            is_shared = source.object in matching.mates and source.object is not None and self._is_alike(source, target)
            return "alias" if is_shared else "create"
        # Or the other way round: the one it had here itself is nobody's partner.
        was_own = source.object is not None and source.object not in matching.mates and self._is_alike(source, target)
        return "alias" if was_own else "repoint"

    def _is_alike(self, source: Target, target: Target) -> bool:
        """Whether two objects could be one, or copies of each other."""
        one, other = source.object, target.object
        if one is None or other is None or source.offset != target.offset or "variable" in (one.kind, other.kind):
            return False
        if one.shape is not other.shape or other.shape.is_text:
            return False
        passing, failing = self.matching.passing, self.matching.failing
        left, right = passing.memory.region(one.address), failing.memory.region(other.address)
        assert left is not None and right is not None
        return one.shape.values(left.data, one.address - left.start) == other.shape.values(
            right.data, other.address - right.start
        )

    def _is_transferable(self, target: Target) -> bool:
        """Not a pointer into a frame that is gone, or one never set, nor one to a variable that the other run has not:
        its value means nothing there. Nor one to an object that cannot be made, such as an open file."""
        failing = self.matching.failing
        if target.object is not None:
            return target.object.kind != "variable" or target.object in self.matching.mates
        if target.module is not None:
            return self.matching.passing.address(target) is not None
        if self.layouts.is_opaque(self.pointed):
            return failing.memory.block(target.offset) is None
        return not failing.memory.is_stack(target.offset) and failing.memory.region(target.offset) is None

    @property
    def new_part(self) -> tuple[Object, int, int] | None:
        """The part of a block, from and up to an offset, that a pointer leads to and the passing run has not there."""
        if not self.is_pointer:
            return None
        o, offset = self.targets[1].object, self.targets[1].offset
        if o is None or o.parts is None or o not in self.matching.mates:
            return None
        kind = dict(o.parts).get(offset)
        is_pool = len({kind for _, kind in o.parts}) > 1
        if kind is None or not is_pool or (offset, kind) in (self.matching.mates[o].parts or ()):
            return None
        run = o.shape.run_at(offset)
        is_text = run is not None and self.layouts.is_char(kind)
        return o, offset, offset + (run.count if run is not None and is_text else self.layouts.size(kind))

    # How it is told

    @property
    def path(self) -> str:
        return "" if self.is_raw else self.place.path

    @cached_property
    def key(self) -> str:
        naming = self.matching.failing.naming
        # The pointer to raw memory has the same name but is another variable.
        return self._part(naming.key(self.theirs, self.base), "[]" if self.is_raw else self.path)

    @cached_property
    def name(self) -> str:
        naming = self.matching.failing.naming
        name = naming.name(self.theirs, self.base)
        remark = " (not set yet)" if self.theirs.is_unset else ""
        part = self._part(name, naming.shorten(self.theirs, self.path))
        return drop_this(self.matching.failing, part, self.frame) + self._told[2] + remark

    def _part(self, name: str, path: str) -> str:
        run = self.place.run
        if run is None and not self.is_raw:
            return f"{name} + {self.leaf.offset} bytes"
        return write_part(run is not None and run.is_direct, name, path)

    @property
    def type(self) -> str:
        return self.layouts.name(self.leaf.type)

    @property
    def passing(self) -> str:
        return self._told[0]

    @property
    def failing(self) -> str:
        return self._told[1]

    @property
    def frame(self) -> int | None:
        return self.matching.failing.naming.frame(self.theirs, self.base)

    @property
    def value_key(self) -> str | None:
        if not self.is_pointer:
            return None
        target = self.targets[1]
        if not isinstance(target.object, Variable):
            return None
        # Its name depends on who looks: input[4], line[4].
        return f"{target.object.key}+{target.offset}"

    @cached_property
    def group(self) -> tuple[str, ...]:
        naming = self.matching.failing.naming
        root = naming.root(self.theirs, self.base)
        if root is None:
            return ("", naming.key(self.theirs, self.base), *PATH_PART.findall(self.path))
        scope = "global" if root.frame is None else root.key.rpartition(":")[0]
        return (scope, root.key, naming.key(self.theirs, self.base), *PATH_PART.findall(self.path))

    @property
    def assignment(self) -> str | None:
        return self._assign(self.matching.passing, self.ours, self._told[3], self.values[1])

    @property
    def undo(self) -> str | None:
        return self._assign(self.matching.failing, self.theirs, self._told[4], self.values[0])

    def _assign(self, graph: MemoryGraph, o: Object, literal: str | None, value: bytes) -> str | None:
        """The place has another name in the passing run when another way leads to it."""
        naming = graph.naming
        if literal is None or o.shape.run_at(self.leaf.offset) is None:
            return None
        base = o.shape.base_of(self.leaf.offset)
        above = naming.ancestors(o, base)
        # gdb would have to call a container's own functions, and knows a pointer's class, not that of its object.
        if any(one in graph.containers.owners or self._is_dynamic(one) for one, _ in above):
            return None
        name = self._part(naming.name(o, base), naming.shorten(o, self.path))
        if name == RETURN_VALUE and isinstance(self.layouts.type(self.leaf.type), IN_ACCUMULATOR):
            return f"$rax = {literal}"
        place = seen_from(graph, self.frame, name, naming.frame(o, base))
        if place is None or not is_written_out(place + literal):
            return None
        if literal == '""':
            return f"*(char *) {'' if self.is_raw else '&'}{place} = 0"
        if literal.startswith('"'):
            # Text is assigned to an array just long enough.
            size = len(value.partition(b"\0")[0]) + 1
            place = f"*(char (*)[{size}]) {'' if self.is_raw else '&'}{place}"
        return f"{place} = {literal}"

    def _is_dynamic(self, o: Object) -> bool:
        return o.kind != "variable" and any(self.layouts.is_dynamic(run.type) for run in o.shape.runs)

    @cached_property
    def _told(self) -> tuple[str, str, str, str | None, str | None]:
        """Both values, a remark, the new value as it can be assigned in the passing run, and the old one in the failing
        run."""
        if self.is_pointer:
            return self._tell_pointer()
        if self.layouts.is_text_leaf(self.leaf):
            return self._tell_text()
        passing, failing = self.matching.passing, self.matching.failing
        shown = show_value(passing, self.ours, self.leaf), show_value(failing, self.theirs, self.leaf)
        if shown[0] == shown[1]:
            left, right = self.comparable_values
            shown = "0x" + left[::-1].hex(), "0x" + right[::-1].hex()
        old, new = (assignable(self.layouts, self.leaf, value) for value in shown)
        return *shown, "", new, old

    def _tell_text(self) -> tuple[str, str, str, str | None, str | None]:
        """An array of characters is one value; when only what follows its end differs, it may be no text at all."""
        left, right = self.values
        if self.leaf.type == BYTE and not (is_plain(left) and is_plain(right)):
            return self._tell_bytes()
        if self.is_whole:
            left = self.matching.passing.contents(self.ours)
        shown = show_text(left), show_text(right)
        if shown[0] != shown[1]:
            old, new = (text if b"\0" in data else None for text, data in zip(shown, (left, right), strict=True))
            # One that is longer than the object in the failing run does not fit there.
            return *shown, "", new, old if len(left.partition(b"\0")[0]) < self.theirs.size else None
        first = next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), len(right))
        return show_characters(left[first:]), show_characters(right[first:]), f" from [{first}] on", None, None

    def _tell_bytes(self) -> tuple[str, str, str, str | None, str | None]:
        left, right = self.comparable_values
        first = next((at // POINTER_SIZE for at in range(len(right)) if left[at] != right[at]), 0)
        passing, failing, start = self.matching.passing, self.matching.failing, self.leaf.offset
        return show_raw(passing, self.ours, start, first), show_raw(failing, self.theirs, start, first), "", None, None

    def _tell_pointer(self) -> tuple[str, str, str, str | None, str | None]:
        matching = self.matching
        left, right = (WORD.unpack(value)[0] for value in self.values)
        shown = show_pointers(matching, (self.ours, left), (self.theirs, right), self.pointed)
        old, new = self.targets
        return (
            *shown,
            "",
            self._assignable_pointer(matching.passing, new, right, shown[1]),
            self._assignable_pointer(matching.failing, old, left, shown[0]),
        )

    def _assignable_pointer(self, graph: MemoryGraph, target: Target, value: int, shown: str) -> str | None:
        """A pointer of the other run as it can be assigned in the run of `graph`."""
        mate = self.matching.mates.get(target.object) if target.object is not None else None
        if mate is not None:
            way = reference(graph, mate, target.offset)
            frame = graph.naming.frame(mate, mate.shape.base_of(target.offset))
            return seen_from(graph, self.frame, way, frame) if way is not None else None
        is_function = isinstance(self.layouts.type(self.pointed), FunctionType)
        if target.module == IMAGE and is_function and not shown.startswith("0x"):
            return shown
        return "0" if not value else None


def assignable(layouts: Layouts, leaf: Leaf, shown: str) -> str | None:
    """A shown value as gdb reads it, whatever language the program is written in."""
    match layouts.type(leaf.type):
        case BoolType():
            return {"false": "0", "true": "1"}.get(shown, shown)
        case IntType() | EnumType() | CharType() if leaf.size <= POINTER_SIZE:
            return shown.partition(" ")[0]
        case FloatType() if leaf.size in FLOATS and shown.strip("-") not in ("inf", "nan"):
            return shown
    return None
