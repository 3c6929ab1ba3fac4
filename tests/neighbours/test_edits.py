from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.neighbours import ranking
from pytest_causechain.neighbours.ranking import count_bag_edits, count_edits, trim_common_ends, weigh_edits

texts = st.text("abc", max_size=7)
lists = st.lists(st.text("ab", max_size=3), max_size=5)


def align_naively(one: Sequence[str], other: Sequence[str], weigh: Callable[[str, str], float]) -> float:
    """The definition, tried out in all ways."""

    @cache
    def rest(i: int, j: int) -> float:
        if i == len(one) or j == len(other):
            return float(len(one) - i + len(other) - j)
        return min(rest(i + 1, j + 1) + weigh(one[i], other[j]), rest(i + 1, j) + 1, rest(i, j + 1) + 1)

    return rest(0, 0)


def weigh_equality(one: str, other: str) -> float:
    return float(one != other)


def weigh_characters(one: str, other: str) -> float:
    return align_naively(one, other, weigh_equality) / max(len(one), len(other), 1)


class TestGuarantees:
    @given(texts, texts)
    def test_count_is_the_levenshtein_distance(self, one, other):
        assert count_edits(one, other) == align_naively(one, other, weigh_equality)

    @given(lists, lists)
    def test_weight_counts_shares_of_elements(self, one, other):
        assert weigh_edits(one, other) == pytest.approx(align_naively(one, other, weigh_characters))

    @given(lists, lists)
    def test_weight_is_zero_only_for_equals(self, one, other):
        assert (weigh_edits(one, other) == 0) == (one == other)
        assert weigh_edits(one, other) <= count_edits(one, other)

    @given(texts, texts)
    def test_bag_is_a_lower_bound(self, one, other):
        assert count_bag_edits(Counter(one), Counter(other)) <= count_edits(one, other)

    @given(texts, texts)
    def test_trimmed_ends_are_common(self, one, other):
        trimmed_one, trimmed_other = trim_common_ends(one, other)
        assert len(one) - len(trimmed_one) == len(other) - len(trimmed_other)
        assert not (trimmed_one and trimmed_other) or trimmed_one[0] != trimmed_other[0]
        assert not (trimmed_one and trimmed_other) or trimmed_one[-1] != trimmed_other[-1]


class TestLargeSequences:
    def test_common_ends_cost_nothing(self):
        common = [f"line {i}" for i in range(20_000)]
        assert count_edits([*common, "a", *common], [*common, "b", "c", *common]) == 2
        assert weigh_edits([*common, "abcd", *common], [*common, "abXd", *common]) == 0.25

    @pytest.mark.parametrize("measure", [count_edits, weigh_edits])
    def test_beyond_the_limit_nothing_is_aligned(self, measure, monkeypatch):
        monkeypatch.setattr(ranking, "_align", lambda *_: pytest.fail("aligned"))
        one = [f"one {i}" for i in range(5_000)]
        other = [f"other {i}" for i in range(6_000)]
        assert measure(one, other) == 6_000

    def test_one_long_element(self):
        assert weigh_edits(["a" * 100_000], ["b" * 50_000 + "a" * 50_000]) == 0.5

    def test_long_elements_are_compared_whole(self):
        one, other = ["x" * 300, "y", "z"], ["q" * 300, "y", "w"]
        assert weigh_edits(one, other) == 2
