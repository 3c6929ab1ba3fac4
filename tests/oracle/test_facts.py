"""Facts of compared values: which are derived, which are preferred, how they are told."""

from __future__ import annotations

import pytest

from pytest_causechain.model.verdict import Value
from pytest_causechain.oracle.facts import (
    MAX_ELEMENTS,
    MAX_SENTENCE_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    Fact,
    Symptom,
    derive_symptoms,
    describe_message,
    describe_value,
    shorten,
    tell_symptom,
)


def best_symptom(failing: object, passing: object, expected: object) -> Symptom:
    return next(derive_symptoms(*map(describe_value, (passing, failing, expected))))


def tell_best(failing: object, passing: object, expected: object) -> str:
    symptom = best_symptom(failing, passing, expected)
    return (
        tell_symptom(symptom, describe_value(failing), "t.py:1").removeprefix("the ").replace(" compared at t.py:1", "")
    )


@pytest.mark.parametrize(
    ("failing", "passing", "expected", "told"),
    [
        pytest.param([0, 11], [6, 7, 8, 9], [11, 14], "list contains 0", id="shown-by-failing-only"),
        pytest.param(["0", "11"], ["6", "7"], ["11", "14"], "list contains '0'", id="strings"),
        pytest.param([1], [1, 9], [1, 9, 8], "list lacks 9", id="expected-in-both-but-missing"),
        pytest.param([5], [1, 9], [9, 8], "list contains 5 and lacks 9", id="both-kinds"),
        pytest.param((0, 1), (2,), (1, 3), "list contains 0", id="tuple"),
        pytest.param({3, 1}, {2}, {1}, "set contains 3", id="set"),
        pytest.param({"a": 3, "b": 1}, {"a": 2}, {"a": 1, "b": 1}, "dictionary contains 'a': 3", id="dict"),
        pytest.param("0 11\n", "6 7 8\n", "11 14\n", "text contains '0'", id="words"),
        pytest.param(b"0 11\n", b"6 7 8\n", b"11 14\n", "text contains '0'", id="bytes"),
        pytest.param([2, 1], [1, 2, 3], [1, 2], "list has 2 at index 0, 1 at index 1", id="order"),
        pytest.param([1, 1], [1, 1, 1], [1, 1, 1, 1], "list has no element 2", id="too-short"),
        pytest.param([1, 1, 1], [1], [1, 1], "list has 1 at index 2", id="too-long"),
        pytest.param("b a\n", "a b\n", "a b b\n", "text has 'b' as word 1, 'a' as word 2", id="order-of-words"),
        pytest.param("b\na\n", "a\nb\n", "a\nb\nb\n", "text has 'b' as word 1, 'a' as word 2", id="order-of-lines"),
        pytest.param(52, 7, 25, "value is 52 (7 in the passing run)", id="numbers"),
        pytest.param(None, [1], [2], "value is None ([1] in the passing run)", id="other-kind"),
        pytest.param("a  b\n", "a b\n", "a b\n", r"text is 'a  b\n' ('a b\n' in the passing run)", id="spaces-only"),
    ],
)
def test_best_symptom(failing, passing, expected, told):
    assert tell_best(failing, passing, expected) == told


class TestTexts:
    """Lines or words: the fewer facts win, and words in a tie."""

    def test_a_wrong_word_in_a_line_is_told_from_its_line(self):
        symptom = best_symptom(
            "sorting 11 14\ngives 0 11\n", "sorting 9 8\ngives 8 9\n", "sorting 11 14\ngives 11 14\n"
        )
        assert symptom == Symptom("words", (Fact("contains", "0"),))

    def test_an_unexpected_line_of_many_words_is_one_fact(self):
        symptom = best_symptom("a\nno such file here\n", "a\nb\n", "a\nc\n")
        assert symptom == Symptom("lines", (Fact("contains", "no such file here"),))

    def test_swapped_words_of_lines_are_facts_of_lines(self):
        symptom = best_symptom("x 2\ny 1\n", "x 1\ny 2\n", "x 1\ny 2\nz 2\n")
        assert symptom.kind == "lines"
        assert symptom.facts == (
            Fact("contains", "x 2"),
            Fact("contains", "y 1"),
            Fact("lacks", "x 1"),
            Fact("lacks", "y 2"),
        )

    def test_one_line_and_many_are_compared_by_words(self):
        assert best_symptom("error\n", "a\nb\n", "a\nc\n") == Symptom(
            "words", (Fact("contains", "error"), Fact("lacks", "a"))
        )

    def test_word_facts_hold_in_a_text_of_lines(self):
        symptom = best_symptom("0 11\n", "6 7\n", "11 14\n")
        assert symptom.compare(describe_value("6\n0\n")) == "all"
        assert symptom.compare(describe_value("6\n7\n")) == "none"


class TestListsOfTexts:
    """Lines split by the test itself: their words count as in a text."""

    FAILING = describe_value(["sorting 11 14", "gives 0 11"])

    def test_a_wrong_word_is_told_from_its_line(self):
        expected = ["sorting 11 14", "gives 11 14"]
        symptom = best_symptom(["sorting 11 14", "gives 0 11"], ["sorting 9 8", "gives 8 9"], expected)
        assert symptom == Symptom("words", (Fact("contains", "0"),))
        assert symptom.compare(describe_value(["sorting 9 8", "gives 0 9"])) == "all"
        assert symptom.compare(describe_value(["sorting 9 8", "gives 8 9"])) == "none"
        sentence = tell_symptom(symptom, self.FAILING, "t.py:3")
        assert sentence == "the list compared at t.py:3 contains the word '0'"

    def test_an_unexpected_line_of_many_words_is_one_fact(self):
        symptom = best_symptom(["a b", "no such file"], ["a b", "b"], ["a b", "c"])
        assert symptom == Symptom("sequence", (Fact("contains", "'no such file'"),))

    def test_order_is_about_lines(self):
        symptom = best_symptom(["b c", "a d"], ["a d", "b c"], ["a d", "b c", "b c"])
        assert symptom == Symptom("sequence", (Fact("at", "'b c'", 0), Fact("at", "'a d'", 1)))

    def test_a_cut_line_is_taken_as_it_is(self):
        symptom = best_symptom(["x" * 1000, "0 11"], ["6 7"], ["x" * 1000, "11 14"])
        assert symptom == Symptom("words", (Fact("contains", "0"),))


class TestCompare:
    def test_counts_the_facts_that_hold(self):
        symptom = best_symptom([5], [1, 9], [9, 8])
        assert symptom.facts == (Fact("contains", "5"), Fact("lacks", "9"))
        assert symptom.compare(describe_value([5, 1])) == "all"
        assert symptom.compare(describe_value([5, 9])) == "some"
        assert symptom.compare(describe_value([1])) == "some"
        assert symptom.compare(describe_value([9, 1])) == "none"

    def test_positions(self):
        symptom = best_symptom([2, 1], [1, 2, 3], [1, 2])
        assert symptom.compare(describe_value([2, 1, 7])) == "all"
        assert symptom.compare(describe_value([2, 2])) == "some"
        assert symptom.compare(describe_value([])) == "none"

    def test_a_third_value_is_neither_run_s(self):
        symptom = best_symptom(52, 7, 25)
        assert symptom.compare(describe_value(52)) == "all"
        assert symptom.compare(describe_value(7)) == "none"
        assert symptom.compare(describe_value(8)) == "some"

    def test_equal_values_have_no_symptom(self):
        value = describe_value([1, 2])
        assert list(derive_symptoms(value, value, describe_value([3]))) == []

    @pytest.mark.parametrize(
        ("failing", "passing", "expected"),
        [([2, 1], [1, 2], [1, 3]), ("a b\nc", "c\na b", "x"), ({1: 2}, {1: 3}, {}), (1, 2, 3), ([], [1], [1])],
    )
    def test_every_symptom_separates_the_two_runs(self, failing, passing, expected):
        symptoms = list(derive_symptoms(*map(describe_value, (passing, failing, expected))))
        assert symptoms
        for symptom in symptoms:
            assert symptom.compare(describe_value(failing)) == "all"
            assert symptom.compare(describe_value(passing)) == "none"


class TestSentence:
    def test_more_facts_than_a_reader_wants_are_counted(self):
        failing = describe_value([1, 2, 3, 4, 5, 6, 7])
        symptom = best_symptom([1, 2, 3, 4, 5, 6, 7], [0], [0])
        assert len(symptom.facts) == 8
        sentence = tell_symptom(symptom, failing, "t.py:3")
        assert sentence == "the list compared at t.py:3 contains 1, 2, 3 and 5 more"

    def test_long_elements_are_cut_and_fewer_shown(self):
        words = ["x" * 50, "y" * 50, "z" * 50]
        sentence = tell_symptom(best_symptom(words, ["a"], ["a"]), describe_value(words), "test_something.py:333")
        assert sentence == f"the list compared at test_something.py:333 contains '{'x' * 26}... and 3 more"
        assert len(sentence) <= MAX_SENTENCE_CHARACTERS

    def test_shorten_keeps_to_one_line(self):
        assert shorten("a\nb  c", 10) == "a b  c"
        assert shorten("abcdefghijk", 10) == "abcdefg..."


class TestValues:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ([1, "a"], Value("sequence", "[1, 'a']", ("1", "'a'"))),
            ({2, 1}, Value("set", "{1, 2}", ("1", "2"))),
            ({"k": [1]}, Value("mapping", "{'k': [1]}", ("'k': [1]",))),
            ("one two", Value("words", "'one two'", ("one", "two"))),
            ("one two\n", Value("words", r"'one two\n'", ("one", "two"))),
            ("a b\nc\n", Value("lines", r"'a b\nc\n'", ("a b", "c"))),
            (b"a\xff b", Value("words", r"b'a\xff b'", (r"a\xff", "b"))),
            ("", Value("words", "''")),
            (3.5, Value("scalar", "3.5")),
            (None, Value("scalar", "None")),
        ],
    )
    def test_kinds(self, value, expected):
        assert describe_value(value) == expected

    def test_long_values_are_cut_but_stay_different(self):
        one, other = ("x" * 100_000 + end for end in "ab")
        values = describe_value([one]), describe_value([other])
        assert all(len(value.text) < MAX_TEXT_CHARACTERS + 50 for value in values)
        assert values[0].text != values[1].text
        assert values[0].elements != values[1].elements
        assert len(describe_value(range(10**9)).text) < 100
        assert len(describe_value(list(range(10**5))).elements) == MAX_ELEMENTS

    def test_a_broken_repr_is_told(self):
        class Broken:
            def __repr__(self):
                raise ValueError

            def __str__(self):
                raise ValueError

        assert describe_value([Broken()]).elements == ("<Broken whose repr raises ValueError>",)
        assert describe_value([Broken()]).kind == "sequence"
        assert describe_message(ValueError("first\nsecond")) == "first"
        assert describe_message(ValueError(Broken())) == ""
