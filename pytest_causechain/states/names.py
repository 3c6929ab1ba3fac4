"""Gives what lies in a memory graph expressions: names for a reader, keys that last while functions come and go.

Only the ways are found for all objects; they are written out for those that somebody asks for. Of several ways the one
is taken that begins with a variable which the next statements of the source are about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from pytest_causechain.debugger.program import FOREIGN
from pytest_causechain.debugger.visit import RETURN_VALUE, VisitedFrame
from pytest_causechain.states.shapes import Object, RootVariable
from pytest_causechain.states.unfolding import no_collection

if TYPE_CHECKING:
    from pytest_causechain.states.containers import Container
    from pytest_causechain.states.graph import MemoryGraph

IDENTIFIER = re.compile(r"[^\W\d]\w*")
# A statement is seldom longer, and what comes later is not about this moment.
LINES_AHEAD = 3
# More steps of one kind are counted instead: `list(->next 12 times)->value`.
STEPS_WRITTEN = 6
# Behind this length an expression is cut: nobody reads it, and a long list would have a square of characters.
LENGTH_WRITTEN, LENGTH_KEPT = 400, 80
# Operators and brackets, then the variable it all starts from; not the name of a type.
ROOT = re.compile(r"([&*(]*)(?!void \*)\w")
# What an optional and a tuple have instead of members.
MARK = re.compile(r"\*|<\d+>")
ELEMENT = re.compile(r"\[(\d*)\](.*)", re.DOTALL)
OF_THIS = re.compile(r"([&*(]*)this->(\w+)")
INDEX = re.compile(r"\[(-?\d+)\]$")
# The members and elements of a path: ".at", "[3]", ".x".
PATH_PART = re.compile(r"\.[^.\[]+|\[\d*\]|@\d+")
# Stands for the object while a part is made: neither identifiers nor operators contain it.
HOLE = "\0"
# An object, or one of several in a block, by where it begins there.
Node = tuple[Object, int]


def mentioned_names(frames: Sequence[VisitedFrame]) -> frozenset[str]:
    """Identifiers in the statement the innermost frame stands at and those that follow it."""
    if not frames or frames[0].file is None:
        return frozenset()
    return find_identifiers(frames[0].file, frames[0].line, frames[0].line + LINES_AHEAD - 1)


def find_identifiers(file: str, first: int, last: int) -> frozenset[str]:
    """Those in some lines of a source file, counted from 1; none where it cannot be read."""
    return frozenset(name for line in read_lines(file)[first - 1 : last] for name in IDENTIFIER.findall(line))


@lru_cache(maxsize=64)
def read_lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text("utf-8", "replace").split("\n"))
    except (OSError, ValueError):
        return ()


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

    def part(self, is_direct: bool, path: str) -> Expression:
        if self.start.startswith("&"):
            return Expression(write_part(is_direct, str(self), path), self.frame)
        before, _, step = write_part(is_direct, HOLE, path).partition(HOLE)
        if not before and step == self.step:
            return replace(self, times=self.times + 1)
        start = str(self)
        if len(start) > LENGTH_WRITTEN:
            start = f"{start[:LENGTH_KEPT]}...{crc32(start.encode('utf-8', 'surrogateescape')):08x}..."
        if before:
            return Expression(write_part(is_direct, start, path), self.frame)
        return Expression(start, self.frame, step, 1)


class Step(NamedTuple):
    """One way to an object: the pointer at `at` in `source` leads `inside` bytes behind its beginning."""

    source: Object
    at: int
    inside: int

    @property
    def start(self) -> Node:
        return self.source, self.source.shape.base_of(self.at)


# From each object to the step that leads there; None: it is a variable.
Ways = dict[Node, Step | None]


class Naming:
    """Names take the shortest way from any variable, the innermost frame's first. Keys take any way from a global
    variable, else from an outer frame, so that what a function is given is not named anew by its parameters."""

    def __init__(self, graph: MemoryGraph) -> None:
        self._graph = graph
        self._names: dict[Node, Expression] = {}
        self._keys: dict[Node, Expression] = {}
        self._in_pools: dict[Object, defaultdict[int, list[tuple[int, int]]]] = {}

    def name(self, o: Object, base: int = 0) -> str:
        return str(self._write((o, base), is_key=False))

    def frame(self, o: Object, base: int = 0) -> int | None:
        return self._write((o, base), is_key=False).frame

    def key(self, o: Object, base: int = 0) -> str:
        return str(self._write((o, base), is_key=True))

    @cached_property
    def order(self) -> dict[Node, int]:
        """The order in which a programmer looks: the innermost frame's variables and what they lead to first."""
        return {node: number for number, node in enumerate(self._short_ways)}

    def root(self, o: Object, base: int = 0) -> RootVariable | None:
        """The variable its key begins with."""
        return self.lasting_way(o, base)[0]

    def lasting_way(self, o: Object, base: int = 0) -> tuple[RootVariable | None, list[Step]]:
        """The variable its key begins with, and the steps from there."""
        steps: list[Step] = []
        while (step := self._lasting_ways.get((o, base))) is not None:
            steps.append(step)
            o, base = step.start
        return o if isinstance(o, RootVariable) else None, steps[::-1]

    def group(self, o: Object, base: int, path: str) -> tuple[str, ...]:
        """What a part of an object belongs to, ever smaller: scope, variable, object, members and elements."""
        root = self.root(o, base)
        parts = (self.key(o, base), *PATH_PART.findall(path))
        if root is None:
            return ("", *parts)
        return ("global" if root.frame is None else root.key.rpartition(":")[0], root.key, *parts)

    def ancestors(self, o: Object, base: int = 0) -> list[Node]:
        """The objects its name leads through, itself first."""
        found = [(o, base)]
        while (step := self._short_ways.get(found[-1])) is not None:
            found.append(step.start)
        return found

    @cached_property
    def _short_ways(self) -> Ways:
        # What a function of the C++ library calls its variables comes last.
        variables = sorted(self._graph.variables, key=self._is_foreign)
        mentioned = mentioned_names(self._graph.visit.frames)
        roots = sorted(variables, key=lambda o: (self._is_foreign(o), o.name.removeprefix("&") not in mentioned))
        ways: Ways = {(o, 0): None for o in variables}
        ways |= self._ways_here()
        with no_collection():
            self._spread(roots, ways)
        return ways

    def _is_foreign(self, o: RootVariable) -> bool:
        file = self._graph.visit.frames[o.frame].file if o.frame is not None else None
        return file is not None and file.startswith(FOREIGN)

    def _ways_here(self) -> Ways:
        """The variables of callers that a member function's object, or its references, are: there they go by these."""
        found: Ways = {}
        for o in self._graph.variables:
            if o.frame == 0 and not o.is_unset and (o.name == "this" or o.name.startswith("&")):
                target = self._graph.target(self._graph.words(o)[0])
                if isinstance(target.object, RootVariable) and target.object.frame and not target.offset:
                    found.setdefault((target.object, 0), Step(o, 0, 0))
        return found

    @cached_property
    def _lasting_ways(self) -> Ways:
        ways: Ways = {(o, 0): None for o in self._graph.variables}
        with no_collection():
            for scope in scopes_outwards_in(self._graph.variables):
                self._spread(scope, ways)
        return ways

    def _spread(self, roots: Iterable[Object], ways: Ways) -> None:
        """Each object by the first way that leads to its start; through its middle where there is no other."""
        graph, starts = self._graph, self._graph.starts
        queue: list[Node] = [(o, 0) for o in roots]
        interior: list[tuple[Node, Step]] = []
        place = 0
        while place < len(queue) or interior:
            if place == len(queue):
                node, step = interior.pop(0)
                if node not in ways:
                    ways[node] = step
                    queue.append(node)
                continue
            source, base = queue[place]
            place += 1
            for at, value in self._references(source, base):
                if not value:
                    continue
                found = starts.get(value)
                if found is not None and found.parts is None:
                    node = (found, 0)
                    if node not in ways:
                        ways[node] = Step(source, at, 0)
                        queue.append(node)
                    continue
                target = graph.target(value)
                if target.object is None:
                    continue
                start = target.object.shape.base_of(target.offset)
                node = (target.object, start)
                if node in ways:
                    continue
                if target.offset != start:
                    interior.append((node, Step(source, at, target.offset - start)))
                else:
                    ways[node] = Step(source, at, 0)
                    queue.append(node)

    def _references(self, o: Object, base: int) -> Sequence[tuple[int, int]]:
        """Offset and value of the pointers in one object of a block."""
        if o.is_unset:
            return ()
        if o.parts is None:
            return self._all_references(o)
        if o not in self._in_pools:
            by_base = self._in_pools[o] = defaultdict(list)
            for at, value in self._all_references(o):
                by_base[o.shape.base_of(at)].append((at, value))
        return self._in_pools[o][base]

    def _all_references(self, o: Object) -> Sequence[tuple[int, int]]:
        graph = self._graph
        hidden = graph.hidden_pointers(o)
        if o.shape.words is None:
            return hidden
        found = list(zip(o.shape.offsets, graph.words(o), strict=True))
        return [*found, *hidden] if hidden else found

    def _write(self, node: Node, is_key: bool) -> Expression:
        ways, written = (self._lasting_ways, self._keys) if is_key else (self._short_ways, self._names)
        # Not by recursion: a list may be long.
        pending = [node]
        while pending:
            (o, base), step = pending[-1], ways.get(pending[-1])
            owner = self._graph.containers.owners.get(o) if not base else None
            if pending[-1] in written:
                pending.pop()
            elif owner is not None and (holder := owner.container.place) not in pending:
                if holder in written:
                    container = self._container(written[holder], owner.container, is_key)
                    written[o, base] = Expression(f"&{container}{owner.label}", container.frame)
                else:
                    pending.append(holder)
            elif step is not None:
                if step.start in written:
                    expression = self._expression(written[step.start], step, is_key)
                    if isinstance(o, RootVariable):  # its parts follow its own name, not a pointer's
                        expression = Expression(write_part(False, str(expression), "[]"), expression.frame)
                    written[o, base] = expression
                else:
                    pending.append(step.start)
            elif isinstance(o, RootVariable) and not base:
                written[o, base] = Expression(o.key if is_key else o.name, o.frame)
            elif base:
                # Nothing leads to it but what leads to the block it lies in.
                whole = self._write((o, 0), is_key)
                written[o, base] = Expression(f"({whole} + {base} bytes)", whole.frame)
            else:
                others = [n for n in ways if n[0] is o]
                first = self._write(others[0], is_key) if others else Expression("?", None)
                back = f" - {others[0][1]} bytes" if others else ""
                written[o, base] = Expression(f"({first}{back})", first.frame)
        return written[node]

    def _container(self, holder: Expression, container: Container, is_key: bool) -> Expression:
        path = container.holder.shape.path_to(container.offset, container.type) or ""
        if not is_key:
            path = self.shorten(container.holder, path)
        run = container.holder.shape.run_at(container.offset)
        return holder.part(run is not None and run.is_direct, path)

    def container_name(self, container: Container) -> str:
        return str(self._container(self._write(container.place, is_key=False), container, is_key=False))

    def container_key(self, container: Container) -> str:
        return str(self._container(self._write(container.place, is_key=True), container, is_key=True))

    def _expression(self, source: Expression, step: Step, is_key: bool) -> Expression:
        kind, path, is_direct = step.source.shape.pointer_at(step.at)
        if not is_key:
            path = self.shorten(step.source, path)
        expression = source.part(is_direct, path)
        if step.inside:
            width = self._graph.layouts.size(kind) or 1
            return Expression(f"({expression} - {step.inside // width})", expression.frame)
        return expression

    def shorten(self, o: Object, path: str) -> str:
        """`*p` for `p[0]`, when there is only one. Not in keys: whether an object looks single may change. The label of
        an element stands for what a map leads to from its key."""
        owner = self._graph.containers.owners.get(o)
        if owner is not None:
            return path.replace(owner.hidden, "", 1) if path.startswith(f"[]{owner.hidden}") else path
        is_pointed_to = o.kind != "variable" and path.startswith("[0]")
        return "[]" + path[3:] if is_pointed_to and self._graph.is_single(o) else path


def drop_this(graph: MemoryGraph, expression: str, frame: int | None) -> str:
    """`count` for `this->count`, as it is written in a member function, unless a variable has that name."""
    found = OF_THIS.match(expression)
    if found is None or frame is None:
        return expression
    taken = {variable.name for variable in graph.visit.frames[frame].variables}
    return expression if found[2] in taken else found[1] + expression[found.start(2) :]


def is_written_out(expression: str) -> bool:
    return not any(mark in expression for mark in (" times)", "...", " bytes", "_count()", "(void **)", RETURN_VALUE))


def scopes_outwards_in(variables: Iterable[RootVariable]) -> list[list[RootVariable]]:
    """The variables, given innermost frame first, of each frame: globals, then the first frame's, and so on."""
    return [list(scope) for _, scope in groupby(variables, key=lambda o: o.frame)][::-1]


def write_part(is_direct: bool, name: str, path: str) -> str:
    """The expression for a part of a variable, or of what a pointer leads to: `point.x`, `list->next`, `a[2]`, `*p`."""
    if (mark := MARK.search(path)) is not None:
        before, rest = write_part(is_direct, name, path[: mark.start()]), path[mark.end() :]
        if mark[0] == "*":
            return write_part(False, before, f"[]{rest}")
        return write_part(True, f"std::get{mark[0]}({before})", rest)
    if is_direct:
        if name.startswith("*") and path:
            return f"{name[1:]}->{path[1:]}" if path.startswith(".") else f"({name}){path}"
        return name + path
    if name.startswith("&") and (element := ELEMENT.match(path)) is not None:
        return write_element(name[1:], int(element[1] or 0), element[2])
    base = f"({name})" if name.startswith("*") else name
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


def write_element(name: str, number: int, path: str) -> str:
    """A part of what stands behind something: with the number that its own number there makes."""
    index = INDEX.search(name)
    if number and index is not None:
        return f"{name[: index.start()]}[{int(index[1]) + number}]{path}"
    return f"(&{name})[{number}]{path}" if number else write_part(True, name, path)


def seen_from(graph: MemoryGraph, selected: int | None, expression: str, frame: int | None) -> str | None:
    """An expression for what a variable of one frame leads to, as gdb understands it while another is selected."""
    if frame is None or frame == (selected or 0):
        return expression
    functions = [f.function for f in graph.visit.frames]
    variable = ROOT.match(expression)
    if variable is None or functions.count(functions[frame]) > 1 or not functions[frame].isidentifier():
        return None
    return f"{variable[1]}{functions[frame]}::{expression[variable.end(1) :]}"
