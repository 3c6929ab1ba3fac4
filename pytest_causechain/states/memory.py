"""The memory of a stopped run, read once: bytes by address, blocks of the heap."""

from __future__ import annotations

import struct
from bisect import bisect_right

from pytest_causechain.debugger.visit import Region, Visit

WORD = struct.Struct("<Q")
# glibc's malloc: a chunk is [size of the one before][size | 3 flags][payload]; the payload may run on into the
# next chunk's first word.
HEADER, FLAGS, SMALLEST, MAPPED = 16, 7, 32, 2
PAGE = 4096


class Memory:
    def __init__(self, visit: Visit) -> None:
        self.regions = sorted(visit.regions, key=lambda region: region.start)
        self._starts = [region.start for region in self.regions]
        self.blocks: dict[int, int] = {}
        for region in self.regions:
            if region.kind == "heap":
                self.blocks |= walk_chunks(region)
        self._block_starts = sorted(self.blocks)

    def region(self, address: int) -> Region | None:
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.regions[index].end:
            return self.regions[index]
        return None

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
        """Start and usable size of the heap block around an address."""
        index = bisect_right(self._block_starts, address) - 1
        if index >= 0:
            start = self._block_starts[index]
            if address < start + self.blocks[start]:
                return start, self.blocks[start]
        region = self.region(address)
        if region is not None and region.kind == "anonymous":
            return mapped_chunk(region, address)
        return None


def walk_chunks(region: Region) -> dict[int, int]:
    """Payload start and usable size of each chunk of the main arena, without the unused top."""
    sizes: dict[int, int] = {}
    at = 0
    while at + HEADER <= len(region.data):
        size = WORD.unpack_from(region.data, at + 8)[0] & ~FLAGS
        if size < SMALLEST or at + size >= len(region.data):
            break
        sizes[region.start + at + HEADER] = size - 8
        at += size
    return sizes


def mapped_chunk(region: Region, address: int) -> tuple[int, int] | None:
    """A large block has pages of its own, at whose start its header lies."""
    at = (address - region.start) // PAGE * PAGE
    if at + HEADER > len(region.data) or address - region.start - at < HEADER:
        return None
    size = WORD.unpack_from(region.data, at + 8)[0]
    if not size & MAPPED or size & ~FLAGS > len(region.data) - at or size & ~FLAGS < SMALLEST:
        return None
    return region.start + at + HEADER, (size & ~FLAGS) - HEADER
