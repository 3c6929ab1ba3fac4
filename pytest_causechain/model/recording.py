"""What a test did, as kept for the diagnosis and for later sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pytest_causechain.model.codec import write_json
from pytest_causechain.model.command import Command

# Of a test's last report, which carries the recording: as text, which reaches the controller from any worker.
ATTRIBUTE = "cause_chain_record"


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a program by a test; `returncode` is None where the test never asked for it.

    `fixture` names the fixture of a wider scope than the test in whose setup it was started. `ordinal` counts, from 0,
    the starts of programs that can be diagnosed: those of that fixture, else those of the test itself.
    """

    command: Command
    returncode: int | None = None
    fixture: str | None = None
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class Recording:
    """The runs of one test in the order they were started.

    `refusals` holds one sentence for each start of something that cannot be diagnosed (a script, a program
    without debug information, ...).
    """

    test: str
    outcome: Literal["passed", "failed", "skipped"]
    runs: tuple[Run, ...] = ()
    refusals: tuple[str, ...] = ()


def pack(recording: Recording, marker: dict[str, Any]) -> str:
    """For the way from where a test ran: as text, since others may write reports down."""
    return write_json([recording, marker])


def unpack(record: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recording still encoded: of most tests it is only kept."""
    recording, marker = json.loads(record)
    return recording, marker
