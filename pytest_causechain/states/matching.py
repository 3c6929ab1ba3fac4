"""Pairs the objects of two memory graphs by walking both from their variables at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_causechain.states.containers import ASSOCIATIVE
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.names import scopes_outwards_in
from pytest_causechain.states.objects import Object, Target
from pytest_causechain.states.unfolding import no_collection

Pair = tuple[Object, Object]


@dataclass(frozen=True, slots=True)
class Matching:
    """`mates` leads from an object of one graph to that of the other, in both directions."""

    passing: MemoryGraph
    failing: MemoryGraph
    pairs: tuple[Pair, ...]
    mates: dict[Object, Object] = field(repr=False)

    def same_target(self, passing: Target, failing: Target) -> bool:
        if passing.object is None or failing.object is None:
            return passing == failing
        return self.mates.get(failing.object) is passing.object and passing.offset == failing.offset


def match_states(passing: MemoryGraph, failing: MemoryGraph) -> Matching:
    """Variables pair by scope and name. What pointers at matching places lead to pairs in turn: objects with equal
    contents before others, else the first such pair of references decides. Nothing depends on addresses being
    alike in the two runs."""
    with no_collection():
        return _Walk(passing, failing).run()


class _Walk:
    def __init__(self, passing: MemoryGraph, failing: MemoryGraph) -> None:
        self._passing, self._failing = passing, failing
        self._mates: dict[Object, Object] = {}
        self._pairs: list[Pair] = []
        # Candidates: those with equal contents go first.
        self._alike: list[Pair] = []
        # Elements of containers that are found by their keys: no other element is their partner.
        self._keyed: set[Object] = set()
        self._others: list[Pair] = []

    def run(self) -> Matching:
        by_key = {o.key: o for o in self._passing.variables}
        # All variables before anything they lead to: a pointer to one does not make it the partner of another.
        for theirs in self._failing.variables:
            if theirs.key in by_key:
                self._pair(by_key[theirs.key], theirs)
        # Globals and outer frames first, each with all they lead to: what they hold keeps its partner while functions
        # come and go.
        for scope in scopes_outwards_in(self._failing.variables):
            for variable in scope:
                if variable in self._mates:
                    self._collect(self._mates[variable], variable)
            self._walk()
        return Matching(self._passing, self._failing, tuple(self._pairs), self._mates)

    def _walk(self) -> None:
        # In the order in which they were found; what has been looked at is dropped at the end.
        alike, others, first, second = self._alike, self._others, 0, 0
        while True:
            if first < len(alike):
                ours, theirs = alike[first]
                first += 1
            elif second < len(others):
                ours, theirs = others[second]
                second += 1
            else:
                break
            if self._pair(ours, theirs):
                self._collect(ours, theirs)
        alike.clear()
        others.clear()

    def _pair(self, ours: Object, theirs: Object) -> bool:
        if ours in self._mates or theirs in self._mates or not fits(self._passing, ours, theirs):
            return False
        self._mates[ours], self._mates[theirs] = theirs, ours
        self._pairs.append((ours, theirs))
        return True

    def _collect(self, ours: Object, theirs: Object) -> None:
        """What the pointers of a pair of objects lead to becomes the next candidates."""
        if ours.shape.containers:
            self._pair_elements(ours, theirs)
        starts, their_starts, mates = self._passing.starts, self._failing.starts, self._mates
        for value, other in self._pointers(ours, theirs):
            source, target = starts.get(value), their_starts.get(other)
            if source is None or target is None:
                left, right = self._passing.target(value), self._failing.target(other)
                source, target = left.object, right.object
                if source is None or target is None or left.offset != right.offset or source.kind == "variable":
                    continue
            if source in self._keyed or target in self._keyed:
                continue
            if source not in mates and target not in mates:
                is_alike = self._are_alike(source, target)
                (self._alike if is_alike else self._others).append((source, target))

    def _pair_elements(self, ours: Object, theirs: Object) -> None:
        """Of containers at the same offsets, those with equal keys."""
        for offset, kind in ours.shape.containers:
            one = self._passing.containers.found.get((ours, offset, kind))
            other = self._failing.containers.found.get((theirs, offset, kind))
            if one is None or other is None or one.kind not in ASSOCIATIVE:
                continue
            self._keyed.update(node for node, _ in (*one.nodes, *other.nodes))
            by_label = {label: node for node, label in one.nodes}
            for node, label in other.nodes:
                if label in by_label:
                    self._alike.append((by_label[label], node))

    def _pointers(self, ours: Object, theirs: Object) -> list[tuple[int, int]]:
        """Values of the pointers at the same offsets of both."""
        if ours.is_unset or theirs.is_unset:
            return []
        passing, failing = self._passing, self._failing
        if ours.shape is theirs.shape:
            found = [pair for pair in zip(passing.words(ours), failing.words(theirs), strict=True) if all(pair)]
            values = dict(failing.hidden_words(theirs))
            if values:
                found += [(value, values[at]) for at, value in passing.hidden_words(ours) if at in values]
            return found
        values = {pointer.offset: pointer.value for pointer in failing.pointers(theirs)}
        return [(p.value, values[p.offset]) for p in passing.pointers(ours) if p.offset in values]

    def _are_alike(self, ours: Object, theirs: Object) -> bool:
        if ours.shape is theirs.shape:
            left, right = self._passing.memory.region(ours.address), self._failing.memory.region(theirs.address)
            assert left is not None and right is not None
            values = ours.shape.values
            return values(left.data, ours.address - left.start) == values(right.data, theirs.address - right.start)
        if ours.size < theirs.size or ours.shape.offsets or theirs.shape.offsets:
            return False
        return self._passing.contents(ours)[: theirs.size] == self._failing.contents(theirs)


def fits(passing: MemoryGraph, ours: Object, theirs: Object) -> bool:
    """Whether the passing run's object can take on the contents of the failing run's in place."""
    if ours.kind != theirs.kind or (ours.kept is None) != (theirs.kept is None) or theirs.size > ours.size:
        return False
    if ours.is_unset != theirs.is_unset:
        return False
    if ours.type == theirs.type:
        return True
    # Arrays whose length is known only when their function runs have a type for each length.
    one, other = passing.layouts.row(ours.type), passing.layouts.row(theirs.type)
    return bool(one["kind"] == other["kind"] == "array" and one["target"] == other["target"])
