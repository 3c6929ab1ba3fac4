"""Finds all objects that the variables lead to, and what lies in each.

Pointers that say much of what they lead to are followed before those that say little: to structs, to other types, to
characters or anything. So a `char *` into a struct does not make it a text, and an `int *` no array of numbers. A
block may hold several objects, when the program has an allocator of its own: each typed reference into bytes of which
nothing else is known makes a part there, which ends where the next one begins."""

from __future__ import annotations

import gc
import struct
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.budget import UNLIMITED, Budget
from pytest_causechain.states.containers import Buffers
from pytest_causechain.states.extents import HIGHEST_ADDRESS, Extents
from pytest_causechain.states.layout import BYTE, POINTER_SIZE, Layouts, Rank, Span
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.shapes import Kind, Object, PointerValue, Shape

# More are not unfolded, and that is told: a state of so many takes some seconds and half a gigabyte.
OBJECTS_LIMIT = 500_000
# A part that gave way to another one may come back, but not for ever: two guesses at what lies at overlapping places,
# by pointers that lie there themselves, could else replace each other without end.
GUESSES_LIMIT = 4
# What compilers for x86-64 give to each alloca.
ALLOCA_ALIGNMENT = 16
# Before the place in a table of virtual functions that objects refer to: how far behind their beginning they do so.
OFFSET_TO_TOP = 16
# Of a class with a thousand virtual functions.
LONGEST_VTABLE = 8 << 10
SHORT_WORDS = [struct.Struct(f"<{count}Q").unpack_from for count in range(32)]


@contextmanager
def no_collection() -> Iterator[None]:
    """A million new objects, none of them garbage, make the collector run again and again for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_plain_text(o: Object, data: bytes, at: int, lowest_address: int) -> bool:
    """Whether a text in a short block surely holds no address."""
    if not o.shape.is_text or o.kind != "heap" or o.kept is not None or o.size >= len(SHORT_WORDS) * POINTER_SIZE:
        return False
    words = SHORT_WORDS[o.size // POINTER_SIZE](data, at)
    return not [word for word in words if lowest_address <= word < HIGHEST_ADDRESS]


class Unfolding:
    """`objects` are the variables and then all others, `starts` the others by address."""

    def __init__(
        self,
        visit: Visit,
        layouts: Layouts,
        memory: Memory,
        variables: Sequence[Object],
        vtables: Sequence[tuple[int, int]] = (),
        *,
        budget: Budget = UNLIMITED,
    ) -> None:
        """`vtables` are address and type of the table that each class with virtual functions has, in order."""
        self._visit, self._layouts, self._memory, self._budget = visit, layouts, memory, budget
        self._vtables = [(visit.load_map.to_run(address), kind) for address, kind in vtables]
        self._dynamic: set[int] = set()
        if vtables:
            self._dynamic.update(number for number in range(len(layouts.types)) if layouts.is_dynamic(number))
        self._buffers = Buffers(layouts, memory)
        self.objects = list(variables)
        self.starts: dict[int, Object] = {}
        # What may be a pointer, and leads to something.
        self.hidden: dict[Object, list[PointerValue]] = {}
        self._known = sorted(variables, key=lambda o: o.address)
        self._known_starts = [o.address for o in self._known]
        # By rank: what is to be looked through for pointers of that rank.
        self._pending: tuple[list[Object], ...] = ([], [], [])
        self._allocas: list[int] = []
        # To be looked through anew when all structs known by now have been; blocks, for all but the first element.
        self._open: list[Object] = []
        # How often each part was put into an object, by its offset and type.
        self._guesses = Counter[tuple[Object, int, int]]()
        self._extents = Extents(layouts, memory, lambda address: self._place(address) is not None)
        self._lowest_address = self._extents.lowest_address
        with no_collection():
            for o in variables:
                self._enqueue(o)
            self._unfold()

    @property
    def is_cut(self) -> bool:
        return len(self.objects) >= OBJECTS_LIMIT

    def _unfold(self) -> None:
        while len(self.objects) < OBJECTS_LIMIT:
            if self._open and not self._pending[Rank.RECORD]:
                self._extend_all()
                continue
            rank = next((rank for rank, pending in enumerate(self._pending) if pending), None)
            if rank is None:
                return
            self._follow(rank)

    # Following pointers

    def _enqueue(self, o: Object) -> None:
        if not o.is_unset:
            for rank, scan in enumerate(o.shape.scans):
                if scan is not None:
                    self._pending[rank].append(o)
            if o.shape.is_guessed and o.shape.scans[Rank.VAGUE] is None:
                self._pending[Rank.VAGUE].append(o)

    def _follow(self, rank: int) -> None:
        """Until there is something more telling to be followed, which then goes first.

        The bulk of a state passes through here: nothing is done that can be done once per shape."""
        starts, blocks, freed = self.starts, self._memory.blocks, self._memory.freed
        pending, objects, opened = self._pending[rank], self.objects, self._open
        records, scalars, vague = self._pending
        dynamic, buffers, texts = self._dynamic, self._buffers.spans, self._buffers.texts
        shapes = self._layouts.first_shapes
        # The same by type and then by size, for blocks that are in use.
        by_kind: defaultdict[int, dict[int, tuple[Shape, bool, int]]] = defaultdict(dict)
        low = high = place = 0
        data = b""
        for o in self._budget.watch(pending):  # which may grow
            if (rank and (records or opened or (rank > 1 and scalars))) or len(objects) >= OBJECTS_LIMIT:
                break
            place += 1
            address, shape = o.address, o.shape
            if not low <= address < high:
                region = self._memory.region(address)
                assert region is not None  # an object lies in memory that was captured
                data, low, high = region.data, region.start, region.end
            if (
                rank > 1
                and shape.is_guessed
                and address not in texts
                and not is_plain_text(o, data, address - low, self._lowest_address)
            ):
                self._find_hidden(o)
            scan = shape.scans[rank]
            if scan is None:
                continue
            if shape.containers:
                for block in self._buffers.note(o):
                    if (known := starts.get(block)) is not None and known.type != BYTE:
                        self._open.append(known)
            # They are of one length; to have that checked takes as long again.
            for value, kind in zip(scan[0](data, address - low), scan[1]):  # noqa: B905
                if not value:
                    continue
                if kind in dynamic:
                    value, kind = self._find_whole(value, kind)
                known = starts.get(value)
                if known is not None:
                    if rank < 2 and known.shape.type != kind:
                        self._refer(value, kind)
                    continue
                size = blocks.get(value)
                if size is None:
                    self._refer(value, kind)
                    continue
                kept = freed.get(value)
                entry = by_kind[kind].get(size) if kept is None else None
                if entry is None:
                    key = (kind, size, kept)
                    entry = shapes.get(key)
                    if entry is None:
                        entry = shapes[key] = self._shape_first(*key)
                    if kept is None:
                        by_kind[kind][size] = entry
                first, is_open, ranks = entry
                starts[value] = new = Object("heap", value, size, first, kept)
                objects.append(new)
                if value in buffers:
                    opened.append(new)
                    continue
                if is_open:
                    opened.append(new)
                if ranks & 1:
                    records.append(new)
                if ranks & 2:
                    scalars.append(new)
                if ranks & 4:
                    vague.append(new)
        del pending[:place]

    def _find_whole(self, address: int, kind: int) -> tuple[int, int]:
        """Where the object begins that a pointer to a class with virtual functions leads into, and its type: the
        table it refers to says both."""
        table = self._memory.word(address)
        index = bisect_right(self._vtables, (table or 0, len(self._layouts.types))) - 1
        if not table or index < 0 or table - self._vtables[index][0] > LONGEST_VTABLE:
            return address, kind
        known = self._vtables[index][1]
        offset = self._word(table - OFFSET_TO_TOP)
        offset -= 1 << 64 if offset >> 63 else 0
        if not -self._layouts.size(known) < offset <= 0:
            return address, kind
        return address + offset, known

    def _shape_first(self, kind: int, size: int, kept: Span | None) -> tuple[Shape, bool, int]:
        """Of a block to whose start a pointer leads: its shape, whether only the first element is known by now, and
        the ranks of its pointers, as bits."""
        rank = self._layouts.rank(kind)
        if rank is Rank.VAGUE and not self._layouts.is_char(kind):
            kind = BYTE
        is_open = rank is Rank.RECORD and size >= 2 * self._layouts.size(kind) and not self._layouts.flexible(kind)
        shape = self._extents.shape(size, kept, ((0, kind, 1 if is_open else None),))
        if is_open:
            return shape, True, int(shape.scans[Rank.RECORD] is not None)
        ranks = sum(1 << rank for rank, scan in enumerate(shape.scans) if scan is not None)
        return shape, False, ranks | (1 << Rank.VAGUE if shape.is_guessed else 0)

    def _find_hidden(self, o: Object) -> None:
        """What may be a pointer in a union or in bytes of which nothing is known, and leads to something."""
        found: list[PointerValue] = []
        for offset, (kind, _, _) in o.shape.guesses.items():
            value = self._memory.word(o.address + offset)
            if value and self.leads_somewhere(value):
                found.append(PointerValue(offset, value))
                self._refer(value, kind)
        for offset, value in self._find_raw(o):
            found.append(PointerValue(offset, value))
            self._refer(value, BYTE)
        if found:
            self.hidden[o] = sorted(found)
        else:
            self.hidden.pop(o, None)

    def _find_raw(self, o: Object) -> Iterator[tuple[int, int]]:
        """Offset and value of each word that leads to an object, in bytes of which nothing is known. There a number or
        a text that happens to be the address of an object is next to impossible."""
        spans: Sequence[Span] = o.shape.raw
        if o.shape.is_text and o.kind != "text":
            spans = ((0, o.size),)
        data, place = self._memory.around(o.address)
        low = self._lowest_address
        for start, end in spans:
            if o.kept is not None:
                start, end = max(start, o.kept[0]), min(end, o.kept[1])
            start += -(o.address + start) % POINTER_SIZE
            count = (end - start) // POINTER_SIZE
            if count <= 0:
                continue
            at = place + start
            words = (
                SHORT_WORDS[count](data, at)
                if count < len(SHORT_WORDS)
                else memoryview(data)[at : at + count * POINTER_SIZE].cast("Q")
            )
            for number, value in enumerate(words):
                if low <= value < HIGHEST_ADDRESS and self.leads_somewhere(value):
                    yield start + number * POINTER_SIZE, value

    def leads_somewhere(self, address: int) -> bool:
        if self.variable_at(address) is not None or self._place(address) is not None:
            return True
        region = self._memory.region(address)
        return (region is not None and region.kind == "image") or self._memory.module(address) is not None

    def _refer(self, address: int, kind: int) -> None:
        """A pointer to this type holds this address: there may be a new object, or a new part of one."""
        if kind in self._dynamic:
            address, kind = self._find_whole(address, kind)
        rank = self._layouts.rank(kind)
        if rank is Rank.CLOSED:
            return
        o = self.variable_at(address)
        if o is None:
            place = self._place(address)
            if place is None:
                return
            o = self.starts.get(place[1])
            if o is None:
                self._create(place, address - place[1], kind, rank)
                return
        if rank is not Rank.VAGUE or self._is_text_part(o, address - o.address, kind):
            self._add_part(o, address - o.address, kind, rank)

    def _is_text_part(self, o: Object, offset: int, kind: int) -> bool:
        """Whether a text begins among the objects of a pool: in bytes of which nothing is known, or where an array was
        supposed to go on."""
        if o.parts is None or o.shape.is_text or not self._layouts.is_char(kind):
            return False
        run = o.shape.run_at(offset)
        if run is None or run.is_direct:
            return any(start <= offset < end for start, end in o.shape.raw)
        width = self._layouts.size(run.type)
        element = run.offset + (offset - run.offset) // width * width
        is_supposed = element != run.offset and (element, run.type) not in o.parts
        return is_supposed and self._layouts.inside(run.type, (offset - run.offset) % width, kind) != "part"

    # Where objects lie

    def variable_at(self, address: int) -> Object | None:
        """One past the end of a variable belongs to it, unless another variable begins there."""
        index = bisect_right(self._known_starts, address) - 1
        if index >= 0 and address <= self._known[index].address + self._known[index].size:
            return self._known[index]
        return None

    def object_at(self, address: int) -> Object | None:
        """The variable, block, vector or text that an address lies in."""
        found = self.starts.get(address) or self.variable_at(address)
        place = self._place(address) if found is None else None
        return found if place is None else self.starts.get(place[1])

    def _place(self, address: int) -> tuple[Kind, int, int] | None:
        """Kind, start and size of what an address lies in; the size of a text or vector is found when it is needed."""
        if (block := self._memory.block(address)) is not None:
            return "heap", block[0], block[1]
        region = self._memory.region(address)
        if region is None or region.kind != "stack":
            return None
        if address <= self._visit.frames[-1].sp:
            return self._find_alloca(address)
        # Above the first frame lie the vectors and texts of the program's arguments and environment.
        first = self._visit.arguments_start
        if address >= first:
            start = max(first, region.start + region.data.rfind(b"\0", 0, address - region.start) + 1)
            return "text", start, 0
        if address % POINTER_SIZE:
            return None
        start = address
        while first <= self._word(start - POINTER_SIZE) < region.end:
            start -= POINTER_SIZE
        return ("vector", start, 0) if first <= self._word(start) < region.end else None

    def _find_alloca(self, address: int) -> tuple[Kind, int, int] | None:
        """Between the variables of a frame lies what it got from alloca. As far as one can tell it ends where the next
        of them begins."""
        around = self._allocas[: bisect_right(self._allocas, address)]
        known = self.starts[around[-1]] if around else None
        if (
            known is not None
            and address < known.address + known.size
            and (address % ALLOCA_ALIGNMENT or address == known.address)
        ):
            return "alloca", known.address, known.size
        for frame, caller in pairwise(self._visit.frames):
            if frame.sp <= address < caller.sp and address % ALLOCA_ALIGNMENT == 0:
                following = [v.address for v in frame.variables if address < v.address < caller.sp]
                following += [start for start in self._allocas if address < start < caller.sp]
                if following:
                    return "alloca", address, min(following) - address
        return None

    def _cut_alloca(self, start: int) -> None:
        """One that was taken for a part of another."""
        before = bisect_right(self._allocas, start)
        if before:
            known = self.starts[self._allocas[before - 1]]
            if known.address + known.size > start:
                known.size = start - known.address
                known.shape = self._extents.shape(known.size, None, [(0, known.type, None)])
                known.parts = None
                self.hidden[known] = [p for p in self.hidden.get(known, ()) if p.offset <= known.size - POINTER_SIZE]
        insort(self._allocas, start)

    def _word(self, address: int) -> int:
        return self._memory.word(address) or 0

    def _create(self, place: tuple[Kind, int, int], offset: int, kind: int, rank: Rank) -> None:
        where, start, size = place
        if where == "text":
            size = len(self._memory.read_text(start) or b"")
            if not self._layouts.is_char(kind) or not size:
                return
        elif where == "vector":
            if not self._layouts.is_pointer(kind):
                return
            size = POINTER_SIZE
            while self._word(start + size - POINTER_SIZE):
                size += POINTER_SIZE
            offset = 0
        elif where == "alloca":
            self._cut_alloca(start)
        kept = self._memory.freed.get(start) if where == "heap" else None
        known = kind if rank is Rank.VAGUE and self._layouts.is_char(kind) else BYTE
        o = Object(where, start, size, self._extents.shape(size, kept, [(0, known, None)]), kept)
        self.starts[start] = o
        self.objects.append(o)
        is_inside = rank is not Rank.VAGUE and offset + self._layouts.size(kind) <= size
        if is_inside and (not offset or self._extents.is_plausible(start + offset, kind)):
            o.parts = [(offset, kind)]
            self._open.append(o)
        elif rank is not Rank.VAGUE and not offset and size:
            o.shape = self._extents.shape(size, kept, [(0, kind, None)])  # less memory than the type would take
            self._enqueue(o)
        else:
            self._enqueue(o)

    # What lies in a block

    def _add_part(self, o: Object, offset: int, kind: int, rank: Rank) -> None:
        width = self._layouts.size(kind)
        if offset + width > o.size or o.kind == "text":
            return
        if rank is not Rank.VAGUE and self._explains(o, offset, kind, rank):
            return
        if not self._extents.is_plausible(o.address + offset, kind):
            return
        # What ends the unfolding: each time an object is opened again, one of finitely many guesses is used up.
        self._guesses[o, offset, kind] += 1
        if self._guesses[o, offset, kind] > GUESSES_LIMIT:
            return
        if o.parts is None:
            is_typed = o.kind != "variable" and not self._layouts.is_char(o.type)
            o.parts = [(0, o.type)] if is_typed else []
        # What lies within the new part is explained by it, unless that ends in bytes free to be anything.
        first = bisect_left(o.parts, (offset, -1))
        last = bisect_left(o.parts, (offset + width, -1))
        o.parts[first:last] = [
            (offset, kind),
            *(p for p in o.parts[first:last] if p[0] > offset and self._is_free(kind, p[0] - offset, p[1])),
        ]
        self._open.append(o)

    def _is_free(self, kind: int, at: int, wanted: int) -> bool:
        """Whether something else may lie in a struct: at its end, in an array of characters."""
        return self._layouts.inside(kind, at, wanted) == "raw" and self._layouts.ends_in_text(kind, at)

    def _explains(self, o: Object, offset: int, kind: int, rank: Rank) -> bool:
        """Whether what is known of an object already says that something like this lies there, or speaks against it."""
        layouts = self._layouts
        if o.kind == "variable" and layouts.inside(o.type, offset, kind) != "raw":
            return True
        parts = o.parts if o.parts is not None else [(0, o.type)] if o.kind != "variable" and o.type != BYTE else []
        index = bisect_right(parts, (offset, len(layouts.types))) - 1
        if index < 0:
            return False
        start, present = parts[index]
        at, width = offset - start, layouts.size(present)
        if layouts.is_char(present):
            return False
        if not at:
            return present == kind or layouts.size(kind) <= width
        run = o.shape.run_at(offset)
        if at < width or (run is not None and run.type == present and run.base == start):
            inside = layouts.inside(present, at % width, kind)
            if inside == "raw":
                return rank is not Rank.RECORD or not self._is_free(present, at % width, kind)
            # An array of numbers that was only supposed gives way to a struct.
            return inside == "part" or at < width or rank is not Rank.RECORD or layouts.is_struct(present)
        return rank is not Rank.RECORD and run is not None

    def _extend_all(self) -> None:
        opened, self._open = self._open, []
        for o in self._budget.watch(dict.fromkeys(opened)):
            parts = o.parts if o.parts is not None else [(0, o.type)]
            if o.kind == "variable":
                o.shape = self._extents.overlay(o, parts)
            elif o.address in self._buffers.spans and o.kept is None and len({kind for _, kind in parts}) == 1:
                o.shape, o.parts = self._extents.shape(o.size, *self._buffers.extent(o, parts[0][1])), None
            else:
                o.shape = self._extents.shape(o.size, o.kept, self._extents.count(o, parts))
            self._enqueue(o)
