"""Turns a visit into a memory graph: the variables of the frames and of static storage, all objects that they lead to,
and the references between them.

Unfolding starts at the variables and follows pointers until nothing new is found. It is put off until somebody asks
for more than the variables."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.types import ArrayType
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.budget import UNLIMITED, Budget
from pytest_causechain.states.containers import Containers
from pytest_causechain.states.layout import BYTE, INTEGER, POINTER_SIZE, Layouts, Leaf
from pytest_causechain.states.memory import Memory, usable_size
from pytest_causechain.states.names import Naming
from pytest_causechain.states.shapes import (
    IMAGE,
    ElementRun,
    Object,
    PlacedLeaf,
    PointerValue,
    RootVariable,
    Shape,
    Target,
)
from pytest_causechain.states.unfolding import Unfolding

if TYPE_CHECKING:
    from networkx import MultiDiGraph


def find_variables(visit: Visit, program: ProgramMap, layouts: Layouts, memory: Memory) -> Iterator[RootVariable]:
    """Innermost frame first, then its callers, then globals: the order in which a name is looked up."""
    depth = len(visit.frames)
    taken: set[str] = set()
    for number, frame in enumerate(visit.frames):
        for variable in frame.variables:
            size = layouts.size(variable.type) or measure_unknown(visit, number, variable.address)
            if not size or not memory.has(variable.address, size):
                continue
            taken.add(variable.name)
            key = f"{depth - number}:{frame.function}:{variable.depth}:{variable.name}"
            is_known = layouts.size(variable.type) > 0
            shape = shape_variable(layouts, variable.type) if is_known else shape_untyped(layouts, size)
            # The name of a reference stands for what it refers to.
            name = f"&{variable.name}" if layouts.is_reference(variable.type) else variable.name
            yield RootVariable(variable.address, shape, name, key, number, variable.pending)
    yield from find_globals(visit, program, layouts, memory, taken)
    for name, offset, size in program.untyped:
        address = visit.load_map.to_run(offset)
        # The pointer to the variables of the environment is no variable: these are compared one by one.
        is_environment = visit.environment is not None and address == visit.environment[0]
        if memory.has(address, size) and not is_environment:
            yield RootVariable(address, shape_untyped(layouts, size), name, f":{name}:{offset:x}")


def measure_unknown(visit: Visit, number: int, address: int) -> int:
    """Of an object whose class only the library knows, a stream, say: it ends at the next variable, or with its
    frame."""
    limit = visit.frames[number].base
    following = [v.address for v in visit.frames[number].variables if address < v.address < limit]
    return max(0, min([*following, limit]) - address)


def find_globals(
    visit: Visit, program: ProgramMap, layouts: Layouts, memory: Memory, taken: set[str]
) -> Iterator[RootVariable]:
    seen: Counter[str] = Counter()
    # Compilers lay globals out in the order in which they are written.
    for static in sorted(program.globals, key=lambda static: static.address):
        address, size = static.locate(visit.load_map, visit.thread_pointer), layouts.size(static.type)
        if not size or not memory.has(address, size):
            continue
        name = static.name
        key = ":".join(part for part in (static.file, static.function, name) if part)
        # Two blocks of one function may each have a static variable of one name.
        seen[key] += 1
        if seen[key] > 1:
            key = f"{key}:{seen[key]}"
        if static.function and static.function != visit.frames[0].function:
            name = f"{static.function}::{name}"
        elif name in taken and not static.function:
            name = f"'{static.file.rpartition('/')[2]}'::{name}" if static.file else name
        name = name.replace("(anonymous namespace)::", "")
        yield RootVariable(address, shape_variable(layouts, static.type), name, key)


def shape_variable(layouts: Layouts, kind: int) -> Shape:
    return layouts.shape(
        ("variable", kind), lambda: Shape(layouts, layouts.size(kind), (variable_run(layouts, kind),), type=kind)
    )


def shape_untyped(layouts: Layouts, size: int) -> Shape:
    """A number where it has the size of one."""
    if size == layouts.size(INTEGER):
        return shape_variable(layouts, INTEGER)
    return layouts.shape(("untyped", size), lambda: Shape(layouts, size, (ElementRun(0, 0, BYTE, size),)))


def variable_run(layouts: Layouts, kind: int) -> ElementRun:
    array = layouts.type(kind)
    if isinstance(array, ArrayType) and not layouts.is_text(kind) and array.count:
        return ElementRun(0, 0, array.target, array.count, is_direct=True, is_array=True)
    return ElementRun(0, 0, kind, 1, is_direct=True)


class MemoryGraph:
    def __init__(self, visit: Visit, program: ProgramMap, layouts: Layouts, budget: Budget = UNLIMITED) -> None:
        """`layouts` are shared by all graphs of a program: they know which objects are of one shape."""
        self.visit = visit
        self.budget = budget
        self.program = program
        self.layouts = layouts
        self.memory = Memory(visit)
        self.variables = list(find_variables(visit, program, self.layouts, self.memory))
        self._targets: dict[int, Target] = {}
        self._pool_pointers: dict[Object, list[PointerValue]] = {}
        # Of objects that only this run has, which are asked for with each experiment.
        self._references: dict[Object, list[PointerValue]] = {}

    @cached_property
    def _unfolding(self) -> Unfolding:
        return Unfolding(
            self.visit, self.layouts, self.memory, self.variables, self.program.vtables, budget=self.budget
        )

    @property
    def objects(self) -> list[Object]:
        return self._unfolding.objects

    @property
    def is_cut(self) -> bool:
        """Whether there is more in memory than was captured, or is looked at."""
        return self.visit.unreadable > 0 or self._unfolding.is_cut

    @property
    def starts(self) -> dict[int, Object]:
        """By address, all objects that are no variables."""
        return self._unfolding.starts

    @cached_property
    def containers(self) -> Containers:
        return Containers(self)

    @cached_property
    def naming(self) -> Naming:
        return Naming(self)

    @cached_property
    def vertices(self) -> int:
        """Values a reader could name."""
        return sum(map(attrgetter("shape.weight"), self.objects))

    def to_networkx(self) -> MultiDiGraph:
        """A view for scripts. Vertices have `name`, `kind`, `type`, `value` (as text; None for what consists of
        values) and `address`, edges their `operation`: `list`, `()->next`, `()[2]`, `*()`. The vertex "<root>" leads to
        all variables."""
        from pytest_causechain.states.pictures import view_graph  # which needs this module

        return view_graph(self)

    # Contents

    def value(self, o: Object, leaf: Leaf) -> bytes:
        data = self.memory.read(o.address + leaf.offset, leaf.size)
        return data if data is not None else bytes(leaf.size)

    def contents(self, o: Object) -> bytes:
        data = self.memory.read(o.address, o.size)
        return data if data is not None else bytes(o.size)

    def values(self, o: Object) -> object:
        """All that is no pointer, to be compared with that of an object of the same shape."""
        return o.shape.values(*self.memory.around(o.address))

    def leaves_near(self, o: Object, offset: int, elements: int) -> Iterator[PlacedLeaf]:
        """Those of the element at an offset and of some before and behind it; an array may have a million."""
        run = o.shape.run_at(offset)
        if run is None:
            return o.shape.leaves()
        span = elements * self.layouts.size(run.type)
        return o.shape.leaves(offset - span, offset + span + 1)

    def is_single(self, o: Object) -> bool:
        """Whether it looks like one element, with nothing behind it in the smallest block there is for it."""
        if o.kind == "variable" or o.count <= 1:
            return True
        width = self.layouts.size(o.type)
        return o.size == usable_size(width) and not any(self.contents(o)[width:])

    def covered(self, o: Object) -> int:
        """How far the leaves reach: what is behind the last whole element of a block is not looked at."""
        is_buffer = o.kept is None and o.shape.kept is not None  # of a container
        if o.shape.is_text or (o.shape.raw and not is_buffer) or o.kind == "variable":
            return o.size
        run = o.shape.runs[-1]
        return run.offset + (run.cut or run.count * self.layouts.size(run.type))

    # References

    def pointers(self, o: Object) -> list[PointerValue]:
        """Each pointer in an object; also what may be one, and leads to something."""
        return [*map(PointerValue, o.shape.offsets, self.words(o)), *self.hidden_pointers(o)]

    def references(self, o: Object) -> list[PointerValue]:
        """The same, and numbers as large as a pointer that are the address of an object."""
        if o not in self._references:
            self._references[o] = [*self.pointers(o), *self._integers(o)]
        return self._references[o]

    def _integers(self, o: Object) -> Iterator[PointerValue]:
        for place in o.shape.leaves() if o.shape.holds_integers else ():
            if self.layouts.is_address_sized(place.leaf):
                value = self.memory.word(o.address + place.leaf.offset)
                if value in self.starts:
                    yield PointerValue(place.leaf.offset, value or 0)

    def words(self, o: Object) -> Sequence[int]:
        """The values of all that is surely a pointer, at the offsets its shape tells."""
        read = o.shape.words
        return () if read is None else read(*self.memory.around(o.address))

    def hidden_pointers(self, o: Object) -> Sequence[PointerValue]:
        """What may be a pointer, and leads to something: only the value can tell in a union, and in memory of which
        nothing is known."""
        return self._unfolding.hidden.get(o, ())

    def pointers_within(self, o: Object, start: int, end: int) -> Sequence[PointerValue]:
        """All pointers in a part of which the other run knows nothing, or a union."""
        if o.parts is None:
            pointers = self.hidden_pointers(o)
        else:
            if o not in self._pool_pointers:
                self._pool_pointers[o] = sorted(self.pointers(o))
            pointers = self._pool_pointers[o]
        first = bisect_left(pointers, start, key=attrgetter("offset"))
        return pointers[first : bisect_right(pointers, end - POINTER_SIZE, key=attrgetter("offset"))]

    def target(self, address: int) -> Target:
        found = self._targets.get(address)
        if found is None:
            found = self._targets[address] = self._find_target(address)
        return found

    def _find_target(self, address: int) -> Target:
        if not address:
            return Target(None, 0)
        if (o := self._unfolding.object_at(address)) is not None:
            return Target(o, address - o.address)
        region = self.memory.region(address)
        if region is not None and region.kind == "image":
            return Target(None, self.visit.load_map.to_file(address), IMAGE)
        module = self.memory.module(address)
        if module is not None:
            return Target(None, address - module.start, module.name)
        return Target(None, address)

    def address(self, target: Target) -> int | None:
        """Where this run has what another one's pointer leads to that leads to no object; None: nowhere."""
        if target.module is None:
            return target.offset
        if target.module == IMAGE:
            return self.visit.load_map.to_run(target.offset)
        start = self.memory.module_start(target.module)
        return None if start is None else start + target.offset
