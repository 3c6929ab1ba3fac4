"""What a memory graph is made of, and how the contents of an object are laid out: worked out once for all objects that
are alike.

Scalars are never read one by one: a shape reads all pointers of an object at once, and all that is not one."""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

from pytest_causechain.states.layout import BYTE, POINTER_SIZE, REMEMBERED_SIZE, Layouts, Leaf, Rank, Span, find_gaps

# All pointers of an object, or of one rank, from the bytes around it and its place there.
Reader = Callable[[bytes, int], Sequence[int]]
WORD = struct.Struct("<Q")
# Up to so many pointers are read by one format.
FLAT = 64
Kind = Literal["variable", "heap", "vector", "text", "alloca"]
T = TypeVar("T")
# The module of a target in the program itself.
IMAGE = "image"


@dataclass(frozen=True, slots=True)
class ElementRun:
    """`count` elements of one type, one behind the other.

    `base` is where the object begins that a pointer to the run leads to: not `offset` for the array at the end of a
    struct, whose `path` follows that of the struct. `is_direct`: named by the variable itself, not through a pointer.
    Of the only element nothing belongs to the run from `cut` on."""

    base: int
    offset: int
    type: int
    count: int
    path: str = ""
    is_direct: bool = False
    is_array: bool = False
    cut: int | None = None

    def reaches(self, end: int) -> bool:
        """Whether what ends there in an element belongs to the run."""
        return self.cut is None or end <= self.cut

    def element_path(self, element: int) -> str:
        """What stands behind the name of the variable, or of the pointer to the run, for one of its elements."""
        if self.is_direct:
            return f"[{element}]" if self.is_array else ""
        if self.path:
            return f"[]{self.path}[{element}]"
        return f"[{element}]" if self.count > 1 else "[]"

    def elements_within(self, width: int, begin: int, stop: int | None) -> range:
        """Those of this width that have bytes between two offsets."""
        if not width or stop is None:
            return range(self.count)
        return range(max(begin - self.offset, 0) // width, min(-(-(stop - self.offset) // width), self.count))


@dataclass(frozen=True, slots=True)
class PlacedLeaf:
    """A leaf within an object, at its offset there; `path` is that of the leaf within the element of the run."""

    run: ElementRun | None
    element: int
    leaf: Leaf

    @property
    def path(self) -> str:
        """Behind the name of the run; what is in no run has none of its own."""
        return "" if self.run is None else self.run.element_path(self.element) + self.leaf.path


class Shape:
    """`raw` are the parts of which nothing is known. `kept` is as in Object. `overlaid` are texts, by the type of the
    first run, in which other objects lie: the runs that follow."""

    def __init__(
        self,
        layouts: Layouts,
        size: int,
        runs: tuple[ElementRun, ...],
        raw: tuple[Span, ...] = (),
        kept: Span | None = None,
        overlaid: tuple[Span, ...] = (),
        type: int | None = None,
    ) -> None:
        self.layouts, self.size, self.runs, self.raw, self.kept = layouts, size, runs, raw, kept
        self._overlaid = overlaid
        self.type = type if type is not None else self._find_type()
        # A text, or bytes of which nothing is known: one value.
        self.is_text = not runs or (len(runs) == 1 and layouts.is_char(runs[0].type) and not runs[0].is_direct)

    def _find_type(self) -> int:
        """The one all of it has; an array at the end of a struct belongs to that."""
        bases = {run.base for run in self.runs}
        return self.runs[0].type if bases == {0} else BYTE

    @cached_property
    def weight(self) -> int:
        """How many values a reader could name."""
        if self.is_text:
            return 1
        return sum(max(1, self.layouts.weight(run.type)) * run.count for run in self.runs) + len(self.raw)

    @cached_property
    def offsets(self) -> Sequence[int]:
        """Of all that is surely a pointer, in order of the runs."""
        return [at for at, _ in self._pointers()]

    @cached_property
    def texts(self) -> Sequence[int]:
        """Which of them, by number, lead to characters."""
        return [number for number, (_, kind) in enumerate(self._pointers()) if self.layouts.is_char(kind)]

    def _spread(self, pattern: Callable[[int], Collection[T]]) -> Iterator[tuple[ElementRun, str, int, T]]:
        """What a type has, in each element of it: with the run, and the path and offset of the element."""
        for run in self.runs:
            own, width = pattern(run.type), self.layouts.size(run.type)
            for element in range(run.count) if own else ():
                where = run.element_path(element)
                for item in own:
                    yield run, where, run.offset + element * width, item

    @cached_property
    def words(self) -> Reader | None:
        return self._reader([(run, [at for at, _, _ in self._own_pointers(run)]) for run in self.runs])

    @cached_property
    def scans(self) -> tuple[tuple[Reader, Sequence[int]] | None, ...]:
        """For each rank that is followed: what reads its pointers, and the types they point to."""
        return tuple(self._scan(rank) for rank in (Rank.RECORD, Rank.SCALAR, Rank.VAGUE))

    def _scan(self, rank: Rank) -> tuple[Reader, Sequence[int]] | None:
        pieces, types = [], []
        for run in self.runs:
            found = [p for p in self._own_pointers(run) if self.layouts.rank(p[1]) == rank]
            pieces.append((run, [at for at, _, _ in found]))
            types += [kind for _, kind, _ in found] * run.count
        reader = self._reader(pieces)
        if self.kept is not None and reader is not None:
            types = [kind for _, kind in self._pointers() if self.layouts.rank(kind) == rank]
        return None if reader is None else (reader, types)

    def _pointers(self) -> Iterator[tuple[int, int]]:
        """Offset and type pointed to of all that is surely a pointer."""
        for run, _, start, (at, kind, _) in self._spread(self.layouts.pointers):
            if run.reaches(at + POINTER_SIZE) and self.holds(start + at):
                yield start + at, kind

    def base_of(self, offset: int) -> int:
        run = self.run_at(offset)
        return 0 if run is None else run.base

    def pointer_at(self, offset: int) -> tuple[int, str, bool]:
        """Of a pointer, or what may be one: the type it points to, its path, and whether that follows a variable."""
        run = self.run_at(offset)
        if offset in self.guesses:
            kind, path, run = self.guesses[offset]
            return kind, path, run.is_direct
        if run is None or self.is_text:
            return BYTE, f"@{offset // POINTER_SIZE}", False
        element, at = divmod(offset - run.offset, self.layouts.size(run.type))
        kind, path = self.layouts.pointer_paths(run.type).get(at, (BYTE, ""))
        return kind, run.element_path(element) + path, run.is_direct

    def run_at(self, offset: int) -> ElementRun | None:
        """The innermost one: only the first can have others in it."""
        index = bisect_right(self._starts, offset) - 1
        if index >= 0 and offset < self._ends[index]:
            return self.runs[index]
        return self.runs[0] if self.runs and self._starts[0] <= offset < self._ends[0] else None

    @cached_property
    def _starts(self) -> list[int]:
        return [run.offset for run in self.runs]

    @cached_property
    def _ends(self) -> list[int]:
        return [run.offset + (run.cut or run.count * self.layouts.size(run.type)) for run in self.runs]

    def _own_pointers(self, run: ElementRun) -> Sequence[tuple[int, int, str]]:
        return [pointer for pointer in self.layouts.pointers(run.type) if run.reaches(pointer[0] + POINTER_SIZE)]

    def holds(self, offset: int, size: int = POINTER_SIZE) -> bool:
        """Whether the program, not the allocator, put these bytes there."""
        return self.kept is None or (self.kept[0] <= offset and offset + size <= self.kept[1])

    def _clip(self, start: int, end: int) -> Span:
        """The part of some bytes that the program put there."""
        return (start, end) if self.kept is None else (max(start, self.kept[0]), min(end, self.kept[1]))

    def widen(self, other: Shape) -> Shape:
        """Of a container's buffer: with all elements that there are in either, as far as there is room for them."""
        if self is other or self.kept is None or other.kept is None or len(self.runs) != 1 or self.type != other.type:
            return self
        kept = min(self.kept[0], other.kept[0]), min(max(self.kept[1], other.kept[1]), self.size)
        runs = (replace(self.runs[0], count=max(1, self.size // self.layouts.size(self.type))),)
        return Shape(self.layouts, self.size, runs, (), kept)

    def _reader(self, pieces: Sequence[tuple[ElementRun, list[int]]]) -> Reader | None:
        """What is not present reads as NULL."""
        reader = self._plain_reader(pieces)
        if reader is None or not self._conditions:
            return reader
        places = self._places(pieces)

        def read(data: bytes, at: int) -> list[int]:
            words = zip(places, reader(data, at), strict=True)
            return [word if self.is_present(data, at, place) else 0 for place, word in words]

        return read

    def _places(self, pieces: Sequence[tuple[ElementRun, list[int]]]) -> list[int]:
        return [
            place
            for run, offsets in pieces
            for element in range(run.count if offsets else 0)
            for at in offsets
            if self.holds(place := run.offset + element * self.layouts.size(run.type) + at)
        ]

    def _plain_reader(self, pieces: Sequence[tuple[ElementRun, list[int]]]) -> Reader | None:
        pieces = [(run, offsets) for run, offsets in pieces if offsets]
        if sum(len(offsets) * run.count for run, offsets in pieces) <= FLAT or self.kept is not None:
            places = self._places(pieces)
            if places != sorted(places):  # a run lies within another one
                return lambda data, at: [WORD.unpack_from(data, at + place)[0] for place in places]
            return make_struct(map(word_at, places), code="Q").unpack_from if places else None
        readers = [self._array_reader(run, offsets) for run, offsets in pieces]
        if len(readers) == 1:
            return readers[0]
        return lambda data, at: [word for reader in readers for word in reader(data, at)]

    def _array_reader(self, run: ElementRun, offsets: list[int]) -> Reader:
        width = self.layouts.size(run.type)
        first, size = run.offset, run.count * width
        if width == POINTER_SIZE:
            return lambda data, at: memoryview(data)[at + first : at + first + size].cast("Q")
        element = make_struct(map(word_at, sorted(offsets)), width, "Q")
        return lambda data, at: list(
            itertools.chain.from_iterable(element.iter_unpack(memoryview(data)[at + first : at + first + size]))
        )

    @cached_property
    def values(self) -> Callable[[bytes, int], object]:
        """Reads what is no pointer, to be compared: pointers differ from run to run."""
        if self.kept is not None or len(self.runs) != 1 or self.raw:
            first, end = self._clip(0, self.size)
            if not self.offsets:
                return lambda data, at: data[at + first : at + end]
            spans = [self._clip(*span) for span in find_gaps(map(word_at, self.offsets), self.size)]
            return make_struct([span for span in spans if span[0] < span[1]]).unpack_from
        (run,) = self.runs
        width = self.layouts.size(run.type)
        first, size = run.offset, run.count * width if run.cut is None else run.cut
        if not self.layouts.holds_pointer(run.type) and not self.layouts.has_gaps(run.type):
            return lambda data, at: data[at + first : at + first + size]
        spans = self._value_spans(run.type)
        if run.count == 1:
            return make_struct([(first + a, first + min(b, size)) for a, b in spans if a < size]).unpack_from
        element = make_struct(spans, width)
        return lambda data, at: list(element.iter_unpack(memoryview(data)[at + first : at + first + size]))

    def _value_spans(self, kind: int) -> list[Span]:
        """What is neither a pointer nor between members; in a large type nobody looks for gaps."""
        size = self.layouts.size(kind)
        gaps = self.layouts.gaps(kind) if size <= REMEMBERED_SIZE else ()
        return list(find_gaps([*(word_at(at) for at, _, _ in self.layouts.pointers(kind)), *gaps], size))

    @cached_property
    def containers(self) -> tuple[tuple[int, int], ...]:
        """Offset and type of each container of the C++ library."""
        return tuple(
            (start + at, kind)
            for run, _, start, (at, kind) in self._spread(self.layouts.containers)
            if run.reaches(at + self.layouts.size(kind)) and self.holds(start + at, self.layouts.size(kind))
        )

    def find_containers(self, data: bytes, at: int) -> Iterator[tuple[int, int]]:
        """Those that are present."""
        for offset, kind in self.containers:
            if self.is_present(data, at, offset, self.layouts.size(kind)):
                yield offset, kind

    @cached_property
    def _conditions(self) -> tuple[tuple[int, int, int], ...]:
        """As Layouts has them."""
        places = self._spread(self.layouts.conditions)
        return tuple((at + start, at + end, at + flag) for _, _, at, (start, end, flag) in places)

    def is_present(self, data: bytes, at: int, offset: int, size: int = POINTER_SIZE) -> bool:
        """Whether there is anything at an offset of an object: not in an optional that holds nothing."""
        around = (flag for start, end, flag in self._conditions if start <= offset and offset + size <= end)
        return all(data[at + flag] == 1 for flag in around)

    def path_to(self, offset: int, kind: int) -> str | None:
        """Of a part that begins at an offset, behind the name of the run it lies in."""
        run = self.run_at(offset)
        if run is None:
            return None
        element, at = divmod(offset - run.offset, self.layouts.size(run.type))
        path = self.layouts.path_to(run.type, at, kind)
        return None if path is None else run.element_path(element) + path

    @cached_property
    def holds_integers(self) -> bool:
        return any(self.layouts.holds_integer(run.type) for run in self.runs)

    @cached_property
    def is_guessed(self) -> bool:
        """Whether only values tell of some of its bytes that they are pointers."""
        return bool(self.guesses or self.raw or self.is_text)

    @cached_property
    def guesses(self) -> dict[int, tuple[int, str, ElementRun]]:
        """By offset: type, path and run of what may be a pointer; only its value can tell."""
        return {
            start + at: (kind, where + path, run)
            for run, where, start, (at, (kind, path)) in self._spread(lambda kind: self.layouts.guesses(kind).items())
            if run.reaches(at + 1) and self.holds(start + at)
        }

    def leaves(self, begin: int = 0, stop: int | None = None) -> Iterator[PlacedLeaf]:
        """Each value that is the program's, of the elements that lie between two offsets, if only in part."""
        for run in self.runs:
            if self.layouts.is_char(run.type) and not run.is_direct:
                start, end = self._clip(run.offset, run.offset + run.count)
                if start < end:
                    yield PlacedLeaf(run, 0, Leaf("", start, end - start, run.type))
                continue
            width = self.layouts.size(run.type)
            for element in run.elements_within(width, begin, stop):
                for leaf in self.layouts.leaves(run.type):
                    at = run.offset + element * width
                    if run.cut is not None and leaf.offset >= run.cut:
                        continue
                    if self.holds(at + leaf.offset, leaf.size) and not self._hides(run, at + leaf.offset):
                        yield PlacedLeaf(run, element, cut_leaf(leaf.within("", at), run))
        yield from self._raw_leaves()

    def _hides(self, run: ElementRun, offset: int) -> bool:
        return run is self.runs[0] and any(start <= offset < end for start, end in self._overlaid)

    def _raw_leaves(self) -> Iterator[PlacedLeaf]:
        for start, end in itertools.starmap(self._clip, self.raw):
            if start < end:
                yield raw_leaf(start, end)

    def leaves_around(self, pointers: Iterable[int]) -> list[PlacedLeaf]:
        """All leaves and what lies between them, for a block in which the other run has other objects, with pointers
        at these offsets: a pointer that would be cut in pieces joins the leaves it lies in."""
        own = list(self.leaves())
        padding = find_gaps([(place.leaf.offset, place.leaf.offset + place.leaf.size) for place in own], self.size)
        places = sorted([*own, *itertools.starmap(raw_leaf, padding)], key=lambda place: place.leaf.offset)
        starts = [place.leaf.offset for place in places]
        joined: set[int] = set()  # leaves that go together with the one before
        for at in pointers:
            first, last = bisect_right(starts, at), bisect_right(starts, at + POINTER_SIZE - 1)
            joined.update(range(first, last))
        found: list[PlacedLeaf] = []
        for number, place in enumerate(places):
            if number in joined:
                found[-1] = raw_leaf(found[-1].leaf.offset, place.leaf.offset + place.leaf.size)
            else:
                found.append(place)
        return found

    def open_leaves(self, left: bytes, right: bytes) -> Iterator[PlacedLeaf]:
        """Those of the leaves at which two contents differ, or that may refer to something."""
        if self.kept is not None or self.is_text:
            yield from self.leaves()
            return
        for run in self.runs:
            width = self.layouts.size(run.type)
            if run.cut is not None:
                # The contents end before the element does.
                width = max(width, len(left), len(right))
                left, right = left.ljust(run.offset + width, b"\0"), right.ljust(run.offset + width, b"\0")
            if self.layouts.is_char(run.type) and not run.is_direct:
                yield PlacedLeaf(run, 0, Leaf("", run.offset, run.count, run.type))
                continue
            for element in self.layouts.open_elements(run.type, run.count, left, right, run.offset):
                at = run.offset + element * width
                for leaf in self.layouts.open_leaves(run.type, left, right, at):
                    if (run.cut is None or leaf.offset - at < run.cut) and not self._hides(run, leaf.offset):
                        yield PlacedLeaf(run, element, cut_leaf(leaf, run))
        yield from self._raw_leaves()


def cut_leaf(leaf: Leaf, run: ElementRun) -> Leaf:
    """As much of a union or text as there is memory for."""
    end = leaf.offset + leaf.size if run.cut is None else run.offset + run.cut
    return leaf if leaf.offset + leaf.size <= end else replace(leaf, size=end - leaf.offset)


def raw_leaf(start: int, end: int) -> PlacedLeaf:
    """Bytes of which nothing is known."""
    return PlacedLeaf(None, 0, Leaf("", start, end - start, BYTE))


def word_at(offset: int) -> Span:
    return offset, offset + POINTER_SIZE


def make_struct(spans: Iterable[Span], width: int = 0, code: str | None = None) -> struct.Struct:
    """Of what lies in each span, as bytes if it has no other `code`; with a width also of what follows them."""
    parts, end = ["<"], 0
    for start, stop in spans:
        parts.append(f"{start - end}x{code or f'{stop - start}s'}")
        end = stop
    return struct.Struct("".join(parts) + f"{max(width - end, 0)}x")


class Object:
    """A variable, a block of the heap or of alloca, or a vector or text the system put above the first frame.

    It is what is paired, moved and made as one. What lies in it, its `shape` tells; `parts` are offset and type of
    each object in it that something refers to, in order, where that is not just one at its start. `kept` is the part
    of a block given back to the allocator that still holds what the program left there, from and up to an offset."""

    __slots__ = ("address", "kept", "kind", "parts", "shape", "size")
    is_unset = False

    # There may be a million of them: a dataclass would take twice as long to make.
    def __init__(self, kind: Kind, address: int, size: int, shape: Shape, kept: Span | None = None) -> None:
        self.kind = kind
        self.address = address
        self.size = size
        self.shape = shape
        self.kept = kept
        self.parts: list[tuple[int, int]] | None = None

    @property
    def type(self) -> int:
        """Of its elements; BYTE when it holds several types, or one of which nothing is known."""
        return self.shape.type

    @property
    def count(self) -> int:
        return self.shape.runs[0].count if self.shape.runs else 0

    def holds(self, offset: int, size: int) -> bool:
        """Whether the program, not the allocator, put these bytes there."""
        return self.kept is None or self.shape.holds(offset, size)


class RootVariable(Object):
    """`name` is as a programmer writes it at this moment, `key` stays while functions are called and return, `frame`
    is counted from the innermost (None: global). `is_unset`: its line has not been executed yet."""

    __slots__ = ("frame", "is_unset", "key", "name")

    def __init__(
        self,
        address: int,
        shape: Shape,
        name: str,
        key: str,
        frame: int | None = None,
        is_unset: bool = False,
    ) -> None:
        super().__init__("variable", address, shape.size, shape)
        self.name, self.key, self.frame, self.is_unset = name, key, frame, is_unset


@dataclass(frozen=True, slots=True)
class Target:
    """What a pointer leads to: a place in an object or in a module, or just a number."""

    object: Object | None
    offset: int
    module: str | None = None


class PointerValue(NamedTuple):
    """Where in an object a pointer lies, and its value."""

    offset: int
    value: int
