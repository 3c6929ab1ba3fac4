"""Guesses at other values, and how they are told."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pytest_causechain.debugger.types import BoolType, CharType, EnumType, FloatType, IntType, PointerType
from pytest_causechain.model.alteration import Like, Sighting
from pytest_causechain.repairs.values import guess_values, show

INT = IntType("int", 4, True)
UNSIGNED = IntType("unsigned int", 4, False)
ENUM = EnumType("enum state", 4, (("OFF", 0), ("ON", 1), ("BROKEN", 5)))
POINTER = PointerType("int *", 8, 0)
CHAR = CharType("char", 1, True)
BOOL = BoolType("_Bool", 1)
DOUBLE = FloatType("double", 8)


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def guess(was: bytes, known, seen=(), likes=(), is_float=False) -> list[str]:
    sighting = Sighting(was, "x", 0, tuple(likes))
    return [candidate.text for candidate in guess_values(sighting, known, is_float, seen)]


def test_neighbours_of_a_number():
    assert guess(number(3), INT) == ["4", "2", "0", "1", "-3", "-1", "5"]


def test_the_value_itself_and_repetitions_are_left_out():
    texts = guess(number(1), INT, seen=[number(1), number(2), number(40)], likes=[Like("n", number(40))])
    assert "1" not in texts
    assert texts.count("2") == texts.count("40") == 1


def test_values_seen_and_likes_follow():
    texts = guess(number(3), INT, seen=[number(70)], likes=[Like("n", number(80))])
    assert texts[-2:] == ["70", "80"]


def test_other_enumerators():
    assert guess(number(1), ENUM) == ["OFF", "BROKEN"]


def test_truth():
    assert guess(b"\1", BOOL) == ["0"]


def test_pointers_are_told_by_name_and_those_of_other_runs_mean_nothing():
    likes = [Like("list.first", number(0x5555_0000, 8))]
    assert guess(number(0x5555_1000, 8), POINTER, [number(0x5555_9999, 8), bytes(8)], likes) == ["NULL", "list.first"]


def test_word_that_looks_like_an_address_is_a_pointer():
    assert guess(number(0x7FFF_FFFF_E000, 8), None) == ["NULL"]
    assert "9" in guess(number(8, 8), None)


def test_floating_point():
    texts = guess(struct.pack("<d", 2.5), DOUBLE)
    assert texts == ["3.5", "1.5", "0", "1", "-2.5"]
    assert guess(struct.pack("<d", 2.5), None, is_float=True) == texts


def test_huge_number_wraps_round():
    assert guess(number(2**31 - 1), INT)[0] == "-2147483648"


@pytest.mark.parametrize(
    ("data", "kind", "known", "text"),
    [
        pytest.param(number(-1), "int", INT, "-1", id="signed"),
        pytest.param(number(-1), "int", UNSIGNED, "4294967295", id="unsigned"),
        pytest.param(b"a", "char", CHAR, "'a'", id="character"),
        pytest.param(b"'", "char", CHAR, r"'\''", id="quote"),
        pytest.param(b"\n", "char", CHAR, "10", id="control"),
        pytest.param(number(5), "enum", ENUM, "BROKEN", id="enumerator"),
        pytest.param(number(9), "enum", ENUM, "9", id="no-enumerator"),
        pytest.param(bytes(8), "pointer", POINTER, "NULL", id="null"),
        pytest.param(number(0x1234, 8), "pointer", POINTER, "0x1234", id="address"),
    ],
)
def test_shown_as_in_c(data, kind, known, text):
    assert show(data, kind, known) == text


def expected(was: bytes, known, *numbers: str) -> list[str]:
    return [candidate.text for candidate in guess_values(Sighting(was, "x", 0), known, False, (), numbers)]


def test_numbers_that_the_test_expects_follow_the_nearest():
    assert expected(number(3), INT, "500", "3", "-7", "2.5")[:6] == ["4", "2", "0", "1", "500", "-7"]
    assert expected(struct.pack("<d", 5.0), DOUBLE, "2.5", "500")[4:6] == ["2.5", "500"]
    # It would not fit, or mean nothing.
    assert "300" not in expected(number(3, 1), replace(INT, size=1), "300")
    assert "500" not in expected(number(0, 8), POINTER, "500")


def test_what_lets_a_comparison_come_out_otherwise():
    compared = {3: (700, -20), 700: (3,)}
    candidates = guess_values(Sighting(number(3), "x", 0), INT, False, (), (), compared)
    assert [candidate.text for candidate in candidates][4:8] == ["-20", "-21", "700", "701"]
