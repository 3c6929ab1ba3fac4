"""Interventions in copies of a run, and what must be known to choose them: places, coverage, values."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_causechain.debugger.program import Signature
from pytest_causechain.debugger.scope import LIBRARY_MEMBER, Scope
from pytest_causechain.debugger.visit import VisitedFrame
from pytest_causechain.kernel.elf import find_build_id, read_sections
from pytest_causechain.kernel.processes import read_mappings
from pytest_causechain.lab.flights import Job, Limits
from pytest_causechain.lab.laboratory import Side, name_other
from pytest_causechain.lab.ptrace_lab import PtraceLab
from pytest_causechain.lab.starting_lab import ending
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Like, Patch, SeenValues, Sighting, Spot
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.place import Place
from pytest_causechain.sandbox.stage import Stage
from pytest_causechain.sandbox.subject import Subject
from pytest_causechain.tracee.alteration import (
    TooOften,
    find_anchor,
    pass_by,
    read_comparison,
    read_value,
    watch,
    watch_writes,
)
from pytest_causechain.tracee.effects import Compared, Effect, Effects, Variant
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import NotReached
from pytest_causechain.tracee.tracer import Marks

# The side of a command that is run once.
OTHERWISE: Side = "otherwise"


# To a place between two moments; a loop counter tells nothing that takes longer to find.
MOST_WRITES = 2_000
# Executions of each comparison.
COMPARISONS_WATCHED = 8


class InterveningLab(PtraceLab):
    """Knows of `others`, further runs of the program, too. With a `repair`, the passing run is the failing one with
    this repair, and both begin where it is made: before that they are the same."""

    def __init__(
        self,
        passing: Command,
        failing: Command,
        deadline: float,
        use_copies: bool = True,
        libraries: Sequence[str] = (),
        cache: Path | None = None,
        others: Sequence[Command] = (),
        repair: Intervention | Patch | None = None,
        stage: Stage | None = None,
    ) -> None:
        self._repair = repair
        self.begins_inside = isinstance(repair, Intervention)
        # For coverage, and of which addresses.
        self._marks: Marks | None = None
        self._marked: frozenset[int] | None = None
        super().__init__(passing, failing, deadline, use_copies, libraries, cache, stage)
        self._commands |= {name_other(number): command for number, command in enumerate(others)}

    def close(self) -> None:
        self._forget_marks()
        super().close()

    def _launch(self, side: Side, deadline: float) -> Subject:
        subject = super()._launch(side, deadline)
        try:
            if isinstance(self._repair, Intervention):
                self._run_to(subject, self._repair.spot.stops, deadline)
            if self._repair is not None and side == "passing":
                self._apply(subject, self._repair)
            elif isinstance(self._repair, Intervention):
                pass_by(subject, self._repair.spot)
        except BaseException:
            subject.kill()
            raise
        return subject

    def layout(self, side: Side, stops: Sequence[Stop]) -> str:
        """Tells runs apart that do not have everything in the same places when they stand at the stops: what is written
        to an address of the one means something else in the other."""
        try:
            with ending(self._reach(side, stops, self._begin())) as subject:
                registers, mappings = subject.registers(), read_mappings(subject.pid)
        except NotReached:
            return "not reached"
        places = [(m.start, m.end, m.permissions, Path(m.name).name) for m in mappings]
        versions = [] if stops else [find_version(name) for name in sorted({m.name for m in mappings})]
        return hashlib.sha256(repr((registers.rip, registers.rsp, places, versions)).encode()).hexdigest()

    def observe(self, command: Command) -> Observation:
        """What the program shows when it is started in another way."""
        self._commands[OTHERWISE] = command
        try:
            return self.experiment(OTHERWISE)
        finally:
            self._forget(OTHERWISE)

    def find_writer(
        self, side: Side, stops: Sequence[Stop], then: Sequence[Stop], address: int, size: int
    ) -> Place | None:
        """The statement of the program's own code that last wrote to a place on the way from stops to further ones,
        itself or by what it calls; None where that is not seen: the system may have written."""
        deadline = self._begin()
        try:
            with ending(self._reach(side, stops, deadline)) as subject:
                writes = watch_writes(subject, address, size, then, deadline, MOST_WRITES)
                if not writes:
                    return None
                last = subject.landmarks.load_map.to_file(writes[-1] - 1)
                if self.program.function_at(last) is not None:
                    position = self.program.position_of(last)
                    return Place(position.file, position.line, position.function)
            with ending(self._reach(side, stops, deadline)) as subject:
                watch_writes(subject, address, size, then, deadline, MOST_WRITES, until=len(writes))
                own = next((frame for frame in self._see(subject) if frame.file is not None), None)
                return Place(own.file, own.line, own.function) if own is not None and own.file is not None else None
        except (NotReached, ProcessGone, TooOften, OSError):
            return None

    def signatures(self) -> dict[int, Signature]:
        """Of the program's own functions, by address."""
        return self._debugger.signatures

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant], Compared]:
        """Of the code of some functions, given by their addresses; and what they compare in the failing run."""
        deadline = self._begin()
        found = []
        with ending(self._start("failing", deadline)) as subject:
            for address in functions:
                function = self.program.function_at(address)
                assert function is not None
                start = subject.landmarks.load_map.to_run(function.address)
                code = subject.read(start, function.end - function.address)
                found.append(Effects(function.address, code, self._rows))
            pairs: dict[tuple[int, int], None] = {}

            def look(_address: int) -> None:
                with contextlib.suppress(OSError):  # of what is not there: the run ends here
                    pairs[read_comparison(subject)] = None

            watch(subject, [a for one in found for a in one.comparisons()], COMPARISONS_WATCHED, deadline, look)
        compared: dict[int, dict[int, None]] = defaultdict(dict)
        for one, other in pairs:
            compared[one][other] = compared[other][one] = None
        others = {number: tuple(with_) for number, with_ in compared.items()}
        constants = sorted({constant for effects in found for constant in effects.constants()})
        variants = [variant for effects in found for variant in effects.variants(others, constants)]
        return [effect for effects in found for effect in effects.find()], variants, others

    def cover(self, side: Side, addresses: Collection[int], is_last: bool = False) -> frozenset[int]:
        """Those of the addresses that a run executes; `is_last`: the run is made for nothing else any more."""
        try:
            return self._cover(side, addresses)
        finally:
            if is_last:
                self._forget(side)

    def _cover(self, side: Side, addresses: Collection[int]) -> frozenset[int]:
        deadline = self._begin()
        with contextlib.suppress(OSError):
            marks = self._make_marks(side, frozenset(addresses), deadline)
            with ending(self._start(side, deadline)) as subject:
                if subject.landmarks.load_map == marks.load_map:
                    covered, output = marks.cover(subject, deadline), subject.outputs()[0]
                    # There are programs that look at their own code, or jump where no compiler would.
                    if output == self._natural_output(side) or time.monotonic() >= deadline:
                        return covered
        with ending(self._start(side, deadline)) as subject:
            return frozenset(watch(subject, addresses, 1, deadline))

    def _make_marks(self, side: Side, addresses: frozenset[int], deadline: float) -> Marks:
        """Once; the process that they are made for cannot be used any more."""
        if self._marked != addresses:
            self._forget_marks()
            with ending(self._start(side, deadline)) as subject:
                self._marks = Marks(subject, [self._watch(address) for address in addresses], self._rows)
            self._marked = addresses
        assert self._marks is not None
        return self._marks

    def _forget_marks(self) -> None:
        if self._marks is not None:
            self._marks.close()
        self._marks, self._marked = None, None

    def count(self, addresses: Collection[int], most: int) -> dict[int, int]:
        """How often the failing run executes each address, as far as `most`."""
        deadline = self._begin()
        with ending(self._start("failing", deadline)) as subject:
            return dict(watch(subject, addresses, most, deadline))

    def values(self, side: Side, effects: Sequence[Effect], most: int) -> SeenValues:
        """The first few values that a run stores, passes or returns at each address, by register."""
        by_address: dict[int, list[Effect]] = defaultdict(list)
        for effect in effects:
            by_address[effect.address].append(effect)
        seen: dict[tuple[int, str], dict[bytes, None]] = defaultdict(dict)

        def look(subject: Subject, address: int) -> None:
            for effect in by_address[address]:
                spot = Spot(effect.kind, (), effect.register, effect.size)
                seen[address, effect.register][read_value(subject, spot)[0]] = None

        deadline = self._begin()
        with ending(self._start(side, deadline)) as subject:
            watch(subject, list(by_address), most, deadline, partial(look, subject))
        return {key: tuple(values) for key, values in seen.items()}

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        """None where the run does not get. One run shows all first visits, a copy each of the others."""
        firsts = self._first_sights(side, [spot for spot in spots if is_first(spot)])
        return [firsts.get(spot) if is_first(spot) else self._sight(side, spot) for spot in spots]

    def _first_sights(self, side: Side, spots: Sequence[Spot]) -> dict[Spot, Sighting]:
        by_address: dict[int, list[Spot]] = defaultdict(list)
        for spot in spots:
            by_address[spot.stops[-1].address].append(spot)
        seen: dict[Spot, Sighting] = {}
        deadline = self._begin()

        def look(subject: Subject, address: int) -> None:
            for spot in by_address[address]:
                seen[spot] = self._sight_at(side, spot, subject, deadline)

        if by_address:
            with ending(self._start(side, deadline)) as subject:
                watch(subject, list(by_address), 1, deadline, partial(look, subject))
        return seen

    def _sight(self, side: Side, spot: Spot) -> Sighting | None:
        deadline = self._begin()
        try:
            with ending(self._reach(side, spot.stops, deadline)) as subject:
                return self._sight_at(side, spot, subject, deadline)
        except (NotReached, ProcessGone):
            return None

    def _sight_at(self, side: Side, spot: Spot, subject: Subject, deadline: float) -> Sighting:
        """`subject` stands at the spot."""
        frame = self._innermost_frame(side, spot, subject, deadline)
        was, address = read_value(subject, spot)
        return self._describe(subject, frame, was, address, spot.type)

    def _innermost_frame(self, side: Side, spot: Spot, subject: Subject, deadline: float) -> VisitedFrame | None:
        """gdb, which ends what it looks at, is shown another copy, once for each function."""
        chain, sp = self._chain(subject), subject.registers().rsp
        layouts = self._debugger.layouts
        frames = layouts.frames(chain, sp)
        if frames is None and layouts.unknown(chain, subject.landmarks.load_map):
            with ending(self._reach(side, spot.stops, deadline)) as other:
                frames = self._ask_gdb(other, chain)
        return frames[0] if frames else None

    def _describe(
        self, subject: Subject, frame: VisitedFrame | None, was: bytes, address: int, kind: int | None
    ) -> Sighting:
        scope = Scope(self.program.types, subject.read)
        if frame is not None:
            scope.add(frame.variables)
        thread_pointer, load_map = subject.registers().fs_base, subject.landmarks.load_map
        for row in self.program.globals:
            is_of_thread = row.get("thread", False)
            place = thread_pointer + row["address"] if is_of_thread else load_map.to_run(row["address"])
            scope.add_global(row["name"], place, row["type"])
        leaf = scope.locate(address, len(was)) if address else None
        kind = leaf.type if leaf is not None else kind
        likes = scope.likes(was, kind, address)
        if kind is not None and self.program.types[kind]["kind"] == "pointer":
            likes = tuple(anchored(subject, like) for like in likes)
        return Sighting(was, LIBRARY_MEMBER.sub("", leaf.name) if leaf is not None else None, kind, likes)

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        """The value at a spot behind an intervention; None where the run does not get."""
        deadline = self._begin()
        try:
            with ending(self._reach(side, intervention.spot.stops, deadline)) as subject:
                self._apply(subject, intervention)
                self._run_to(subject, spot.stops, deadline)
                return read_value(subject, spot)[0]
        except (NotReached, ProcessGone):
            return None

    def interventions(
        self, side: Side, interventions: Sequence[Intervention | Patch], limits: Limits
    ) -> list[Observation]:
        """What each of them, alone, makes of the run."""
        return self._fly(side, [make_job(side, intervention, limits) for intervention in interventions])


def is_first(spot: Spot) -> bool:
    return all(stop.visit == 1 for stop in spot.stops)


def find_version(path: str) -> str | None:
    """Of a mapped file with code in it."""
    try:
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return find_build_id(content, read_sections(content))
    except (OSError, ValueError, struct.error):
        return None  # no file, or none of this kind


def anchored(subject: Subject, like: Like) -> Like:
    address = int.from_bytes(like.data, "little")
    return replace(like, anchor=find_anchor(subject, address)) if address else like


def make_job(side: Side, intervention: Intervention | Patch, limits: Limits) -> Job:
    if isinstance(intervention, Patch):
        return Job((), intervention, limits)
    # A branch has only one other way, a value has many others; passing runs are asked about few of them.
    is_one_of_many = side == "failing" and intervention.spot.kind != "branch"
    return Job(intervention.spot.stops, intervention, limits, is_one_of_many)
