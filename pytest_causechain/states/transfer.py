"""Turns deltas into memory writes, any subset, in either direction; or into commands for plain gdb that do the same.

The runs that a user starts under gdb have another environment, so another stack, and other buffers on the heap. So
for gdb each place is found as the program finds it: from the stack pointer, the program's own code or a variable, along
pointers. All places are found before the first is written to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePath

from pytest_causechain.debugger.visit import REGISTER_SIZE, find_register
from pytest_causechain.model.alteration import Allocation, Reference, Transfer
from pytest_causechain.model.chain import Script
from pytest_causechain.model.load_map import number_of
from pytest_causechain.states.deltas import Delta, StateComparison, close_configuration
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.names import Step
from pytest_causechain.states.outside import OutsideChange, OutsidePart
from pytest_causechain.states.shapes import IMAGE, Object, RootVariable
from pytest_causechain.states.values import ValuePair

# A place to write to: an address, or an offset in one of the new blocks.
Place = tuple[int | None, int]
# More than this nobody wants to read, and gdb takes long over.
MOST_COMMANDS = 2000
UNITS = ((8, "long"), (4, "int"), (2, "short"), (1, "char"))
STDIN = 0


def transfer_to_passing_run(comparison: StateComparison, deltas: Collection[Delta]) -> Transfer:
    """Moves the passing run towards the failing one, as every experiment does."""
    return _transfer(comparison, deltas, is_forwards=True)


def transfer_to_failing_run(comparison: StateComparison, deltas: Collection[Delta]) -> Transfer:
    """Undoes differences in the failing run."""
    return _transfer(comparison, deltas, is_forwards=False)


def _transfer(comparison: StateComparison, deltas: Collection[Delta], is_forwards: bool) -> Transfer:
    surroundings = comparison.outside.change(find_parts(deltas), is_forwards)
    return compile_change(comparison, deltas, is_forwards).transfer(surroundings)


def compile_change(comparison: StateComparison, deltas: Collection[Delta], is_forwards: bool) -> Compiler:
    """Of the passing run when `is_forwards`, else of the failing one."""
    matching = comparison.matching
    if is_forwards:
        compiler = Compiler(matching.passing, matching.failing, matching.mates)
    else:
        compiler = Compiler(matching.failing, matching.passing, matching.mates)
        compiler.enlarge(too_small(comparison, deltas))
    for delta in close_configuration(deltas) if is_forwards else deltas:
        for spot in delta.spots:
            compiler.write(spot, *((spot.ours, spot.theirs) if is_forwards else (spot.theirs, spot.ours)))
    return compiler


def find_parts(deltas: Iterable[Delta]) -> frozenset[OutsidePart]:
    return frozenset(delta.part for delta in deltas if delta.part is not None)


def too_small(comparison: StateComparison, deltas: Collection[Delta]) -> list[Object]:
    """Objects of the failing run that cannot hold what the passing run has in their place: texts that are undone, and
    the buffers of containers; and all others when everything is, since only then what lies behind their end is asked
    for."""
    if len(deltas) == len(comparison.deltas):
        pairs: Iterable[tuple[Object, Object]] = comparison.matching.pairs
    else:
        spots = [spot for delta in deltas for spot in delta.spots]
        texts = [(spot.ours, spot.theirs) for spot in spots if spot.is_whole]
        pairs = dict.fromkeys([*texts, *outgrown(comparison.matching, spots)])
    return [theirs for ours, theirs in pairs if ours.size > theirs.size and theirs.kind != "variable"]


def outgrown(matching: Matching, spots: Iterable[ValuePair]) -> Iterator[tuple[Object, Object]]:
    """Where the passing run has a pointer that leads behind the end of the failing run's object: what it leads into."""
    for target, _ in (spot.targets for spot in spots if spot.is_pointer):
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

    def write(self, spot: ValuePair, into: Object, origin: Object) -> None:
        offset = spot.leaf.offset
        size = origin.size - offset if spot.is_whole else spot.leaf.size
        data = self.source.memory.read(origin.address + offset, size)
        if data is None:
            return
        place = self._place(into, offset)
        if spot.is_pointer:
            self._point(place, WORD.unpack(data)[0])
        elif spot.leaf.bits is not None:
            self._merge_bits(place, data, spot.leaf.bits)
        else:
            is_plain = spot.ours.shape is spot.theirs.shape and not origin.shape.is_guessed
            pointers = () if is_plain else self.source.pointers_within(origin, offset, offset + size)
            self._put(place, self._blank(data, [p.offset - offset for p in pointers if self._is_new(p.value)]))
            for pointer in pointers:
                self._point((place[0], place[1] + pointer.offset - offset), pointer.value)

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
        self._store(holder, at, data)
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

    def transfer(self, surroundings: OutsideChange) -> Transfer:
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


class Obstacle(Exception):
    """Why gdb cannot do it."""


def script_change(comparison: StateComparison, deltas: Collection[Delta], is_forwards: bool) -> Script | None:
    """For the passing run when `is_forwards`, else for the failing one. None: one statement of C does it."""
    closed = close_configuration(deltas) if is_forwards else list(deltas)
    statements = [delta.assignment if is_forwards else delta.undo for delta in closed if len(delta.spots) == 1]
    if len(closed) == len(statements) == 1 and statements[0] is not None:
        return None
    try:
        return _script(comparison, deltas, is_forwards)
    except Obstacle as obstacle:
        return Script(obstacle=str(obstacle))


def _script(comparison: StateComparison, deltas: Collection[Delta], is_forwards: bool) -> Script:
    writer = _Writer(compile_change(comparison, deltas, is_forwards))
    commands = ["frame 0", *writer.write()]
    surroundings = comparison.outside.change(find_parts(deltas), is_forwards)
    if surroundings.code is not None:
        commands += writer.change_code(*surroundings.code)
    if surroundings.directory is not None:
        commands.append(f"causechain-text $causechain_directory {_quote(surroundings.directory)}")
        commands.append("causechain-call chdir $causechain_directory")
    if surroundings.umask is not None:
        commands.append(f"causechain-call umask 0{surroundings.umask:o}")
    if surroundings.environment is not None:
        commands += _change_environment(deltas, surroundings.environment)
    if len(commands) > MOST_COMMANDS:
        raise Obstacle("it takes too many commands of gdb")
    for file in surroundings.files:
        if file.number != STDIN or file.role != "input":
            what = "what was written to" if file.role == "output" else "the file"
            raise Obstacle(f"gdb cannot change {what} {PurePath(file.name).name}")
        return Script(tuple(commands), file.content.decode("utf-8", "surrogateescape"), file.position)
    return Script(tuple(commands))


def _change_environment(deltas: Collection[Delta], variables: dict[bytes, bytes]) -> Iterator[str]:
    for part in sorted(find_parts(deltas), key=lambda part: part.name):
        if part.kind == "environment":
            value = variables.get(part.name)
            yield f"causechain-text $causechain_name {_quote(os.fsdecode(part.name))}"
            if value is None:
                yield "causechain-call unsetenv $causechain_name"
            else:
                yield f"causechain-text $causechain_value {_quote(os.fsdecode(value))}"
                yield "causechain-call setenv $causechain_name $causechain_value 1"


def _quote(text: str) -> str:
    """A text as gdb reads it, in printable ASCII."""
    data = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in data) + '"'


class _Writer:
    """Writes down what a compiler has collected."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler, self._graph = compiler, compiler.into
        self._found: dict[Object, str] = {}
        self._finding: list[str] = []

    def write(self) -> list[str]:
        storing = [*self._store_data(), *self._store_pointers(), *self._store_bits()]
        return [*self._finding, *self._allocate(), *storing]

    def change_code(self, address: int, code: bytes) -> Iterator[str]:
        return _store(self._find_in_image(address), code)

    def _allocate(self) -> Iterator[str]:
        for number, data in enumerate(self._compiler.contents):
            yield f"causechain-call malloc {len(data)}"
            yield f"set $block{number} = $causechain_result"

    def _store_data(self) -> Iterator[str]:
        for address, data in self._compiler.writes:
            yield from self._store(address, data)
        for number, contents in enumerate(self._compiler.contents):
            yield from _store(f"$block{number}", bytes(contents))

    def _store(self, address: int, data: bytes) -> Iterator[str]:
        register = find_register(address)
        if register is not None:
            yield _set_register(*register, data)
            return
        place, present = self._locate(address), self._graph.memory.read(address, len(data))
        yield from _store(place, data, present)

    def _store_pointers(self) -> Iterator[str]:
        for place, value in self._compiler.pointers.items():
            told = self._locate(value) if isinstance(value, int) else f"$block{value[0]} + {value[1]}"
            register = find_register(place[1]) if place[0] is None else None
            if register is not None:
                yield f"set ${register[0]} = {told}"
            else:
                yield f"set {{unsigned long}} ({self._locate_place(place)}) = {told}"

    def _store_bits(self) -> Iterator[str]:
        for place, byte in self._compiler.bit_fields.items():
            if place[0] is None:
                yield from self._store(place[1], bytes([byte]))
            else:
                yield from _store(self._locate_place(place), bytes([byte]))

    def _locate_place(self, place: Place) -> str:
        holder, at = place
        return self._locate(at) if holder is None else f"$block{holder} + {at}"

    def _locate(self, address: int) -> str:
        """The address as gdb computes it in a run of its own."""
        target = self._graph.target(address)
        if target.object is not None:
            return _add(self._find(target.object), target.offset)
        return self._find_in_image(address) if target.module == IMAGE else hex(address)

    def _find(self, o: Object) -> str:
        if o in self._found:
            return self._found[o]
        is_own = isinstance(o, RootVariable) or o.kind == "alloca"
        if is_own and self._graph.memory.is_stack(o.address):
            return _add("$sp", o.address - self._graph.visit.frames[0].sp)
        if isinstance(o, RootVariable):
            return self._find_static(o)
        return self._follow(self._find_way(o), o)

    def _find_static(self, o: RootVariable) -> str:
        region = self._graph.memory.region(o.address)
        if region is not None and region.kind == "image":
            return self._find_in_image(o.address)
        if self._graph.visit.thread_pointer:
            return _add("$fs_base", o.address - self._graph.visit.thread_pointer)
        raise Obstacle(f"gdb does not find {o.name}")

    def _find_in_image(self, address: int) -> str:
        visit, program = self._graph.visit, self._graph.program
        place, here = visit.load_map.to_file(address), visit.frames[0].pc
        if number_of(place) == 0:
            main = next(function for function in program.functions if function.name == "main")
            return _add("(unsigned long) &main", place - main.address)
        if number_of(place) == number_of(here):
            return _add("$pc", place - here)
        raise Obstacle(f"from here gdb does not find what is in {PurePath(program.modules[number_of(place)]).name}")

    def _find_way(self, o: Object) -> list[Step]:
        for base in (0, *(offset for offset, _ in o.parts or ())):
            root, steps = self._graph.naming.lasting_way(o, base)
            if root is not None and steps:
                return steps
        raise Obstacle("gdb does not find the object it lies in")

    def _follow(self, steps: list[Step], last: Object) -> str:
        """Find one object after the other, each once."""
        for step, o in zip(steps, [*(step.source for step in steps[1:]), last], strict=True):
            if o in self._found or isinstance(o, RootVariable):
                continue
            place = step.source.address + step.at
            register, value = find_register(place), self._graph.memory.word(place) or 0
            source = _add(self._find(step.source), step.at)
            pointer = f"${register[0]}" if register is not None else f"{{unsigned long}} ({source})"
            name = f"$object{len(self._found)}"
            self._finding.append(f"set {name} = {_add(pointer, o.address - value)}")
            self._found[o] = name
        return self._found[last]


def _add(place: str, offset: int) -> str:
    return f"{place} {'-' if offset < 0 else '+'} {abs(offset)}" if offset else place


def _store(place: str, data: bytes, present: bytes | None = None) -> Iterator[str]:
    """In the largest units; those that are `present` already are left alone."""
    at = 0
    while at < len(data):
        size, unit = next((size, unit) for size, unit in UNITS if at + size <= len(data))
        part = data[at : at + size]
        if present is None or present[at : at + size] != part:
            yield f"set {{unsigned {unit}}} ({_add(place, at)}) = {int.from_bytes(part, 'little'):#x}"
        at += size


def _set_register(name: str, at: int, data: bytes) -> str:
    value = int.from_bytes(data[: REGISTER_SIZE - at], "little") << 8 * at
    kept = ~(((1 << 8 * len(data)) - 1) << 8 * at) & ((1 << 8 * REGISTER_SIZE) - 1)
    return f"set ${name} = {value:#x}" if not kept else f"set ${name} = (${name} & {kept:#x}) | {value:#x}"
