"""Turns what two runs have outside their variables into parts that differ, and any of these into what it takes to
change them: code, open files, output, directory, environment."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.open_file import OpenFile
from pytest_causechain.states.environment import read_environment
from pytest_causechain.states.inputs import ABSENT, Edit, input_edits, join_lines, word_edits
from pytest_causechain.states.literals import show_text
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.wording import Wording

PartKind = Literal["code", "input", "position", "output", "directory", "umask", "environment"]
# So much of what was read or written last tells how far a run is.
SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Part:
    """One difference: the code that a repair changes; an `edit`, by number, of what is unread of the file at descriptor
    `number`; the place that a run has come to in a file; what it has written; or something else that has one value, or
    one for each `name`."""

    kind: PartKind
    number: int = 0
    edit: int = 0
    name: bytes = b""


@dataclass(frozen=True, slots=True)
class FilePair:
    """What both runs have open at the same descriptor. Without `edits` the rest goes with the position."""

    passing: OpenFile
    failing: OpenFile
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class OtherCode:
    """An instruction, by its address in the file, that a repair makes another one; and how that is told."""

    address: int
    passing: bytes
    failing: bytes
    told: Wording


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of the greater state is to be changed, and into what; None: nothing. `code` is to be written to an
    address of the run."""

    code: tuple[int, bytes] | None = None
    files: tuple[OpenFile, ...] = ()
    directory: str | None = None
    umask: int | None = None
    environment: dict[bytes, bytes] | None = None


class Greater:
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
        self._obstacles = tuple(find_obstacles(ours, theirs))
        self.environments = (
            read_environment(memories[0], passing.environment),
            read_environment(memories[1], failing.environment),
        )

    @property
    def obstacle(self) -> str | None:
        """What cannot be transferred, should something be missing."""
        return self._obstacles[0] if self._obstacles else None

    def inputs(self) -> Iterator[tuple[Part, Wording]]:
        """What lies ahead of the runs."""
        passing, failing = self._visits
        if self._code is not None:
            yield Part("code"), self._code.told
        for number, pair in self._files.items():
            read = pair.failing.content[: pair.failing.position].count(b"\n")
            for edit, told in word_edits(pair.edits, read, name_file(pair.failing, failing)):
                yield Part("input", number, edit), told
        ours, theirs = self.environments
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            if ours.get(name) != theirs.get(name):
                shown = f"environment {os.fsdecode(name)}"
                yield Part("environment", name=name), word(shown, show_value(ours, name), show_value(theirs, name))
        if passing.directory != failing.directory:
            paths = (show_path(passing.directory), show_path(failing.directory))
            yield Part("directory"), word("working directory", *paths)
        if passing.umask != failing.umask and passing.umask is not None and failing.umask is not None:
            yield Part("umask"), word("umask", f"{passing.umask:#o}", f"{failing.umask:#o}")

    def past(self) -> Iterator[tuple[Part, Wording]]:
        """What the runs have done to their files."""
        for number, pair in self._files.items():
            if pair.passing.role == "output":
                told = word_output(pair)
                kind: PartKind = "output"
            else:
                told = word_position(pair, name_file(pair.failing, self._visits[1]))
                kind = "position"
            if told is not None:
                yield Part(kind, number), told

    def change(self, chosen: Collection[Part], is_forwards: bool) -> Surroundings:
        """Of the passing run when `is_forwards`, else of the failing one."""
        source = self._visits[is_forwards]
        kinds = {part.kind for part in chosen}
        return Surroundings(
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

    def _mix_environment(self, chosen: Collection[Part], is_forwards: bool) -> dict[bytes, bytes]:
        into, source = self.environments if is_forwards else self.environments[::-1]
        names = {part.name for part in chosen if part.kind == "environment"}
        mixed = {name: value for name, value in into.items() if name not in names or name in source}
        return mixed | {name: source[name] for name in names if name in source}


def pair_files(passing: OpenFile, failing: OpenFile) -> FilePair:
    if passing.role != "input" or passing.content == failing.content:
        return FilePair(passing, failing, ())
    edits = input_edits(passing.content[passing.position :], failing.content[failing.position :])
    return FilePair(passing, failing, edits)


def mix_file(pair: FilePair, chosen: Collection[Part], is_forwards: bool) -> OpenFile:
    into, source = (pair.passing, pair.failing) if is_forwards else (pair.failing, pair.passing)
    if not pair.edits:
        return replace(source, number=into.number)
    lines = [
        edit.failing if (Part("input", into.number, number) in chosen) == is_forwards else edit.passing
        for number, edit in enumerate(pair.edits)
    ]
    rest = join_lines(lines)
    known = source if Part("position", into.number) in chosen else into
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


def is_alike(visit: Visit, failing: Visit, part: Part, memories: tuple[Memory, Memory]) -> bool:
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


def word(name: str, passing: str, failing: str, key: str | None = None, group: str = "surroundings") -> Wording:
    return Wording(key or name, name, "", passing, failing, (group, name))


def show_path(path: str) -> str:
    return show_text(os.fsencode(path))


def show_value(environment: dict[bytes, bytes], name: bytes) -> str:
    return show_text(environment[name]) if name in environment else ABSENT


def word_position(pair: FilePair, name: str) -> Wording | None:
    passing, failing = pair.passing, pair.failing
    if passing.role == "input" and see_past(passing) == see_past(failing):
        return None
    if passing.role == "scratch" and (see_past(passing), passing.content) == (see_past(failing), failing.content):
        return None
    key = f"position in {name}"
    if passing.position != failing.position:
        return word(f"position in {name.removeprefix('file ')}", str(passing.position), str(failing.position), key)
    ours, theirs = (show_tail(file.content[: file.position] + file.pending) for file in (passing, failing))
    if ours == theirs:
        ours, theirs = ("at its end" if file.is_at_end else "not at its end" for file in (passing, failing))
    return word(f"what was read of {name.removeprefix('file ')}", ours, theirs, key)


def word_output(pair: FilePair) -> Wording | None:
    passing, failing = pair.passing, pair.failing
    if (passing.content, passing.position, passing.pending) == (failing.content, failing.position, failing.pending):
        return None
    ours, theirs = (show_tail(file.content + file.pending) for file in (passing, failing))
    if ours == theirs:
        ours, theirs = (f"{len(file.content)} bytes written" for file in (passing, failing))
    return word(f"{failing.name} so far", ours, theirs, group="output")


def show_tail(text: bytes) -> str:
    return show_text(text[-SHOWN_BYTES:]) if text else '""'
