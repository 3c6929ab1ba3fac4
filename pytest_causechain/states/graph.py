"""Turns a visit into a memory graph: objects, and the references between them.

Unfolding starts at the variables and follows pointers until nothing new is found. An object is known by its
address; its type is that of the first reference that says more than `char *` or `void *`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.states.layout import POINTER_SIZE, Layouts, Leaf
from pytest_causechain.states.memory import WORD, Memory

# More are not unfolded: the self-check tells whether the rest mattered.
OBJECTS_LIMIT = 200_000


@dataclass(slots=True, eq=False)
class Object:
    """A variable, a block of the heap, or a vector or text the system put above the first frame.

    `type` is that of one of its `count` elements. `name` is the expression of the object itself for a variable,
    of a pointer to it otherwise, as a programmer writes it at this moment; `key` is such an expression that stays
    the same while functions are called and return. `frame` counts frames from the innermost; None: global.
    """

    kind: Literal["variable", "heap", "vector", "text"]
    address: int
    size: int
    type: int
    count: int
    name: str = ""
    key: str = ""
    frame: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What a pointer leads to: an object, or a place in the program's image, or just a number."""

    object: Object | None
    offset: int
    image: bool = False


class MemoryGraph:
    def __init__(self, visit: Visit, program: ProgramMap) -> None:
        self.visit = visit
        self.layouts = Layouts(visit.types)
        self.memory = Memory(visit)
        self.variables = list(self._variables(program))
        self._known = sorted(self.variables, key=lambda o: o.address)
        self._known_starts = [o.address for o in self._known]
        self._found: dict[int, Object] = {}
        self._unfold()
        self._name_all()

    @property
    def objects(self) -> list[Object]:
        return [*self.variables, *self._found.values()]

    @cached_property
    def vertices(self) -> int:
        """Values a reader could name."""
        weights: dict[int, int] = {}
        for o in self.objects:
            if o.type not in weights:
                weights[o.type] = max(1, sum(1 for _ in self.layouts.leaves(o.type)))
        return sum(weights[o.type] * o.count for o in self.objects)

    def _variables(self, program: ProgramMap) -> Iterator[Object]:
        """Innermost frame first, then its callers, then globals: the order in which a name is looked up."""
        depth = len(self.visit.frames)
        for number, frame in enumerate(self.visit.frames):
            for variable in frame.variables:
                size = self.layouts.size(variable.type)
                if variable.pending or not size or self.memory.read(variable.address, size) is None:
                    continue
                key = f"{depth - number}:{frame.function}:{variable.depth}:{variable.name}"
                yield Object("variable", variable.address, size, variable.type, 1, variable.name, key, number)
        for row in program.globals:
            address, size = row["address"] + self.visit.base, self.layouts.size(row["type"])
            if size and self.memory.read(address, size) is not None:
                scope = row["function"] or row["file"]
                yield Object("variable", address, size, row["type"], 1, row["name"], f"{scope}:{row['name']}")

    def value(self, o: Object, leaf: Leaf, element: int = 0) -> bytes:
        data = self.memory.read(o.address + element * self.layouts.size(o.type) + leaf.offset, leaf.size)
        return data if data is not None else bytes(leaf.size)

    def contents(self, o: Object) -> bytes:
        data = self.memory.read(o.address, o.size)
        return data if data is not None else bytes(o.size)

    def pointers(self, o: Object) -> Iterator[tuple[int, int, str, int]]:
        """(offset, type pointed to, path, value) of each pointer in an object."""
        pattern = self.layouts.pointers(o.type)
        if not pattern:
            return
        data, width = self.contents(o), self.layouts.size(o.type)
        for element in range(o.count):
            for offset, kind, path in pattern:
                at = element * width + offset
                yield at, kind, element_path(o, element) + path, WORD.unpack_from(data, at)[0]

    def target(self, address: int) -> Target:
        if not address:
            return Target(None, 0)
        index = bisect_right(self._known_starts, address) - 1
        # One past the end of a variable belongs to it, unless another variable begins there.
        if index >= 0 and address <= self._known[index].address + self._known[index].size:
            return Target(self._known[index], address - self._known[index].address)
        block = self.memory.block(address)
        start = block[0] if block else address
        if start in self._found:
            return Target(self._found[start], address - start)
        region = self.memory.region(address)
        if region is not None and region.kind == "image":
            return Target(None, address - self.visit.base, image=True)
        return Target(None, address)

    def _unfold(self) -> None:
        """Typed references first; texts and untyped ones only then, lest a `char *` takes a struct for a text."""
        typed = deque(self.variables)
        vague: deque[tuple[int, int]] = deque()
        while (typed or vague) and len(self._found) < OBJECTS_LIMIT:
            if not typed:
                address, kind = vague.popleft()
                if (found := self._discover(address, kind)) is not None:
                    typed.append(found)
                continue
            for _, kind, _, address in self.pointers(typed.popleft()):
                if self.layouts.kind(kind) in ("char", "void") or not self.layouts.size(kind):
                    vague.append((address, kind))
                elif (found := self._discover(address, kind)) is not None:
                    typed.append(found)

    def _discover(self, address: int, kind: int) -> Object | None:
        """A new object at an address that a pointer to this type holds, if there is one."""
        if self.target(address).object is not None or not address:
            return None
        if self.layouts.is_opaque(kind):
            return None
        width = self.layouts.size(kind)
        if (block := self.memory.block(address)) is not None:
            start, size = block
            if self.layouts.kind(kind) in ("char", "void") or not width or width > size or (address - start) % width:
                kind, width = self._byte_type(kind), 1
            return self._keep(Object("heap", start, size, kind, size // width))
        # Above the first frame lie the vectors and texts of the program's arguments and environment.
        if address > self.visit.frames[-1].sp and self.memory.region(address) is not None:
            if self.layouts.kind(kind) == "char" and address >= self.visit.arguments_start:
                text = self.memory.read_text(address)
                if text is not None:
                    return self._keep(Object("text", address, len(text), kind, len(text)))
            if self.layouts.kind(kind) == "pointer" and address < self.visit.arguments_start:
                count = self._vector_length(address)
                return self._keep(Object("vector", address, count * POINTER_SIZE, kind, count))
        return None

    def _keep(self, o: Object) -> Object:
        self._found[o.address] = o
        return o

    def _byte_type(self, kind: int) -> int:
        """The type of memory that only a `void *` or a pointer into its middle leads to."""
        if self.layouts.kind(kind) == "char":
            return kind
        for number, row in enumerate(self.layouts.rows):
            if row["kind"] == "char":
                return number
        self.layouts.rows.append({"name": "char", "size": 1, "kind": "char", "signed": True})
        return len(self.layouts.rows) - 1

    def _vector_length(self, address: int) -> int:
        """Up to and with the NULL."""
        count = 1
        while (word := self.memory.read(address + (count - 1) * POINTER_SIZE, POINTER_SIZE)) and any(word):
            count += 1
        return count

    def _name_all(self) -> None:
        """Each found object by the first way that leads to its start; through its middle where there is no other."""
        for attribute, roots in (("name", self.variables), ("key", self.variables[::-1])):
            queue, interior = deque(roots), deque[tuple[Object, str, int | None]]()
            frames: dict[int, int | None] = {}
            while queue or interior:
                if not queue:
                    o, name, frame = interior.popleft()
                    if not getattr(o, attribute):
                        setattr(o, attribute, name)
                        frames[id(o)] = frame
                        queue.append(o)
                    continue
                source = queue.popleft()
                frame = source.frame if source.kind == "variable" else frames[id(source)]
                for _, kind, path, address in self.pointers(source):
                    target = self.target(address)
                    if target.object is None or getattr(target.object, attribute):
                        continue
                    expression = member(source, getattr(source, attribute), path)
                    if target.offset:
                        width = self.layouts.size(kind) or 1
                        interior.append((target.object, f"({expression} - {target.offset // width})", frame))
                    else:
                        setattr(target.object, attribute, expression)
                        frames[id(target.object)] = frame
                        queue.append(target.object)
            if attribute == "name":
                for o in self._found.values():
                    o.frame = frames.get(id(o))


def element_path(o: Object, element: int) -> str:
    """What stands behind the name of a pointer to an object for one of its elements; "" is the object itself."""
    if o.kind == "variable":
        return ""
    return f"[{element}]" if o.count > 1 else "[]"


def member(o: Object, name: str, path: str) -> str:
    """The expression for a part of an object: `list->next`, `a[2]`, `*p`, `point.x`."""
    if o.kind == "variable":
        return name + path
    base = f"({name})" if name.startswith(("*", "-")) else name
    if path.startswith("[]"):
        rest = path[2:]
        if rest.startswith("."):
            return f"{base}->{rest[1:]}"
        return f"(*{base}){rest}" if rest else f"*{base}"
    if path.startswith("[0]."):
        return f"{base}->{path[4:]}"
    return base + path
