"""What gdb told of a stopped run: frames and variables by address, and the memory itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_causechain.model.load_map import LoadMap
from pytest_causechain.model.open_file import OpenFile
from pytest_causechain.model.sendable import Sendable

# Registers are looked at as memory, at addresses that no program has: variables may live there.
REGISTERS = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")
# What a function is about to return goes by this name.
RETURN_VALUE = "return value"
REGISTERS_START, REGISTER_SIZE = 0xFFFF_8000_0000_0000, 8


@dataclass(frozen=True, slots=True)
class Variable(Sendable):
    """`pending`: declared but not initialised yet. `depth` tells nested blocks of one function apart."""

    name: str
    line: int
    depth: int
    address: int
    type: int
    pending: bool


@dataclass(frozen=True, slots=True)
class VisitedFrame(Sendable):
    """`pc` is an address of the file, as LoadMap tells it; `base` is the frame pointer: all variables lie below it."""

    function: str
    file: str | None
    line: int
    pc: int
    sp: int
    variables: tuple[Variable, ...]
    base: int = 0


@dataclass(frozen=True, slots=True)
class Region(Sendable):
    start: int
    data: bytes
    kind: Literal["image", "heap", "stack", "anonymous", "registers"]

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class Module(Sendable):
    """Where a file, or something else with a name of its own, is in memory: a library, the kernel's page of code."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Visit:
    """Frames innermost first. `load_map` is where the program was loaded, `types` the table all numbers refer to;
    `unreadable` counts the bytes that are missing in `regions`. `environment` is where the pointer to the variables of
    the environment lies, and its value."""

    load_map: LoadMap
    frames: tuple[VisitedFrame, ...]
    regions: tuple[Region, ...]
    types: list[dict[str, Any]]
    arguments_start: int
    modules: tuple[Module, ...] = ()
    thread_pointer: int = 0
    unreadable: int = 0
    files: tuple[OpenFile, ...] = ()
    directory: str = ""
    umask: int | None = None
    environment: tuple[int, int] | None = None


def find_modules(mappings: Iterable[tuple[int, int, str]]) -> tuple[Module, ...]:
    """From start, end and name of each mapping, in order. A library's data goes on without a name where its file
    ends; what stands alone without a name belongs to nobody."""
    modules: list[Module] = []
    for start, end, name in mappings:
        last = modules[-1] if modules else None
        if last is not None and (name == last.name or (not name and start == last.end)):
            modules[-1] = Module(last.name, last.start, end)
        elif name and name not in ("[heap]", "[stack]"):
            modules.append(Module(name, start, end))
    return tuple(modules)


def register_address(name: str) -> int | None:
    return REGISTERS_START + REGISTERS.index(name) * REGISTER_SIZE if name in REGISTERS else None


def find_register(address: int) -> tuple[str, int] | None:
    """The register that such an address means, and the place in it."""
    if not REGISTERS_START <= address < REGISTERS_START + len(REGISTERS) * REGISTER_SIZE:
        return None
    number, place = divmod(address - REGISTERS_START, REGISTER_SIZE)
    return REGISTERS[number], place


def merge_register(value: int, place: int, data: bytes) -> int:
    """What becomes of a register in which some bytes are written."""
    merged = bytearray(value.to_bytes(REGISTER_SIZE, "little"))
    merged[place : place + len(data)] = data
    return int.from_bytes(merged[:REGISTER_SIZE], "little")


def make_registers(values: Mapping[str, int]) -> Region:
    words = (values[name].to_bytes(REGISTER_SIZE, "little") for name in REGISTERS)
    return Region(REGISTERS_START, b"".join(words), "registers")


def find_place(variable: Mapping[str, Any]) -> int | None:
    """Of a variable as gdb describes it."""
    if variable["register"] is not None:
        return register_address(variable["register"])
    return None if variable["address"] is None else int(variable["address"])


def make_frames(rows: list[dict[str, Any]], load_map: LoadMap) -> tuple[VisitedFrame, ...]:
    return tuple(
        VisitedFrame(
            frame["function"],
            frame["file"],
            frame["line"],
            load_map.to_file(frame["pc"]),
            frame["sp"],
            tuple(
                Variable(v["name"], v["line"], v["depth"], place, v["type"], v["pending"])
                for v in frame["variables"]
                if (place := find_place(v)) is not None
            ),
            frame["base"],
        )
        for frame in rows
    )
