"""What containers of the C++ library say of the blocks they lead to: which part of a buffer holds elements."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_causechain.debugger.types import DequeType, StringType, VectorType
from pytest_causechain.states.layout import POINTER_SIZE, Layouts
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.objects import Object
from pytest_causechain.states.shapes import Span


class Buffers:
    """`spans` are, by address of a buffer, from and up to where there are elements, and how many bytes are kept for
    them. `texts` are blocks that hold the characters of strings, and nothing else."""

    def __init__(self, layouts: Layouts, memory: Memory) -> None:
        self._layouts, self._memory = layouts, memory
        self.spans: dict[int, tuple[int, int, int]] = {}
        self.texts: set[int] = set()
        self._noted: set[tuple[int, tuple[int, int, int]]] = set()

    def note(self, o: Object) -> Iterator[int]:
        """The buffers of all containers in an object, as they become known."""
        region = self._memory.region(o.address)
        assert region is not None
        for offset, kind in o.shape.containers:
            if not o.shape.is_present(region.data, o.address - region.start, offset, self._layouts.size(kind)):
                continue
            place = o.address + offset
            match self._layouts.container(kind):
                case StringType(pointer=pointer):
                    self.texts.add(self._word(place + pointer))
                case VectorType(start=start, finish=finish, end=end):
                    block = self._word(place + start)
                    yield from self._note_one(block, block, self._word(place + finish), self._word(place + end))
                case DequeType() as deque:
                    yield from self._note_deque(place, deque)

    def _note_deque(self, place: int, deque: DequeType) -> Iterator[int]:
        first, last = self._word(place + deque.start_node), self._word(place + deque.finish_node)
        table = self._word(place + deque.map)
        size = self._memory.blocks.get(table, 0)
        if not table <= first <= last < table + size:
            return
        yield from self._note_one(table, first, last + POINTER_SIZE, table + size)
        begin, behind = self._word(place + deque.start_cur), self._word(place + deque.finish_cur)
        capacity = self._word(place + deque.start_last) - self._word(place + deque.start_first)
        for at in range(first, last + 1, POINTER_SIZE):
            block = self._word(at)
            end = block + capacity
            yield from self._note_one(block, begin if at == first else block, behind if at == last else end, end)

    def _note_one(self, block: int, start: int, end: int, limit: int) -> Iterator[int]:
        if block and block <= start <= end <= limit <= block + self._memory.blocks.get(block, 0):
            span = start - block, end - block, limit - block
            # Each is news only once: the container may lie in the very block, which is looked through anew for it.
            if (block, span) not in self._noted:
                self._noted.add((block, span))
                self.spans[block] = span
                yield block

    def extent(self, o: Object, kind: int) -> tuple[Span, list[tuple[int, int, int | None]]]:
        """Of a buffer with elements of this type: the part that holds some, and how many there is room for."""
        start, end, limit = self.spans[o.address]
        return (start, end), [(0, kind, max(1, limit // self._layouts.size(kind)))]

    def _word(self, address: int) -> int:
        return self._memory.word(address) or 0
