"""The memory of a stopped run, read once: bytes by address, blocks of the heap."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

from pytest_causechain.debugger.visit import Region, Visit

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
        self.regions = sorted(visit.regions, key=lambda region: region.start)
        self._starts = [region.start for region in self.regions]
        self.blocks: dict[int, int] = {}
        self.freed: dict[int, tuple[int, int]] = {}
        for region in self.regions:
            if region.kind == "heap":
                self._walk_heap(region)
            elif region.kind == "anonymous":
                self.blocks |= find_mapped_chunks(region)
        self._block_starts = sorted(self.blocks)

    def region(self, address: int) -> Region | None:
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.regions[index].end:
            return self.regions[index]
        return None

    def is_stack(self, address: int) -> bool:
        """Also where the stack may have been before, below what was captured of it."""
        stack = next((region for region in self.regions if region.kind == "stack"), None)
        return stack is not None and stack.start - STACK_LIMIT <= address < stack.end

    def read(self, address: int, size: int) -> bytes | None:
        """None where it was not all captured."""
        region = self.region(address)
        if region is None or address + size > region.end:
            return None
        at = address - region.start
        return region.data[at : at + size]

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

    def _walk_heap(self, region: Region) -> None:
        """Each chunk of the main arena, without the unused top."""
        before, first = None, None
        at = 0
        while at + HEADER <= len(region.data):
            head = WORD.unpack_from(region.data, at + 8)[0]
            size, start = head & ~FLAGS, region.start + at + HEADER
            if before is not None and not head & PREVIOUS_IN_USE:
                # The last word of a block in a free list holds its size, the first ones its links.
                kept = LARGE_LINKS if self.blocks[before] >= LARGE else LINKS
                self.freed[before] = (kept, self.blocks[before] - 8)
            if size < SMALLEST or at + size >= len(region.data):
                break
            self.blocks[start] = size - 8
            first, before = first or start, start
            at += size
        if first is not None and self.blocks[first] >= SMALLEST_TABLE:
            for start in self._kept_by_thread(first):
                self.freed[start] = (LINKS, self.blocks[start])

    def _kept_by_thread(self, table: int) -> Iterator[int]:
        """Blocks that a thread keeps for its next requests. They count as in use to the rest of the allocator;
        the first block of the heap holds the heads of their lists (glibc's tcache)."""
        heads = self.read(table, self.blocks[table] // 8 * 8) or b""
        for (head,) in WORD.iter_unpack(heads):
            seen: set[int] = set()
            block = head
            while block in self.blocks and block % ALIGNMENT == 0 and block not in seen:
                seen.add(block)
                yield block
                link = WORD.unpack(self.read(block, 8) or bytes(8))[0]
                block = link ^ block >> LINK_SHIFT
                if block not in self.blocks:
                    block = link


def usable_size(requested: int) -> int:
    """What a program gets that asks for this many bytes."""
    return max(SMALLEST, (requested + 8 + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT) - 8


def find_mapped_chunks(region: Region) -> dict[int, int]:
    """A large block has pages of its own, at whose start its header lies; several may lie side by side."""
    sizes: dict[int, int] = {}
    at = 0
    while at + HEADER <= len(region.data):
        before, head = struct.unpack_from("<QQ", region.data, at)
        size = head & ~FLAGS
        if before == 0 and head & FLAGS == MAPPED and size and size % PAGE == 0 and at + size <= len(region.data):
            sizes[region.start + at + HEADER] = size - HEADER
            at += size
        else:
            at += PAGE
    return sizes
