"""Pairs the objects of two memory graphs by walking both from their variables at once.

Where linked structures begin to differ, the walk would pair all that follows with its neighbour: there what the rest
of the two has in common is paired first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pytest_causechain.debugger.types import ArrayType, AssociativeType
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.names import scopes_outwards_in
from pytest_causechain.states.objects import Kind, Object, Target
from pytest_causechain.states.remainders import Remainder, compare_values, is_link, pair_equal, read_texts
from pytest_causechain.states.unfolding import no_collection

Pair = tuple[Object, Object]
# Of objects that are not variables, those that do not lie in the heap themselves.
CREATED: frozenset[Kind] = frozenset({"vector", "text", "alloca"})
# A chain in which as many links in a row were replaced is another one.
LINKS_LOOKED_AT = 40


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


def match_states(passing: MemoryGraph, failing: MemoryGraph, is_altered: bool = False) -> Matching:
    """Variables pair by scope and name. What pointers at matching places lead to pairs in turn: objects with equal
    contents first, then what is common to the linked structures that are left, then places decide. At last objects
    pair that only moved to another place. Nothing depends on addresses being alike in the two runs.

    `is_altered`: some of the passing run's objects were created there, in the heap, wherever the failing run has them.
    """
    with no_collection():
        return _Walk(passing, failing, is_altered).run()


class _Walk:
    def __init__(self, passing: MemoryGraph, failing: MemoryGraph, is_altered: bool) -> None:
        self._passing, self._failing, self._is_altered = passing, failing, is_altered
        self._mates: dict[Object, Object] = {}
        self._pairs: list[Pair] = []
        # Candidates: those with equal contents go first.
        self._alike: list[Pair] = []
        # Elements of containers that are found by their keys: no other element is their partner.
        self._keyed: set[Object] = set()
        self._others: list[Pair] = []
        # Pairs of links that are known not to lead to the same.
        self._different: set[Pair] = set()

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
            self._follow_alike()
            if self._others:
                self._pair_common()
                self._walk()
        self._pair_moved()
        return Matching(self._passing, self._failing, tuple(self._pairs), self._mates)

    def _follow_alike(self) -> None:
        # Grows while it is looked through, in the order in which they were found.
        for ours, theirs in self._alike:
            if self._pair(ours, theirs):
                self._collect(ours, theirs)
        self._alike.clear()

    def _pair_common(self) -> None:
        """What the unequal objects at matching places lead to, and is the same in both runs."""
        for ours, theirs in Remainder(self._passing, self._failing, self._mates, self._others).find_common():
            if self._pair(ours, theirs):
                self._collect(ours, theirs)
        self._follow_alike()

    def _walk(self) -> None:
        for ours, theirs in self._others:
            if self._is_replaced(ours, theirs):
                continue
            if self._pair(ours, theirs):
                self._collect(ours, theirs)
                self._follow_alike()
        self._others.clear()
        self._different.clear()

    def _is_replaced(self, ours: Object, theirs: Object) -> bool:
        """Whether two objects are different links of one chain: they hold one value each, another one, and what both
        lead to is the same again."""
        if ours in self._mates or theirs in self._mates or (ours, theirs) in self._different:
            return False
        if ours.shape is not theirs.shape or not is_link(self._failing, theirs):
            return False
        if compare_values(self._passing, ours, self._failing, theirs) != (0, 1):
            return False
        pending, seen = [(ours, theirs)], set[Pair]()
        while pending and len(seen) < LINKS_LOOKED_AT:
            pair = pending.pop()
            seen.add(pair)
            for source, target in self._linked(*pair):
                if self._mates.get(target) is source and self._are_alike(source, target):
                    return True
                is_open = source not in self._mates and target not in self._mates
                if is_open and (source, target) not in seen and (source, target) not in self._different:
                    pending.append((source, target))
        self._different |= seen
        return False

    def _linked(self, ours: Object, theirs: Object) -> Iterator[Pair]:
        """The objects of the same type that pointers at the same places of both lead to."""
        for value, other in self._pointers(ours, theirs):
            source, target = self._passing.starts.get(value), self._failing.starts.get(other)
            if source is not None and target is not None and source.type == target.type == ours.type:
                yield source, target

    def _pair_moved(self) -> None:
        """Objects with the same contents that the runs keep at different places, in the order in which they lie in
        the heap: that is mostly the order in which they were made.

        Those of a class with virtual functions mostly have one owner, who ends them: they are better made anew."""
        ours, theirs = (
            [
                o
                for o in graph.objects
                if o.kind == "heap" and o.kept is None and o not in self._mates and not graph.layouts.is_dynamic(o.type)
            ]
            for graph in (self._passing, self._failing)
        )
        if ours and theirs:
            for pair in pair_equal(self._passing, ours, self._failing, theirs):
                self._pair(*pair)

    def _pair(self, ours: Object, theirs: Object) -> bool:
        if ours in self._mates or theirs in self._mates:
            return False
        is_created = self._is_altered and ours.kind == "heap" and theirs.kind in CREATED
        if not (ours.kind == theirs.kind or is_created) or not fits(self._passing, ours, self._failing, theirs):
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
            if one is None or other is None or not isinstance(one.plan, AssociativeType):
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
            if values(left.data, ours.address - left.start) != values(right.data, theirs.address - right.start):
                return False
            return not ours.shape.texts or read_texts(self._passing, ours) == read_texts(self._failing, theirs)
        if ours.size < theirs.size or ours.shape.offsets or theirs.shape.offsets:
            return False
        return self._passing.contents(ours)[: theirs.size] == self._failing.contents(theirs)


def fits(passing: MemoryGraph, ours: Object, failing: MemoryGraph, theirs: Object) -> bool:
    """Whether the passing run's object can take on the contents of the failing run's in place."""
    if (ours.kept is None) != (theirs.kept is None) or theirs.size > ours.size:
        return False
    if ours.is_unset != theirs.is_unset:
        return False
    if ours.type == theirs.type:
        return (
            ours.kind == "variable"
            or (tag := passing.layouts.tag(ours.type)) is None
            or (passing.value(ours, tag) == failing.value(theirs, tag))
        )
    # Arrays whose length is known only when their function runs have a type for each length.
    one, other = passing.layouts.type(ours.type), passing.layouts.type(theirs.type)
    return isinstance(one, ArrayType) and isinstance(other, ArrayType) and one.target == other.target
