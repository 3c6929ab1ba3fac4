"""Draws memory graphs, and what differs between two, in the language of Graphviz (DOT).

A box is an object with its values, an arrow a reference from one of them. The same states make the same text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_causechain.states.deltas import Comparison
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.objects import Object, Variable
from pytest_causechain.states.showing import show_value
from pytest_causechain.states.views import find_vertex, list_parts

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


def draw_difference(comparison: Comparison, limit: int = BOXES_LIMIT) -> str:
    """Both states in one picture: what the runs have in common in black, what only the passing one has dashed and
    red, what only the failing one has bold and blue; all that differs, the ways there and what it leads to."""
    difference = _Difference(comparison)
    boxes = difference.find_boxes()
    drawn, left = boxes[:limit], max(0, len(boxes) - limit)
    return write_picture(difference.draw(drawn), left)


class _Difference:
    """Of a pair of objects the failing run's stands for both."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison, self._matching = comparison, comparison.matching
        self._passing, self._failing = self._matching.passing, self._matching.failing
        self._theirs = set(self._failing.objects)

    def find_boxes(self) -> list[Object]:
        """What differs, in the order of the deltas, then objects that only one run has, each with the way that leads
        there and what it leads to."""
        boxes: dict[Object, None] = {}
        changed = [slot.failing for delta in self._comparison.deltas for slot in delta.slots]
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
        if part.leaf.offset not in drawn or graph.is_raw(o)
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
    shape = "oval" if isinstance(o, Variable) else "box"
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
