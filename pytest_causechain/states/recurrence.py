"""Tells whether variables have in a third state the values they have in the failing run's.

For numbers and texts the few steps of their keys are enough; only pointers take a matching of the whole states."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_causechain.states.deltas import Delta
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.greater import is_alike
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.objects import Object
from pytest_causechain.states.spots import Spot
from pytest_causechain.states.wholes import Whole
from pytest_causechain.states.wording import Told


def have_failing_values(graph: MemoryGraph, failing: MemoryGraph, deltas: Sequence[Delta]) -> bool:
    """`deltas` are of a comparison with `failing`; those of the input and the code, which are there from the start, are
    not looked at."""
    parts = [delta.part for delta in deltas if delta.part is not None and delta.part.kind not in ("code", "input")]
    memories = (graph.memory, failing.memory)
    if not all(is_alike(graph.visit, failing.visit, part, memories) for part in parts):
        return False
    spots = [spot for delta in deltas for spot in find_spots(delta.told)]
    if any(has_value(graph, failing, spot) is False for spot in spots):
        return False
    left = [spot for spot in spots if has_value(graph, failing, spot) is None]
    if not left:
        return True
    matching = match_states(graph, failing, is_altered=True)
    for spot in left:
        mate = matching.mates.get(spot.theirs)
        if mate is None or Spot(matching, mate, spot.theirs, spot.place).find_kind() is not None:
            return False
    return True


def find_spots(told: Told) -> Sequence[Spot]:
    if isinstance(told, Whole):
        return told.spots
    return [told] if isinstance(told, Spot) else []


def has_value(graph: MemoryGraph, failing: MemoryGraph, spot: Spot) -> bool | None:
    """None: what it leads to must be compared."""
    if spot.theirs in failing.containers.owners:
        return None  # another way may lead to the same element
    start = follow_key(graph, failing, spot.theirs, spot.base)
    if start is None:
        return False
    wanted = failing.value(spot.theirs, spot.leaf)
    data = graph.memory.read(start + spot.leaf.offset, spot.leaf.size)
    if spot.is_pointer:
        return data == wanted if not any(wanted) else None
    if failing.pointers_within(spot.theirs, spot.leaf.offset, spot.leaf.offset + spot.leaf.size):
        return None
    if data is None:
        return False
    if failing.layouts.is_text_leaf(spot.leaf) and cut_text(spot.values[0]) != cut_text(spot.values[1]):
        # What lies behind the end of a text was not told.
        return cut_text(data) == cut_text(wanted)
    return spot.extract(data) == spot.extract(wanted)


def cut_text(data: bytes) -> bytes:
    return data.partition(b"\0")[0]


def follow_key(graph: MemoryGraph, failing: MemoryGraph, o: Object, base: int) -> int | None:
    """Where another state has the object that goes by the key of this one."""
    root, steps = failing.naming.lasting_way(o, base)
    variable = next((v for v in graph.variables if root is not None and v.key == root.key), None)
    if variable is None:
        return None
    start = variable.address
    nodes = [*((step.source, step.source.shape.base_of(step.at)) for step in steps[1:]), (o, base)]
    for step, (_, inner) in zip(steps, nodes, strict=True) if steps else ():
        value = graph.memory.word(start + step.at)
        if not value:
            return None
        start = value - step.inside - inner
    return start
