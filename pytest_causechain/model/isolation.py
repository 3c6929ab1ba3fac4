"""What keeps the runs that experiments make away from everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Wish = Literal["auto", "require", "off"]


@dataclass(frozen=True, slots=True)
class Precautions:
    """What the user asks for: `isolation` as far as the kernel allows it ("auto"), without fail, or not at all."""

    isolation: Wish = "auto"


USUAL = Precautions()


@dataclass(frozen=True, slots=True)
class Isolation:
    """What is so. `files`: where a run works it sees a private view of the user's directory, or a copy of it, or the
    directory itself. `elsewhere`: whether it can write to other places. `network`, `signals`: whether it reaches
    anybody else by them."""

    files: Literal["view", "copy", "none"] = "none"
    elsewhere: Literal["read-only", "writable"] = "writable"
    network: Literal["none", "host"] = "host"
    signals: Literal["own", "all"] = "all"


NO_ISOLATION = Isolation()
