"""Longest common subsequences, and trees aligned by them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.alignment import trees
from pytest_causechain.alignment.trees import DIFFERENCES_LIMIT, CommonPairs, Stretch, Tree, align_trees

SHORT = st.lists(st.integers(0, 3), max_size=14)


def common_subsequence(a, b) -> list[tuple[int, int]]:
    stretches = trees.common_subsequence(a, b)
    assert all(stretch.length for stretch in stretches)
    return [(s.passing + n, s.failing + n) for s in stretches for n in range(s.length)]


def longest(a, b) -> int:
    """The length of a longest common subsequence, by the textbook's table."""
    row = [0] * (len(b) + 1)
    for x in a:
        previous, row = row, [0]
        for j, y in enumerate(b):
            row.append(previous[j] + 1 if x == y else max(previous[j + 1], row[j]))
    return row[-1]


def check_pairs(a, b, pairs) -> None:
    assert all(0 <= i < len(a) and 0 <= j < len(b) and a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


class TestCommonSubsequence:
    @given(SHORT, SHORT)
    def test_it_is_a_longest_one(self, a, b):
        pairs = common_subsequence(a, b)
        check_pairs(a, b, pairs)
        assert len(pairs) == longest(a, b)

    @given(SHORT)
    def test_of_equal_sequences_it_is_all(self, a):
        assert common_subsequence(a, list(a)) == [(i, i) for i in range(len(a))]

    @given(SHORT, SHORT, st.integers(0, 60), st.integers(0, 60))
    def test_within_long_equal_parts(self, a, b, before, after):
        ours, theirs = ([9] * before + middle + [8] * after for middle in (a, b))
        pairs = common_subsequence(ours, theirs)
        check_pairs(ours, theirs, pairs)
        assert len(pairs) == before + after + longest(a, b)

    def test_nothing_in_common(self):
        assert common_subsequence("abc", "xyz") == []
        assert common_subsequence("", "xyz") == []
        assert common_subsequence("abc", "") == []

    def test_a_loop_that_runs_longer(self):
        assert len(common_subsequence("abc" * 500, "abc" * 700)) == 1500

    @given(SHORT, SHORT)
    def test_with_too_many_differences_it_is_still_common(self, a, b):
        limit = trees.DIFFERENCES_LIMIT
        trees.DIFFERENCES_LIMIT = 2
        try:
            check_pairs(a, b, common_subsequence(a, b))
        finally:
            trees.DIFFERENCES_LIMIT = limit

    @pytest.mark.parametrize("period", [2, 3, 7])
    def test_large_repetitive_sequences(self, period):
        """Beyond the limit of differences, the order of both is kept and most is found."""
        size = 4 * DIFFERENCES_LIMIT
        ours = [i % period for i in range(size)]
        theirs = [(i * i + i // 3) % (period + 1) for i in range(size)]
        pairs = common_subsequence(ours, theirs)
        check_pairs(ours, theirs, pairs)
        assert len(pairs) > size // (2 * period)

    def test_large_and_entirely_different(self):
        size = 2 * DIFFERENCES_LIMIT
        assert common_subsequence(range(size), range(size, 2 * size)) == []

    def test_large_parts_of_only_one_of_them(self):
        size = 2 * DIFFERENCES_LIMIT
        ours = ["a", *range(size), "x", "y", *range(size), "z", "b"]
        theirs = ["c", *range(-size, 0), "x", "y", *range(-size, 0), "z", "d"]
        pairs = common_subsequence(ours, theirs)
        check_pairs(ours, theirs, pairs)
        assert [ours[i] for i, _ in pairs] == ["x", "y", "z"]


class TestCommon:
    COMMON = CommonPairs([Stretch(10, 20, 3), Stretch(0, 5, 2), Stretch(14, 23, 1)])

    def test_pairs_in_order(self):
        assert list(self.COMMON) == [(0, 5), (1, 6), (10, 20), (11, 21), (12, 22), (14, 23)]
        assert len(self.COMMON) == 6
        assert list(CommonPairs([])) == []

    @pytest.mark.parametrize(
        ("number", "index"), [(0, 0), (5, 0), (6, 1), (7, 2), (19, 2), (20, 2), (21, 3), (23, 5), (24, 6), (99, 6)]
    )
    def test_first_from(self, number, index):
        assert self.COMMON.first_from(number) == index

    def test_beyond(self):
        for index in (-1, 6):
            with pytest.raises(IndexError):
                self.COMMON[index]


def call(function: int, site: int, *children):
    return ((function, site), *children)


def line(address: int):
    return ((address, 0),)


def make_tree(*roots) -> Tree:
    tree = Tree()
    pending = [(root, -1) for root in reversed(roots)]
    while pending:
        (token, *children), parent = pending.pop()
        item = tree.add(token, 0, parent)
        pending += [(child, item) for child in reversed(children)]
    for item in range(len(tree) - 1, -1, -1):
        parent = tree.parents[item]
        if parent >= 0:
            tree.ends[parent] = max(tree.ends[parent], tree.ends[item])
            tree.shapes[parent] = hash((tree.shapes[parent], tree.shapes[item]))
    return tree


class TestTrees:
    def pairs(self, passing, failing):
        return list(align_trees(make_tree(passing), make_tree(failing)))

    def test_equal_trees(self):
        trees = [call(1, 9, call(2, 11, line(21)), line(12), call(2, 13)) for _ in range(2)]
        assert self.pairs(*trees) == [(i, i) for i in range(5)]

    def test_calls_match_by_function_and_place(self):
        passing = call(1, 9, call(2, 11), call(3, 12), call(2, 13))
        failing = call(1, 9, call(2, 13), call(4, 12))
        assert self.pairs(passing, failing) == [(0, 0), (3, 1)]

    def test_children_match_only_within_matching_calls(self):
        passing = call(1, 9, call(2, 11, call(5, 21)), call(3, 12, call(5, 31)))
        failing = call(1, 9, call(3, 12, call(5, 31), call(5, 21)))
        assert self.pairs(passing, failing) == [(0, 0), (3, 1), (4, 2)]

    def test_order_is_that_of_the_failing_run(self):
        """Even where a tree is deep: pairs come out by time, not by depth."""
        ours, theirs = (
            call(1, 9, call(2, 11, call(3, 21, line(31), line(last)), line(22)), line(12), call(2, 13))
            for last in (32, 33)
        )
        pairs = self.pairs(ours, theirs)
        assert pairs == sorted(pairs)
        assert len(pairs) == 7

    def test_a_deep_tree(self):
        def tower(height: int):
            top = call(2, 21)
            for _ in range(height - 1):
                top = call(2, 21, top)
            return top

        assert len(self.pairs(tower(5000), tower(6000))) == 5000

    def test_equal_parts_are_one_stretch(self):
        """A million pairs would take long one by one."""
        loop = [call(2, 11, line(21), call(3, 22)) for _ in range(1000)]
        common = align_trees(make_tree(call(1, 9, *loop)), make_tree(call(1, 9, line(12), *loop)))
        assert len(common) == 3001
        assert common._stretches == [Stretch(0, 0, 1), Stretch(1, 2, 3000)]
