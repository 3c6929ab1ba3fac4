"""Replays the gdb scripts of a chain and tells whether each shows what it should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
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


# Values that gdb and a chain write in the same way: numbers, enumerators, NULL, texts.
COMPARABLE = re.compile(r'-?\d+(\.\d+)?|[A-Z_a-z]\w*|".*"')
# Executions of a place at which the next cause may appear.
MOST_LOOKS = 300
# For gdb's own Python: stop at a place, again and again, and tell what some expressions are there.
LOOK = """
python
import gdb, json
gdb.execute("delete")
there = gdb.Breakpoint({place!r})
def look(expression, level):
    try:
        gdb.execute(f"frame {{level}}", to_string=True)
        return gdb.execute(f"output {{expression}}", to_string=True)
    except gdb.error as error:
        return str(error)
for _ in range({most}):
    gdb.execute("continue")
    if not gdb.selected_inferior().threads() or there.hit_count == 0:
        break
    print("\\nSEEN", json.dumps([look(*one) for one in {expressions!r}]))
end
kill
"""


def find_unled(chain: dict[str, Any], place: Path) -> Iterator[str]:
    """The property of a chain, without any of our own code: each cause, set by plain gdb, makes the next one appear.
    Yields those that are not seen to, among those that gdb can set and compare."""
    for number, (link, later) in enumerate(pairwise(chain["chain"]), start=1):
        causes = [c for c in later["causes"] if COMPARABLE.fullmatch(c["failing"]) and " " not in c["variable"]]
        is_set = link["confirmed"] != "context" and all(cause["assignment"] for cause in link["causes"])
        if not causes or not is_set or not later["follows"]:
            continue
        expected = [cause["failing"] for cause in causes]
        seen = look_behind(place / f"{number}.gdb", later["moment"]["stops"][-1], causes)
        if not any(all(map(is_value, values, expected)) for values in seen):
            yield f"link {number}: {[cause['variable'] for cause in causes]} never are {expected}, but {seen[:20]}"


def look_behind(script: Path, stop: dict[str, Any], causes: Sequence[dict[str, Any]]) -> list[list[str]]:
    """What gdb shows of some variables each time a run that was altered by a script comes to a place."""
    commands, _, _ = script.read_text().partition("echo \\ncausechain: the run goes on")
    where = f"*((char *) &'{stop['file']}'::'{stop['function']}' + {stop['offset']})"
    expressions = [(cause["variable"], cause["frame"] or 0) for cause in causes]
    looking = script.with_suffix(".look")
    looking.write_text(commands + LOOK.format(place=where, most=MOST_LOOKS, expressions=expressions))
    shown = replay(looking, "").shown
    return [json.loads(line.removeprefix("SEEN ")) for line in shown.splitlines() if line.startswith("SEEN ")]


def is_value(seen: str, told: str) -> bool:
    """A text in an array is followed by what lies behind its end."""
    if told == "NULL":
        return seen.endswith("0x0")
    text = re.search(r'".*', seen)
    return text is not None and text[0].startswith(told) if told.startswith('"') else seen.split(" ")[0] == told
