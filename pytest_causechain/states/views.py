"""Turns a memory graph into one of networkx, for whoever wants to look at a state or walk it in a script.

An operation has () where the name of the vertex it starts from stands: along any way from the root, operations written
into each other are the expression that a C programmer writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pytest_causechain.states.layout import Leaf
from pytest_causechain.states.names import write_part
from pytest_causechain.states.objects import Object, Target, Variable
from pytest_causechain.states.showing import show_value

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    from pytest_causechain.states.graph import MemoryGraph

ROOT = "<root>"


class Part(NamedTuple):
    """A value of an object, and the operation that leads there."""

    leaf: Leaf
    operation: str


class Vertex(NamedTuple):
    """Two values at one address with one type are one."""

    address: int
    type: str


def list_parts(graph: MemoryGraph, o: Object) -> Iterator[Part]:
    """All values of an object, in their order."""
    for place in graph.leaves(o):
        if o.shape.is_text:
            yield Part(place.leaf, "*()")
        elif place.run is None:
            yield Part(place.leaf, f"() + {place.leaf.offset} bytes")
        else:
            yield Part(place.leaf, write_part(place.run.is_direct, "()", graph.naming.shorten(o, place.path)))


def view_graph(graph: MemoryGraph) -> MultiDiGraph:
    """Vertices are the root, all objects and the values in them; an object that is one value is one vertex."""
    from networkx import MultiDiGraph  # takes half a second, and few want it

    view = MultiDiGraph()
    view.add_node(ROOT, name=ROOT, kind="root", type=None, value=None, address=None)
    parts = {o: add_object(view, graph, o) for o in graph.objects}
    for o in graph.objects:
        if isinstance(o, Variable):
            view.add_edge(ROOT, find_vertex(graph, o), operation=o.name)
        if not o.is_unset:
            add_references(view, graph, o, parts)
    return view


def find_vertex(graph: MemoryGraph, o: Object) -> Vertex:
    kind = graph.layouts.name(o.type)
    is_array = o.kind != "variable" and not o.shape.is_text and o.count > 1
    return Vertex(o.address, f"{kind} [{o.count}]" if is_array else kind)


def add_object(view: MultiDiGraph, graph: MemoryGraph, o: Object) -> dict[int, Vertex]:
    """The vertices of its values, by their offsets."""
    name, whole = graph.naming.name(o), find_vertex(graph, o)
    view.add_node(whole, name=name, kind=o.kind, type=whole.type, value=None, address=o.address)
    parts = {}
    for part in list_parts(graph, o):
        shown = part.operation.replace("()", name, 1), show_value(graph, o, part.leaf)
        vertex = Vertex(o.address + part.leaf.offset, graph.layouts.name(part.leaf.type))
        parts[part.leaf.offset] = vertex = whole if part.operation in ("()", "*()") else vertex
        if vertex is whole:
            view.nodes[whole].update(name=shown[0], value=shown[1])
        else:
            view.add_node(vertex, name=shown[0], kind="value", type=vertex.type, value=shown[1], address=vertex.address)
            view.add_edge(whole, vertex, operation=part.operation)
    return parts


def add_references(
    view: MultiDiGraph, graph: MemoryGraph, o: Object, parts: Mapping[Object, Mapping[int, Vertex]]
) -> None:
    for pointer in graph.pointers(o):
        target = graph.target(pointer.value)
        if target.object is None:
            continue
        vertex, operation = find_end(graph, target, parts[target.object])
        view.add_edge(parts[o].get(pointer.offset, find_vertex(graph, o)), vertex, operation=operation)


def find_end(graph: MemoryGraph, target: Target, parts: Mapping[int, Vertex]) -> tuple[Vertex, str]:
    """The vertex that a pointer leads to, in an object with these parts, and the operation that does it: the name of
    what lies in the heap is that of a pointer to it."""
    assert target.object is not None
    whole, inside = find_vertex(graph, target.object), parts.get(target.offset)
    if target.offset:
        return (whole, f"() - {target.offset} bytes") if inside is None else (inside, "*()")
    is_named = isinstance(target.object, Variable) or inside == whole
    return whole, "*()" if is_named else "()"
