"""What the debug information says of a program: functions, statements, variables of static storage, types."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pytest_causechain.debugger.gdb import Gdb
from pytest_causechain.kernel.elf import (
    FILE_HEADER,
    MACHINE_X86_64,
    MAGIC,
    TYPE_SHARED,
    find_objects,
    find_thread_symbols,
    read_machine,
    read_type,
)
from pytest_causechain.model.load_map import LoadMap, number_of
from pytest_causechain.model.moment import Position, Stop
from pytest_causechain.model.place import Breakpoint
from pytest_causechain.model.refusal import Refusal

# Headers of the system and the compiler: inline functions there are not the program's own code.
FOREIGN = ("/usr/include/", "/usr/lib/", "/usr/local/include/")

# What the compiler makes for global objects of C++: nobody wrote it, and it runs before main().
STATIC_INITIALISATION = ("_GLOBAL__sub_", "__static_initialization_and_destruction_")


class Statement(NamedTuple):
    """No dataclass, nor is Function: there are many, and tuples travel between processes in half the time."""

    address: int
    file: str
    line: int


class Function(NamedTuple):
    """`body` is the address behind the prologue, where the arguments are in their variables."""

    name: str
    address: int
    end: int
    file: str
    line: int
    body: int
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Names and types of a function's parameters, and the type it returns."""

    parameters: tuple[tuple[str, int], ...]
    returns: int


@dataclass(frozen=True)
class ProgramMap:
    """`libraries` are the paths of those that count as the program's own code. Addresses are as LoadMap has them."""

    path: str
    relocated: bool
    functions: tuple[Function, ...]
    globals: tuple[dict[str, Any], ...]
    types: list[dict[str, Any]]
    # All addresses at which the code of some line begins, also in the middle of a statement.
    rows: tuple[int, ...] = ()
    libraries: tuple[str, ...] = ()
    # Address and type of the table that each class with virtual functions has.
    vtables: tuple[tuple[int, int], ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        return (self.path, *self.libraries)

    def library_of(self, address: int) -> str | None:
        """The path of the one that an address belongs to; None: to the program itself."""
        number = number_of(address)
        return self.libraries[number - 1] if number else None

    def place_libraries(self, load_map: LoadMap) -> list[tuple[str, int]]:
        """For gdb: the path of each, and where it is loaded."""
        return [(path, module.base) for path, module in zip(self.libraries, load_map.modules[1:], strict=True)]

    # Name, address and size of variables of which there is no debug information: `optind` and the like.
    untyped: tuple[tuple[str, int, int], ...] = ()

    @cached_property
    def _starts(self) -> list[int]:
        return [function.address for function in self.functions]

    @cached_property
    def _positions(self) -> dict[int, Position]:
        return {
            statement.address: Position(function.name, statement.file, statement.line)
            for function in self.functions
            for statement in function.statements
        }

    @cached_property
    def _by_start(self) -> dict[int, Function]:
        return {function.address: function for function in self.functions}

    def is_entry(self, address: int) -> bool:
        return address in self._by_start

    def function_at(self, address: int) -> Function | None:
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self.functions[index].end:
            return self.functions[index]
        return None

    def breakpoint(self, stop: Stop) -> Breakpoint:
        """For whoever repeats it in gdb."""
        function = self.function_at(stop.address)
        assert function is not None  # stops are made in the program's own code
        offset, library = stop.address - function.address, self.library_of(stop.address)
        return Breakpoint(function.name, function.file, offset, stop.visit, library)

    def statement_at(self, address: int) -> int | None:
        """Where the statement begins that an instruction belongs to."""
        function = self.function_at(address)
        if function is None:
            return None
        index = bisect_right(function.statements, address, key=lambda s: s.address) - 1
        return function.statements[index].address if index >= 0 else None

    def position_of(self, instruction: int) -> Position:
        """Of any instruction of the program's own code."""
        statement = self.statement_at(instruction)
        return self.position(instruction if statement is None else statement)

    def position(self, address: int) -> Position:
        """Of a statement; of a function's first instruction: where its body begins."""
        if address in self._positions:
            return self._positions[address]
        function = self.function_at(address)
        if function is None:
            raise KeyError(address)
        return self._positions[function.body]


def ask_description(gdb: Gdb) -> dict[str, Any]:
    """What gdb knows of the program and of the libraries whose symbols it was told to read."""
    listing = gdb.command("-symbol-info-variables")["symbols"].get("debug", [])
    names = sorted({symbol["name"] for file in listing for symbol in file["symbols"]})
    return gdb.ask({"job": "describe", "foreign": FOREIGN, "names": names})


def make_program(path: str, libraries: Sequence[str], description: dict[str, Any]) -> ProgramMap:
    lines = description["lines"]
    statements = [Statement(address, file, line) for address, file, line in lines if line]
    functions = tuple(
        function
        for row in sorted(description["functions"], key=lambda row: int(row[1]))
        if not str(row[0]).startswith(STATIC_INITIALISATION)
        and (function := make_function(row, statements)) is not None
    )
    if not any(function.name == "main" for function in functions):
        raise Refusal(f"{path} has no debug information for main(): build all of it with -g.")
    rows = tuple(address for address, _, _ in lines)
    variables = place_thread_variables(description["globals"], path)
    known = {row["address"] for row in variables}
    untyped = tuple(row for row in find_objects(path) if row[1] not in known)
    types, relocated = description["types"], is_relocated(path)
    vtables = tuple((address, kind) for address, kind in description["vtables"])
    return ProgramMap(path, relocated, functions, variables, types, rows, tuple(libraries), vtables, untyped)


def place_thread_variables(variables: list[dict[str, Any]], path: str) -> tuple[dict[str, Any], ...]:
    """gdb knows no address of these before the program runs: they get one relative to the thread pointer."""
    offsets = find_thread_symbols(path) if any(v["address"] is None for v in variables) else {}
    placed = [v | {"thread": True, "address": offsets.get(v["name"])} if v["address"] is None else v for v in variables]
    return tuple(v for v in placed if v["address"] is not None)


def is_relocated(path: str) -> bool:
    """Whether the program's addresses are decided when it is loaded; a Refusal for a program of another kind."""
    with Path(path).open("rb") as file:
        header = file.read(FILE_HEADER.size)
    if not header.startswith(MAGIC) or read_machine(header) != MACHINE_X86_64:
        raise Refusal(f"{path} is no program for x86-64: build and test it on such a machine.")
    return read_type(header) == TYPE_SHARED


def make_function(row: tuple[str, int, int, str, int], statements: list[Statement]) -> Function | None:
    """None for a function whose whole code is one statement: there is no place in it behind the prologue."""
    name, start, end, file, line = row
    first = bisect_right(statements, start, key=lambda s: s.address)
    last = bisect_right(statements, end - 1, key=lambda s: s.address)
    rows = statements[first:last]
    # A further row of the same line lies in the middle of a statement, where values may be in registers.
    own = tuple(s for s, before in zip(rows, [None, *rows], strict=False) if before is None or s.line != before.line)
    if not own:
        return None
    return Function(name, start, end, file, line, own[0].address, own)


def make_signatures(description: dict[str, Any]) -> dict[int, Signature]:
    """By the addresses of the functions."""
    return {
        address: Signature(tuple((name, kind) for name, kind in signature[0]), signature[1])
        for address, signature in description["signatures"]
        if signature is not None
    }
