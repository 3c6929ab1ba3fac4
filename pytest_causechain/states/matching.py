"""Pairs the objects of two memory graphs by walking both from their variables at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pytest_causechain.states.graph import MemoryGraph, Object, Target
from pytest_causechain.states.names import scopes_outwards_in


@dataclass(frozen=True, slots=True)
class Matching:
    """`mates` leads from an object of one graph to that of the other, in both directions."""

    passing: MemoryGraph
    failing: MemoryGraph
    pairs: tuple[tuple[Object, Object], ...]
    mates: dict[Object, Object] = field(repr=False)

    def same_target(self, passing: Target, failing: Target) -> bool:
        if passing.object is None or failing.object is None:
            return (passing.object, passing.offset, passing.image) == (failing.object, failing.offset, failing.image)
        return self.mates.get(failing.object) is passing.object and passing.offset == failing.offset


def match_states(passing: MemoryGraph, failing: MemoryGraph) -> Matching:
    """Variables pair by scope and name. What pointers at matching places lead to pairs in turn: objects with equal
    contents before others, else the first such pair of references decides. Nothing depends on addresses being
    alike in the two runs."""
    mates: dict[Object, Object] = {}
    pairs: list[tuple[Object, Object]] = []

    def pair(ours: Object, theirs: Object) -> bool:
        if ours in mates or theirs in mates or not fits(passing, ours, theirs):
            return False
        mates[ours], mates[theirs] = theirs, ours
        pairs.append((ours, theirs))
        return True

    by_key = {o.key: o for o in passing.variables}
    # All variables before anything they lead to: a pointer to one does not make it the partner of another.
    for theirs in failing.variables:
        if theirs.key in by_key:
            pair(by_key[theirs.key], theirs)
    # Globals and outer frames first, each with all they lead to: what they hold keeps its partner while functions
    # come and go.
    for scope in scopes_outwards_in(failing.variables):
        alike: deque[tuple[Object, Object]] = deque()
        others: deque[tuple[Object, Object]] = deque()
        for theirs in scope:
            if theirs in mates:
                sort_candidates(passing, mates[theirs], failing, theirs, alike, others)
        while alike or others:
            ours, theirs = (alike or others).popleft()
            if pair(ours, theirs):
                sort_candidates(passing, ours, failing, theirs, alike, others)
    return Matching(passing, failing, tuple(pairs), mates)


def sort_candidates(
    passing: MemoryGraph,
    ours: Object,
    failing: MemoryGraph,
    theirs: Object,
    alike: deque[tuple[Object, Object]],
    others: deque[tuple[Object, Object]],
) -> None:
    """What the pointers of a pair of objects lead to becomes the next candidates."""
    values = {pointer.offset: pointer.value for pointer in failing.pointers(theirs)}
    for pointer in passing.pointers(ours):
        if pointer.offset in values:
            source, target = passing.target(pointer.value), failing.target(values[pointer.offset])
            one, other = source.object, target.object
            if one is None or other is None or source.offset != target.offset or one.kind == "variable":
                continue
            same = passing.scalars(one)[: other.size] == failing.scalars(other)
            (alike if same else others).append((one, other))


def fits(passing: MemoryGraph, ours: Object, theirs: Object) -> bool:
    """Whether the passing run's object can take on the contents of the failing run's in place."""
    if ours.kind != theirs.kind or (ours.kept is None) != (theirs.kept is None) or theirs.size > ours.size:
        return False
    if ours.type == theirs.type:
        return True
    # Arrays whose length is known only when their function runs have a type for each length.
    one, other = passing.layouts.row(ours.type), passing.layouts.row(theirs.type)
    return bool(one["kind"] == other["kind"] == "array" and one["target"] == other["target"])
