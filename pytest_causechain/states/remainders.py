"""Finds what linked structures that begin differently have in common: lists with another first link, turned trees.

Links with the same contents pair wherever they are, if nothing else has these. Where few links are left, all ways to
pair those with similar contents are weighed against each other."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from pytest_causechain.states.common import VERTEX_WEIGHT, Reference, find_common
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.literals import extract_bits
from pytest_causechain.states.objects import Object

Pair = tuple[Object, Object]
# Of more links in one run it would take long to say how similar each is to each of the other run's.
LINKS_LIMIT = 40
# The values of a larger link are not looked at one by one.
VALUES_LIMIT = 100
# What all equal values weigh; some of them weigh half of that at the most.
EQUAL = 32


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
        return [pair for pair in sure if self._is_supported(*pair, mates)]

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
        for o in found:
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

    def _references(self, graph: MemoryGraph, links: Iterable[Object]) -> list[Reference[Object]]:
        return [
            Reference(o, at, graph.starts[value])
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
    for o in ours:
        groups[read_contents(passing, o)][0].append(o)
    for o in theirs:
        groups[read_contents(failing, o)][1].append(o)
    for left, right in groups.values():
        if not only_sure or len(left) == len(right) == 1:
            yield from zip(sorted(left, key=lambda o: o.address), sorted(right, key=lambda o: o.address), strict=False)


def read_contents(graph: MemoryGraph, o: Object) -> Hashable:
    """All values of an object, and the texts it leads to."""
    region = graph.memory.region(o.address)
    assert region is not None
    values = o.shape.values(region.data, o.address - region.start)
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
