"""One value of a pair of objects: whether it differs, and how that is told.

Pointers become text: what they lead to says more to a reader than where that lies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_causechain.debugger.types import (
    ArrayType,
    BoolType,
    CharType,
    EnumType,
    FloatType,
    FunctionType,
    IntType,
    PointerType,
    StructType,
    UnionType,
)
from pytest_causechain.debugger.visit import RETURN_VALUE
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import (
    BYTE,
    FLOATS,
    MEMBERS_SHOWN,
    POINTER_SIZE,
    VTABLE,
    Layouts,
    Leaf,
    extract_bits,
    show_characters,
    show_leaf,
    show_text,
)
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.names import drop_this, is_written_out, seen_from, write_part
from pytest_causechain.states.shapes import IMAGE, Object, PlacedLeaf, RootVariable, Target

if TYPE_CHECKING:
    from pytest_causechain.states.deltas import MemoryDelta

# A shorter one is more likely a number.
LEAST_TEXT = 3
Kind = Literal["value", "repoint", "create", "delete", "alias"]
# Kinds of values that functions return in a register of this name.
IN_ACCUMULATOR = (IntType, EnumType, CharType, BoolType, PointerType)


def show_pointers(
    matching: Matching, passing: tuple[Object, int], failing: tuple[Object, int], kind: int
) -> tuple[str, str]:
    """A pointer of the passing run and one of the failing run, each given with the object it lies in, in such a way
    that they read differently."""
    ours, theirs, left, right = matching.passing, matching.failing, passing[1], failing[1]
    shown = (
        show_loop(ours, *passing) or show_pointer(ours, left, kind),
        show_loop(theirs, *failing) or show_pointer(theirs, right, kind),
    )
    if shown[0] == shown[1]:
        shown = show_unequal_members(ours, left, theirs, right) or shown
    if shown[0] == shown[1]:
        # The other run's name for the object: in its own run this very pointer may be the shortest way there.
        shown = (
            show_mate(matching, ours, left, theirs) or f"{shown[0]} of its own",
            show_mate(matching, theirs, right, ours) or f"{shown[1]} of its own",
        )
    if shown[0] == shown[1]:
        shown = show_place(ours, left), show_place(theirs, right)
    return shown


def show_loop(graph: MemoryGraph, holder: Object, value: int) -> str | None:
    """A pointer that leads back to an object through which one gets to it: `tree->left->left` is `tree` itself."""
    target = graph.target(value)
    if target.object is None or target.offset or target.object.kind == "variable":
        return None
    if all(o is not target.object for o, _ in graph.naming.ancestors(holder, 0)):
        return None
    return f"{graph.naming.name(target.object)} itself"


def show_unequal_members(passing: MemoryGraph, left: int, failing: MemoryGraph, right: int) -> tuple[str, str] | None:
    """Of two structs that begin alike, the first members that do not."""
    source, target = passing.target(left), failing.target(right)
    if source.object is None or target.object is None or source.object.type != target.object.type:
        return None
    if not passing.layouts.is_struct(source.object.type):
        return None
    ours = leaves_from(passing, source.object, source.offset)
    theirs = leaves_from(failing, target.object, target.offset)
    for one, other in zip(ours, theirs, strict=False):
        shown = show_value(passing, source.object, one), show_value(failing, target.object, other)
        if shown[0] != shown[1]:
            name = other.path.removeprefix(".")
            return f"{{..., {name} = {shown[0]}, ...}}", f"{{..., {name} = {shown[1]}, ...}}"
    return None


def show_mate(matching: Matching, graph: MemoryGraph, value: int, other: MemoryGraph) -> str | None:
    target = graph.target(value)
    if target.object is None:
        return hex(value)
    mate = matching.mates.get(target.object)
    return reference(other, mate, target.offset) if mate is not None else None


def show_pointer(graph: MemoryGraph, value: int, kind: int) -> str:
    """By what it leads to: a text, a function, a variable's name, a value as its initialiser."""
    if not value:
        return "NULL"
    if graph.layouts.is_char(kind):
        text = graph.memory.read_text(value)
        if text is not None:
            return show_text(text)
    target = graph.target(value)
    if target.module == IMAGE:
        function = graph.program.function_at(target.offset)
        if function is not None and function.address == target.offset:
            return function.name
    is_inside = target.offset > 0 and target.object is not None and not graph.layouts.is_struct(target.object.type)
    if target.object is not None and (is_inside or target.object.kind == "variable"):
        return reference(graph, target.object, target.offset) or hex(value)
    if target.object is None:
        return hex(value)
    owner = graph.containers.owners.get(target.object)
    if owner is not None and owner.container.nodes and not target.offset:
        return drop_this(graph, graph.naming.name(target.object), graph.naming.frame(target.object))
    run = target.object.shape.run_at(target.offset)
    if run is not None and graph.layouts.containers(run.type):
        width = graph.layouts.size(run.type)
        start = target.offset - (target.offset - run.offset) % width
        is_itself = graph.layouts.container(kind) is not None  # a string, say, and not what it lies in
        place, type_ = (target.offset, kind) if is_itself else (start, run.type)
        return graph.containers.show(target.object.address + place, type_)
    if target.object.shape.is_text:
        data = graph.contents(target.object)
        return show_text(data) if is_plain(data) else show_raw(graph, target.object, 0, 0)
    return show_contents(graph, target.object, target.offset)


def show_place(graph: MemoryGraph, value: int) -> str:
    target = graph.target(value)
    return f"{target.object.size} bytes at {hex(value)}" if target.object is not None else hex(value)


def reference(graph: MemoryGraph, o: Object, offset: int) -> str | None:
    """A pointer to a place in an object as an expression: `list->next`, `&point.y`, `a`, `&a[3]`."""
    base = o.shape.base_of(offset)
    name = graph.naming.name(o, base)
    is_direct = o.kind == "variable" and not base
    if offset == base:
        is_array = isinstance(graph.layouts.type(o.type), ArrayType)
        return f"&{name}" if is_direct and not is_array else name
    path = path_at(graph, o, base, offset)
    if path is None:
        return None
    return drop_this(
        graph, f"&{write_part(is_direct, name, graph.naming.shorten(o, path))}", graph.naming.frame(o, base)
    )


def path_at(graph: MemoryGraph, o: Object, base: int, offset: int) -> str | None:
    """What stands behind an object's name for the element or member at an offset, or one past the last."""
    path, kind, offset = "", o.type, offset - base
    if o.kind != "variable" or base:
        run = o.shape.run_at(base)
        kind = run.type if run is not None else kind
        width = graph.layouts.size(kind)
        path, offset = f"[{offset // width}]", offset % width
    while True:
        match graph.layouts.type(kind):
            case ArrayType(target=kind):
                width = graph.layouts.size(kind)
                if not width:
                    return None
                path, offset = f"{path}[{offset // width}]", offset % width
            case _ if not offset:
                return path
            case StructType(members=members):
                before = [member for member in members if not member.width and member.offset <= offset]
                if not before:
                    return None
                kind, offset = before[-1].type, offset - before[-1].offset
                path += f".{before[-1].name}" if before[-1].name else ""
            case _:
                return None


def show_contents(graph: MemoryGraph, o: Object, offset: int) -> str:
    """The first members or elements, enough to recognise it, as an initialiser; an address would say nothing."""
    leaves = (leaf for leaf in leaves_from(graph, o, offset) if VTABLE not in leaf.path)
    members = [show_value(graph, o, leaf) for leaf in islice(leaves, MEMBERS_SHOWN + 1)]
    if len(members) > MEMBERS_SHOWN:
        members[MEMBERS_SHOWN:] = ["..."]
    run = o.shape.run_at(offset)
    name = graph.layouts.class_name(run.type) if run is not None else ""
    return name + "{" + ", ".join(members) + "}"


def leaves_from(graph: MemoryGraph, o: Object, offset: int) -> Iterator[Leaf]:
    """Of a struct its own members only, of an array all elements that follow, without the slack of a single one."""
    run = o.shape.run_at(offset)
    width = graph.layouts.size(run.type if run is not None else o.type) or 1
    is_one = run is None or graph.layouts.is_struct(run.type) or graph.is_single(o)
    start = offset - (offset - (run.offset if run is not None else 0)) % width
    for place in o.shape.leaves():
        if place.leaf.offset >= offset and (not is_one or place.leaf.offset < start + width):
            yield place.leaf


def show_raw(graph: MemoryGraph, o: Object, offset: int, first: int) -> str:
    """Memory of unknown type from an offset on, word by word, so that the word of number `first` is among those
    shown."""
    data = graph.contents(o)
    pointers = dict(graph.hidden_pointers(o))
    start = first if first >= MEMBERS_SHOWN else 0
    words = ["..."] if start else []
    for at in range(offset + start * POINTER_SIZE, len(data) - POINTER_SIZE + 1, POINTER_SIZE):
        if len(words) >= MEMBERS_SHOWN:
            words.append("...")
            break
        text = graph.memory.read_text(pointers[at]) if at in pointers else None
        if text is not None and is_plain(text):
            words.append(show_text(text))
        else:
            words.append("..." if at in pointers else str(WORD.unpack_from(data, at)[0]))
    return "{" + ", ".join(words) + "}"


def is_plain(data: bytes) -> bool:
    """Whether bytes look like a text up to their first NUL: numbers of a word have more NULs than that."""
    text, end, _ = data.partition(b"\0")
    return len(text) >= LEAST_TEXT and bool(end) and all(32 <= byte < 127 for byte in text)


def show_value(graph: MemoryGraph, o: Object, leaf: Leaf) -> str:
    """A value of an object. What a pointer leads to is shown when it is a text or a function: more would have no
    end."""

    def follow(value: int, kind: int) -> str:
        is_telling = isinstance(graph.layouts.type(kind), CharType | FunctionType)
        return show_pointer(graph, value, kind) if is_telling else "..."

    return show_leaf(graph.layouts, leaf, graph.value(o, leaf), follow)


class Difference:
    """A difference in the object that begins at `base` in a block, the `holder`, of the failing run.

    `kind` is set by who finds it. `requires` are those without which it makes no sense: a pointer to an object that
    lies where the other run has none in a block."""

    part = None

    def __init__(self, matching: Matching, holder: Object, base: int) -> None:
        self.matching, self.holder, self.base = matching, holder, base
        self.kind: Kind = "value"
        self.requires: list[MemoryDelta] = []
        # What differs besides, and is written for it.
        self.joined: list[ValuePair] = []

    @property
    def spots(self) -> list[ValuePair]:
        """All that is written for it."""
        return self.joined

    @cached_property
    def frame(self) -> int | None:
        return self.matching.failing.naming.frame(self.holder, self.base)


class Telling(NamedTuple):
    """Both values, the new one as it can be assigned in the passing run, and the old one in the failing run."""

    passing: str
    failing: str
    remark: str = ""
    new: str | None = None
    old: str | None = None


class ValuePair(Difference):
    """One leaf of a pair of objects."""

    def __init__(self, matching: Matching, ours: Object, theirs: Object, place: PlacedLeaf) -> None:
        super().__init__(matching, theirs, 0 if place.run is None else place.run.base)
        self.ours, self.theirs, self.place, self.leaf = ours, theirs, place, place.leaf

    @property
    def spots(self) -> list[ValuePair]:
        return [self, *self.joined]

    # What differs

    @property
    def layouts(self) -> Layouts:
        return self.matching.failing.layouts

    @property
    def values(self) -> tuple[bytes, bytes]:
        return self.matching.passing.value(self.ours, self.leaf), self.matching.failing.value(self.theirs, self.leaf)

    @property
    def words(self) -> tuple[int, int]:
        """The values of a pointer, or of what is as large."""
        left, right = self.values
        return int.from_bytes(left, "little"), int.from_bytes(right, "little")

    @cached_property
    def is_pointer(self) -> bool:
        """Also of a number that is the address of an object."""
        if self.layouts.is_address_sized(self.leaf):
            left, right = self.words
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
        ours = dict(matching.passing.pointers_within(self.ours, start, end))
        theirs = dict(matching.failing.pointers_within(self.theirs, start, end))
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
        left, right = self.words
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
        return self.matching.passing.values(one) == self.matching.failing.values(other)

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
        return drop_this(self.matching.failing, part, self.frame) + self._told.remark + remark

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
        return self._told.passing

    @property
    def failing(self) -> str:
        return self._told.failing

    @property
    def value_key(self) -> str | None:
        if not self.is_pointer:
            return None
        target = self.targets[1]
        if not isinstance(target.object, RootVariable):
            return None
        # Its name depends on who looks: input[4], line[4].
        return f"{target.object.key}+{target.offset}"

    @cached_property
    def group(self) -> tuple[str, ...]:
        return self.matching.failing.naming.group(self.theirs, self.base, self.path)

    @property
    def assignment(self) -> str | None:
        return self._assign(self.matching.passing, self.ours, self._told.new, self.values[1])

    @property
    def undo(self) -> str | None:
        return self._assign(self.matching.failing, self.theirs, self._told.old, self.values[0])

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
    def _told(self) -> Telling:
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
        return Telling(*shown, new=new, old=old)

    def _tell_text(self) -> Telling:
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
            return Telling(*shown, new=new, old=old if len(left.partition(b"\0")[0]) < self.theirs.size else None)
        first = next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), len(right))
        return Telling(show_characters(left[first:]), show_characters(right[first:]), f" from [{first}] on")

    def _tell_bytes(self) -> Telling:
        left, right = self.comparable_values
        first = next((at // POINTER_SIZE for at in range(len(right)) if left[at] != right[at]), 0)
        passing, failing, start = self.matching.passing, self.matching.failing, self.leaf.offset
        return Telling(show_raw(passing, self.ours, start, first), show_raw(failing, self.theirs, start, first))

    def _tell_pointer(self) -> Telling:
        matching = self.matching
        left, right = self.words
        shown = show_pointers(matching, (self.ours, left), (self.theirs, right), self.pointed)
        old, new = self.targets
        return Telling(
            *shown,
            new=self._assignable_pointer(matching.passing, new, right, shown[1]),
            old=self._assignable_pointer(matching.failing, old, left, shown[0]),
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
