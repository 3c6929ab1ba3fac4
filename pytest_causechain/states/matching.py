"""Pairs the objects of two memory graphs by walking both from their variables at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pytest_causechain.states.graph import MemoryGraph, Object, Target


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
    """Variables pair by scope and name; what pointers at matching places lead to pairs in turn, the first such
    pair of references deciding. Nothing depends on addresses being alike in the two runs."""
    mates: dict[Object, Object] = {}
    pairs: list[tuple[Object, Object]] = []
    queue: deque[tuple[Object, Object]] = deque()

    def pair(ours: Object, theirs: Object) -> None:
        if ours not in mates and theirs not in mates and fits(ours, theirs):
            mates[ours], mates[theirs] = theirs, ours
            pairs.append((ours, theirs))
            queue.append((ours, theirs))

    by_key = {o.key: o for o in passing.variables}
    # Globals and outer frames first: what they hold keeps its partner while functions come and go.
    for theirs in reversed(failing.variables):
        if theirs.key in by_key:
            pair(by_key[theirs.key], theirs)
    while queue:
        ours, theirs = queue.popleft()
        for (at, _, _, left), (at_too, _, _, right) in zip(
            passing.pointers(ours), failing.pointers(theirs), strict=False
        ):
            source, target = passing.target(left), failing.target(right)
            if (
                at == at_too
                and source.object is not None
                and target.object is not None
                and source.offset == target.offset
            ):
                pair(source.object, target.object)
    return Matching(passing, failing, tuple(pairs), mates)


def fits(ours: Object, theirs: Object) -> bool:
    """Whether the passing run's object can take on the contents of the failing run's in place."""
    return ours.kind == theirs.kind and ours.type == theirs.type and theirs.size <= ours.size
