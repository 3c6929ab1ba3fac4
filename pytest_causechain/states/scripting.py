"""Turns deltas into commands for plain gdb: what an experiment writes into a run, for one whose addresses may differ.

The runs that a user starts under gdb have another environment, so another stack, and other buffers on the heap. So
each place is found as the program finds it: from the stack pointer, the program's own code or a variable, along
pointers. All places are found before the first is written to.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import PurePath

from pytest_causechain.debugger.visit import REGISTER_SIZE, find_register
from pytest_causechain.model.chain import Script
from pytest_causechain.model.load_map import number_of
from pytest_causechain.states.deltas import Comparison, Delta, close_configuration
from pytest_causechain.states.names import Step
from pytest_causechain.states.objects import IMAGE, Object, Variable
from pytest_causechain.states.transfer import Compiler, compile_for_failing_run, compile_for_passing_run, find_parts

# More than this nobody wants to read, and gdb takes long over.
MOST_COMMANDS = 2000
UNITS = ((8, "long"), (4, "int"), (2, "short"), (1, "char"))
STDIN = 0


class Obstacle(Exception):
    """Why gdb cannot do it."""


def script_change(comparison: Comparison, deltas: Collection[Delta], is_forwards: bool) -> Script | None:
    """For the passing run when `is_forwards`, else for the failing one. None: one statement of C does it."""
    closed = close_configuration(deltas) if is_forwards else list(deltas)
    statements = [delta.assignment if is_forwards else delta.undo for delta in closed if len(delta.slots) == 1]
    if len(closed) == len(statements) == 1 and statements[0] is not None:
        return None
    try:
        return _script(comparison, deltas, is_forwards)
    except Obstacle as obstacle:
        return Script(obstacle=str(obstacle))


def _script(comparison: Comparison, deltas: Collection[Delta], is_forwards: bool) -> Script:
    compile_change = compile_for_passing_run if is_forwards else compile_for_failing_run
    writer = _Writer(compile_change(comparison, deltas))
    commands = ["frame 0", *writer.write()]
    surroundings = comparison.greater.change(find_parts(deltas), is_forwards)
    if surroundings.code is not None:
        commands += writer.change_code(*surroundings.code)
    if surroundings.directory is not None:
        commands.append(f"call (int) chdir({_quote(surroundings.directory)})")
    if surroundings.umask is not None:
        commands.append(f"call (int) umask({surroundings.umask:#o})")
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
            name, value = _quote(os.fsdecode(part.name)), variables.get(part.name)
            if value is None:
                yield f"call (int) unsetenv({name})"
            else:
                yield f"call (int) setenv({name}, {_quote(os.fsdecode(value))}, 1)"


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
            yield f"set $block{number} = (unsigned long) ((void *(*)(unsigned long)) malloc)({len(data)})"

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
        for (holder, at), value in self._compiler.pointers.items():
            told = self._locate(value) if isinstance(value, int) else f"$block{value[0]} + {value[1]}"
            register = find_register(at) if holder is None else None
            if register is not None:
                yield f"set ${register[0]} = {told}"
            else:
                place = self._locate(at) if holder is None else f"$block{holder} + {at}"
                yield f"set {{unsigned long}} ({place}) = {told}"

    def _store_bits(self) -> Iterator[str]:
        for (holder, at), byte in self._compiler.bit_fields.items():
            if holder is None:
                yield from self._store(at, bytes([byte]))
            else:
                yield from _store(f"$block{holder} + {at}", bytes([byte]))

    def _locate(self, address: int) -> str:
        """The address as gdb computes it in a run of its own."""
        target = self._graph.target(address)
        if target.object is not None:
            return _add(self._find(target.object), target.offset)
        return self._find_in_image(address) if target.module == IMAGE else hex(address)

    def _find(self, o: Object) -> str:
        if o in self._found:
            return self._found[o]
        is_own = isinstance(o, Variable) or o.kind == "alloca"
        if is_own and self._graph.memory.is_stack(o.address):
            return _add("$sp", o.address - self._graph.visit.frames[0].sp)
        if isinstance(o, Variable):
            return self._find_static(o)
        return self._follow(self._find_way(o), o)

    def _find_static(self, o: Variable) -> str:
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
            if o in self._found or isinstance(o, Variable):
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
