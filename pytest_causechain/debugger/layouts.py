"""Where the variables of each function lie, learned at one visit, so that further ones need no gdb.

In unoptimised code a variable keeps its distance from the frame pointer, wherever in the function it is stopped,
and the frame pointers form a chain from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from pytest_causechain.debugger.program import Function, ProgramMap
from pytest_causechain.debugger.types import JsonObject
from pytest_causechain.debugger.visit import RETURN_VALUE, Variable, VisitedFrame, find_place, register_address
from pytest_causechain.model.load_map import LoadMap

ALL_LINES = 1 << 32


@dataclass(frozen=True, slots=True)
class Chained:
    """A frame as its frame pointer tells: where it stands (an address of the file, as LoadMap tells it), rbp there."""

    pc: int
    rbp: int


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    line: int
    depth: int
    offset: int
    type: int
    is_argument: bool
    # The one it lives in, instead of memory at an offset.
    register: str | None


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    end: int
    places: tuple[_Place, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """`saved` are the registers a function restores for its caller, by their distance from the frame pointer;
    `returns` is the type of what it returns in a register."""

    blocks: tuple[_Block, ...]
    saved: dict[str, int]
    returns: int | None


PlaceRow = tuple[str, int, int, int, int, bool, str | None]
BlockRow = tuple[int, int, Sequence[PlaceRow]]
# As they are kept: the address of a function, and the fields of its layout.
LayoutRow = tuple[int, tuple[Sequence[BlockRow], dict[str, int], int | None]]


class FrameLayouts:
    def __init__(self, program: ProgramMap, rows: Iterable[LayoutRow] = ()) -> None:
        """`rows` are those of an earlier one."""
        self._program = program
        # None: this function's variables have no fixed places.
        self._known: dict[int, _Layout | None] = {address: _read_layout(*layout) for address, layout in rows}

    def rows(self) -> list[LayoutRow]:
        """All layouts as plain data."""
        return [(address, astuple(layout)) for address, layout in self._known.items() if layout is not None]

    def unknown(self, chain: Sequence[Chained], load_map: LoadMap) -> list[tuple[int, list[int]]]:
        """The functions of these frames that a visit should describe: where in this run each and its statements are."""
        functions = self._functions(chain)
        if functions is None:
            return []
        new = {function.address: function for function in functions if function.address not in self._known}
        return [
            (load_map.to_run(address), [load_map.to_run(s.address) for s in function.statements])
            for address, function in new.items()
        ]

    def learn(self, layouts: JsonObject, chain: Sequence[Chained], load_map: LoadMap) -> None:
        """What a visit said of functions of these frames; believed only where gdb sees the same frame pointer."""
        # Of a function that calls itself gdb describes the innermost frame: it must be the last one here.
        frames = reversed(list(zip(self._functions(chain) or (), chain, strict=False)))
        pointers = {function.address: place.rbp for function, place in frames}
        for entry, layout in layouts.items():
            address = load_map.to_file(int(entry))
            if layout is None or pointers.get(address) != layout["rbp"]:
                self._known[address] = None
            else:
                blocks = tuple(_make_block(block, layout["rbp"], load_map) for block in layout["blocks"])
                self._known[address] = _Layout(blocks, layout["saved"], layout["returns"])

    def frames(self, chain: Sequence[Chained], sp: int) -> tuple[VisitedFrame, ...] | None:
        """What gdb would tell of these frames; None when only gdb can."""
        functions = self._functions(chain)
        if functions is None:
            return None
        frames = []
        saved: dict[str, int] = {}  # by the functions called since then
        for number, (function, place) in enumerate(zip(functions, chain, strict=True)):
            layout = self._known.get(function.address)
            if layout is None:
                return None
            at = place.pc - (number > 0)  # a return address lies behind its call
            line = max((s for s in function.statements if s.address <= at), key=lambda s: s.address, default=None)
            if line is None:
                return None
            # At its own line a variable is set only by the time the frame waits for a call from there. In a line of
            # another file, which a parser was made from, all those of the function are.
            is_elsewhere = line.file != function.file
            reached = ALL_LINES if is_elsewhere else line.line + (place.pc != line.address)
            variables = _variables(layout.blocks, at, place.rbp, reached, saved)
            if not number and layout.returns is not None and place.pc == function.statements[-1].address:
                address = register_address("rax")
                assert address is not None
                variables += (Variable(RETURN_VALUE, 0, 0, address, layout.returns, False),)
            saved |= {name: place.rbp + offset for name, offset in layout.saved.items()}
            frames.append(VisitedFrame(function.name, line.file, line.line, place.pc, sp, variables, place.rbp))
            sp = place.rbp + 16
        return tuple(frames)

    def _functions(self, chain: Sequence[Chained]) -> list[Function] | None:
        """Those of the frames up to main; None when other code lies between."""
        functions = []
        for number, place in enumerate(chain):
            function = self._program.function_at(place.pc - (number > 0))
            if function is None:
                return None
            functions.append(function)
        return functions if functions and functions[-1].name == "main" else None


def _read_layout(blocks: Sequence[BlockRow], saved: dict[str, int], returns: int | None) -> _Layout:
    read = (_Block(start, end, tuple(_Place(*place) for place in places)) for start, end, places in blocks)
    return _Layout(tuple(read), saved, returns)


def _make_block(block: tuple[int, int, list[JsonObject]], rbp: int, load_map: LoadMap) -> _Block:
    start, end, variables = block
    places = (
        _Place(
            v["name"], v["line"], v["depth"], (v["address"] or rbp) - rbp, v["type"], v["is_argument"], v["register"]
        )
        for v in variables
        if find_place(v) is not None
    )
    return _Block(load_map.to_file(start), load_map.to_file(end), tuple(places))


def _variables(blocks: Sequence[_Block], pc: int, rbp: int, line: int, saved: dict[str, int]) -> tuple[Variable, ...]:
    """Of all blocks around the place, the innermost first."""
    around = sorted((b for b in blocks if b.start <= pc < b.end), key=lambda b: b.end - b.start)
    return tuple(
        Variable(p.name, p.line, p.depth, address, p.type, not p.is_argument and p.line >= line)
        for block in around
        for p in block.places
        if (address := _address(p, rbp, saved)) is not None
    )


def _address(place: _Place, rbp: int, saved: dict[str, int]) -> int | None:
    if place.register is None:
        return rbp + place.offset
    return saved.get(place.register) or register_address(place.register)
