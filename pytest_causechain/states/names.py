"""Gives the objects of a memory graph expressions: names for a reader, keys that last while functions come and go."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pytest_causechain.states.graph import MemoryGraph, Object

# How what stands for a part of an object is made of what stands for the object, and a path.
MakePart = Callable[["Object", str, str], str]
# More steps of one kind are counted instead: `list(->next 12 times)->value`.
STEPS_WRITTEN = 6
# Behind this length an expression is cut: nobody reads it, and a long list would have a square of characters.
LENGTH_WRITTEN, LENGTH_KEPT = 400, 80
# Operators and brackets, then the variable it all starts from; not the name of a type.
ROOT = re.compile(r"([&*(]*)(?!void \*)\w")


@dataclass(frozen=True, slots=True)
class Expression:
    """`step` is written `times` behind `start`; `frame` is that of the variable it begins with."""

    start: str
    frame: int | None
    step: str = ""
    times: int = 0

    def __str__(self) -> str:
        if self.times <= STEPS_WRITTEN:
            return self.start + self.step * self.times
        return f"{self.start}({self.step} {self.times} times)"

    def part(self, o: Object, path: str, make_part: MakePart) -> Expression:
        before, _, step = make_part(o, HOLE, path).partition(HOLE)
        if not before and step == self.step:
            return replace(self, times=self.times + 1)
        start = str(self)
        if len(start) > LENGTH_WRITTEN:
            start = f"{start[:LENGTH_KEPT]}...{crc32(start.encode('utf-8', 'surrogateescape')):08x}..."
        if before:
            return Expression(make_part(o, start, path), self.frame)
        return Expression(start, self.frame, step, 1)


# Stands for the object while a part is made: neither identifiers nor operators contain it.
HOLE = "\0"


def is_written_out(expression: str) -> bool:
    return " times)" not in expression and "..." not in expression


def name_objects(graph: MemoryGraph) -> None:
    """Names take the shortest way from any variable, the innermost frame's first. Keys take any way from a global
    variable, else from an outer frame, so that what a function is given is not named anew by its parameters."""
    names = {o: Expression(o.name, o.frame) for o in graph.variables}
    spread(graph, graph.variables, names, name_part)
    keys = {o: Expression(o.key, o.frame) for o in graph.variables}
    for scope in scopes_outwards_in(graph.variables):
        spread(graph, scope, keys, key_part)
    for o in graph.objects:
        if o in names:
            o.name, o.frame = str(names[o]), names[o].frame
        if o in keys:
            o.key = str(keys[o])


def scopes_outwards_in(variables: Iterable[Object]) -> list[list[Object]]:
    """The variables, given innermost frame first, of each frame: globals, then the first frame's, and so on."""
    return [list(scope) for _, scope in groupby(variables, key=lambda o: o.frame)][::-1]


def spread(graph: MemoryGraph, roots: Iterable[Object], found: dict[Object, Expression], make_part: MakePart) -> None:
    """Each object by the first way that leads to its start; through its middle where there is no other."""
    queue, interior = deque(roots), deque[tuple["Object", Expression]]()
    while queue or interior:
        if not queue:
            o, expression = interior.popleft()
            if o not in found:
                found[o] = expression
                queue.append(o)
            continue
        source = queue.popleft()
        for pointer in graph.pointers(source):
            target = graph.target(pointer.value)
            if target.object is None or target.object in found:
                continue
            expression = found[source].part(source, pointer.path, make_part)
            if target.offset:
                width = graph.layouts.size(pointer.type) or 1
                start = f"({expression} - {target.offset // width})"
                interior.append((target.object, Expression(start, expression.frame)))
            else:
                found[target.object] = expression
                queue.append(target.object)


def element_path(o: Object, element: int) -> str:
    """What stands behind the name of a pointer to an object for one of its elements; "" is the object itself."""
    if o.kind == "variable":
        return ""
    return f"[{element}]" if o.count > 1 or element else "[]"


def name_part(o: Object, name: str, path: str) -> str:
    """The expression for a part of an object: `list->next`, `a[2]`, `*p`, `point.x`."""
    return key_part(o, name, "[]" + path[3:] if o.single and path.startswith("[0]") else path)


def key_part(o: Object, key: str, path: str) -> str:
    """The same, but always alike: whether an object looks single may change."""
    if o.kind == "variable":
        return key + path
    base = f"({key})" if key.startswith("*") else key
    if path.startswith("@"):
        return f"((void **) {base})[{path[1:]}]"
    if path.startswith("[]"):
        rest = path[2:]
        if rest.startswith("."):
            return f"{base}->{rest[1:]}"
        return f"(*{base}){rest}" if rest else f"*{base}"
    if path.startswith("[0]."):
        return f"{base}->{path[4:]}"
    return base + path


def seen_from(graph: MemoryGraph, selected: int | None, expression: str, frame: int | None) -> str | None:
    """An expression for what a variable of one frame leads to, as gdb understands it while another is selected."""
    if frame is None or frame == (selected or 0):
        return expression
    functions = [f.function for f in graph.visit.frames]
    variable = ROOT.match(expression)
    if variable is None or functions.count(functions[frame]) > 1 or not functions[frame].isidentifier():
        return None
    return f"{variable[1]}{functions[frame]}::{expression[variable.end(1) :]}"
