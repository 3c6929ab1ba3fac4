"""The largest common subgraph of two small graphs, against trying everything."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_causechain.states import matching
from pytest_causechain.states.matching import VERTEX_WEIGHT, CommonEdge, agree, find_common


def read_graph(text: str, name: str) -> tuple[dict[str, str], list[CommonEdge[str]]]:
    """`14 -> 20 -> 23`: vertices by their contents, numbered where several have the same."""
    vertices: dict[str, str] = {}
    references = []
    before = None
    for number, content in enumerate(text.split(" -> ")):
        vertex = f"{name}{number}"
        vertices[vertex] = content
        if before is not None:
            references.append(CommonEdge(before, "next", vertex))
        before = vertex
    return vertices, references


def match_lists(passing: str, failing: str) -> list[tuple[str, str]]:
    (ours, left), (theirs, right) = read_graph(passing, "p"), read_graph(failing, "f")
    alike = {(a, b): VERTEX_WEIGHT for a, x in ours.items() for b, y in theirs.items() if x == y}
    return sorted(find_common(alike, left, right))


@pytest.mark.parametrize(
    ("passing", "failing", "expected"),
    [
        pytest.param("14 -> 20 -> 23", "14 -> 15 -> 23", "00 22", id="replaced"),
        pytest.param("1 -> 2 -> 3", "0 -> 1 -> 2 -> 3", "01 12 23", id="inserted-first"),
        pytest.param("0 -> 0 -> 1 -> 0", "0 -> 1 -> 0", "10 21 32", id="references-decide"),
        pytest.param("1 -> 2", "3 -> 4", "", id="nothing"),
    ],
)
def test_lists(passing, failing, expected):
    assert match_lists(passing, failing) == [(f"p{a}", f"f{b}") for a, b in expected.split()]


def weigh(chosen, alike, left, right) -> int:
    mates = dict(chosen)
    common = sum((mates.get(r.source), r.label, mates.get(r.target)) in right for r in left)
    return sum(alike[pair] for pair in chosen) + common


def is_possible(chosen) -> bool:
    return all(agree(one, other) for one, other in combinations(chosen, 2))


VERTICES = st.integers(0, 3)
REFERENCES = st.lists(st.builds(CommonEdge, VERTICES, st.sampled_from("lr"), VERTICES), max_size=6, unique=True)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.tuples(VERTICES, VERTICES), st.integers(1, 3), max_size=9), REFERENCES, REFERENCES)
def test_no_other_choice_weighs_more(weights, left, right):
    alike = {pair: VERTEX_WEIGHT * weight for pair, weight in weights.items()}
    found = find_common(alike, left, right)
    assert is_possible(found)
    choices = (c for size in range(len(alike) + 1) for c in combinations(alike, size) if is_possible(c))
    assert weigh(found, alike, left, right) == max(weigh(c, alike, left, right) for c in choices)


def test_too_many_pairs_are_taken_one_by_one(monkeypatch):
    """Each vertex still has one partner."""
    monkeypatch.setattr(matching, "choose_exactly", None)
    alike = {(a, b): 1 + (a == b) for a in range(20) for b in range(20)}
    assert sorted(find_common(alike, [], [])) == [(n, n) for n in range(20)]
