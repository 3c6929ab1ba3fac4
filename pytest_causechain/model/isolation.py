"""What keeps the runs that experiments make away from everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What the user asks for.
Wish = Literal["auto", "require", "off"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """`files`: where a run works it sees a private view of the user's directory, or a copy of it, or the directory
    itself. `elsewhere`: whether it can write to other places. `network`, `signals`: whether it reaches others."""

    files: Literal["view", "copy", "none"] = "none"
    elsewhere: Literal["read-only", "writable"] = "writable"
    network: Literal["none", "host"] = "host"
    signals: Literal["own", "all"] = "all"

    @property
    def protects_files(self) -> bool:
        return self.elsewhere == "read-only"
