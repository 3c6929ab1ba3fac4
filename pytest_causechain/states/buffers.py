"""What containers of the C++ library say of the blocks they lead to: which part of a buffer holds elements."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_causechain.states.layout import POINTER_SIZE, Layouts
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.objects import Object
from pytest_causechain.states.shapes import Span

CONTAINER_POINTERS = {
    "pointer", "start", "finish", "end", "map",
    "start_cur", "start_first", "start_last", "start_node", "finish_cur", "finish_node",
}  # fmt: skip


class Buffers:
    """`spans` are, by address of a buffer, from and up to where there are elements, and how many bytes are kept for
    them. `texts` are blocks that hold the characters of strings, and nothing else."""

    def __init__(self, layouts: Layouts, memory: Memory) -> None:
        self._layouts, self._memory = layouts, memory
        self.spans: dict[int, tuple[int, int, int]] = {}
        self.texts: set[int] = set()

    def note(self, o: Object) -> Iterator[int]:
        """The buffers of all containers in an object, as they become known."""
        region = self._memory.region(o.address)
        assert region is not None
        for offset, kind in o.shape.containers:
            plan = self._layouts.row(kind)["container"]
            if not o.shape.is_present(region.data, o.address - region.start, offset, self._layouts.size(kind)):
                continue
            words = {
                name: self._word(o.address + offset + at) for name, at in plan.items() if name in CONTAINER_POINTERS
            }
            if plan["kind"] == "string":
                self.texts.add(words["pointer"])
            elif plan["kind"] == "vector":
                yield from self._note_one(words["start"], words["start"], words["finish"], words["end"])
            elif plan["kind"] == "deque":
                yield from self._note_deque(words)

    def _note_deque(self, words: dict[str, int]) -> Iterator[int]:
        first, last, table = words["start_node"], words["finish_node"], words["map"]
        size = self._memory.blocks.get(table, 0)
        if not table <= first <= last < table + size:
            return
        yield from self._note_one(table, first, last + POINTER_SIZE, table + size)
        for at in range(first, last + 1, POINTER_SIZE):
            block = self._word(at)
            end = block + words["start_last"] - words["start_first"]
            start = words["start_cur"] if at == first else block
            yield from self._note_one(block, start, words["finish_cur"] if at == last else end, end)

    def _note_one(self, block: int, start: int, end: int, limit: int) -> Iterator[int]:
        if block and block <= start <= end <= limit <= block + self._memory.blocks.get(block, 0):
            self.spans[block] = start - block, end - block, limit - block
            yield block

    def extent(self, o: Object, kind: int) -> tuple[Span, list[tuple[int, int, int | None]]]:
        """Of a buffer with elements of this type: the part that holds some, and how many there is room for."""
        start, end, limit = self.spans[o.address]
        return (start, end), [(0, kind, max(1, limit // self._layouts.size(kind)))]

    def _word(self, address: int) -> int:
        return self._memory.word(address) or 0
