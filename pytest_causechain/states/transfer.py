"""Turns deltas into memory writes: any subset, in either direction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pytest_causechain.model.alteration import Allocation, Reference, Transfer
from pytest_causechain.states.deltas import Comparison, Delta, Slot, close_configuration
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.greater import Part, Surroundings
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.objects import Object

# A place to write to: an address, or an offset in one of the new blocks.
Place = tuple[int | None, int]


def transfer_to_passing_run(comparison: Comparison, deltas: Collection[Delta]) -> Transfer:
    """Moves the passing run towards the failing one, as every experiment does."""
    compiler = compile_for_passing_run(comparison, deltas)
    return compiler.transfer(comparison.greater.change(find_parts(deltas), is_forwards=True))


def transfer_to_failing_run(comparison: Comparison, deltas: Collection[Delta]) -> Transfer:
    """Undoes differences in the failing run."""
    compiler = compile_for_failing_run(comparison, deltas)
    return compiler.transfer(comparison.greater.change(find_parts(deltas), is_forwards=False))


def compile_for_passing_run(comparison: Comparison, deltas: Collection[Delta]) -> Compiler:
    matching = comparison.matching
    compiler = Compiler(matching.passing, matching.failing, matching.mates)
    for delta in close_configuration(deltas):
        for slot in delta.slots:
            compiler.write(slot, slot.passing, slot.failing)
    return compiler


def compile_for_failing_run(comparison: Comparison, deltas: Collection[Delta]) -> Compiler:
    matching = comparison.matching
    compiler = Compiler(matching.failing, matching.passing, matching.mates)
    compiler.enlarge(too_small(comparison, deltas))
    for delta in deltas:
        for slot in delta.slots:
            compiler.write(slot, slot.failing, slot.passing)
    return compiler


def find_parts(deltas: Iterable[Delta]) -> frozenset[Part]:
    return frozenset(delta.part for delta in deltas if delta.part is not None)


def too_small(comparison: Comparison, deltas: Collection[Delta]) -> list[Object]:
    """Objects of the failing run that cannot hold what the passing run has in their place: texts that are undone, and
    the buffers of containers; and all others when everything is, since only then what lies behind their end is asked
    for."""
    if len(deltas) == len(comparison.deltas):
        pairs: Iterable[tuple[Object, Object]] = comparison.matching.pairs
    else:
        slots = [slot for delta in deltas for slot in delta.slots]
        texts = [(slot.passing, slot.failing) for slot in slots if slot.is_whole]
        pairs = dict.fromkeys([*texts, *outgrown(comparison.matching, slots)])
    return [theirs for ours, theirs in pairs if ours.size > theirs.size and theirs.kind != "variable"]


def outgrown(matching: Matching, slots: Iterable[Slot]) -> Iterator[tuple[Object, Object]]:
    """Where the passing run has a pointer that leads behind the end of the failing run's object: what it leads into."""
    for slot in slots:
        value = matching.passing.memory.word(slot.passing.address + slot.offset) if slot.is_pointer else None
        target = matching.passing.target(value or 0)
        mate = matching.mates.get(target.object) if target.object is not None else None
        if target.object is not None and mate is not None and target.offset > mate.size:
            yield target.object, mate


class Compiler:
    """Collects the writes into `into` that give its slots the values they have in `source`.

    Pointers are mapped: to the partner of the object they lead to; an object without one is allocated anew, with
    all it refers to."""

    def __init__(self, into: MemoryGraph, source: MemoryGraph, mates: dict[Object, Object]) -> None:
        self.into, self.source, self.mates = into, source, mates
        self.writes: list[tuple[int, bytes]] = []
        # What is new: the contents of each new block, and which object of either graph is in it.
        self.contents: list[bytearray] = []
        self.blocks: dict[Object, int] = {}
        # An address, or a new block and an offset in it.
        self.pointers: dict[Place, int | tuple[int, int]] = {}
        self.bit_fields: dict[Place, int] = {}

    def enlarge(self, objects: Collection[Object]) -> None:
        """Have objects of `into` move to new blocks, as large as their mates, with the mates' contents behind what
        they hold now. All that leads to them follows."""
        for o in objects:
            end = self.into.covered(o)
            self._make_block(o, self.into.contents(o)[:end] + self.source.contents(self.mates[o])[end:])
        for o in objects:
            for pointer in self.source.pointers(self.mates[o]):
                if pointer.offset >= self.into.covered(o):
                    self._point((self.blocks[o], pointer.offset), pointer.value)
        for o in self.into.objects if objects else ():
            for pointer in self.into.pointers(o):
                target = self.into.target(pointer.value)
                if target.object is not None and target.object in self.blocks:
                    self.pointers[self._place(o, pointer.offset)] = (self.blocks[target.object], target.offset)

    def _make_block(self, o: Object, data: bytes) -> None:
        self.blocks[o] = len(self.contents)
        self.contents.append(bytearray(data))

    def _place(self, o: Object, offset: int) -> Place:
        return (self.blocks[o], offset) if o in self.blocks else (None, o.address + offset)

    def write(self, slot: Slot, into: Object, origin: Object) -> None:
        size = origin.size - slot.offset if slot.is_whole else slot.size
        data = self.source.memory.read(origin.address + slot.offset, size)
        if data is None:
            return
        place = self._place(into, slot.offset)
        if slot.is_pointer:
            self._point(place, WORD.unpack(data)[0])
        elif slot.bits is not None:
            self._merge_bits(place, data, slot.bits)
        else:
            is_plain = slot.passing.shape is slot.failing.shape and not origin.shape.is_guessed
            pointers = () if is_plain else self.source.pointers_within(origin, slot.offset, slot.offset + size)
            self._put(place, self._blank(data, [p.offset - slot.offset for p in pointers if self._is_new(p.value)]))
            for pointer in pointers:
                self._point((place[0], place[1] + pointer.offset - slot.offset), pointer.value)

    def _blank(self, data: bytes, offsets: Sequence[int]) -> bytes:
        """Without the source's addresses of what is made anew: the same transfer for all its runs."""
        blank = bytearray(data)
        for at in offsets:
            blank[at : at + WORD.size] = bytes(WORD.size)
        return bytes(blank)

    def _is_new(self, value: int) -> bool:
        o = self.source.target(value).object
        return o is not None and o not in self.mates and o.kind != "variable"

    def _put(self, place: Place, data: bytes) -> None:
        holder, at = place
        if holder is None:
            self.writes.append((at, data))
        else:
            self.contents[holder][at : at + len(data)] = data
        for place in [place for place in self.pointers if place[0] == holder and at <= place[1] < at + len(data)]:
            del self.pointers[place]

    def _merge_bits(self, place: Place, data: bytes, bits: tuple[int, int]) -> None:
        """Bit-fields share bytes: each changes only its own bits of what is there by now."""
        holder, at = place
        mask = ((1 << bits[1]) - 1) << bits[0]
        for i, byte in enumerate(data):
            own = mask >> (8 * i) & 0xFF
            present = self.bit_fields.get((holder, at + i))
            if present is None:
                present = self.contents[holder][at + i] if holder is not None else self._present(at + i)
            self.bit_fields[holder, at + i] = present & ~own | byte & own

    def _present(self, address: int) -> int:
        return (self.into.memory.read(address, 1) or b"\0")[0]

    def _point(self, place: Place, value: int) -> None:
        """Make the pointer at a place lead where `value` leads in the source."""
        target = self.source.target(value)
        if target.object is not None and target.object in self.mates:
            mate = self.mates[target.object]
            self.pointers[place] = (
                (self.blocks[mate], target.offset) if mate in self.blocks else mate.address + target.offset
            )
        elif target.object is not None and target.object.kind != "variable":
            self.pointers[place] = (self._allocate(target.object), target.offset)
        elif target.module is None:
            self.pointers[place] = value
        elif (address := self.into.address(target)) is not None:
            self.pointers[place] = address

    def _allocate(self, first: Object) -> int:
        """A copy of an object that `into` has no partner for, and of all such objects it leads to."""
        pending: list[Object] = []
        if first not in self.blocks:
            self._make_block(first, self.source.contents(first))
            pending.append(first)
        # Not by recursion: a list may be long.
        while pending:
            current = pending.pop()
            for pointer in self.source.references(current):
                target = self.source.target(pointer.value).object
                if target is not None and target not in self.mates and target not in self.blocks:
                    if target.kind == "variable":
                        continue
                    self._make_block(target, self.source.contents(target))
                    pending.append(target)
                self._point((self.blocks[current], pointer.offset), pointer.value)
        return self.blocks[first]

    def _set_environment(self, variables: dict[bytes, bytes]) -> None:
        """A new vector of new texts: what the program keeps of the old ones stays as it is."""
        assert self.into.visit.environment is not None  # else no variable of it differs
        vector = len(self.contents)
        self.contents.append(bytearray(WORD.size * (len(variables) + 1)))
        for number, (name, value) in enumerate(variables.items()):
            self.pointers[vector, WORD.size * number] = (len(self.contents), 0)
            self.contents.append(bytearray(name + b"=" + value + b"\0"))
        self.pointers[None, self.into.visit.environment[0]] = (vector, 0)

    def transfer(self, surroundings: Surroundings) -> Transfer:
        if surroundings.environment is not None:
            self._set_environment(surroundings.environment)
        if surroundings.code is not None:
            self.writes.append(surroundings.code)
        references: list[Reference] = []
        for (holder, at), value in self.pointers.items():
            if isinstance(value, tuple):
                references.append(Reference(holder, at, *value))
                if holder is not None:  # what the source had there means nothing: the same transfer for all its runs
                    self._store(holder, at, bytes(WORD.size))
            else:
                self._store(holder, at, WORD.pack(value))
        for (holder, at), byte in self.bit_fields.items():
            self._store(holder, at, bytes([byte]))
        return Transfer(
            writes=tuple(self.writes),
            allocations=tuple(Allocation(len(data), bytes(data)) for data in self.contents),
            references=tuple(references),
            files=surroundings.files,
            directory=surroundings.directory,
            umask=surroundings.umask,
        )

    def _store(self, holder: int | None, at: int, data: bytes) -> None:
        if holder is None:
            self.writes.append((at, data))
        else:
            self.contents[holder][at : at + len(data)] = data
