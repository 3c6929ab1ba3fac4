"""Turns a memory graph into one of networkx for scripts, and graphs and their differences into pictures.

In a graph of networkx an operation has () where the name of the vertex it starts from stands: along any way from the
root, operations written into each other are the expression that a C programmer writes. Pictures are in the language of
Graphviz (DOT): a box is an object with its values, an arrow a reference from one of them. The same states make the same
text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_causechain.states.deltas import StateComparison
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Leaf
from pytest_causechain.states.names import write_part
from pytest_causechain.states.shapes import Object, RootVariable, Target
from pytest_causechain.states.values import show_value

if TYPE_CHECKING:
    from networkx import MultiDiGraph

ROOT = "<root>"
# More boxes, or values in a box, make no picture that one can read.
BOXES_LIMIT = 60
VALUES_LIMIT = 8
LENGTH_LIMIT = 60
Side = Literal["common", "passing", "failing"]
STYLES: dict[Side, str] = {
    "common": "color=black",
    "passing": 'color=red, fontcolor=red, style=dashed, tooltip="only in the passing run"',
    "failing": 'color=blue, fontcolor=blue, style=bold, tooltip="only in the failing run"',
}


class NamedValue(NamedTuple):
    """A value of an object, and the operation that leads there."""

    leaf: Leaf
    operation: str


class ViewVertex(NamedTuple):
    """Two values at one address with one type are one."""

    address: int
    type: str


def list_parts(graph: MemoryGraph, o: Object) -> Iterator[NamedValue]:
    """All values of an object, in their order."""
    for place in o.shape.leaves():
        if o.shape.is_text:
            yield NamedValue(place.leaf, "*()")
        elif place.run is None:
            yield NamedValue(place.leaf, f"() + {place.leaf.offset} bytes")
        else:
            yield NamedValue(place.leaf, write_part(place.run.is_direct, "()", graph.naming.shorten(o, place.path)))


def view_graph(graph: MemoryGraph) -> MultiDiGraph:
    """Vertices are the root, all objects and the values in them; an object that is one value is one vertex."""
    from networkx import MultiDiGraph  # takes half a second, and few want it

    view = MultiDiGraph()
    view.add_node(ROOT, name=ROOT, kind="root", type=None, value=None, address=None)
    parts = {o: add_object(view, graph, o) for o in graph.objects}
    for o in graph.objects:
        if isinstance(o, RootVariable):
            view.add_edge(ROOT, find_vertex(graph, o), operation=o.name)
        if not o.is_unset:
            add_references(view, graph, o, parts)
    return view


def find_vertex(graph: MemoryGraph, o: Object) -> ViewVertex:
    kind = graph.layouts.name(o.type)
    is_array = o.kind != "variable" and not o.shape.is_text and o.count > 1
    return ViewVertex(o.address, f"{kind} [{o.count}]" if is_array else kind)


def add_object(view: MultiDiGraph, graph: MemoryGraph, o: Object) -> dict[int, ViewVertex]:
    """The vertices of its values, by their offsets."""
    name, whole = graph.naming.name(o), find_vertex(graph, o)
    view.add_node(whole, name=name, kind=o.kind, type=whole.type, value=None, address=o.address)
    parts = {}
    for part in list_parts(graph, o):
        shown = part.operation.replace("()", name, 1), show_value(graph, o, part.leaf)
        vertex = ViewVertex(o.address + part.leaf.offset, graph.layouts.name(part.leaf.type))
        parts[part.leaf.offset] = vertex = whole if part.operation in ("()", "*()") else vertex
        if vertex is whole:
            view.nodes[whole].update(name=shown[0], value=shown[1])
        else:
            view.add_node(vertex, name=shown[0], kind="value", type=vertex.type, value=shown[1], address=vertex.address)
            view.add_edge(whole, vertex, operation=part.operation)
    return parts


def add_references(
    view: MultiDiGraph, graph: MemoryGraph, o: Object, parts: Mapping[Object, Mapping[int, ViewVertex]]
) -> None:
    for pointer in graph.pointers(o):
        target = graph.target(pointer.value)
        if target.object is None:
            continue
        vertex, operation = find_end(graph, target, parts[target.object])
        view.add_edge(parts[o].get(pointer.offset, find_vertex(graph, o)), vertex, operation=operation)


def find_end(graph: MemoryGraph, target: Target, parts: Mapping[int, ViewVertex]) -> tuple[ViewVertex, str]:
    """The vertex that a pointer leads to, in an object with these parts, and the operation that does it: the name of
    what lies in the heap is that of a pointer to it."""
    assert target.object is not None
    whole, inside = find_vertex(graph, target.object), parts.get(target.offset)
    if target.offset:
        return (whole, f"() - {target.offset} bytes") if inside is None else (inside, "*()")
    is_named = isinstance(target.object, RootVariable) or inside == whole
    return whole, "*()" if is_named else "()"


@dataclass(frozen=True, slots=True)
class Arrow:
    source: Object
    operation: str
    target: Object


def draw_graph(graph: MemoryGraph, around: Iterable[Object] = (), limit: int = BOXES_LIMIT) -> str:
    """These objects, or all variables, with the way that leads there and what they lead to, nearest first."""
    boxes = dict.fromkeys(around or graph.variables)
    for o in list(boxes):
        boxes.update(dict.fromkeys(node for node, _ in graph.naming.ancestors(o)))
    spread(graph, boxes, limit)
    drawn, left = list(boxes)[:limit], max(0, len(boxes) - limit)
    lines = [draw_box(o, title(graph, o), list_values(graph, o), "common", n) for n, o in enumerate(drawn)]
    numbers = {o: number for number, o in enumerate(drawn)}
    arrows = [arrow for o in drawn for arrow in list_arrows(graph, o)]
    lines += [draw_arrow(numbers, arrow, "common") for arrow in arrows if arrow.target in numbers]
    return write_picture(lines, left)


def draw_difference(comparison: StateComparison, limit: int = BOXES_LIMIT) -> str:
    """Both states in one picture: what the runs have in common in black, what only the passing one has dashed and
    red, what only the failing one has bold and blue; all that differs, the ways there and what it leads to."""
    difference = _Difference(comparison)
    boxes = difference.find_boxes()
    drawn, left = boxes[:limit], max(0, len(boxes) - limit)
    return write_picture(difference.draw(drawn), left)


class _Difference:
    """Of a pair of objects the failing run's stands for both."""

    def __init__(self, comparison: StateComparison) -> None:
        self._comparison, self._matching = comparison, comparison.matching
        self._passing, self._failing = self._matching.passing, self._matching.failing
        self._theirs = set(self._failing.objects)

    def find_boxes(self) -> list[Object]:
        """What differs, in the order of the deltas, then objects that only one run has, each with the way that leads
        there and what it leads to."""
        boxes: dict[Object, None] = {}
        changed = [spot.theirs for delta in self._comparison.deltas for spot in delta.spots]
        for o in [*changed, *self._find_single(self._failing), *self._find_single(self._passing)]:
            boxes.update(dict.fromkeys(self._standing(node) for node in self._way(o)))
        for o in list(boxes):
            if self._side(o) != "common":
                graph = self._graph(o)
                boxes.update(dict.fromkeys(self._standing(arrow.target) for arrow in list_arrows(graph, o)))
        return list(boxes)

    def _find_single(self, graph: MemoryGraph) -> list[Object]:
        return [o for o in graph.objects if o not in self._matching.mates and o.kind == "heap" and o.kept is None]

    def _way(self, o: Object) -> list[Object]:
        return [node for node, _ in self._graph(o).naming.ancestors(o)][::-1]

    def _graph(self, o: Object) -> MemoryGraph:
        return self._failing if o in self._theirs else self._passing

    def _standing(self, o: Object) -> Object:
        return o if o in self._theirs else self._matching.mates.get(o, o)

    def _side(self, o: Object) -> Side:
        if o in self._matching.mates:
            return "common"
        return "failing" if o in self._theirs else "passing"

    def draw(self, drawn: Sequence[Object]) -> list[str]:
        numbers = {o: number for number, o in enumerate(drawn)}
        lines = [
            draw_box(o, title(self._graph(o), o), list(self._list_values(o)), self._side(o), number)
            for o, number in numbers.items()
        ]
        ours, theirs = (
            [arrow for o in drawn for arrow in self._list_arrows(graph, o) if arrow.target in numbers]
            for graph in (self._passing, self._failing)
        )
        for arrow in dict.fromkeys([*theirs, *ours]):
            side: Side = "common" if arrow in ours and arrow in theirs else "passing" if arrow in ours else "failing"
            lines.append(draw_arrow(numbers, arrow, side))
        return lines

    def _list_arrows(self, graph: MemoryGraph, box: Object) -> list[Arrow]:
        """Those of one run, between what stands for its objects."""
        o = box if graph is self._graph(box) else self._matching.mates.get(box)
        arrows = list_arrows(graph, o) if o is not None else []
        return [Arrow(box, arrow.operation, self._standing(arrow.target)) for arrow in arrows]

    def _list_values(self, o: Object) -> Iterator[str]:
        """Where the runs differ, both values."""
        mate = self._matching.mates.get(o)
        values = list_values(self._graph(o), o)
        others = values if mate is None else list_values(self._passing, mate)
        if len(values) != len(others):
            others = values
        for value, other in zip(values, others, strict=True):
            yield value if value == other else f"{value} ({other.rpartition(' = ')[2]})"


def spread(graph: MemoryGraph, boxes: dict[Object, None], limit: int) -> None:
    """Add what the objects lead to, nearest first, until there is no more, or more than enough."""
    pending = list(boxes)
    for o in pending:
        for arrow in list_arrows(graph, o):
            if arrow.target not in boxes:
                boxes[arrow.target] = None
                pending.append(arrow.target)
        if len(boxes) > limit:
            return


def title(graph: MemoryGraph, o: Object) -> str:
    return f"{graph.naming.name(o)}: {find_vertex(graph, o).type}"


def list_values(graph: MemoryGraph, o: Object) -> list[str]:
    """Without those that are drawn as arrows."""
    drawn = set() if o.is_unset else {p.offset for p in graph.pointers(o) if graph.target(p.value).object is not None}
    return [
        f"{part.operation} = {show_value(graph, o, part.leaf)}"
        for part in list_parts(graph, o)
        if part.leaf.offset not in drawn or o.shape.is_text
    ]


def list_arrows(graph: MemoryGraph, o: Object) -> list[Arrow]:
    if o.is_unset:
        return []
    operations = {part.leaf.offset: part.operation for part in list_parts(graph, o)}
    arrows = []
    for pointer in graph.pointers(o):
        target = graph.target(pointer.value)
        if target.object is not None:
            inside = f" + {target.offset}" if target.offset else ""
            arrows.append(Arrow(o, operations.get(pointer.offset, "()") + inside, target.object))
    return arrows


def draw_box(o: Object, heading: str, values: Sequence[str], side: Side, number: int) -> str:
    lines = [heading, *values[:VALUES_LIMIT]]
    if len(values) > VALUES_LIMIT:
        lines.append(f"{len(values) - VALUES_LIMIT} more values")
    shape = "oval" if isinstance(o, RootVariable) else "box"
    text = "".join(f"{escape(shorten(line))}\\l" for line in lines)
    return f'  n{number} [shape={shape}, label="{text}", {STYLES[side]}];'


def draw_arrow(numbers: dict[Object, int], arrow: Arrow, side: Side) -> str:
    label = escape(shorten(arrow.operation))
    return f'  n{numbers[arrow.source]} -> n{numbers[arrow.target]} [label="{label}", {STYLES[side]}];'


def write_picture(lines: Iterable[str], left: int) -> str:
    more = [f'  more [shape=plaintext, label="{left} more objects"];'] if left else []
    return "\n".join(["digraph state {", "  rankdir=LR;", "  node [fontname=monospace];", *lines, *more, "}", ""])


def shorten(text: str) -> str:
    return text if len(text) <= LENGTH_LIMIT else text[: LENGTH_LIMIT - 3] + "..."


def escape(text: str) -> str:
    """As a string of DOT: what a program holds must not end it, nor be taken for its own escapes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
