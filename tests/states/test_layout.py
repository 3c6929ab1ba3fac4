"""Layouts and shown values of the types of a real program."""

from __future__ import annotations

import ast
import ctypes
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_runs import find_variable

from pytest_causechain.debugger.types import CharType
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import (
    BYTE,
    Layouts,
    extract_bits,
    find_unequal,
    show_extended,
    show_float,
    show_text,
)
from pytest_causechain.states.values import show_value

SOURCE = r"""
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

enum color { RED, GREEN = 5, BLUE = -3 };
enum flags { READ = 1, WRITE = 2, RUN = 4 };
enum large { HUGE = 0xF0000000u };
typedef enum { NOON, NIGHT } hour;
typedef enum { NORTH, SOUTH } way;
struct packed { unsigned a : 3; signed b : 5; unsigned c : 1; int d : 20; unsigned long e : 40; _Bool f : 1;
    enum color g : 4; };
struct inner { int x; struct { short p, q; }; union { int i; float f; } u; union { int first; float second; }; };
struct outer { struct inner in[2]; int grid[2][3]; char name[8]; const char *text; struct outer *self; };
union number { unsigned char bytes[2]; short whole; struct { char low, high; } halves; long many; };
typedef int (*operation)(int);

static int twice(int x) { return 2 * x; }

signed char sc = -5;
unsigned char uc = 200;
char c = 'x', quote = '\'', newline = '\n', nul, high = '\x80';
short s = -300;
unsigned short us = 65000;
int i = -70000;
unsigned u = 4000000000u;
long l = -5000000000;
unsigned long ul = 18000000000000000000ul;
long long ll = -9;
unsigned long long ull = 9;
__int128 wide = -1;
bool yes = true, no;
enum color color = GREEN, negative = BLUE, unknown = 77;
enum flags both = 3;
enum large huge = HUGE;
hour late = NIGHT;
way down = SOUTH;
float f = 0.1f, third = 1 / 3.0f;
double d = 0.1, whole = 2, tiny = 5e-324, infinite, undefined, negative_zero = -0.0;
long double ld = 1;
wchar_t w = L'x';
int *nowhere, *to_i = &i;
int **to_pointer = &to_i;
void *any = &d;
operation go = twice;
struct packed packed = { 5, -7, 1, -100000, 1ul << 39, 1, BLUE };
struct outer outer = { { { 1, { 2, 3 }, { 4 }, { 5 } }, { 6 } }, { { 1, 2, 3 }, { 4, 5, 6 } }, "bob", "t\tx", &outer };
union number number = { { 1, 2 } };
char text[12] = "line\nbreak";
char full[3] = "abc";
char rows[2][4] = { "ab", "cd" };
const char *literal = "say \"hi\" \\ \x01" "1\xff\xc3\xa9";
FILE *file;

int main(void)
{
    infinite = 1 / (double) no;
    undefined = infinite - infinite;
    file = stdout;
    return 0; /* here */
}
"""


@pytest.fixture(scope="module")
def graph(open_shared) -> MemoryGraph:
    return open_shared(SOURCE).graph("failing")


def shown(graph: MemoryGraph, expression: str) -> str:
    """The value of `variable` or of a part of it, as a reader gets it."""
    name = next(n for n in range(len(expression), 0, -1) if expression[:n].isidentifier())
    variable = find_variable(graph, expression[:name])
    leaves = {leaf.path: leaf for leaf in graph.layouts.leaves(variable.type)}
    assert expression[name:] in leaves, f"{variable.name} has {sorted(leaves)}"
    return show_value(graph, variable, leaves[expression[name:]])


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sc", "-5"),
        ("uc", "200"),
        ("c", "120 'x'"),
        ("quote", r"39 '\''"),
        ("newline", r"10 '\n'"),
        ("nul", "0"),
        ("high", "-128"),
        ("s", "-300"),
        ("us", "65000"),
        ("i", "-70000"),
        ("u", "4000000000"),
        ("l", "-5000000000"),
        ("ul", "18000000000000000000"),
        ("ll", "-9"),
        ("ull", "9"),
        ("wide", "-1"),
        ("w", "120"),
        ("yes", "true"),
        ("no", "false"),
    ],
)
def test_integers(graph, expression, value):
    assert shown(graph, expression) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("color", "GREEN"),
        ("negative", "BLUE"),
        ("unknown", "77"),
        ("both", "3"),
        ("huge", "HUGE"),
        # Of enumerations without a name.
        ("late", "NIGHT"),
        ("down", "SOUTH"),
    ],
)
def test_enumerations_by_name(graph, expression, value):
    assert shown(graph, expression) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("f", "0.1"),
        ("third", "0.33333334"),
        ("d", "0.1"),
        ("whole", "2"),
        ("tiny", "4.94066e-324"),
        ("infinite", "inf"),
        ("negative_zero", "-0"),
        ("ld", "1"),
    ],
)
def test_floating_point_numbers(graph, expression, value):
    assert shown(graph, expression) == value


def test_not_a_number(graph):
    assert shown(graph, "undefined") in ("nan", "-nan")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("nowhere", "NULL"),
        ("go", "twice"),
        ("literal", r'"say \"hi\" \\ \0011\377\303\251"'),
        # More than a text is not shown of what a pointer inside a value leads to.
        ("to_i", "..."),
        ("any", "..."),
    ],
)
def test_pointers(graph, expression, value):
    assert shown(graph, expression) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("packed.a", "5"),
        ("packed.b", "-7"),
        ("packed.c", "1"),
        ("packed.d", "-100000"),
        ("packed.e", str(1 << 39)),
        ("packed.f", "true"),
        ("packed.g", "BLUE"),
    ],
)
def test_bit_fields(graph, expression, value):
    assert shown(graph, expression) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("outer.in[0].x", "1"),
        ("outer.in[0].p", "2"),
        ("outer.in[0].q", "3"),
        ("outer.in[0].u", "{i = 4, f = 5.60519e-45}"),
        ("outer.in[0].first", "{first = 5, second = 7.00649e-45}"),
        ("outer.in[1].x", "6"),
        ("outer.grid[1][2]", "6"),
        ("outer.name", '"bob"'),
        ("outer.text", r'"t\tx"'),
        ("number", r"""{bytes = "\001\002", whole = 513, halves = {...}, ...}"""),
        ("text", r'"line\nbreak"'),
        ("full", '"abc"'),
        ("rows[1]", '"cd"'),
    ],
)
def test_parts_of_aggregates(graph, expression, value):
    assert shown(graph, expression) == value


def test_leaves_cover_a_struct_in_order_and_do_not_overlap(graph):
    layouts = graph.layouts
    outer = find_variable(graph, "outer")
    leaves = [leaf for leaf in layouts.leaves(outer.type) if leaf.bits is None]
    ends = [leaf.offset + leaf.size for leaf in leaves]
    assert all(end <= leaf.offset for end, leaf in zip(ends, leaves[1:], strict=False))
    assert ends[-1] == outer.size
    assert layouts.weight(outer.type) == len(leaves) == 2 * 5 + 6 + 1 + 2


def test_pointers_of_a_struct(graph):
    outer = find_variable(graph, "outer")
    places = [(offset, path) for offset, _, path in graph.layouts.pointers(outer.type)]
    assert places == [(outer.size - 16, ".text"), (outer.size - 8, ".self")]


def test_no_leaves_in_an_opaque_type_but_the_pointer_to_it_is_one(graph):
    file = find_variable(graph, "file")
    stream = graph.layouts.target(file.type)
    assert graph.layouts.is_opaque(stream)
    assert list(graph.layouts.leaves(stream)) == []
    assert [leaf.path for leaf in graph.layouts.leaves(file.type)] == [""]


def test_bytes_of_unknown_type_need_no_row():
    layouts = Layouts([])
    assert layouts.type(BYTE) == CharType("char", 1, True)


@given(st.binary(max_size=20))
def test_text_is_a_literal_of_its_bytes(data):
    literal = show_text(data)
    assert literal.isascii()
    assert literal.isprintable()
    # Python's bytes have C's escapes.
    assert ast.literal_eval("b" + literal) == data.partition(b"\0")[0]


@given(st.floats(allow_nan=False))
def test_double_is_told_from_all_others(value):
    assert float(show_float(struct.pack("<d", value))) == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_is_told_from_all_others(value):
    shown = show_float(struct.pack("<f", value))
    assert struct.unpack("<f", struct.pack("<f", float(shown)))[0] == value
    assert math.copysign(1, float(shown)) == math.copysign(1, value)
    assert len(shown.lstrip("-")) <= len("1.23456789e-10")


@given(st.floats(allow_nan=False))
def test_long_double_is_told_with_all_its_digits(value):
    data = bytes(ctypes.c_longdouble(value))[:10]
    assert float(show_extended(data)) == value
    assert math.copysign(1, float(show_extended(data))) == math.copysign(1, value)


def test_find_unequal_looks_only_into_what_differs():
    left, right = bytearray(4000), bytearray(4000)
    for element in (3, 4, 999):
        right[element * 4] = 1
    assert list(find_unequal(bytes(left), bytes(right), 0, 4, 0, 1000)) == [3, 4, 999]
    assert list(find_unequal(bytes(left), bytes(left), 0, 4, 0, 1000)) == []


@given(st.integers(0, 7), st.integers(1, 40), st.data())
def test_bits_are_those_between_their_neighbours(first, width, data):
    value = data.draw(st.integers(0, (1 << width) - 1))
    around = data.draw(st.integers(0, (1 << first) - 1)) | -1 << (first + width)
    size = (first + width + 7) // 8
    packed = ((value << first | around) & (1 << 8 * size) - 1).to_bytes(size, "little")
    assert extract_bits(packed, (first, width), signed=False) == value
    signed = value - (1 << width) if value >= 1 << (width - 1) else value
    assert extract_bits(packed, (first, width), signed=True) == signed
