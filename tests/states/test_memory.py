"""Blocks of the heap, as the allocator of the C library leaves them."""

from __future__ import annotations

import struct

import pytest
from two_runs import find_target, find_variable

from pytest_causechain.debugger.visit import Region
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.memory import find_mapped_chunks, usable_size

SOURCE = r"""
#include <stdlib.h>
#include <string.h>

struct pair { long left, right; };

char *small, *exact, *larger, *large, *second_large;
char *inside, *end, *deep_inside;
struct pair *kept, *first_freed, *last_freed, *reused;
char *middle;

int main(void)
{
    small = malloc(1);
    exact = malloc(24);
    larger = malloc(25);
    inside = larger + 7;
    end = exact + 24;
    large = malloc(200000);
    second_large = malloc(300000);
    deep_inside = large + 150000;
    kept = calloc(1, sizeof *kept);
    first_freed = calloc(1, sizeof *first_freed);
    last_freed = calloc(1, sizeof *last_freed);
    last_freed[0].left = 5;
    middle = malloc(3000);
    strcpy(middle + 100, "left behind");
    reused = malloc(100);
    free(reused);
    reused = malloc(100);
    free(first_freed);
    free(last_freed);
    free(middle);
    return 0; /* here */
}
"""


@pytest.fixture(scope="module")
def graph(open_shared) -> MemoryGraph:
    return open_shared(SOURCE).graph("failing")


def address(graph: MemoryGraph, name: str) -> int:
    data = graph.contents(find_variable(graph, name))
    return int(struct.unpack("<Q", data)[0])


def block_of(graph: MemoryGraph, name: str) -> tuple[int, int]:
    block = graph.memory.block(address(graph, name))
    assert block is not None
    return block


@pytest.mark.parametrize(
    ("name", "size"), [("small", 24), ("exact", 24), ("larger", 40), ("kept", 24), ("reused", 104)]
)
def test_block_has_the_size_of_its_chunk(graph, name, size):
    assert block_of(graph, name) == (address(graph, name), size)


@pytest.mark.parametrize("requested", [0, 1, 24, 25, 40, 41, 1000])
def test_usable_size(requested):
    usable = usable_size(requested)
    assert usable >= max(requested, 24)
    assert usable - requested < 24 or requested < 24
    assert usable % 16 == 8


@pytest.mark.parametrize(("name", "requested"), [("large", 200000), ("second_large", 300000)])
def test_large_block_has_pages_of_its_own(graph, name, requested):
    start, size = block_of(graph, name)
    assert start == address(graph, name)
    assert requested <= size < requested + 4096


def test_pointer_into_the_middle_of_a_block(graph):
    assert block_of(graph, "inside") == block_of(graph, "larger")


def test_pointer_into_a_far_page_of_a_large_block(graph):
    assert block_of(graph, "deep_inside") == block_of(graph, "large")


def test_pointer_past_the_end_belongs_to_its_block(graph):
    assert block_of(graph, "end") == block_of(graph, "exact")
    assert block_of(graph, "larger") != block_of(graph, "exact")


def test_addresses_outside_the_heap_are_in_no_block(graph):
    assert graph.memory.block(0) is None
    assert graph.memory.block(find_variable(graph, "small").address) is None
    assert graph.memory.block(1 << 46) is None


def test_freed_blocks_are_known_with_what_is_left_of_them(graph):
    freed = graph.memory.freed
    # Kept by the thread for its next request: two links in front.
    assert freed[address(graph, "first_freed")] == (16, 24)
    assert freed[address(graph, "last_freed")] == (16, 24)
    # In a free list of the heap, with its size in the last word, too, and the links of a sorted list.
    assert freed[address(graph, "middle")] == (32, 3000 - 8)


@pytest.mark.parametrize("name", ["small", "exact", "larger", "large", "kept", "reused"])
def test_blocks_in_use_are_not_freed(graph, name):
    assert address(graph, name) not in graph.memory.freed


def test_links_of_freed_blocks_are_no_values_of_the_program(graph):
    block = find_target(graph, "last_freed")
    assert block.kept == (16, 24)
    assert list(block.shape.leaves()) == []
    middle = find_target(graph, "middle")
    [place] = middle.shape.leaves()
    leaf = place.leaf
    assert (leaf.offset, leaf.size) == (32, 3000 - 8 - 32)
    assert b"left behind" in graph.value(middle, leaf)


def test_read_stops_at_the_end_of_what_was_captured(graph):
    region = graph.memory.regions[0]
    assert graph.memory.read(region.end - 4, 4) == region.data[-4:]
    assert graph.memory.read(region.end - 4, 5) is None
    assert graph.memory.read(0, 1) is None
    assert graph.memory.read_text(0) is None


def test_several_large_blocks_in_one_region():
    page = 4096
    other = b"\1" * page
    one = struct.pack("<QQ", 0, 2 * page | 2) + b"\2" * (2 * page - 16)
    two = struct.pack("<QQ", 0, page | 2) + b"\3" * (page - 16)
    cut_off = struct.pack("<QQ", 0, 3 * page | 2) + b"\4" * (page - 16)
    region = Region(0x7000_0000, other + one + two + cut_off, "anonymous")
    assert find_mapped_chunks(region) == {
        0x7000_0000 + page + 16: 2 * page - 16,
        0x7000_0000 + 3 * page + 16: page - 16,
    }
