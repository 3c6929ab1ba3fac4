"""The result of one faulty version, and the file that keeps them: one JSON object a line, so that a run can go on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_causechain.model.chain import Statistics
from pytest_causechain.model.codec import decode, encode
from pytest_causechain.repairs.findings import Line


@dataclass(frozen=True, slots=True)
class Record:
    """Of the diagnosis of `tests[0]`, with the repairs of the other ones; none of them: no test fails.

    `ranking` are the suspects in order, those of equal rank together; `repaired` are the lines with a repair,
    `transitions` the lines that the chain against the neighbour blames. `reason` is set where there is no chain, or no
    whole one."""

    program: str
    version: str
    tests: tuple[str, ...] = ()
    status: str = "none"
    reason: str | None = None
    peer: str | None = None
    ranking: tuple[tuple[Line, ...], ...] = ()
    transitions: tuple[Line, ...] = ()
    repaired: tuple[Line, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)

    @property
    def key(self) -> str:
        return f"{self.program}/{self.version}"


def read_records(path: Path) -> list[Record]:
    """A last line that was cut off when the run was ended is left out."""
    records = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record: Record = decode(Record, json.loads(line))
        except (ValueError, TypeError):
            continue
        records[record.key] = record
    return list(records.values())


def append_record(path: Path, record: Record) -> None:
    with path.open("a") as file:
        file.write(json.dumps(encode(record)) + "\n")


def write_whole(path: Path, value: Any) -> None:
    """Never half of it, whenever the run is ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(encode(value)))
    unfinished.replace(path)
