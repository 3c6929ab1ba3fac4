"""Groups of deltas."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.search.dd import DEPTH_LIMIT, DeltaGroup, group_deltas, restrict, split

Shape = str | tuple["Shape", ...]


def shape(units: tuple[DeltaGroup[str], ...]) -> tuple[Shape, ...]:
    return tuple(shape(unit.parts) if unit.parts else unit.deltas[0] for unit in units)


def test_paths_that_begin_alike() -> None:
    assert shape(group_deltas(["ax", "b", "ay", "bzz", "c"], lambda name: name[:2])) == (
        ("ax", "ay"),
        ("b", "bzz"),
        "c",
    )


def test_a_group_in_a_group() -> None:
    assert shape(group_deltas(["abc", "abd", "ae", "f"], tuple)) == ((("abc", "abd"), "ae"), "f")


def test_a_group_that_holds_one_group_is_that_group() -> None:
    assert shape(group_deltas(["aaab", "aaac", "d"], tuple)) == (("aaab", "aaac"), "d")


def test_a_group_has_the_deltas_of_its_parts_as_they_were_given() -> None:
    (unit,) = group_deltas(["ab", "cd", "ac"], lambda name: "same" + name)
    assert unit.deltas == ("ab", "cd", "ac")


def test_a_long_list_is_not_opened_node_by_node() -> None:
    deltas = ["n" * length for length in range(1, 100)]

    def depth(units: tuple[DeltaGroup[str], ...]) -> int:
        return max((1 + depth(unit.parts) for unit in units if unit.parts), default=0)

    assert depth(group_deltas(deltas, tuple)) <= DEPTH_LIMIT


def test_some_deltas_only() -> None:
    units = group_deltas(["abc", "abd", "ae", "f", "g"], tuple)
    assert shape(restrict(units, frozenset({"abd", "ae", "g"}))) == (("abd", "ae"), "g")
    assert shape(restrict(units, frozenset({"abc", "abd"}))) == (("abc", "abd"),)


@given(st.integers(1, 100), st.data())
def test_single_deltas_are_split_evenly(k: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, k))
    assert split(group_deltas(range(k)), n) == tuple(k * i // n for i in range(n + 1))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.data())
def test_every_part_has_a_unit(weights: list[int], data: st.DataObject) -> None:
    units = tuple(DeltaGroup(tuple(range(weight))) for weight in weights)
    n = data.draw(st.integers(1, len(units)))
    bounds = split(units, n)
    assert (len(bounds), bounds[0], bounds[-1]) == (n + 1, 0, len(units))
    assert all(start < stop for start, stop in pairwise(bounds))


def test_a_heavy_unit_is_balanced_by_light_ones() -> None:
    units = tuple(DeltaGroup(tuple(range(weight))) for weight in (10, 1, 1, 1, 1, 6))
    assert split(units, 2) == (0, 1, 6)
