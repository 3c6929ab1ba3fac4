"""Which visits of a place are looked at, and which parameter a register holds."""

from __future__ import annotations

import pytest

from pytest_causechain.debugger.program import Signature
from pytest_causechain.debugger.types import FloatType, IntType, PointerType, StructType
from pytest_causechain.repairs.places import find_parameter, spread

TYPES = [IntType("int", 4, True), FloatType("double", 8), StructType("struct s", 8, ()), PointerType("void *", 8, 0)]


@pytest.mark.parametrize(
    ("visits", "most", "chosen"),
    [
        (1, 5, [1]),
        (2, 5, [1, 2]),
        (4, 5, [1, 4, 2, 3]),
        (100, 5, [1, 100, 2, 99, 50]),
        (100, 9, [1, 100, 2, 99, 16, 33, 50, 66, 83]),
    ],
)
def test_first_and_last_then_a_spread(visits, most, chosen):
    assert spread(visits, most) == chosen


def test_registers_hold_what_is_no_floating_point():
    signature = Signature((("a", 0), ("d", 1), ("p", 3)), 0)
    found = [find_parameter(signature, register, TYPES) for register in ("rdi", "rsi", "rdx")]
    assert found == [("a", 0), ("p", 3), None]


def test_structs_make_the_order_doubtful():
    assert find_parameter(Signature((("s", 2), ("a", 0)), 0), "rdi", TYPES) is None
