"""Turns what two runs have outside their variables into parts that differ, and any of these into what it takes to
change them: code, open files, unread input line by line, output, directory, environment."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Never

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.alteration import OpenFile
from pytest_causechain.model.sequences import find_edits
from pytest_causechain.states.layout import show_text
from pytest_causechain.states.memory import WORD, Memory

# A program whose memory is ruined may have a vector without end.
VARIABLES_LIMIT = 10_000
ABSENT = ""
# Only what C's input functions take for the end of a line.
LINE = re.compile(rb"[^\n]*\n|[^\n]+")
OutsideKind = Literal["code", "input", "position", "output", "directory", "umask", "environment"]
# So much of what was read or written last tells how far a run is.
SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class OutsidePart:
    """What differs: the code that a repair changes; an `edit`, by number, of what is unread of the file at descriptor
    `number`; the place that a run has come to in a file; what it has written; or something else that has one value, or
    one for each `name`."""

    kind: OutsideKind
    number: int = 0
    edit: int = 0
    name: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class OutsideDelta:
    """One difference of the state outside, told as those of the memory are (see Delta)."""

    key: str
    name: str
    type: str
    passing: str
    failing: str
    group: tuple[str, ...] = ()
    part: OutsidePart = OutsidePart("code")
    # The first and the last one, of an input's.
    lines: tuple[int, int] | None = None
    frame = assignment = undo = value_key = None
    spots: ClassVar[tuple[Never, ...]] = ()
    requires: ClassVar[tuple[Never, ...]] = ()

    @property
    def kind(self) -> OutsideKind:
        return self.part.kind


def read_environment(memory: Memory, environment: tuple[int, int] | None) -> dict[bytes, bytes]:
    """By name; nothing where it is not known. Of two variables of one name the program finds the first."""
    return {
        name: value
        for text in reversed(list_texts(memory, environment))
        for name, separator, value in (text.partition(b"="),)
        if separator
    }


def list_texts(memory: Memory, environment: tuple[int, int] | None) -> list[bytes]:
    texts: list[bytes] = []
    address = environment[1] if environment is not None else 0
    while address and len(texts) < VARIABLES_LIMIT and (pointer := memory.word(address)):
        texts.append((memory.read_text(pointer) or b"").rstrip(b"\0"))
        address += WORD.size
    return texts


@dataclass(frozen=True, slots=True)
class InputEdit:
    """Lines of the passing run's unread input and the failing run's lines in their place."""

    passing: tuple[bytes, ...]
    failing: tuple[bytes, ...]
    differs: bool


def input_edits(passing: bytes, failing: bytes) -> tuple[InputEdit, ...]:
    """Each line that differs is an edit by itself, so that it can be a cause of its own."""
    ours, theirs = LINE.findall(passing), LINE.findall(failing)
    edits: list[InputEdit] = []
    here = there = 0
    for i1, i2, j1, j2 in (*find_edits(ours, theirs), (len(ours), len(ours), len(theirs), len(theirs))):
        if here < i1:
            edits.append(InputEdit(tuple(ours[here:i1]), tuple(theirs[there:j1]), False))
        if i1 < i2 or j1 < j2:
            edits.append(InputEdit(tuple(ours[i1:i2]), tuple(theirs[j1:j2]), True))
        here, there = i2, j2
    return tuple(edits)


def join_lines(parts: Sequence[Sequence[bytes]]) -> bytes:
    """The last line of an input may lack its end; where others follow it, it gets one."""
    lines = [line for part in parts for line in part]
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines[:-1]) + b"".join(lines[-1:])


def word_edits(
    edits: tuple[InputEdit, ...], lines_read: int, source: str = "stdin", number: int = 0
) -> Iterator[OutsideDelta]:
    """Each edit, of what is unread at descriptor `number`, that makes a difference."""
    line = lines_read + 1
    hunk = 0
    for place, edit in enumerate(edits):
        if not edit.differs:
            hunk = place
        else:
            last = max(line, line + len(edit.failing) - 1)
            name = f"lines {line}-{last}" if last > line else f"line {line}"
            yield OutsideDelta(
                key=source,  # which of its lines decides may change as it is read; it is one input
                name=f"{source} {name}",
                type="input",
                passing=show_lines(edit.passing),
                failing=show_lines(edit.failing),
                # Lines that follow one another belong together.
                group=("input", source, f"hunk {hunk}", name),
                part=OutsidePart("input", number, place),
                lines=(line, last),
            )
        line += len(edit.failing)


def show_lines(lines: tuple[bytes, ...]) -> str:
    return show_text(b"".join(lines).rstrip(b"\n").replace(b"\0", b"\\0")) if lines else ABSENT


@dataclass(frozen=True, slots=True)
class FilePair:
    """What both runs have open at the same descriptor. Without `edits` the rest goes with the position."""

    passing: OpenFile
    failing: OpenFile
    edits: tuple[InputEdit, ...]


@dataclass(frozen=True, slots=True)
class OtherCode:
    """An instruction, by its address in the file, that a repair makes another one; and how that is told."""

    address: int
    passing: bytes
    failing: bytes
    told: OutsideDelta


@dataclass(frozen=True, slots=True)
class OutsideChange:
    """What outside the variables is to be changed, and into what; None: nothing. `code` is to be written to an
    address of the run."""

    code: tuple[int, bytes] | None = None
    files: tuple[OpenFile, ...] = ()
    directory: str | None = None
    umask: int | None = None
    environment: dict[bytes, bytes] | None = None


class OutsideState:
    """That of both runs at a moment. What they are yet to execute is a part of it too: the `code` of a twin may bring
    about later what its variables do not show yet."""

    def __init__(
        self, passing: Visit, failing: Visit, memories: tuple[Memory, Memory], code: OtherCode | None = None
    ) -> None:
        self._visits, self._code = (passing, failing), code
        ours, theirs = ({file.number: file for file in visit.files} for visit in (passing, failing))
        self._files = {
            number: pair_files(ours[number], theirs[number])
            for number in sorted(ours.keys() & theirs.keys())
            if ours[number].role == theirs[number].role != "other"
        }
        # What cannot be transferred, should something be missing.
        self.obstacle = next(find_obstacles(ours, theirs), None)
        self.environments = (
            read_environment(memories[0], passing.environment),
            read_environment(memories[1], failing.environment),
        )

    def inputs(self) -> Iterator[OutsideDelta]:
        """What lies ahead of the runs."""
        passing, failing = self._visits
        if self._code is not None:
            yield self._code.told
        for number, pair in self._files.items():
            read = pair.failing.content[: pair.failing.position].count(b"\n")
            yield from word_edits(pair.edits, read, name_file(pair.failing, failing), number)
        ours, theirs = self.environments
        for name in dict.fromkeys([*theirs, *ours]):
            if ours.get(name) != theirs.get(name):
                shown = show_value(ours, name), show_value(theirs, name)
                yield word(OutsidePart("environment", name=name), f"environment {os.fsdecode(name)}", *shown)
        if passing.directory != failing.directory:
            paths = (show_path(passing.directory), show_path(failing.directory))
            yield word(OutsidePart("directory"), "working directory", *paths)
        if passing.umask != failing.umask and passing.umask is not None and failing.umask is not None:
            yield word(OutsidePart("umask"), "umask", f"{passing.umask:#o}", f"{failing.umask:#o}")

    def past(self) -> Iterator[OutsideDelta]:
        """What the runs have done to their files."""
        for number, pair in self._files.items():
            if pair.passing.role == "output":
                told = word_output(number, pair)
            else:
                told = word_position(number, pair, name_file(pair.failing, self._visits[1]))
            if told is not None:
                yield told

    def change(self, chosen: Collection[OutsidePart], is_forwards: bool) -> OutsideChange:
        """Of the passing run when `is_forwards`, else of the failing one."""
        source = self._visits[is_forwards]
        kinds = {part.kind for part in chosen}
        return OutsideChange(
            self._place_code(is_forwards) if "code" in kinds else None,
            tuple(
                mix_file(pair, chosen, is_forwards)
                for number, pair in self._files.items()
                if any(part.number == number and part.kind in ("input", "position", "output") for part in chosen)
            ),
            source.directory if "directory" in kinds else None,
            source.umask if "umask" in kinds else None,
            self._mix_environment(chosen, is_forwards) if "environment" in kinds else None,
        )

    def _place_code(self, is_forwards: bool) -> tuple[int, bytes]:
        assert self._code is not None  # else there is no such part
        into = self._visits[not is_forwards]
        return into.load_map.to_run(self._code.address), self._code.failing if is_forwards else self._code.passing

    def _mix_environment(self, chosen: Collection[OutsidePart], is_forwards: bool) -> dict[bytes, bytes]:
        into, source = self.environments if is_forwards else self.environments[::-1]
        names = {part.name for part in chosen if part.kind == "environment"}
        mixed = {name: value for name, value in into.items() if name not in names or name in source}
        return mixed | {name: source[name] for name in names if name in source}


def pair_files(passing: OpenFile, failing: OpenFile) -> FilePair:
    if passing.role != "input" or passing.content == failing.content:
        return FilePair(passing, failing, ())
    edits = input_edits(passing.content[passing.position :], failing.content[failing.position :])
    return FilePair(passing, failing, edits)


def mix_file(pair: FilePair, chosen: Collection[OutsidePart], is_forwards: bool) -> OpenFile:
    into, source = (pair.passing, pair.failing) if is_forwards else (pair.failing, pair.passing)
    if not pair.edits:
        return replace(source, number=into.number)
    lines = [
        edit.failing if (OutsidePart("input", into.number, number) in chosen) == is_forwards else edit.passing
        for number, edit in enumerate(pair.edits)
    ]
    rest = join_lines(lines)
    known = source if OutsidePart("position", into.number) in chosen else into
    return replace(
        known,
        number=into.number,
        content=known.content[: known.position] + rest,
        is_at_end=known.is_at_end and not rest,
        modified_ns=source.modified_ns,
    )


def find_obstacles(ours: dict[int, OpenFile], theirs: dict[int, OpenFile]) -> Iterator[str]:
    for number in sorted(ours.keys() | theirs.keys()):
        passing, failing = ours.get(number), theirs.get(number)
        if passing is None or failing is None:
            side, file = ("passing", passing) if passing is not None else ("failing", failing)
            assert file is not None
            yield f"only the {side} run has {file.name} open"
        elif "other" in (passing.role, failing.role):
            file = failing if failing.role == "other" else passing
            yield f"{file.name} is open, which no other run can be given"
        elif passing.role != failing.role:
            yield f"the runs have opened {failing.name} in different ways"


def is_alike(visit: Visit, failing: Visit, part: OutsidePart, memories: tuple[Memory, Memory]) -> bool:
    """Whether a third run has come to have what the failing one has."""
    if part.kind == "directory":
        return visit.directory == failing.directory
    if part.kind == "umask":
        return visit.umask == failing.umask
    if part.kind == "environment":
        ours = read_environment(memories[0], visit.environment)
        return ours.get(part.name) == read_environment(memories[1], failing.environment).get(part.name)
    found = [next((file for file in v.files if file.number == part.number), None) for v in (visit, failing)]
    return all(file is not None for file in found) and len({see_past(file) for file in found if file}) == 1


def see_past(file: OpenFile) -> tuple[bytes, int, bytes, bool]:
    return file.content[: file.position], file.position, file.pending, file.is_at_end


def name_file(file: OpenFile, visit: Visit) -> str:
    """As a reader knows it: relative to the directory of the run, if it is there."""
    if file.name == "stdin" or file.role == "output":
        return file.name
    if file.role == "scratch":
        return "scratch file"
    directory = f"{visit.directory}/"
    return f"file {show_name(file.name.removeprefix(directory))}"


def show_name(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def word(part: OutsidePart, name: str, passing: str, failing: str, key: str | None = None) -> OutsideDelta:
    group = "output" if part.kind == "output" else "surroundings"
    return OutsideDelta(key or name, name, "", passing, failing, (group, name), part)


def show_path(path: str) -> str:
    return show_text(os.fsencode(path))


def show_value(environment: dict[bytes, bytes], name: bytes) -> str:
    return show_text(environment[name]) if name in environment else ABSENT


def word_position(number: int, pair: FilePair, name: str) -> OutsideDelta | None:
    passing, failing = pair.passing, pair.failing
    if passing.role == "input" and see_past(passing) == see_past(failing):
        return None
    if passing.role == "scratch" and (see_past(passing), passing.content) == (see_past(failing), failing.content):
        return None
    part, key, file = OutsidePart("position", number), f"position in {name}", name.removeprefix("file ")
    if passing.position != failing.position:
        return word(part, f"position in {file}", str(passing.position), str(failing.position), key)
    ours, theirs = (show_tail(file.content[: file.position] + file.pending) for file in (passing, failing))
    if ours == theirs:
        ours, theirs = ("at its end" if file.is_at_end else "not at its end" for file in (passing, failing))
    return word(part, f"what was read of {file}", ours, theirs, key)


def word_output(number: int, pair: FilePair) -> OutsideDelta | None:
    passing, failing = pair.passing, pair.failing
    if (passing.content, passing.position, passing.pending) == (failing.content, failing.position, failing.pending):
        return None
    ours, theirs = (show_tail(file.content + file.pending) for file in (passing, failing))
    if ours == theirs:
        ours, theirs = (f"{len(file.content)} bytes written" for file in (passing, failing))
    return word(OutsidePart("output", number), f"{failing.name} so far", ours, theirs)


def show_tail(text: bytes) -> str:
    return show_text(text[-SHOWN_BYTES:]) if text else '""'
