"""Finds the largest common subgraph of two small graphs.

After Barrow and Burstall: the correspondence graph has a vertex for each pair of vertices, and of references, that may
be taken for the same; what can be taken so at once is a clique of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

# So many vertices of the correspondence graph take some tenths of a second; the time doubles with every few more.
CORRESPONDENCES_LIMIT = 120
# What a pair of vertices weighs at least: more than all references of a small graph, each of which weighs 1.
VERTEX_WEIGHT = 1_000

V = TypeVar("V", bound=Hashable)


class Reference(NamedTuple, Generic[V]):
    """What a picture draws as an arrow: `label` says where in the source it begins."""

    source: V
    label: Hashable
    target: V


def find_common(
    alike: Mapping[tuple[V, V], int], left: Collection[Reference[V]], right: Collection[Reference[V]]
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
    alike: Mapping[tuple[V, V], int], left: Iterable[Reference[V]], right: Iterable[Reference[V]]
) -> Iterable[tuple[tuple[V, V], tuple[V, V]]]:
    """Both ends of each two references that would be one if these pairs were chosen."""
    by_label: dict[Hashable, list[Reference[V]]] = {}
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
