"""Pairs the objects of two memory graphs by walking both from their variables at once.

Where linked structures begin to differ (lists with another first link, turned trees), the walk would pair all that
follows with its neighbour: there what the rest of the two has in common is paired first. Links with the same contents
pair wherever they are, if nothing else has these. Where few links are left, all ways to pair those with similar
contents are weighed against each other."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

from pytest_causechain.debugger.types import ArrayType, AssociativeType
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import extract_bits
from pytest_causechain.states.names import scopes_outwards_in
from pytest_causechain.states.shapes import Kind, Object, Target
from pytest_causechain.states.unfolding import no_collection

# So many vertices of the correspondence graph take some tenths of a second; the time doubles with every few more.
CORRESPONDENCES_LIMIT = 120
# What a pair of vertices weighs at least: more than all references of a small graph, each of which weighs 1.
VERTEX_WEIGHT = 1_000

V = TypeVar("V", bound=Hashable)
Pair = tuple[Object, Object]
# Of more links in one run it would take long to say how similar each is to each of the other run's.
LINKS_LIMIT = 40
# The values of a larger link are not looked at one by one.
VALUES_LIMIT = 100
# What all equal values weigh; some of them weigh half of that at the most.
EQUAL = 32
# Of objects that are not variables, those that do not lie in the heap themselves.
CREATED: frozenset[Kind] = frozenset({"vector", "text", "alloca"})
# A chain in which as many links in a row were replaced is another one.
LINKS_LOOKED_AT = 40


class CommonEdge(NamedTuple, Generic[V]):
    """What a picture draws as an arrow: `label` says where in the source it begins."""

    source: V
    label: Hashable
    target: V


def find_common(
    alike: Mapping[tuple[V, V], int], left: Collection[CommonEdge[V]], right: Collection[CommonEdge[V]]
) -> list[tuple[V, V]]:
    """The pairs of vertices, each vertex in one at the most, that weigh most together with the references they have
    in common. `alike` are the weights of the pairs to choose from.

    Exact up to CORRESPONDENCES_LIMIT pairs in doubt; beyond that the best pairs are taken one by one."""
    firsts, seconds = Counter(a for a, _ in alike), Counter(b for _, b in alike)
    # Nothing speaks against a pair whose vertices are in no other one.
    sure = [pair for pair in alike if firsts[pair[0]] == seconds[pair[1]] == 1]
    weights = {pair: weight for pair, weight in alike.items() if pair not in set(sure)}
    arrows: list[tuple[tuple[V, V], ...]] = []
    for ends in common_references(alike, left, right):
        in_doubt = [end for end in dict.fromkeys(ends) if end in weights]
        if len(in_doubt) == 1:
            weights[in_doubt[0]] += 1
        elif in_doubt:
            arrows.append(ends)
    if not weights:
        return sure
    if len(weights) + len(arrows) > CORRESPONDENCES_LIMIT:
        return sure + choose_greedily(weights)
    return sure + choose_exactly(weights, arrows)


def common_references(
    alike: Mapping[tuple[V, V], int], left: Iterable[CommonEdge[V]], right: Iterable[CommonEdge[V]]
) -> Iterable[tuple[tuple[V, V], tuple[V, V]]]:
    """Both ends of each two references that would be one if these pairs were chosen."""
    by_label: dict[Hashable, list[CommonEdge[V]]] = {}
    for reference in right:
        by_label.setdefault(reference.label, []).append(reference)
    for ours in left:
        for theirs in by_label.get(ours.label, ()):
            source, target = (ours.source, theirs.source), (ours.target, theirs.target)
            if source in alike and target in alike and agree(source, target):
                yield source, target


def agree(one: tuple[Hashable, Hashable], other: tuple[Hashable, Hashable]) -> bool:
    """Whether two pairs do not give one vertex two partners."""
    return (one[0] == other[0]) == (one[1] == other[1])


def choose_greedily(weights: Mapping[tuple[V, V], int]) -> list[tuple[V, V]]:
    chosen: dict[V, V] = {}
    for ours, theirs in sorted(weights, key=lambda pair: -weights[pair]):
        if ours not in chosen and theirs not in chosen.values():
            chosen[ours] = theirs
    return list(chosen.items())


def choose_exactly(
    weights: Mapping[tuple[V, V], int], arrows: Collection[tuple[tuple[V, V], ...]]
) -> list[tuple[V, V]]:
    import networkx  # takes half a second, and few states need it

    # Each vertex of the correspondence graph as the pairs it takes for granted.
    vertices: list[tuple[tuple[tuple[V, V], ...], int]] = [((pair,), weight) for pair, weight in weights.items()]
    vertices += [(ends, 1) for ends in arrows]
    graph = networkx.Graph()
    for number, (_, weight) in enumerate(vertices):
        graph.add_node(number, weight=weight)
    for (one, (ends, _)), (other, (others, _)) in combinations(enumerate(vertices), 2):
        if all(agree(a, b) for a in ends for b in others):
            graph.add_edge(one, other)
    clique, _ = networkx.max_weight_clique(graph)
    return [vertices[number][0][0] for number in sorted(clique) if number < len(weights)]


class Remainder:
    """What two graphs have, behind these pairs of unequal objects, that has no partner yet."""

    def __init__(
        self, passing: MemoryGraph, failing: MemoryGraph, mates: dict[Object, Object], unequal: Sequence[Pair]
    ) -> None:
        self._passing, self._failing, self._mates, self._unequal = passing, failing, mates, unequal

    def find_common(self) -> list[Pair]:
        ours = self._find_links(self._passing, [pair[0] for pair in self._unequal])
        theirs = self._find_links(self._failing, [pair[1] for pair in self._unequal])
        if not ours or not theirs:
            return []
        sure = list(pair_equal(self._passing, ours, self._failing, theirs, only_sure=True))
        paired = {o for pair in sure for o in pair}
        ours, theirs = ([o for o in links if o not in paired] for links in (ours, theirs))
        if ours and theirs and max(len(ours), len(theirs)) <= LINKS_LIMIT:
            sure += self._weigh(ours, theirs, self._with_mates(sure))
        mates = self._with_mates(sure)
        return [pair for pair in self._failing.budget.watch(sure) if self._is_supported(*pair, mates)]

    def _with_mates(self, pairs: Iterable[Pair]) -> Mapping[Object, Object]:
        return ChainMap(dict(pairs), self._mates)

    def _weigh(self, ours: Sequence[Object], theirs: Sequence[Object], mates: Mapping[Object, Object]) -> list[Pair]:
        weights = {
            pair: VERTEX_WEIGHT * similarity + self._count_anchors(*pair, mates)
            for pair in ((one, other) for one in ours for other in theirs)
            if (similarity := self._compare(*pair))
        }
        left, right = self._references(self._passing, ours), self._references(self._failing, theirs)
        return find_common(weights, left, right)

    def _is_supported(self, ours: Object, theirs: Object, mates: Mapping[Object, Object]) -> bool:
        """Whether a structure goes on, or ends, alike behind two links: some numbers are found in any two lists."""
        for value, other in zip(self._passing.words(ours), self._failing.words(theirs), strict=True):
            source, target = self._passing.starts.get(value), self._failing.starts.get(other)
            if not value and not other:
                return True
            if source is not None and source.type == ours.type and mates.get(source) is target:
                return True
        return False

    def _find_links(self, graph: MemoryGraph, starts: Iterable[Object]) -> list[Object]:
        """All links without a partner that one gets to from these objects, through what has none either."""
        found = [o for o in dict.fromkeys(starts) if o.kind == "heap" and o not in self._mates]
        seen = set(found)
        for o in graph.budget.watch(found):  # which grows
            for value in graph.words(o):
                target = graph.starts.get(value) if value else None
                if target is not None and target not in seen and target not in self._mates and target.kind == "heap":
                    seen.add(target)
                    found.append(target)
        return [o for o in found if is_link(graph, o)]

    def _compare(self, ours: Object, theirs: Object) -> int:
        """How similar two links are; 0: no more than any two are."""
        if ours.shape is not theirs.shape:
            return 0
        if read_contents(self._passing, ours) == read_contents(self._failing, theirs):
            return EQUAL
        common, count = compare_values(self._passing, ours, self._failing, theirs)
        return EQUAL // 2 * common // count if 2 * common > count else 0

    def _count_anchors(self, ours: Object, theirs: Object, mates: Mapping[Object, Object]) -> int:
        """What speaks for a pair besides its contents: places that lead to it, and what it leads to."""
        places = sum(pair == (ours, theirs) for pair in self._unequal)
        for value, other in zip(self._passing.words(ours), self._failing.words(theirs), strict=True):
            source, target = self._passing.starts.get(value), self._failing.starts.get(other)
            places += source is not None and target is not None and mates.get(source) is target
        return places

    def _references(self, graph: MemoryGraph, links: Iterable[Object]) -> list[CommonEdge[Object]]:
        return [
            CommonEdge(o, at, graph.starts[value])
            for o in links
            for at, value in zip(o.shape.offsets, graph.words(o), strict=True)
            if value in graph.starts
        ]


def is_link(graph: MemoryGraph, o: Object) -> bool:
    """Whether an object is a link of a list, tree or the like: one that can lead to others of its type."""
    return o.kind == "heap" and o.parts is None and o.kept is None and graph.layouts.is_linked(o.type)


def pair_equal(
    passing: MemoryGraph,
    ours: Iterable[Object],
    failing: MemoryGraph,
    theirs: Iterable[Object],
    only_sure: bool = False,
) -> Iterator[Pair]:
    """Objects with the same contents, in the order in which they lie in memory: mostly that in which they were made.
    `only_sure`: those of which either run has just one."""
    groups = defaultdict[Hashable, tuple[list[Object], list[Object]]](lambda: ([], []))
    for o in passing.budget.watch(ours):
        groups[read_contents(passing, o)][0].append(o)
    for o in failing.budget.watch(theirs):
        groups[read_contents(failing, o)][1].append(o)
    for left, right in groups.values():
        if not only_sure or len(left) == len(right) == 1:
            yield from zip(sorted(left, key=lambda o: o.address), sorted(right, key=lambda o: o.address), strict=False)


def read_contents(graph: MemoryGraph, o: Object) -> Hashable:
    """All values of an object, and the texts it leads to."""
    values = graph.values(o)
    return o.shape, tuple(values) if isinstance(values, list) else values, tuple(read_texts(graph, o))


def read_texts(graph: MemoryGraph, o: Object) -> list[bytes | None]:
    places = o.shape.texts
    if not places:
        return []
    words = graph.words(o)
    return [graph.memory.read_text(words[place]) if words[place] else None for place in places]


def compare_values(passing: MemoryGraph, ours: Object, failing: MemoryGraph, theirs: Object) -> tuple[int, int]:
    """How many values of two objects of one shape agree, and of how many: what is 0 in both says nothing."""
    pairs = list(zip(read_texts(passing, ours), read_texts(failing, theirs), strict=True))
    common, count = sum(a == b is not None for a, b in pairs), sum(a is not None or b is not None for a, b in pairs)
    if theirs.shape.weight > VALUES_LIMIT:
        return common, max(count, 1)
    for place in theirs.shape.leaves():
        leaf = place.leaf
        if failing.layouts.is_pointer(leaf.type):
            continue
        left, right = passing.value(ours, leaf), failing.value(theirs, leaf)
        if leaf.bits is not None:
            left, right = (extract_bits(data, leaf.bits, False).to_bytes(leaf.size, "little") for data in (left, right))
        if any(left) or any(right):
            count += 1
            common += left == right
    return common, max(count, 1)


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
        self._budget = failing.budget
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
        for ours, theirs in self._budget.watch(self._alike):
            if self._pair(ours, theirs):
                self._collect(ours, theirs)
        self._alike.clear()

    def _pair_common(self) -> None:
        """What the unequal objects at matching places lead to, and is the same in both runs."""
        remainder = Remainder(self._passing, self._failing, self._mates, self._others)
        for ours, theirs in self._budget.watch(remainder.find_common()):
            if self._pair(ours, theirs):
                self._collect(ours, theirs)
        self._follow_alike()

    def _walk(self) -> None:
        for ours, theirs in self._budget.watch(self._others):
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
            for pair in self._budget.watch(pair_equal(self._passing, ours, self._failing, theirs)):
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
            values = dict(failing.hidden_pointers(theirs))
            if values:
                found += [(value, values[at]) for at, value in passing.hidden_pointers(ours) if at in values]
            return found
        values = {pointer.offset: pointer.value for pointer in failing.pointers(theirs)}
        return [(p.value, values[p.offset]) for p in passing.pointers(ours) if p.offset in values]

    def _are_alike(self, ours: Object, theirs: Object) -> bool:
        if ours.shape is theirs.shape:
            if self._passing.values(ours) != self._failing.values(theirs):
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
