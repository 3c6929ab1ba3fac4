"""Replays the gdb scripts of a chain and tells whether each shows what it should."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

# Long enough for gdb to count 100,000 executions on a busy machine; a program that hangs by its defect has no script
# that ends.
TIMEOUT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Replay:
    """A script, what the end of its run should look like, or must not, and what gdb showed."""

    script: Path
    expected: str
    shown: str
    is_expected: bool = True

    @property
    def is_as_expected(self) -> bool:
        return (
            "Error in sourced command file" not in self.shown and shows(self.shown, self.expected) == self.is_expected
        )


def replay_all(chain: dict[str, Any], place: Path) -> Iterator[Replay]:
    """Each script of a link that was seen to do it alone."""
    for link in chain["chain"]:
        if link["confirmed"] != "context" and link["script"] is not None:
            # Beside a neighbour, whose input is another one, only the symptom appears.
            is_exact = chain["peer"]["kind"] == "twin" or chain["oracle"]["kind"] in ("crash", "exit")
            outcome = chain["failing" if is_exact else "passing"]["outcome"]
            yield replay(place / link["script"], outcome, is_exact)
        if link["undo_script"] is not None and chain["peer"]["kind"] == "twin":
            # The twin has the same input, so that the failing run comes to the same end.
            yield replay(place / link["undo_script"], chain["passing"]["outcome"])


def replay(script: Path, expected: str, is_expected: bool = True) -> Replay:
    """The program's output goes to a file: gdb's own text would stand in the middle of it."""
    output, apart = script.with_suffix(".out"), script.with_suffix(".apart")
    output.unlink(missing_ok=True)
    text = script.read_text(encoding="utf-8", errors="surrogateescape")
    text = re.sub(r"^(set args .*)$", lambda found: f"{found[0]} > {shlex.quote(str(output))}", text, flags=re.M)
    apart.write_text(text, encoding="utf-8", errors="surrogateescape")
    run = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(apart)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=TIMEOUT_SECONDS,
    )
    printed = output.read_text(encoding="utf-8", errors="surrogateescape") if output.exists() else ""
    return Replay(script, expected, run.stdout + printed, is_expected)


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
# Executions of a place at which the next cause may appear; behind them it is waited for.
MOST_LOOKS = 300
# For gdb's own Python: stop at a place, again and again, and tell what some expressions are there.
LOOK = """
python
import gdb, json
gdb.execute("delete")
gdb.execute("set print object on")
gdb.execute("set print null-stop on")
there = gdb.Breakpoint({place!r})
def look(expression, level):
    try:
        gdb.execute(f"frame {{level}}", to_string=True)
        return gdb.execute(f"output {{expression}}", to_string=True)
    except gdb.error:
        return None
class Waiting(gdb.Breakpoint):
    def stop(self):
        return all(map(self.is_there, {expressions!r}, {expected!r}))
    def is_there(self, one, told):
        frame = gdb.newest_frame()
        for _ in range(one[1]):
            frame = frame.older()
        frame.select()
        value = str(gdb.parse_and_eval(one[0]))
        return "0x0" in value if told == "NULL" else told in value if told[0] == '"' else value.split(" ")[0] == told
for number in range({most} + 1):
    if number == {most}:
        there.delete()
        there = Waiting({place!r})
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
        causes = [cause for cause in later["causes"] if is_comparable(cause)]
        is_set = link["confirmed"] != "context" and link["script"] is not None
        if not causes or not is_set or not later["follows"]:
            continue
        expected = [cause["failing"] for cause in causes]
        seen = look_behind(place / f"{number}.gdb", later["moment"]["stops"][-1], causes)
        if any(None in values for values in seen):
            continue  # nor can gdb read all that we can name
        if not any(all(map(is_value, values, expected)) for values in seen):
            yield f"link {number}: {[cause['variable'] for cause in causes]} never are {expected}, but {seen[:20]}"


def is_comparable(cause: dict[str, Any]) -> bool:
    """What a pointer leads to goes by another name in gdb."""
    is_value = cause["kind"] == "value" or cause["failing"] == "NULL"
    return is_value and " " not in cause["variable"] and COMPARABLE.fullmatch(cause["failing"]) is not None


def look_behind(script: Path, stop: dict[str, Any], causes: Sequence[dict[str, Any]]) -> list[list[str]]:
    """What gdb shows of some variables each time a run that was altered by a script comes to a place."""
    commands, _, _ = script.read_text().partition("echo \\ncausechain: the run goes on")
    where = f"*((char *) &'{stop['file']}'::'{stop['function']}' + {stop['offset']})"
    expressions = [(write_expression(cause), cause["frame"] or 0) for cause in causes]
    looking = script.with_suffix(".look")
    known = {"expressions": expressions, "expected": [cause["failing"] for cause in causes]}
    looking.write_text(commands + LOOK.format(place=where, most=MOST_LOOKS, **known))
    shown = replay(looking, "").shown
    return [json.loads(line.removeprefix("SEEN ")) for line in shown.splitlines() if line.startswith("SEEN ")]


def write_expression(cause: dict[str, Any]) -> str:
    """Of a text that a pointer leads to gdb would show the first character."""
    is_text = cause["variable"].startswith("*") and "char" in cause["type"]
    return f"(char *) &{cause['variable']}" if is_text else cause["variable"]


def is_value(seen: str, told: str) -> bool:
    """A null pointer may be inside an object that owns it; a text is shown behind its address."""
    if told == "NULL":
        return re.search(r"\b0x0\b", seen) is not None
    text = re.search(r'".*', seen)
    return text is not None and text[0].startswith(told) if told.startswith('"') else seen.split(" ")[0] == told
