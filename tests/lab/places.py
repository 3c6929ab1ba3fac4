"""Opens laboratories, finds places in a program and values in a visit of it."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from pathlib import Path

from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.pool import Share
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.runs import Command, Program

# No test here comes near it on a machine that is not broken.
PLENTY_SECONDS = 300.0


def open_remote_lab(
    kind: str,
    program: Program,
    *passing: str,
    stdin: bytes = b"",
    failing: Sequence[str] | None = None,
    failing_stdin: bytes | None = None,
    seconds: float = PLENTY_SECONDS,
    share: Share | None = None,
    cache: Path | None = None,
) -> RemoteLab:
    sides = (
        (passing, stdin),
        (passing if failing is None else failing, stdin if failing_stdin is None else failing_stdin),
    )
    directory = str(Path(program.path).parent)
    commands = (Command(program, (program.path, *words), directory, (), text) for words, text in sides)
    return RemoteLab(Open(*commands, kind=kind, cache=cache), Budget(seconds), share)


def find_line(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def find_statement(lab: RemoteLab, source: str, text: str) -> int:
    """The address of the first statement of the line that contains this text."""
    line = find_line(source, text)
    return next(s.address for f in lab.program.functions for s in f.statements if s.line == line)


def find_function(lab: RemoteLab, name: str) -> int:
    return next(f.address for f in lab.program.functions if f.name == name)


def find_global(lab: RemoteLab, name: str) -> int:
    return next(row.address for row in lab.program.globals if row.name == name)


def find_local(visit, name: str, frame: int = 0) -> int:
    return next(v.address for v in visit.frames[frame].variables if v.name == name)


def read_memory(visit, address: int, size: int) -> bytes:
    region = next(r for r in visit.regions if r.start <= address < r.end)
    return region.data[address - region.start : address - region.start + size]


def read_int(visit, address: int) -> int:
    return struct.unpack("<i", read_memory(visit, address, 4))[0]


def find_processes(program: Program) -> list[int]:
    """All that execute this program, without those stopped for good, which copies are made of."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                is_stopped = (process / "stat").read_text().rpartition(")")[2].split()[0] == "t"
                if str((process / "exe").readlink()) == program.path and not is_stopped:
                    found.append(int(process.name))
    return found
