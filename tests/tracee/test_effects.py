"""What is found in machine code: places to do otherwise, and variants of instructions."""

from __future__ import annotations

import pytest
from iced_x86 import Decoder, InstructionInfoFactory

from pytest_causechain.kernel.linux import Registers
from pytest_causechain.tracee.effects import (
    Effects,
    find_variants,
    is_store,
    is_taken,
    operand_address,
    other_way,
    write_operand,
)

BEGIN = 0x1000

# int f(int a, double d, char *s) { int h = a; if (h < 4 && d > 1) return 3; return h; }
CHOOSES = bytes.fromhex(
    "55 4889e5"  # push rbp; mov rbp, rsp
    "897dec f20f1145e0 488975d8"  # the three parameters, at 4, 7 and 12
    "8b45ec 8945fc"  # h = a, stored at 19
    "837dfc03 7f1a"  # jg at 26
    "f20f1045e0 f20f100da70e0000 660f2fc1 7607"  # jbe at 45
    "b803000000 eb03"  # return 3, the jump at 52
    "8b45fc"  # return h
    "5d c3"  # at 57
)
# void g(char *s) { f(1, 2.0, s); }
CALLS = bytes.fromhex(
    "55 4889e5 4883ec08 48897df8 488b55f8 488b05860e0000 4889d6 66480f6ec0 bf01000000 e8c5ffffff 90 c9 c3"
)


def list_effects(code: bytes) -> list[tuple[str, int, int, str]]:
    return [(e.kind, e.address - BEGIN, e.size, e.register) for e in Effects(BEGIN, code, ()).find()]


def test_branches_stores_and_returns():
    assert list_effects(CHOOSES) == [
        ("value", 4, 4, ""),
        ("value", 7, 8, ""),
        ("value", 12, 8, ""),
        ("value", 19, 4, ""),
        ("branch", 26, 0, ""),
        ("branch", 45, 0, ""),
        ("return", 52, 4, "rax"),
        ("return", 57, 4, "rax"),
    ]


def test_arguments_of_a_call_and_no_return_of_nothing():
    assert list_effects(CALLS) == [
        ("value", 8, 8, ""),
        ("argument", 36, 4, "rdi"),
        ("argument", 36, 8, "rsi"),
        ("argument", 36, 8, "rdx"),
    ]


def test_floating_point_is_told():
    stores = [e for e in Effects(BEGIN, CHOOSES, ()).find() if e.kind == "value"]
    assert [e.is_float for e in stores] == [False, True, False, False]


def test_return_without_jump_belongs_to_the_statement_before():
    last = Effects(BEGIN, CHOOSES, ()).find()[-1]
    assert (last.address - BEGIN, last.statement - BEGIN) == (57, 54)


def test_blocks_are_counted_where_a_jump_fits():
    effects = Effects(BEGIN, CHOOSES, ())
    blocks = [(b.start - BEGIN, b.end - BEGIN, b.watch is not None) for b in effects.blocks]
    assert blocks == [(0, 28, True), (28, 47, True), (47, 54, True), (54, 57, False), (57, 59, False)]
    assert all(e.watch is None or e.watch <= e.address for e in effects.find())


@pytest.mark.parametrize(
    ("code", "flags", "taken"),
    [
        pytest.param("7410", 1 << 6, True, id="equal"),
        pytest.param("7410", 0, False, id="unequal"),
        pytest.param("7c10", 1 << 7, True, id="less"),
        pytest.param("7c10", 1 << 7 | 1 << 11, False, id="not-less-with-overflow"),
        pytest.param("7f10", 0, True, id="greater"),
        pytest.param("7f10", 1 << 6, False, id="not-greater"),
        pytest.param("7610", 1, True, id="below"),
        pytest.param("0f8710000000", 0, True, id="above-and-far"),
    ],
)
def test_other_way_of_a_branch(code, flags, taken):
    instruction = Decoder(64, bytes.fromhex(code), ip=BEGIN).decode()
    assert is_taken(instruction.condition_code, flags) == taken
    target, following = instruction.near_branch_target, instruction.next_ip
    assert other_way(instruction, flags) == (following if taken else target)


@pytest.mark.parametrize(
    ("code", "address", "expression"),
    [
        pytest.param("8945fc", 0x7FF0 - 4, "-4 + (long) $rbp * 1", id="frame"),
        pytest.param("894c8308", 0x500 + 4 * 3 + 8, "8 + (long) $rbx * 1 + (long) $rax * 4", id="element"),
        pytest.param("890510000000", BEGIN + 6 + 0x10, "$rip + 22", id="global"),
    ],
)
def test_where_a_store_goes(code, address, expression):
    instruction = Decoder(64, bytes.fromhex(code), ip=BEGIN).decode()
    assert is_store(instruction, InstructionInfoFactory())
    assert operand_address(instruction, Registers(rbp=0x7FF0, rbx=0x500, rax=3)) == address
    assert write_operand(instruction) == expression


@pytest.mark.parametrize(
    ("code", "variants"),
    [
        pytest.param("7c10", [("equal", "7e10"), ("inverted", "7d10")], id="less"),
        pytest.param("7710", [("equal", "7310"), ("inverted", "7610")], id="above"),
        pytest.param("7410", [("inverted", "7510")], id="equal"),
        pytest.param("0f8c10000000", [("equal", "0f8e10000000"), ("inverted", "0f8d10000000")], id="far"),
        pytest.param("750f", [("inverted", "740f")], id="jump-by-fifteen"),
        pytest.param("0f9ec0", [("equal", "0f9cc0"), ("inverted", "0f9fc0")], id="truth-value"),
        pytest.param("400f94c6", [("inverted", "400f95c6")], id="truth-value-in-a-newer-register"),
        pytest.param("0f4cc2", [("equal", "0f4ec2"), ("inverted", "0f4dc2")], id="conditional-move"),
        pytest.param("837dfc07", [("constant", "837dfc08"), ("constant", "837dfc06")], id="compared"),
        pytest.param("b87f000000", [("constant", "b880000000"), ("constant", "b87e000000")], id="loaded"),
        pytest.param("83c07f", [("constant", "83c07e")], id="no-larger-byte"),
        pytest.param("8d5001", [("constant", "8d5002"), ("constant", "8d5000")], id="address-as-sum"),
        pytest.param("01d0", [("operator", "29d0"), ("operator", "89d0"), ("operator", "9090")], id="sum"),
        pytest.param(
            "2945fc",
            [("operator", "0145fc"), ("operator", "8945fc"), ("operator", "909090")],
            id="difference",
        ),
        pytest.param("f20f58c1", [("operator", "f20f5cc1")], id="sum-of-doubles"),
        pytest.param("f2440f5e45f0", [("operator", "f2440f5945f0")], id="quotient-in-a-newer-register"),
        pytest.param("f30f59c2", [("operator", "f30f5ec2")], id="product-of-floats"),
        pytest.param("4801d0", [], id="address"),
        pytest.param("4883ec10", [], id="stack"),
        pytest.param("488d45f0", [], id="variable"),
        pytest.param("c3", [], id="return"),
    ],
)
def test_variants(code, variants):
    data = bytes.fromhex(code)
    found = find_variants(Decoder(64, data, ip=BEGIN).decode(), data, None)
    assert [(v.kind, v.code.hex()) for v in found if v.surprise < 2] == variants


@pytest.mark.parametrize(
    ("code", "always", "never"),
    [
        pytest.param("7c10", "eb10", "9090", id="short"),
        pytest.param("0f8c10000000", "90e910000000", "90" * 6, id="far"),
    ],
)
def test_forced_branches(code, always, never):
    data = bytes.fromhex(code)
    found = [v for v in find_variants(Decoder(64, data, ip=BEGIN).decode(), data, None) if v.surprise == 2]
    end = BEGIN + len(data)
    assert [(v.kind, v.code.hex(), v.target) for v in found] == [("forced", always, end + 16), ("forced", never, end)]
    (jump,) = Decoder(64, bytes.fromhex(always).lstrip(b"\x90"), ip=end - len(always.removeprefix("90")) // 2)
    assert jump.near_branch_target == end + 16


def test_constants_that_let_a_comparison_come_out_otherwise():
    data = bytes.fromhex("817dfc58020000")  # cmp dword [rbp-4], 600
    compared = {600: (650, 600), 650: (600,)}
    found = find_variants(Decoder(64, data, ip=BEGIN).decode(), data, None, compared)
    assert [(v.then, v.surprise) for v in found] == [("601", 0), ("599", 0), ("650", 1), ("651", 1)]


def test_nearest_of_the_other_constants():
    data = bytes.fromhex("be68000000")  # mov esi, 104
    constants = [1, 7, 100, 103, 104, 120, 500, 900]
    found = list(find_variants(Decoder(64, data, ip=BEGIN).decode(), data, None, constants=constants))
    assert [(v.then, v.surprise) for v in found] == [
        ("105", 0),
        ("103", 0),
        ("100", 2),
        ("120", 2),
        ("500", 2),
    ]


def test_constants_of_code():
    assert Effects(BEGIN, CHOOSES, ()).constants() == {3}
