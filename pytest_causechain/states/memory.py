"""The memory of a stopped run, read once: bytes by address, blocks of the heap."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property

from pytest_causechain.debugger.visit import LoadedFile, Region, Visit

WORD = struct.Struct("<Q")
# glibc's malloc: a chunk is [size of the one before][size | 3 flags][payload]; the payload may run on into the
# next chunk's first word.
HEADER, FLAGS, SMALLEST, ALIGNMENT = 16, 7, 32, 16
PREVIOUS_IN_USE, MAPPED = 1, 2
PAGE = 4096
# What systems give to a program's stack, and so do we.
STACK_LIMIT = 8 << 20
# A free block begins with the allocator's links; a large one, whose list is sorted, has four of them.
LINKS, LARGE, LARGE_LINKS = 16, 1024, 32
# From glibc 2.32 on the links of a thread's free blocks are combined with their own address, shifted by this.
LINK_SHIFT = 12
# Heads of 64 lists and their lengths, of a byte each at least: no smaller block can hold a thread's lists.
SMALLEST_TABLE = 64 * 9


class Memory:
    """`blocks` leads from the start of each block of the heap to its usable size.

    `freed` says of those given back to the allocator what is left of their contents: from and up to which offset.
    """

    def __init__(self, visit: Visit) -> None:
        self.regions = join_image(sorted(visit.regions, key=lambda region: region.start))
        self._starts = [region.start for region in self.regions]
        self._ends = [region.end for region in self.regions]
        self._modules = sorted(visit.modules, key=lambda module: module.start)
        self._module_starts = [module.start for module in self._modules]

    @cached_property
    def _heap(self) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
        blocks: dict[int, int] = {}
        freed: dict[int, tuple[int, int]] = {}
        for region in self.regions:
            if region.kind == "heap":
                walk_heap(region, blocks, freed)
            elif region.kind == "anonymous":
                blocks |= find_mapped_chunks(region)
        return blocks, freed

    @property
    def blocks(self) -> dict[int, int]:
        return self._heap[0]

    @property
    def freed(self) -> dict[int, tuple[int, int]]:
        return self._heap[1]

    @cached_property
    def _block_starts(self) -> list[int]:
        return sorted(self.blocks)

    def region(self, address: int) -> Region | None:
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._ends[index]:
            return self.regions[index]
        return None

    def around(self, address: int) -> tuple[bytes, int]:
        """The bytes captured around an object, which lies in some, and its place there."""
        region = self.regions[bisect_right(self._starts, address) - 1]
        return region.data, address - region.start

    def module(self, address: int) -> LoadedFile | None:
        index = bisect_right(self._module_starts, address) - 1
        if index >= 0 and address < self._modules[index].end:
            return self._modules[index]
        return None

    def module_start(self, name: str) -> int | None:
        return next((module.start for module in self._modules if module.name == name), None)

    @cached_property
    def _stack(self) -> Region | None:
        return next((region for region in self.regions if region.kind == "stack"), None)

    def is_stack(self, address: int) -> bool:
        """Also where the stack may have been before, below what was captured of it."""
        stack = self._stack
        return stack is not None and stack.start - STACK_LIMIT <= address < stack.end

    def is_mapped(self, address: int) -> bool:
        """Whether a number is an address of this run."""
        return self.region(address) is not None or self.module(address) is not None or self.is_stack(address)

    def read(self, address: int, size: int) -> bytes | None:
        """None where it was not all captured."""
        region = self.region(address)
        if region is None or address + size > region.end:
            return None
        at = address - region.start
        return region.data[at : at + size]

    def has(self, address: int, size: int) -> bool:
        region = self.region(address)
        return region is not None and address + size <= region.end

    def word(self, address: int) -> int | None:
        region = self.region(address)
        if region is None or address + WORD.size > region.end:
            return None
        return int(WORD.unpack_from(region.data, address - region.start)[0])

    def read_text(self, address: int) -> bytes | None:
        """Up to and with the NUL."""
        region = self.region(address)
        if region is None:
            return None
        end = region.data.find(b"\0", address - region.start)
        return None if end < 0 else region.data[address - region.start : end + 1]

    def block(self, address: int) -> tuple[int, int] | None:
        """Start and usable size of the heap block around an address, or that ends there: what lies between two
        blocks is the allocator's, so that no other block begins at the end of one."""
        index = bisect_right(self._block_starts, address) - 1
        if index >= 0:
            start = self._block_starts[index]
            if address <= start + self.blocks[start]:
                return start, self.blocks[start]
        return None


def join_image(regions: list[Region]) -> list[Region]:
    """The program's data goes on, without a name, where the file ends; a variable may lie on that border."""
    joined: list[Region] = []
    parts: list[bytes] = []
    for region in regions:
        follows = bool(joined) and region.start == joined[-1].start + sum(map(len, parts))
        if follows and joined[-1].kind == "image" and region.kind in ("image", "anonymous"):
            parts.append(region.data)
            continue
        if len(parts) > 1:
            joined[-1] = Region(joined[-1].start, b"".join(parts), "image")
        joined.append(region)
        parts = [region.data]
    if len(parts) > 1:
        joined[-1] = Region(joined[-1].start, b"".join(parts), "image")
    return joined


def walk_heap(region: Region, blocks: dict[int, int], freed: dict[int, tuple[int, int]]) -> None:
    """Each chunk of the main arena, without the unused top."""
    words = memoryview(region.data)[: len(region.data) // WORD.size * WORD.size].cast("Q")
    last, origin = len(words), region.start + HEADER
    before = None
    at = 0  # counted in words, as is size: each chunk of a large heap passes through here
    while at + 1 < last:
        head = words[at + 1]
        if not head & PREVIOUS_IN_USE and before is not None:
            # The last word of a block in a free list holds its size, the first ones its links.
            kept = LARGE_LINKS if blocks[before] >= LARGE else LINKS
            freed[before] = (kept, blocks[before] - 8)
        size = head >> 3
        if size < SMALLEST >> 3 or at + size >= last:
            break
        before = origin + (at << 3)
        blocks[before] = (size << 3) - 8
        at += size
    if before is not None and blocks[origin] >= SMALLEST_TABLE:
        for start in kept_by_thread(region, origin, blocks):
            freed[start] = (LINKS, blocks[start])


def kept_by_thread(region: Region, table: int, blocks: dict[int, int]) -> Iterator[int]:
    """Blocks that a thread keeps for its next requests. They count as in use to the rest of the allocator; the first
    block of the heap holds the heads of their lists (glibc's tcache)."""
    at = table - region.start
    for (head,) in WORD.iter_unpack(region.data[at : at + blocks[table] // 8 * 8]):
        seen: set[int] = set()
        block = head
        while block in blocks and block % ALIGNMENT == 0 and block not in seen:
            seen.add(block)
            yield block
            link = WORD.unpack_from(region.data, block - region.start)[0]
            block = link ^ block >> LINK_SHIFT
            if block not in blocks:
                block = link


def usable_size(requested: int) -> int:
    """What a program gets that asks for this many bytes."""
    return max(SMALLEST, (requested + 8 + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT) - 8


def find_mapped_chunks(region: Region) -> dict[int, int]:
    """A large block has pages of its own, at whose start its header lies; several may lie side by side."""
    sizes: dict[int, int] = {}
    at = 0
    while at + HEADER <= len(region.data):
        size = measure_mapped_chunk(region.data[at : at + HEADER])
        if size and at + size <= len(region.data):
            sizes[region.start + at + HEADER] = size - HEADER
            at += size
        else:
            at += PAGE
    return sizes


def measure_mapped_chunk(header: bytes) -> int:
    """The whole size of such a block; 0 where this is not its header."""
    before, head = struct.unpack("<QQ", header)
    size: int = head & ~FLAGS
    return size if before == 0 and head & FLAGS == MAPPED and size % PAGE == 0 else 0
