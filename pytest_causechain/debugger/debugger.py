"""What the debug information says of a program and its libraries: kept from an earlier session, or else asked of gdb.

gdb is started when it is first needed, which may be never. What it told is kept, one file for each build; and where the
variables of a function lie is learned at one visit: in unoptimised code a variable keeps its distance from the frame
pointer, wherever in the function it is stopped, and the frame pointers form a chain from call to call."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_causechain.debugger.gdb import Gdb, GdbFailure, GdbLost, find_gdb
from pytest_causechain.debugger.program import (
    Function,
    ProgramMap,
    Signature,
    ask_description,
    is_relocated,
    make_program,
    make_signatures,
)
from pytest_causechain.debugger.types import JsonObject, read_types
from pytest_causechain.debugger.visit import RETURN_VALUE, Variable, VisitedFrame, find_place, register_address
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.elf import find_build_id, read_sections
from pytest_causechain.model.codec import decode, write_whole
from pytest_causechain.model.load_map import LoadMap, module_address
from pytest_causechain.model.refusal import Refusal

# A developer goes back to one of the last few builds, if at all; the cache of a suite must not be felt on the disk.
MOST_FILES, MOST_BYTES = 20, 100 << 20
# Level 1 takes a tenth of the time of the default one, and makes files a fifth larger.
COMPRESSION = 1
ALL_LINES = 1 << 32


class DescriptionStore:
    """The description of one program with its libraries, in a file below the directory `cache`."""

    def __init__(self, cache: Path, modules: Sequence[str], gdb: str) -> None:
        """`modules` are the paths of the program and its libraries. One without a build id is never kept."""
        self._directory = cache / "programs"
        self._path: Path | None = None
        with contextlib.suppress(OSError, ValueError, LookupError, zlib.error):
            builds = [read_build_id(module) for module in modules]
            if all(builds):
                self._path = self._directory / f"{make_key([*map(str, builds), *modules[1:]], gdb)}.bin"

    def load(self) -> JsonObject | None:
        """None when there is none that can be read."""
        if self._path is None:
            return None
        try:
            content = self._path.read_bytes()
            size = hashlib.sha256().digest_size
            if hashlib.sha256(content[size:]).digest() != content[:size]:
                return None
            description: JsonObject = json.loads(zlib.decompress(content[size:]))
            os.utime(self._path)  # the ones used last are kept
        except (OSError, ValueError, zlib.error):
            return None
        return description

    def save(self, description: JsonObject) -> None:
        if self._path is None:
            return
        text = json.dumps(description, separators=(",", ":")).encode("ascii")
        content = zlib.compress(text, COMPRESSION)
        if len(content) > MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, hashlib.sha256(content).digest() + content)
            self._prune()

    def _prune(self) -> None:
        files = [(path.stat(), path) for path in self._directory.glob("*.bin")]
        room = MOST_BYTES
        for number, (status, path) in enumerate(sorted(files, key=lambda file: -file[0].st_mtime_ns)):
            room -= status.st_size
            if number >= MOST_FILES or room < 0:
                path.unlink(missing_ok=True)


def read_build_id(path: str) -> str | None:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return find_build_id(content, read_sections(content))


def make_key(builds: Sequence[str], gdb: str) -> str:
    """Of all that decides what a description says: this code and gdb too, and the directory in which gdb looks for
    sources that are not where the debug information says."""
    status = Path(gdb).stat()
    parts = [*builds, gdb, str(status.st_size), str(status.st_mtime_ns), str(Path.cwd())]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape"))
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Chained:
    """A frame as its frame pointer tells: where it stands (an address of the file, as LoadMap tells it), rbp there."""

    pc: int
    rbp: int


class _Place(NamedTuple):
    name: str
    line: int
    depth: int
    offset: int
    type: int
    is_argument: bool
    # The one it lives in, instead of memory at an offset.
    register: str | None


class _Block(NamedTuple):
    start: int
    end: int
    places: tuple[_Place, ...]


class _Layout(NamedTuple):
    """`saved` are the registers a function restores for its caller, by their distance from the frame pointer;
    `returns` is the type of what it returns in a register."""

    blocks: tuple[_Block, ...]
    saved: dict[str, int]
    returns: int | None


class FrameLayouts:
    def __init__(self, program: ProgramMap, rows: Iterable[tuple[int, object]] = ()) -> None:
        """`rows` are those of an earlier one, from JSON."""
        self._program = program
        # None: this function's variables have no fixed places.
        self._known: dict[int, _Layout | None] = {address: decode(_Layout, layout) for address, layout in rows}

    def rows(self) -> list[tuple[int, _Layout]]:
        """All layouts by the addresses of their functions."""
        return [(address, layout) for address, layout in self._known.items() if layout is not None]

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


class Debugger(Closing):
    """`program` and `layouts` grow with each visit; leaving it keeps them, below the directory `cache`."""

    def __init__(self, path: str, libraries: Sequence[str] = (), cache: Path | None = None) -> None:
        is_relocated(path)  # before gdb meets a program that it cannot read
        gdb = find_gdb()
        self._path = path
        self._gdb: Gdb | None = None
        self._store = DescriptionStore(cache, (path, *libraries), gdb) if cache is not None else None
        description = self._store.load() if self._store is not None else None
        # How many layouts are on the disk; -1: not even the description, which is most worth keeping.
        self._kept = len(description["layouts"]) if description is not None else -1
        try:
            self._description = description or self._describe(libraries)
            # As gdb told them: for the disk, and for another gdb, which knows them again by their keys.
            self._types: list[JsonObject] = self._description["types"]
            self.program: ProgramMap = make_program(path, libraries, self._description, read_types(self._types))
        except GdbFailure as failure:
            self._close_gdb()
            if isinstance(failure, GdbLost):
                raise
            raise Refusal(f"gdb cannot read {path} ({failure}): build it anew with -g.") from None
        except BaseException:
            self._close_gdb()
            raise
        self.layouts = FrameLayouts(self.program, self._description["layouts"])
        self._keep()

    def _describe(self, libraries: Sequence[str]) -> JsonObject:
        """At the addresses that hold for all runs, before there is one."""
        places = [(path, module_address(number)) for number, path in enumerate(libraries, 1)]
        return ask_description(self._start([], places)) | {"layouts": []}

    @property
    def signatures(self) -> dict[int, Signature]:
        return make_signatures(self._description)

    @property
    def gdb(self) -> Gdb:
        return self._gdb or self._start(self._types, [])

    def learn_types(self, rows: list[JsonObject]) -> None:
        """Those that gdb met at a visit, besides the ones it was told of."""
        self._types += rows
        self.program.types.extend(read_types(rows))

    def processes(self) -> list[int]:
        return [self._gdb.pid] if self._gdb is not None else []

    def _start(self, types: list[JsonObject], libraries: Sequence[tuple[str, int]]) -> Gdb:
        """A gdb that goes on to number types where an earlier one ended."""
        self._gdb = Gdb(self._path)
        self._gdb.ask({"job": "prepare", "types": types, "libraries": libraries})
        return self._gdb

    def _keep(self) -> None:
        layouts = self.layouts.rows()
        if self._store is not None and len(layouts) > self._kept:
            self._store.save(self._description | {"types": self._types, "layouts": layouts})
            self._kept = len(layouts)

    def close(self) -> None:
        self._keep()
        self._close_gdb()

    def _close_gdb(self) -> None:
        if self._gdb is not None:
            self._gdb.close()
            self._gdb = None
