"""What lies in a block: how far each object in it reaches, and the shape that makes.

A type says how large one element is; only what lies behind it can say whether there are more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from pytest_causechain.debugger.types import EnumType
from pytest_causechain.states.layout import BYTE, POINTER_SIZE, Layouts, Rank, Span
from pytest_causechain.states.memory import WORD, Memory
from pytest_causechain.states.shapes import ElementRun, Object, Shape

# So many elements tell whether a block holds an array.
ELEMENTS_LOOKED_AT = 1_000
# The other half of all addresses belongs to the system.
HIGHEST_ADDRESS = 1 << 47

Part = tuple[int, int]
# Offset, type and number of elements of a part; None: as many as there is room for.
Counted = tuple[int, int, int | None]


class Extents:
    """`is_inside` tells whether an address lies in a block, vector or text."""

    def __init__(self, layouts: Layouts, memory: Memory, is_inside: Callable[[int], bool]) -> None:
        self._layouts, self._memory, self._is_inside = layouts, memory, is_inside
        self.lowest_address = memory.regions[0].start if memory.regions else 0

    def is_plausible(self, address: int, kind: int) -> bool:
        """Whether bytes can be a value of a type: pointers are addresses, enumerations have possible values."""
        layouts = self._layouts
        data = self._memory.read(address, layouts.size(kind))
        if data is None:
            return False
        for at, _, _ in layouts.pointers(kind):
            value = WORD.unpack_from(data, at)[0]
            if value and not self._is_address(value):
                return False
        return self._has_possible_enumerations(kind, data)

    def _is_address(self, value: int) -> bool:
        return self.lowest_address <= value < HIGHEST_ADDRESS

    def count(self, o: Object, parts: list[Part]) -> list[Counted]:
        """How many elements each part has: up to the next part, if what lies there can be more of them."""
        layouts = self._layouts
        if len({kind for _, kind in parts}) > 1:
            return self._count_pool(o, parts)
        counted: list[Counted] = []
        end = 0  # of the last part
        for (start, kind), (limit, _) in pairwise([*parts, (o.size, BYTE)]):
            width = layouts.size(kind)
            if counted and counted[-1][1] == kind and start < end:
                continue  # an element of the array before
            # Only a pointer into the middle of an array may be left.
            if not counted and start % width == 0 and o.kind == "heap":
                start = 0 if self._elements(o, 0, kind, limit) * width > start else start
            if layouts.flexible(kind) is not None or limit - start < width:
                counted.append((start, kind, None))
                end = limit
                continue
            count = self._elements(o, start, kind, limit)
            if counted and counted[-1][1] == kind and start == end and counted[-1][2] is not None:
                start, _, before = counted.pop()
                count += before or 0
            counted.append((start, kind, count))
            end = start + count * width
        return counted

    def _count_pool(self, o: Object, parts: list[Part]) -> list[Counted]:
        """Here everything that is referred to is an object of its own, and only what is there can be more of it."""
        layouts = self._layouts
        counted: list[Counted] = []
        for (start, kind), (limit, _) in pairwise([*parts, (o.size, BYTE)]):
            width = layouts.size(kind)
            if layouts.rank(kind) is not Rank.RECORD or layouts.flexible(kind) is not None or limit - start < width:
                counted.append((start, kind, None))
                continue
            count = 1
            while start + (count + 1) * width <= limit and self._is_element(o.address + start + count * width, kind):
                count += 1
            counted.append((start, kind, count))
        return counted

    def _is_element(self, address: int, kind: int) -> bool:
        data = self._memory.read(address, self._layouts.size(kind))
        return data is not None and any(data) and self.is_plausible(address, kind)

    def _elements(self, o: Object, start: int, kind: int, end: int) -> int:
        width = self._layouts.size(kind)
        count = max(1, (end - start) // width)
        return count if count == 1 or self._is_array(o, start, kind, count) else 1

    def _is_array(self, o: Object, start: int, kind: int, count: int) -> bool:
        """Whether what lies behind the first element can be more of them: no pointer or enumeration in it has a
        value that none has, no pointer lies where there is none, and gaps are as empty as the first element's."""
        layouts = self._layouts
        if not layouts.is_struct(kind) or o.kept is not None:
            return True
        width = layouts.size(kind)
        data = self._memory.read(o.address + start, min(count, ELEMENTS_LOOKED_AT) * width) or b""
        if not any(data[width:]):
            return True
        pointers = {at for at, _, _ in layouts.pointers(kind)}
        for first in range(width, len(data), width):
            for at in range(-first % POINTER_SIZE, width - POINTER_SIZE + 1, POINTER_SIZE):
                value = WORD.unpack_from(data, first + at)[0]
                if at in pointers and value and not self._is_address(value):
                    return False
                if at not in pointers and self._is_address(value) and self._is_inside(value):
                    return False
        return self._has_possible_enumerations(kind, data) and not self._fills_gaps(kind, data)

    def _has_possible_enumerations(self, kind: int, data: bytes) -> bool:
        width = self._layouts.size(kind)
        for leaf in self._layouts.leaves(kind):
            if leaf.bits is None and isinstance(self._layouts.type(leaf.type), EnumType):
                for at in range(leaf.offset, len(data), width):
                    if not self._layouts.is_possible(leaf.type, int.from_bytes(data[at : at + leaf.size], "little")):
                        return False
        return True

    def _fills_gaps(self, kind: int, data: bytes) -> bool:
        width = self._layouts.size(kind)
        gaps = [at for span in self._layouts.gaps(kind) for at in range(*span) if not data[at]]
        return any(data[start + at] for start in range(width, len(data), width) for at in gaps)

    def shape(self, size: int, kept: Span | None, counted: Sequence[Counted]) -> Shape:
        """Of a block with these parts, each with its number of elements; None: as many as there is room for, be it in
        the array at the end of a struct."""
        return self._layouts.shape(("block", size, kept, *counted), lambda: self._make_shape(size, kept, counted))

    def _make_shape(self, size: int, kept: Span | None, counted: Sequence[Counted]) -> Shape:
        runs: list[ElementRun] = []
        raw: list[Span] = []
        end = 0
        for (start, kind, count), (limit, _, _) in pairwise([*counted, (size, BYTE, None)]):
            if start > end:
                raw.append((end, start))
            runs += self._runs(start, kind, count, limit)
            end = max(limit if count is None else start + count * self._layouts.size(kind), 0)
            # What is left behind the last element is less than one, or something else: that may begin where the
            # padding of a struct does.
            if limit - end < self._layouts.size(kind) and len(counted) == 1:
                end = limit
            elif count == 1 and end < limit:
                end = start + self._layouts.end(kind)
        if size > end:
            raw.append((end, size))
        return Shape(self._layouts, size, tuple(runs), tuple(raw), kept)

    def _runs(self, start: int, kind: int, count: int | None, limit: int) -> list[ElementRun]:
        layouts = self._layouts
        width = layouts.size(kind)
        if count is not None:
            return [ElementRun(start, start, kind, count)]
        flexible = layouts.flexible(kind)
        if flexible is None:
            if width > limit - start:
                return [ElementRun(start, start, kind, 1, cut=limit - start)]
            return [ElementRun(start, start, kind, (limit - start) // width)]
        element = layouts.size(flexible.element)
        length = max(0, limit - start - flexible.offset) // element
        runs = [ElementRun(start, start, kind, 1, cut=flexible.offset)]
        if length:
            runs.append(ElementRun(start, start + flexible.offset, flexible.element, length, flexible.path))
        return runs

    def overlay(self, o: Object, parts: list[Part]) -> Shape:
        """Of a variable, in whose texts other objects lie."""
        layouts = self._layouts
        variable = o.shape.runs[0]
        texts = [
            (place.leaf.offset, place.leaf.offset + place.leaf.size)
            for place in Shape(layouts, o.size, (variable,), type=o.type).leaves()
            if layouts.is_text_leaf(place.leaf)
        ]
        runs, raw, overlaid = [variable], list[Span](), list[Span]()
        for first, last in texts:
            inside = [part for part in parts if first <= part[0] < last]
            if not inside:
                continue
            overlaid.append((first, last))
            end = first
            for (start, kind), (limit, _) in pairwise([*inside, (last, BYTE)]):
                if start > end:
                    raw.append((end, start))
                count = self._elements(o, start, kind, limit)
                runs += self._runs(start, kind, count, limit)
                end = start + count * layouts.size(kind)
            if last > end:
                raw.append((end, last))
        return Shape(layouts, o.size, tuple(runs), tuple(raw), None, tuple(overlaid), type=o.type)
