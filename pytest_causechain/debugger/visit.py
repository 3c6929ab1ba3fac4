"""What gdb told of a stopped run: frames and variables by address, and the memory itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pytest_causechain.model.load_map import LoadMap


@dataclass(frozen=True, slots=True)
class Variable:
    """`pending`: declared but not initialised yet. `depth` tells nested blocks of one function apart."""

    name: str
    line: int
    depth: int
    address: int
    type: int
    pending: bool


@dataclass(frozen=True, slots=True)
class VisitedFrame:
    """`pc` is an address of the file, as LoadMap tells it."""

    function: str
    file: str | None
    line: int
    pc: int
    sp: int
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Region:
    start: int
    data: bytes
    kind: Literal["image", "heap", "stack", "anonymous"]

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass(frozen=True, slots=True)
class Visit:
    """Frames innermost first. `load_map` is where the program was loaded, `types` the table all numbers refer to;
    `stdin_position` counts what the program itself has taken from its input, None when it has none."""

    load_map: LoadMap
    frames: tuple[VisitedFrame, ...]
    regions: tuple[Region, ...]
    types: list[dict[str, Any]]
    stdin_position: int | None
    arguments_start: int


def make_visit(answer: dict[str, Any], memory: bytes, types: list[dict[str, Any]], load_map: LoadMap) -> Visit:
    regions = tuple(
        Region(start, memory[position : position + size], kind) for start, size, position, kind in answer["regions"]
    )
    frames = make_frames(answer["frames"], load_map)
    return Visit(load_map, frames, regions, types, answer["stdin"], answer["arguments"]["start"])


def make_frames(rows: list[dict[str, Any]], load_map: LoadMap) -> tuple[VisitedFrame, ...]:
    return tuple(
        VisitedFrame(
            frame["function"],
            frame["file"],
            frame["line"],
            load_map.to_file(frame["pc"]),
            frame["sp"],
            tuple(
                Variable(v["name"], v["line"], v["depth"], v["address"], v["type"], v["pending"])
                for v in frame["variables"]
                if v["address"] is not None
            ),
        )
        for frame in rows
    )
