"""Which differences to try before all others: those in variables that the lines to come mention, and those in values
that the failing run wrote and the passing one did not. The causes known at other moments are tried even before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.model.moment import Moment
from pytest_causechain.model.observation import Observation
from pytest_causechain.states.deltas import Delta, StateComparison

IDENTIFIER = re.compile(r"[^\W\d]\w*")
# Shorter ones are anywhere in a memory.
NUMBER = re.compile(rb"-?\d{2,18}")
WORD = re.compile(rb"[^\W\d]\w{2,}")
# Of bytes that an integer may have.
INTEGER_SIZES = (2, 4, 8)


class Likelihood:
    """For the moments of a pair of runs."""

    def __init__(self, program: ProgramMap, passing: Observation, failing: Observation) -> None:
        self._program = program
        said, wrong = (run.stdout + run.stderr for run in (passing, failing))
        self._numbers = {int(n) for n in {*NUMBER.findall(wrong)} - {*NUMBER.findall(said)}}
        self._words = {*WORD.findall(wrong)} - {*WORD.findall(said)}
        self._sources: dict[str, Sequence[str]] = {}

    def choose(self, moment: Moment, comparison: StateComparison) -> frozenset[int]:
        """The numbers of the likely deltas: all of a variable, which belong together."""
        mentioned = self._find_mentioned(moment)
        variables = {number: variable_of(delta) for number, delta in enumerate(comparison.deltas) if delta.slots}
        likely = mentioned & set(variables.values())
        likely |= {name for n, name in variables.items() if self._is_written(comparison, comparison.deltas[n])}
        return frozenset(number for number, name in variables.items() if name in likely)

    def _find_mentioned(self, moment: Moment) -> set[str]:
        """From the line of the moment on, as far as its function goes."""
        function = self._program.function_at(moment.failing[-1].address) if moment.failing else None
        if function is None:
            return set()
        file, line = moment.position.file, moment.position.line
        last = max((s.line for s in function.statements if s.file == file), default=line)
        return {word for text in self._read(file)[line - 1 : last] for word in IDENTIFIER.findall(text)}

    def _read(self, file: str) -> Sequence[str]:
        if file not in self._sources:
            try:
                self._sources[file] = Path(file).read_text(errors="replace").split("\n")
            except (OSError, ValueError):
                self._sources[file] = ()
        return self._sources[file]

    def _is_written(self, comparison: StateComparison, delta: Delta) -> bool:
        slot = delta.slots[0]
        if slot.is_pointer or slot.bits is not None:
            return False
        value = comparison.matching.failing.contents(slot.failing)[slot.offset : slot.offset + slot.size]
        if slot.size in INTEGER_SIZES and int.from_bytes(value, "little", signed=True) in self._numbers:
            return True
        return not self._words.isdisjoint(WORD.findall(value))


def variable_of(delta: Delta) -> str:
    """The name of the one that leads to it."""
    return delta.group[1].rpartition(":")[2]
