"""Names and values in sight, over a made-up memory."""

from __future__ import annotations

import struct

import pytest

from pytest_causechain.debugger.scope import REACH, Scope
from pytest_causechain.debugger.types import ArrayType, EnumType, IntType, Member, PointerType, StructType
from pytest_causechain.debugger.visit import Variable

INT, POINTER, NODE, ARRAY, ENUM, LONG, NODES = range(7)
TYPES = [
    IntType("int", 4, True),
    PointerType("struct node *", 8, NODE),
    StructType(
        "struct node",
        24,
        (
            Member("value", 0, 0, INT),
            Member("flag", 32, 1, INT),
            Member("next", 64, 0, POINTER),
            Member("state", 128, 0, ENUM),
        ),
    ),
    ArrayType("int [20]", 80, INT, 20),
    EnumType("enum state", 4, (("OFF", 0), ("ON", 1))),
    IntType("long", 8, True),
    ArrayType("struct node [2]", 48, NODE, 2),
]
STACK, HEAP = 0x1000, 0x5000


class Memory:
    """Two regions; anything else cannot be read."""

    def __init__(self) -> None:
        self.regions = {STACK: bytearray(256), HEAP: bytearray(256)}

    def write(self, address: int, layout: str, *values: int) -> None:
        start = max(r for r in self.regions if r <= address)
        struct.pack_into(layout, self.regions[start], address - start, *values)

    def read(self, address: int, size: int) -> bytes:
        for start, data in self.regions.items():
            if start <= address < start + len(data):
                return bytes(data[address - start : address - start + size])
        raise OSError


@pytest.fixture
def memory() -> Memory:
    memory = Memory()
    memory.write(STACK, "<i", 7)  # n
    memory.write(STACK + 8, "<Q", HEAP)  # node
    memory.write(HEAP, "<iiQi", 41, 0, HEAP + 48, 1)
    for index in range(20):
        memory.write(STACK + 16 + 4 * index, "<i", 100 + index)
    return memory


def make_scope(memory: Memory, *more: Variable) -> Scope:
    scope = Scope(TYPES, memory.read)
    scope.add(
        [
            Variable("n", 1, 0, STACK, INT, False),
            Variable("node", 1, 0, STACK + 8, POINTER, False),
            Variable("table", 1, 0, STACK + 16, ARRAY, False),
            *more,
        ]
    )
    return scope


@pytest.mark.parametrize(
    ("address", "size", "name", "kind"),
    [
        pytest.param(STACK, 4, "n", INT, id="variable"),
        pytest.param(HEAP, 4, "node->value", INT, id="member"),
        pytest.param(HEAP + 8, 8, "node->next", POINTER, id="pointer-member"),
        pytest.param(STACK + 16 + 4 * 3, 4, "table[3]", INT, id="element"),
        pytest.param(STACK + 16 + 4 * 17, 4, "table[17]", INT, id="element-beyond-those-listed"),
        pytest.param(HEAP + 24 * 3 + 16, 4, "node[3].state", ENUM, id="element-behind-a-pointer"),
    ],
)
def test_names(memory, address, size, name, kind):
    leaf = make_scope(memory).locate(address, size)
    assert (leaf.name, leaf.type) == (name, kind)


@pytest.mark.parametrize(
    ("address", "size"),
    [
        pytest.param(STACK + 2, 2, id="part-of-a-value"),
        pytest.param(HEAP + 4, 4, id="bit-field"),
        pytest.param(HEAP + REACH + 24, 4, id="far-away"),
    ],
)
def test_no_name(memory, address, size):
    assert make_scope(memory).locate(address, size) is None


def test_likes_are_of_the_same_type(memory):
    scope = make_scope(memory)
    was = (7).to_bytes(4, "little")
    assert [like.name for like in scope.likes(was, INT, STACK)][:3] == ["node->value", "table[0]", "table[1]"]
    assert scope.likes(was, ENUM, 0)[0].name == "node->state"
    assert [like.name for like in scope.likes(bytes(8), POINTER, 0)] == ["node", "node->next"]
    assert scope.likes(bytes(8), LONG, 0) == ()


def test_likes_leave_out_what_is_equal(memory):
    memory.write(HEAP, "<i", 7)
    names = [like.name for like in make_scope(memory).likes((7).to_bytes(4, "little"), INT, STACK)]
    assert "node->value" not in names


def test_array_of_structs_may_be_pointed_to(memory):
    scope = make_scope(memory, Variable("pool", 1, 0, STACK + 128, NODES, False))
    pool = next(like for like in scope.likes(bytes(8), POINTER, 0) if like.name == "pool")
    assert int.from_bytes(pool.data, "little") == STACK + 128


def test_variable_that_is_not_set_yet_has_a_name_but_is_no_like(memory):
    scope = make_scope(memory, Variable("late", 9, 0, STACK + 200, INT, True))
    assert scope.locate(STACK + 200, 4).name == "late"
    assert "late" not in [like.name for like in scope.likes(bytes(4), INT, 0)]


def test_pointer_to_nowhere_is_not_followed(memory):
    memory.write(STACK + 8, "<Q", 0xDEAD0000)
    assert [leaf.name for leaf in make_scope(memory).leaves if "node" in leaf.name] == ["node"]
