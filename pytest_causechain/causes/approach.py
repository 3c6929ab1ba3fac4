"""Makes a passing run that is nearer to the failing one, by delta debugging on what the two were started with.

Arguments, lines of the standard input, environment variables and the directory are told apart first; then the words
of those that decide, then their characters. What is left is the input's part in the failure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_causechain.model.runs import Command, Observation, Outcome
from pytest_causechain.model.sequences import find_edits
from pytest_causechain.search.dd import Trimming, bundle, group_deltas
from pytest_causechain.search.rounds import Outcomes, as_it_is, settle
from pytest_causechain.states.outside import LINE

# Runs for one approach, which shortens all that comes after it.
MOST_RUNS = 100

Source = Literal["argument", "input", "environment", "directory"]
# How a piece of text is divided on each level; not at all on the first.
LEVELS = (None, re.compile(r"\w+|\s+|[^\w\s]"), re.compile(r".", re.DOTALL))
# What is needed for a run to pass is looked for like what is needed for it to fail.
OTHERWISE = {
    Outcome.PASS: Outcome.FAIL,
    Outcome.FAIL: Outcome.PASS,
    Outcome.UNRESOLVED: Outcome.UNRESOLVED,
}


@dataclass(frozen=True, slots=True)
class CommandEdit:
    """From `start` to `end` the failing command has something else than `passing`: of a list of pieces, or, with a
    `piece`, of the tokens of that one. Of an environment variable the piece is the name."""

    source: Source
    start: int = 0
    end: int = 0
    passing: tuple[str | None, ...] = ()
    piece: int | str | None = None


@dataclass(frozen=True, slots=True)
class Nearer:
    """A passing command, and how many of `edits` lead from it to the failing one."""

    command: Command
    edits: int


class _Enough(Exception):
    """No more runs."""


def approach(
    passing: Command, failing: Command, run: Callable[[Command], Observation], judge: Callable[[Observation], Outcome]
) -> Nearer | None:
    """None when none is found that is nearer than `passing`."""
    runs = 0

    def try_command(command: Command) -> Outcome:
        nonlocal runs
        runs += 1
        if runs > MOST_RUNS:
            raise _Enough
        return judge(run(command))

    nearer: Nearer | None = None
    inputs = {file.path: file for file in (*failing.inputs, *passing.inputs)}
    start = passing._replace(
        program=failing.program, argv=(*failing.argv[:1], *passing.argv[1:]), inputs=tuple(inputs.values())
    )
    try:
        for level in range(len(LEVELS)):
            mixture = Mixture(nearer.command if nearer is not None else start, failing, level)
            found = _narrow(mixture, try_command)
            if found is None:
                break
            if found.command != start:
                nearer = found
    except _Enough:
        pass
    return nearer


def _narrow(mixture: Mixture, try_command: Callable[[Command], Outcome]) -> Nearer | None:
    """The failing command with as few edits undone as possible, so that it passes."""
    edits = mixture.edits
    everything = frozenset(range(len(edits)))

    def try_undone(undone: frozenset[int]) -> Outcome:
        return OTHERWISE[try_command(mixture.compose(everything - undone))]

    outcomes = Outcomes[frozenset[int], Outcome](lambda tried: map(try_undone, tried), as_it_is)
    if not edits or outcomes(everything) is not Outcome.FAIL or outcomes(frozenset()) is not Outcome.PASS:
        return None
    units = group_deltas(range(len(edits)), lambda number: (edits[number].source,))
    undone = settle(Trimming(everything, (bundle(units),)), outcomes).failing
    return Nearer(mixture.compose(everything - undone), len(undone))


class Mixture:
    """What lies between two commands: each edit is made, as in the failing one, or not."""

    def __init__(self, passing: Command, failing: Command, level: int) -> None:
        self._passing, self._failing = passing, failing
        self._tokens = LEVELS[level]
        self._arguments = list(failing.argv[1:])
        self._lines = split_lines(failing.stdin)
        self.edits: tuple[CommandEdit, ...] = tuple(self._find_edits())

    def _find_edits(self) -> Iterator[CommandEdit]:
        passing, failing = self._passing, self._failing
        yield from self._find_in_list("argument", passing.argv[1:], self._arguments)
        yield from self._find_in_list("input", split_lines(passing.stdin), self._lines)
        ours, theirs = dict(passing.environment), dict(failing.environment)
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name) or (name in ours) != (name in theirs):
                yield CommandEdit("environment", passing=(ours.get(name),), piece=name)
        if passing.cwd != failing.cwd:
            yield CommandEdit("directory", passing=(passing.cwd,))

    def _find_in_list(self, source: Source, passing: Sequence[str], failing: Sequence[str]) -> Iterator[CommandEdit]:
        for i1, i2, j1, j2 in find_edits(passing, failing):
            is_pair = i2 - i1 == j2 - j1 == 1
            # Half of a path leads nowhere.
            is_path = source == "argument" and any(os.sep in text for text in (*passing[i1:i2], *failing[j1:j2]))
            if self._tokens is not None and is_pair and not is_path:
                ours, theirs = self._tokens.findall(passing[i1]), self._tokens.findall(failing[j1])
                for k1, k2, m1, m2 in find_edits(ours, theirs):
                    yield CommandEdit(source, m1, m2, tuple(ours[k1:k2]), j1)
            else:
                yield CommandEdit(source, j1, j2, tuple(passing[i1:i2]))

    def compose(self, made: frozenset[int]) -> Command:
        """The failing command with all other edits undone."""
        undone = [edit for number, edit in enumerate(self.edits) if number not in made]
        environment = dict(self._failing.environment)
        for edit in undone:
            if edit.source == "environment":
                environment[str(edit.piece)] = edit.passing[0]
        directory = next((edit.passing[0] for edit in undone if edit.source == "directory"), None)
        arguments = self._undo("argument", self._arguments, undone)
        lines = self._undo("input", self._lines, undone)
        return self._failing._replace(
            argv=(*self._failing.argv[:1], *arguments),
            stdin="".join(lines).encode("latin-1"),
            environment=tuple(sorted(environment.items())),
            cwd=directory or self._failing.cwd,
        )

    def _undo(self, source: Source, pieces: Sequence[str], undone: Sequence[CommandEdit]) -> list[str]:
        own = [edit for edit in undone if edit.source == source]
        result = list(pieces)
        for number in {edit.piece for edit in own if isinstance(edit.piece, int)}:
            assert self._tokens is not None  # else no edit is inside of a piece
            tokens = self._tokens.findall(pieces[number])
            result[number] = "".join(replace_parts(tokens, [edit for edit in own if edit.piece == number]))
        return replace_parts(result, [edit for edit in own if edit.piece is None])


def replace_parts(parts: Sequence[str], edits: Sequence[CommandEdit]) -> list[str]:
    """The edits come in order."""
    result = list(parts)
    for edit in reversed(edits):
        result[edit.start : edit.end] = [text for text in edit.passing if text is not None]
    return result


def split_lines(stdin: bytes) -> list[str]:
    """As C's input functions take them; each byte is a character."""
    return [line.decode("latin-1") for line in LINE.findall(stdin)]
