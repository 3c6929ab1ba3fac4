"""What /proc says of a process: its mappings, descriptors and threads."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mapping:
    """`name` is a path, "[heap]", "[stack]", "[vdso]" or ""."""

    start: int
    end: int
    permissions: str
    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An open file; `identity` is equal for descriptors that share one offset, as far as can be told."""

    number: int
    mode: int
    position: int
    flags: int
    identity: tuple[int, int, int, int]

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_writable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY


def read_mappings(pid: int) -> list[Mapping]:
    mappings = []
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").splitlines():
        span, permissions, offset, _, _, *name = line.split(maxsplit=5)
        start, end = (int(x, 16) for x in span.split("-"))
        mappings.append(Mapping(start, end, permissions, int(offset, 16), name[0] if name else ""))
    return mappings


def load_base(mappings: list[Mapping], path: str) -> int | None:
    """Where a file is mapped from its beginning on."""
    return next((m.start for m in mappings if m.name == path and m.offset == 0), None)


def read_descriptors(pid: int) -> list[Descriptor]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
            info = Path(f"/proc/{pid}/fdinfo/{name}").read_text().split()
        except OSError:
            continue  # closed meanwhile
        position, flags = int(info[1]), int(info[3], 8)
        identity = (status.st_dev, status.st_ino, position, flags)
        found.append(Descriptor(int(name), status.st_mode, position, flags, identity))
    return found


def has_children(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().strip())


def count_threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def read_position(pid: int, descriptor: int) -> int | None:
    """The offset of an open file."""
    try:
        return int(Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().split()[1])
    except OSError:
        return None


def argument_start(pid: int) -> int:
    """Where the kernel put the text of the program's arguments."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "surrogateescape").rpartition(")")[2].split()
    return int(fields[45])
