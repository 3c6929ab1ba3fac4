"""What a test did, as kept for the diagnosis and for later sessions."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from pytest_causechain.model.codec import decode, write_json
from pytest_causechain.model.command import Command

# Of a test's last report, which carries its recording and what its marker says.
ATTRIBUTE = "cause_chain_record"


class Run(NamedTuple):
    """One start of a program by a test; `returncode` is None where the test never asked for it.

    `fixture` names the fixture of a wider scope than the test in whose setup it was started. `ordinal` counts, from 0,
    the starts of programs that can be diagnosed: those of that fixture, else those of the test itself.
    """

    command: Command
    returncode: int | None = None
    fixture: str | None = None
    ordinal: int = 0


class Recording(NamedTuple):
    """The runs of one test in the order they were started.

    `refusals` holds one sentence for each start of something that cannot be diagnosed (a script, a program
    without debug information, ...).
    """

    test: str
    outcome: Literal["passed", "failed", "skipped"]
    runs: tuple[Run, ...] = ()
    refusals: tuple[str, ...] = ()


class Marker(NamedTuple):
    """What the controller must know of a test's marker `cause_chain`; what it says of runs is asked for where the test
    is replayed."""

    program: str | None = None
    neighbour: str | None = None
    is_parallel: bool = True
    is_skipped: bool = False


class Record(NamedTuple):
    """What the last report of a test carries to where the reports come together."""

    recording: Recording
    marker: Marker


def pack(record: Record) -> str:
    """For the way from another process: as text, which anything can carry."""
    return write_json(record)


def unpack(text: str) -> Record:
    record: Record = decode(Record, json.loads(text))
    return record
