"""Turns what lies around a cause into a small picture of both states, and its experiments into a list.

A picture is for a reader: the way from a variable to what differs, its neighbours, and what it points to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice

from pytest_causechain.model.chain import Edge, Picture, Scene, Trial, Vertex
from pytest_causechain.model.runs import Outcome
from pytest_causechain.states.deltas import Delta, StateComparison
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.shapes import Object, PlacedLeaf
from pytest_causechain.states.values import show_contents, show_pointer, show_value

# More would not fit beside each other on a screen.
MOST_VERTICES = 14
CAUSES_PICTURED = 3
# Members or elements shown on either side of the one that differs.
NEIGHBOURS = 2
# Of a longer way the middle says little.
STEPS_SHOWN = 3
MOST_TRIALS, VARIABLES_NAMED = 40, 3
# A value longer than this is cut by every reporter; a text may be a megabyte.
VALUE_KEPT = 80


def draw_picture(comparison: StateComparison, cause: Sequence[Delta]) -> Picture | None:
    """None when all that differs is input not read yet."""
    shown = [delta.spots[0] for delta in cause if delta.spots][:CAUSES_PICTURED]
    if not shown:
        return None
    matching = comparison.matching
    passing, failing = _Drawing(matching.passing), _Drawing(matching.failing)
    unequal = {
        (o, spot.leaf.offset) for delta in comparison.deltas for spot in delta.spots for o in (spot.ours, spot.theirs)
    }
    for spot in shown:
        passing.add(spot.ours, spot.leaf.offset, unequal)
        failing.add(spot.theirs, spot.leaf.offset, unequal)
    return Picture(passing.scene(), failing.scene())


class _Drawing:
    """A scene in the making; objects and values that are reached twice are drawn once."""

    def __init__(self, graph: MemoryGraph) -> None:
        self._graph = graph
        self._vertices: list[Vertex] = []
        self._edges: dict[Edge, None] = {}
        self._numbers: dict[tuple[Object, int, bool], int] = {}

    def scene(self) -> Scene:
        return Scene(tuple(self._vertices), tuple(self._edges))

    def add(self, o: Object, offset: int, unequal: set[tuple[Object, int]]) -> None:
        """The value at an offset of an object, and what is around it."""
        base = o.shape.base_of(offset)
        near = self._graph.leaves_near(o, offset, NEIGHBOURS)
        places = [place for place in near if o.shape.base_of(place.leaf.offset) == base]
        at = next((index for index, place in enumerate(places) if place.leaf.offset == offset), None)
        if at is None:
            return
        if len(places) == 1 and o.kind == "variable":
            self._value(o, places[0], unequal, self._graph.naming.name(o, base))
            return
        holder = self._way(o, base)
        for place in places[max(at - NEIGHBOURS, 0) : at + NEIGHBOURS + 1]:
            path = self._graph.naming.shorten(o, place.path).removeprefix("[]") or "*"
            number = self._value(o, place, unequal, path)
            if number is not None and holder is not None:
                self._connect(holder, number, path)

    def _way(self, o: Object, base: int) -> int | None:
        """The objects on the way from a variable; the number of the last one."""
        way = self._graph.naming.ancestors(o, base)[::-1]
        shown = way if len(way) <= STEPS_SHOWN else [way[0], *way[1 - STEPS_SHOWN :]]
        before: int | None = None
        before_name = ""
        for node in shown:
            name = self._graph.naming.name(*node)
            number = self._vertex((*node, True), partial(self._draw_object, node[0], name))
            if number is None:
                return before
            if before is not None:
                self._connect(before, number, name.removeprefix(before_name) or "*")
            before, before_name = number, name
        return before

    def _draw_object(self, o: Object, name: str, value: str = "") -> Vertex:
        """An object that is no variable has the name of what a pointer leads to."""
        kind = self._graph.layouts.name(o.type)
        if o.kind == "variable":
            return Vertex(name, kind, value)
        return Vertex(f"*{name}", kind if self._graph.is_single(o) else f"{kind} [{o.count}]", value)

    def _value(self, o: Object, place: PlacedLeaf, unequal: set[tuple[Object, int]], name: str) -> int | None:
        """The value itself; of a pointer also what it leads to."""
        graph, leaf = self._graph, place.leaf
        differs = (o, leaf.offset) in unequal
        target_type = graph.layouts.target(leaf.type)
        address = WORD.unpack(graph.value(o, leaf))[0] if target_type is not None else 0
        value = show_value(graph, o, leaf) if target_type is None else show_pointer(graph, address, target_type)
        target = graph.target(address).object if address else None
        leads = target is not None and differs and not value.startswith('"')
        vertex = Vertex(name, graph.layouts.name(leaf.type), "" if leads else value[:VALUE_KEPT], differs)
        number = self._vertex((o, leaf.offset, False), lambda: vertex)
        if leads and target is not None and number is not None:
            self._lead(number, target, graph.target(address).offset)
        return number

    def _lead(self, source: int, target: Object, offset: int) -> None:
        base = target.shape.base_of(offset)
        name = self._graph.naming.name(target, base)
        contents = "" if target.shape.is_text else show_contents(self._graph, target, offset)[:VALUE_KEPT]
        number = self._vertex((target, base, True), partial(self._draw_object, target, name, contents))
        if number is not None:
            self._connect(source, number, "*" if offset == base else f"+{offset - base}")

    def _vertex(self, node: tuple[Object, int, bool], draw: Callable[[], Vertex]) -> int | None:
        """The number of a vertex; None when there is no room for it."""
        if node not in self._numbers:
            if len(self._vertices) >= MOST_VERTICES:
                return None
            self._numbers[node] = len(self._vertices)
            self._vertices.append(draw())
        return self._numbers[node]

    def _connect(self, source: int, target: int, operation: str) -> None:
        if source != target:
            self._edges[Edge(source, target, operation)] = None


def list_trials(deltas: Sequence[Delta], known: Mapping[frozenset[int], Outcome]) -> tuple[Trial, ...]:
    """Experiments by the numbers of the deltas that were transferred, in the order in which they were made."""
    return tuple(
        Trial(name_variables(deltas, configuration), len(configuration), outcome.value)
        for configuration, outcome in islice(known.items(), MOST_TRIALS)
    )


def name_variables(deltas: Sequence[Delta], configuration: Iterable[int]) -> tuple[str, ...]:
    return tuple(deltas[number].name for number in sorted(configuration)[:VARIABLES_NAMED])
