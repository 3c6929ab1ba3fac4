"""What keeps the runs that experiments make away from everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Wish = Literal["auto", "require", "off"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an altered run may use: time, time of the processor, bytes of memory, stack and of what it writes to each
    file, other processes. None: a multiple of what the original runs use."""

    seconds: float | None = None
    cpu: float | None = None
    memory: int | None = None
    stack: int | None = None
    output: int | None = None
    processes: int | None = None


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Precautions:
    """What the user asks for: `isolation` as far as the kernel allows it ("auto"), without fail, or not at all."""

    isolation: Wish = "auto"
    bounds: Bounds = NO_BOUNDS


USUAL = Precautions()


@dataclass(frozen=True, slots=True)
class Isolation:
    """What is so. `files`: where a run works it sees a private view of the user's directory, or a copy of it, or the
    directory itself. `elsewhere`: whether it can write to other places. `network`: whether it reaches
    anybody by it. `signals`: whether it can send one to all processes at once."""

    files: Literal["view", "copy", "none"] = "none"
    elsewhere: Literal["read-only", "writable"] = "writable"
    network: Literal["none", "host"] = "host"
    signals: Literal["single", "all"] = "all"


NO_ISOLATION = Isolation()
