"""Replays the gdb scripts of a chain and tells whether each shows what it should."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Long enough for a busy machine; a program that hangs by its defect has no script that ends.
TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Replay:
    """A script, what the end of its run should look like, or must not, and what gdb showed."""

    script: Path
    expected: str
    shown: str
    is_expected: bool = True

    @property
    def is_as_expected(self) -> bool:
        return shows(self.shown, self.expected) == self.is_expected


def replay_all(chain: dict[str, Any], place: Path) -> Iterator[Replay]:
    """Each script that makes all of its changes, of a link that was seen to do it alone."""
    for number, link in enumerate(chain["chain"], start=1):
        statements = [cause["assignment"] for cause in link["causes"]]
        if link["confirmed"] != "context" and all(statements):
            # Beside a neighbour, whose input is another one, only the symptom appears.
            is_exact = chain["peer"]["kind"] == "twin" or chain["oracle"]["kind"] in ("crash", "exit")
            outcome = chain["failing" if is_exact else "passing"]["outcome"]
            yield replay(place / f"{number}.gdb", outcome, is_exact)
        undos = [cause["undo"] for cause in link["causes"]]
        if link["confirmed"] == "both" and all(undos) and chain["peer"]["kind"] == "twin":
            # The twin has the same input, so that the failing run comes to the same end.
            yield replay(place / f"{number}-undo.gdb", chain["passing"]["outcome"])


def replay(script: Path, expected: str, is_expected: bool = True) -> Replay:
    run = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=TIMEOUT_SECONDS,
    )
    return Replay(script, expected, run.stdout, is_expected)


def shows(shown: str, outcome: str) -> bool:
    """Whether gdb's output has this outcome of a run in it, as a chain tells it."""
    if outcome.startswith("printed "):
        return outcome.removeprefix('printed "').removesuffix('"') in shown
    if outcome.startswith("was killed by "):
        return f"received signal {outcome.split()[3]}" in shown
    if outcome == "exited with status 0":
        return "exited normally" in shown
    return f"exited with code {int(outcome.split()[-1]):02o}]" in shown
