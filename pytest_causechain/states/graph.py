"""Turns a visit into a memory graph: objects, and the references between them.

Unfolding starts at the variables and follows pointers until nothing new is found. An object is known by its
address; its type is that of the first reference that says more than `char *` or `void *`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.states.layout import BYTE, POINTER_SIZE, Flexible, Layouts, Leaf
from pytest_causechain.states.memory import WORD, Memory, usable_size
from pytest_causechain.states.names import element_path, name_objects

# More are not unfolded: the self-check tells whether the rest mattered.
OBJECTS_LIMIT = 200_000
# So many elements tell whether a block holds an array.
ELEMENTS_LOOKED_AT = 1_000
# The other half of all addresses belongs to the system.
HIGHEST_ADDRESS = 1 << 47


@dataclass(slots=True, eq=False)
class Object:
    """A variable, a block of the heap, or a vector or text the system put above the first frame.

    `type` is that of one of its `count` elements; a struct that ends in an array without a length is one element
    and fills its block. `name` is the expression of the object itself for a variable, of a pointer to it otherwise,
    as a programmer writes it at this moment; `key` is such an expression that stays the same while functions are
    called and return. `frame` counts frames from the innermost; None: global. `kept` is the part of a block given
    back to the allocator that still holds what the program left there, from and up to an offset. `single`: it looks
    like one element in the smallest block there is for it, with nothing behind it. `rest`: behind the one element
    lies something else, as when a pointer to a base class leads to an object of a derived one.
    """

    kind: Literal["variable", "heap", "vector", "text"]
    address: int
    size: int
    type: int
    count: int
    name: str = ""
    key: str = ""
    frame: int | None = None
    kept: tuple[int, int] | None = None
    single: bool = False
    rest: bool = False

    def holds(self, offset: int, size: int) -> bool:
        """Whether the program, not the allocator, put these bytes there."""
        return self.kept is None or (self.kept[0] <= offset and offset + size <= self.kept[1])


@dataclass(frozen=True, slots=True)
class Target:
    """What a pointer leads to: an object, or a place in the program's image, or just a number."""

    object: Object | None
    offset: int
    image: bool = False


@dataclass(frozen=True, slots=True)
class Pointer:
    """`path` is what stands behind the object's name; `type` is the one pointed to."""

    offset: int
    type: int
    path: str
    value: int


class MemoryGraph:
    def __init__(self, visit: Visit, program: ProgramMap, layouts: Layouts | None = None) -> None:
        """`layouts` are those of an earlier graph of the same program, which has worked out the types already."""
        self.visit = visit
        self.program = program
        self.layouts = layouts or Layouts(visit.types)
        self.memory = Memory(visit)
        self.variables = list(self._variables())
        self._known = sorted(self.variables, key=lambda o: o.address)
        self._known_starts = [o.address for o in self._known]
        self._found: dict[int, Object] = {}
        self._pointers: dict[Object, tuple[Pointer, ...]] = {}
        self._hidden: dict[Object, list[Pointer]] = {}
        self._unfold()
        # From here on what an address leads to stays the same.
        self.target = cache(self._target)
        name_objects(self)

    @property
    def objects(self) -> list[Object]:
        return [*self.variables, *self._found.values()]

    @cached_property
    def vertices(self) -> int:
        """Values a reader could name."""
        return sum(max(1, self.layouts.weight(o.type)) * o.count for o in self.objects)

    def _variables(self) -> Iterator[Object]:
        """Innermost frame first, then its callers, then globals: the order in which a name is looked up."""
        depth = len(self.visit.frames)
        taken: set[str] = set()
        seen: Counter[str] = Counter()
        for number, frame in enumerate(self.visit.frames):
            for variable in frame.variables:
                size = self.layouts.size(variable.type)
                if variable.pending or not size or self.memory.read(variable.address, size) is None:
                    continue
                if self.layouts.is_reference(variable.type):
                    continue
                taken.add(variable.name)
                key = f"{depth - number}:{frame.function}:{variable.depth}:{variable.name}"
                yield Object("variable", variable.address, size, variable.type, 1, variable.name, key, number)
        # Compilers lay globals out in the order in which they are written.
        for row in sorted(self.program.globals, key=lambda row: int(row["address"])):
            address, size = self.visit.load_map.to_run(row["address"]), self.layouts.size(row["type"])
            if size and self.memory.read(address, size) is not None:
                name = row["name"]
                key = ":".join(part for part in (row["file"], row["function"], name) if part)
                # Two blocks of one function may each have a static variable of one name.
                seen[key] += 1
                if seen[key] > 1:
                    key = f"{key}:{seen[key]}"
                if row["function"] and row["function"] != self.visit.frames[0].function:
                    name = f"{row['function']}::{name}"
                elif name in taken and not row["function"]:
                    name = f"'{row['file'].rpartition('/')[2]}'::{name}" if row["file"] else name
                yield Object("variable", address, size, row["type"], 1, name, key)

    def value(self, o: Object, leaf: Leaf) -> bytes:
        data = self.memory.read(o.address + leaf.offset, leaf.size)
        return data if data is not None else bytes(leaf.size)

    def contents(self, o: Object) -> bytes:
        data = self.memory.read(o.address, o.size)
        return data if data is not None else bytes(o.size)

    def scalars(self, o: Object) -> bytes:
        """The contents without the pointers, which differ from run to run."""
        data = bytearray(self.contents(o))
        for pointer in self.pointers(o):
            data[pointer.offset : pointer.offset + POINTER_SIZE] = bytes(POINTER_SIZE)
        return bytes(data)

    def leaves(self, o: Object) -> Iterator[tuple[int, Leaf]]:
        """Each value of an object that is the program's, with the number of its element."""
        for element, leaf in self._all_leaves(o):
            if o.holds(leaf.offset, leaf.size):
                yield element, leaf

    def _all_leaves(self, o: Object) -> Iterator[tuple[int, Leaf]]:
        if self.is_raw(o):
            first, end = o.kept or (0, o.size)
            if first < end:
                yield 0, Leaf("", first, end - first, o.type)
            return
        width = self.layouts.size(o.type)
        flexible = self._flexible(o)
        for element in range(o.count):
            for leaf in self.layouts.leaves(o.type):
                if flexible is None or leaf.offset < flexible.offset:
                    yield element, leaf.within("", element * width)
        if flexible is not None:
            yield from ((0, leaf) for leaf in self._flexible_leaves(o, flexible))
        elif o.rest:
            yield 1, Leaf("", width, o.size - width, BYTE)

    def _flexible(self, o: Object) -> Flexible | None:
        return self.layouts.flexible(o.type) if o.kind == "heap" and o.count == 1 else None

    def _flexible_leaves(self, o: Object, flexible: Flexible) -> Iterator[Leaf]:
        if self.layouts.kind(flexible.element) == "char":
            if flexible.offset < o.size:
                yield Leaf(flexible.path, flexible.offset, o.size - flexible.offset, flexible.element)
            return
        width = self.layouts.size(flexible.element)
        for i in range((o.size - flexible.offset) // width):
            for leaf in self.layouts.leaves(flexible.element):
                yield leaf.within(f"{flexible.path}[{i}]", flexible.offset + i * width)

    def covered(self, o: Object) -> int:
        """How far the leaves reach: what is behind the last whole element of a block is not looked at."""
        if self.is_raw(o) or o.rest or o.kind == "variable":
            return o.size
        flexible = self._flexible(o)
        start, width = (flexible.offset, flexible.element) if flexible is not None else (0, o.type)
        return start + (o.size - start) // self.layouts.size(width) * self.layouts.size(width)

    def is_raw(self, o: Object) -> bool:
        """A text, or bytes of which nothing is known: one value."""
        return o.kind != "variable" and self.layouts.kind(o.type) == "char"

    def pointers(self, o: Object) -> tuple[Pointer, ...]:
        """Each pointer in an object; also what may be one, and leads to something."""
        if o not in self._pointers:
            self._pointers[o] = (*self._sure_pointers(o), *self.hidden_pointers(o))
        return self._pointers[o]

    def _sure_pointers(self, o: Object) -> Iterator[Pointer]:
        if self.layouts.holds_pointer(o.type):
            data = self.contents(o)
            for at, kind, path in self._places_of_pointers(o):
                if o.holds(at, POINTER_SIZE):
                    yield Pointer(at, kind, path, WORD.unpack_from(data, at)[0])

    def _places_of_pointers(self, o: Object) -> Iterator[tuple[int, int, str]]:
        if self._flexible(o) is not None:
            for _, leaf in self._all_leaves(o):
                if self.layouts.kind(leaf.type) == "pointer":
                    yield leaf.offset, self.layouts.target(leaf.type), element_path(o, 0) + leaf.path
            return
        width = self.layouts.size(o.type)
        for element in range(o.count):
            where = element_path(o, element)
            for offset, kind, path in self.layouts.pointers(o.type):
                yield element * width + offset, kind, where + path

    def hidden_pointers(self, o: Object, start: int = 0, end: int | None = None) -> Sequence[Pointer]:
        """What may be a pointer, and leads to something, in a part of an object: only the value can tell in a union,
        and in memory of which nothing is known. There a number or a text that happens to be the address of an object
        is next to impossible."""
        if o not in self._hidden:
            self._hidden[o] = sorted(self._guess_pointers(o), key=lambda pointer: pointer.offset)
        pointers = self._hidden[o]
        if not pointers:
            return ()
        first = bisect_left(pointers, start, key=lambda pointer: pointer.offset)
        last = bisect_right(pointers, (o.size if end is None else end) - POINTER_SIZE, key=lambda p: p.offset)
        return pointers[first:last]

    def _guess_pointers(self, o: Object) -> Iterator[Pointer]:
        pattern, width = self.layouts.guesses(o.type), self.layouts.size(o.type)
        for element in range(o.count) if pattern else ():
            where = element_path(o, element)
            for offset, (kind, path) in pattern.items():
                value = self._word(o.address + element * width + offset)
                if self._leads_somewhere(value):
                    yield Pointer(element * width + offset, kind, where + path, value)
        if o.rest or self.is_raw(o):
            start = -(-width // POINTER_SIZE) if o.rest else 0
            data = self.contents(o)[: o.size // POINTER_SIZE * POINTER_SIZE]
            for number, (value,) in enumerate(WORD.iter_unpack(data[start * POINTER_SIZE :]), start):
                is_held = o.holds(number * POINTER_SIZE, POINTER_SIZE)
                if is_held and self._is_address(value) and self._leads_somewhere(value):
                    yield Pointer(number * POINTER_SIZE, BYTE, f"@{number}", value)

    def _is_address(self, value: int) -> bool:
        return self.memory.regions[0].start <= value < HIGHEST_ADDRESS

    def _leads_somewhere(self, address: int) -> bool:
        if self._variable_at(address) is not None or self._start(address) is not None:
            return True
        region = self.memory.region(address)
        return region is not None and region.kind == "image"

    def _target(self, address: int) -> Target:
        if not address:
            return Target(None, 0)
        if (variable := self._variable_at(address)) is not None:
            return Target(variable, address - variable.address)
        start = self._start(address)
        if start in self._found:
            return Target(self._found[start], address - start)
        region = self.memory.region(address)
        if region is not None and region.kind == "image":
            return Target(None, self.visit.load_map.to_file(address), image=True)
        return Target(None, address)

    def _variable_at(self, address: int) -> Object | None:
        """One past the end of a variable belongs to it, unless another variable begins there."""
        index = bisect_right(self._known_starts, address) - 1
        if index >= 0 and address <= self._known[index].address + self._known[index].size:
            return self._known[index]
        return None

    def _start(self, address: int) -> int | None:
        """Where the block, vector or text begins that an address lies in."""
        if (block := self.memory.block(address)) is not None:
            return block[0]
        # Above the first frame lie the vectors and texts of the program's arguments and environment.
        region = self.memory.region(address)
        if region is None or region.kind != "stack" or address <= self.visit.frames[-1].sp:
            return None
        first = self.visit.arguments_start
        if address >= first:
            return max(first, region.start + region.data.rfind(b"\0", 0, address - region.start) + 1)
        if address % POINTER_SIZE:
            return None
        start = address
        while first <= self._word(start - POINTER_SIZE) < region.end:
            start -= POINTER_SIZE
        return start if first <= self._word(start) < region.end else None

    def _word(self, address: int) -> int:
        return int(WORD.unpack(self.memory.read(address, POINTER_SIZE) or bytes(POINTER_SIZE))[0])

    def _unfold(self) -> None:
        """Typed references first; texts and untyped ones only then, lest a `char *` takes a struct for a text."""
        typed = deque(self.variables)
        vague: deque[tuple[int, int]] = deque()
        while (typed or vague) and len(self._found) < OBJECTS_LIMIT:
            if not typed:
                if (found := self._discover(*vague.popleft())) is not None:
                    typed.append(found)
                continue
            for pointer in self.pointers(typed.popleft()):
                if self.layouts.kind(pointer.type) in ("char", "void") or not self.layouts.size(pointer.type):
                    vague.append((pointer.value, pointer.type))
                elif (found := self._discover(pointer.value, pointer.type)) is not None:
                    typed.append(found)

    def _discover(self, address: int, kind: int) -> Object | None:
        """A new object at an address that a pointer to this type holds, if there is one."""
        if not address or self.layouts.is_opaque(kind) or self._target(address).object is not None:
            return None
        start = self._start(address)
        if start is None:
            return None
        if start in self.memory.blocks:
            return self._keep(self._block(start, address - start, kind))
        if start >= self.visit.arguments_start:
            size = len(self.memory.read_text(start) or b"")
            return self._keep(Object("text", start, size, kind, size)) if self.layouts.kind(kind) == "char" else None
        if self.layouts.kind(kind) == "pointer":
            count = 1
            while self._word(start + (count - 1) * POINTER_SIZE):
                count += 1
            return self._keep(Object("vector", start, count * POINTER_SIZE, kind, count))
        return None

    def _block(self, start: int, offset: int, kind: int) -> Object:
        size, width = self.memory.blocks[start], self.layouts.size(kind)
        kept = self.memory.freed.get(start)
        if self.layouts.kind(kind) == "char":
            return Object("heap", start, size, kind, size, kept=kept)
        if not width or width > size or offset % width:
            return Object("heap", start, size, BYTE, size, kept=kept)
        count = 1 if self.layouts.flexible(kind) is not None and offset == 0 else size // width
        o = Object("heap", start, size, kind, count, kept=kept)
        if count > 1 and not offset and not self._is_array(o):
            o.count, o.rest = 1, True
        o.single = o.count == 1 or (size == usable_size(width) and not any(self.contents(o)[width:]))
        return o

    def _is_array(self, o: Object) -> bool:
        """Whether what lies behind the first element can be more of them: no pointer or enumeration in it has a
        value that none has, no pointer lies where there is none, and gaps are as empty as the first element's."""
        if self.layouts.kind(o.type) != "struct" or o.kept is not None:
            return True
        width = self.layouts.size(o.type)
        data = self.contents(o)[: min(o.count, ELEMENTS_LOOKED_AT) * width]
        pointers = {leaf.offset for leaf in self.layouts.leaves(o.type) if self.layouts.kind(leaf.type) == "pointer"}
        for start in range(width, len(data), width):
            for at in range(-start % POINTER_SIZE, width - POINTER_SIZE + 1, POINTER_SIZE):
                value = WORD.unpack_from(data, start + at)[0]
                if at in pointers and value and not self._is_address(value):
                    return False
                if at not in pointers and self._is_address(value) and self._start(value) is not None:
                    return False
        return self._has_possible_enumerations(o.type, data) and not self._fills_gaps(o.type, data)

    def _has_possible_enumerations(self, kind: int, data: bytes) -> bool:
        width = self.layouts.size(kind)
        for leaf in self.layouts.leaves(kind):
            if leaf.bits is None and self.layouts.kind(leaf.type) == "enum":
                for at in range(width + leaf.offset, len(data), width):
                    if not self.layouts.is_possible(leaf.type, int.from_bytes(data[at : at + leaf.size], "little")):
                        return False
        return True

    def _fills_gaps(self, kind: int, data: bytes) -> bool:
        width = self.layouts.size(kind)
        gaps = [at for at in self.layouts.gaps(kind) if not data[at]]
        return any(data[start + at] for start in range(width, len(data), width) for at in gaps)

    def _keep(self, o: Object) -> Object:
        self._found[o.address] = o
        return o
