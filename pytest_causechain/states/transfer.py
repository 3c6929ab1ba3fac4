"""Turns deltas into memory writes: any subset, in either direction."""

from __future__ import annotations

from collections.abc import Collection

from pytest_causechain.model.transfer import Allocation, Reference, Transfer
from pytest_causechain.states.deltas import Comparison, Delta, Slot
from pytest_causechain.states.graph import MemoryGraph, Object
from pytest_causechain.states.memory import WORD


def transfer_to_passing_run(comparison: Comparison, deltas: Collection[Delta]) -> Transfer:
    """Moves the passing run towards the failing one, as every experiment does."""
    matching = comparison.matching
    compiler = _Compiler(matching.passing, matching.failing, matching.mates)
    for delta in deltas:
        if delta.slot is not None:
            compiler.write(delta.slot, delta.slot.passing, delta.slot.failing)
    chosen = {delta.edit for delta in deltas if delta.edit is not None}
    parts = (edit.failing if n in chosen else edit.passing for n, edit in enumerate(comparison.edits))
    return compiler.transfer(b"".join(line for part in parts for line in part) if chosen else None)


def transfer_to_failing_run(comparison: Comparison, deltas: Collection[Delta]) -> Transfer:
    """Undoes differences in the failing run."""
    matching = comparison.matching
    compiler = _Compiler(matching.failing, matching.passing, matching.mates)
    for delta in deltas:
        if delta.slot is not None:
            compiler.write(delta.slot, delta.slot.failing, delta.slot.passing)
    chosen = {delta.edit for delta in deltas if delta.edit is not None}
    parts = (edit.passing if n in chosen else edit.failing for n, edit in enumerate(comparison.edits))
    return compiler.transfer(b"".join(line for part in parts for line in part) if chosen else None)


class _Compiler:
    """Collects the writes into `into` that give its slots the values they have in `source`.

    Pointers are mapped: to the partner of the object they lead to; an object without one is allocated anew, with
    all it refers to."""

    def __init__(self, into: MemoryGraph, source: MemoryGraph, mates: dict[Object, Object]) -> None:
        self.into, self.source, self.mates = into, source, mates
        self.writes: list[tuple[int, bytes]] = []
        self.references: list[Reference] = []
        self.blocks: dict[Object, int] = {}
        self.contents: list[bytearray] = []
        self.bit_fields: dict[int, int] = {}

    def write(self, slot: Slot, place: Object, origin: Object) -> None:
        address = place.address + slot.offset
        data = self.source.memory.read(origin.address + slot.offset, slot.size)
        if data is None:
            return
        if slot.is_pointer:
            self._point(None, address, WORD.unpack(data)[0])
        elif slot.bits is not None:
            self._merge_bits(address, data, slot.bits)
        else:
            self.writes.append((address, data))

    def _merge_bits(self, address: int, data: bytes, bits: tuple[int, int]) -> None:
        """Bit-fields share bytes: each changes only its own bits of what is there by now."""
        mask = ((1 << bits[1]) - 1) << bits[0]
        for i, byte in enumerate(data):
            own = mask >> (8 * i) & 0xFF
            present = self.bit_fields.get(address + i)
            if present is None:
                present = (self.into.memory.read(address + i, 1) or b"\0")[0]
            self.bit_fields[address + i] = present & ~own | byte & own

    def _point(self, holder: int | None, at: int, value: int) -> None:
        """Make the pointer at a place lead where `value` leads in the source."""
        target = self.source.target(value)
        if target.object is not None and target.object not in self.mates and target.object.kind != "variable":
            self.references.append(Reference(holder, at, self._allocate(target.object), target.offset))
            return
        if target.object is not None and target.object in self.mates:
            value = self.mates[target.object].address + target.offset
        elif target.image:
            value = self.into.visit.base + target.offset
        if holder is None:
            self.writes.append((at, WORD.pack(value)))
        else:
            self.contents[holder][at : at + 8] = WORD.pack(value)

    def _allocate(self, o: Object) -> int:
        pending: list[Object] = []
        if o not in self.blocks:
            self.blocks[o] = len(self.contents)
            self.contents.append(bytearray(self.source.contents(o)))
            pending.append(o)
        # Not by recursion: a list may be long.
        while pending:
            current = pending.pop()
            for offset, _, _, value in self.source.pointers(current):
                target = self.source.target(value).object
                if target is not None and target not in self.mates and target not in self.blocks:
                    if target.kind == "variable":
                        continue
                    self.blocks[target] = len(self.contents)
                    self.contents.append(bytearray(self.source.contents(target)))
                    pending.append(target)
                self._point(self.blocks[current], offset, value)
        return self.blocks[o]

    def transfer(self, stdin: bytes | None) -> Transfer:
        singles = tuple((address, bytes([byte])) for address, byte in sorted(self.bit_fields.items()))
        return Transfer(
            writes=tuple(self.writes) + singles,
            allocations=tuple(Allocation(len(data), bytes(data)) for data in self.contents),
            references=tuple(self.references),
            stdin=stdin,
        )
