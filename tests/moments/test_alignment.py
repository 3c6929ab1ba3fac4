"""Longest common subsequences, and trees aligned by them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.moments import alignment
from pytest_causechain.moments.alignment import DIFFERENCES_LIMIT, align_trees, common_subsequence
from pytest_causechain.moments.tree import Invocation, Line

SHORT = st.lists(st.integers(0, 3), max_size=14)


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
        limit = alignment.DIFFERENCES_LIMIT
        alignment.DIFFERENCES_LIMIT = 2
        try:
            check_pairs(a, b, common_subsequence(a, b))
        finally:
            alignment.DIFFERENCES_LIMIT = limit

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


def call(event: int, function: int, site: int, *children) -> Invocation:
    invocation = Invocation(function, site, 0, event, None)
    for child in children:
        if isinstance(child, Invocation):
            child.parent = invocation
        invocation.children.append(child)
    return invocation


class TestTrees:
    def pairs(self, passing, failing):
        return [(ours.event, theirs.event) for ours, theirs in align_trees([passing], [failing])]

    def test_equal_trees(self):
        trees = [call(0, 1, 9, call(1, 2, 11, Line(21, 2)), Line(12, 3), call(4, 2, 13)) for _ in range(2)]
        assert self.pairs(*trees) == [(i, i) for i in range(5)]

    def test_calls_match_by_function_and_place(self):
        passing = call(0, 1, 9, call(1, 2, 11), call(2, 3, 12), call(3, 2, 13))
        failing = call(0, 1, 9, call(1, 2, 13), call(2, 4, 12))
        assert self.pairs(passing, failing) == [(0, 0), (3, 1)]

    def test_children_match_only_within_matching_calls(self):
        passing = call(0, 1, 9, call(1, 2, 11, call(2, 5, 21)), call(3, 3, 12, call(4, 5, 31)))
        failing = call(0, 1, 9, call(1, 3, 12, call(2, 5, 31), call(3, 5, 21)))
        assert self.pairs(passing, failing) == [(0, 0), (3, 1), (4, 2)]

    def test_order_is_that_of_the_failing_run(self):
        """Even where a tree is deep: pairs come out by time, not by depth."""
        trees = [
            call(0, 1, 9, call(1, 2, 11, call(2, 3, 21, Line(31, 3)), Line(22, 4)), Line(12, 5), call(6, 2, 13))
            for _ in range(2)
        ]
        events = [theirs for _, theirs in self.pairs(*trees)]
        assert events == sorted(events)

    def test_a_deep_tree(self):
        def tower(height: int) -> Invocation:
            top = call(height - 1, 2, 21)
            for event in range(height - 2, -1, -1):
                top = call(event, 2, 21, top)
            return top

        assert len(self.pairs(tower(5000), tower(6000))) == 5000
