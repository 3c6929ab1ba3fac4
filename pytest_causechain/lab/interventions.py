"""What must be known to choose interventions: what instructions do, the values they deal with, and what lies there."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.program import Signature
from pytest_causechain.debugger.scope import LIBRARY_MEMBER, Scope
from pytest_causechain.debugger.visit import VisitedFrame
from pytest_causechain.lab.captures import Captures
from pytest_causechain.lab.laboratory import Side
from pytest_causechain.lab.starts import Starts, apply, ending
from pytest_causechain.model.intervention import Intervention, Like, SeenValues, Sighting, Spot
from pytest_causechain.sandbox.subject import Subject
from pytest_causechain.tracee.alteration import find_anchor, read_comparison, read_value, watch
from pytest_causechain.tracee.effects import Compared, Effect, Effects, Variant
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import NotReached

# Executions of each comparison.
COMPARISONS_WATCHED = 8


class Interventions:
    """Asks runs that `starts` begins."""

    def __init__(self, starts: Starts, captures: Captures, debugger: Debugger) -> None:
        self._starts, self._captures, self._debugger = starts, captures, debugger
        self._program = starts.program

    def signatures(self) -> dict[int, Signature]:
        return self._debugger.signatures

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant], Compared]:
        starts = self._starts
        deadline = starts.begin()
        found: list[Effects] = []
        with ending(starts.start("failing", deadline)) as subject:
            for address in functions:
                starts.require_time()
                function = self._program.function_at(address)
                assert function is not None
                start = subject.landmarks.load_map.to_run(function.address)
                code = subject.read(start, function.end - function.address)
                found.append(Effects(function.address, code, starts.rows))
            pairs: dict[tuple[int, int], None] = {}

            def look(_address: int) -> None:
                with contextlib.suppress(OSError):  # of what is not there: the run ends here
                    pairs[read_comparison(subject)] = None

            watch(subject, [a for one in found for a in one.comparisons()], COMPARISONS_WATCHED, deadline, look)
        compared: dict[int, dict[int, None]] = defaultdict(dict)
        for one, other in pairs:
            compared[one][other] = compared[other][one] = None
        others = {number: tuple(with_) for number, with_ in compared.items()}
        constants: set[int] = set()
        for effects in found:
            starts.require_time()
            constants |= effects.constants()
        ordered = sorted(constants)
        told: list[Effect] = []
        variants: list[Variant] = []
        for effects in found:
            starts.require_time()
            variants += effects.variants(others, ordered)
            told += effects.find()
        return told, variants, others

    def values(self, side: Side, effects: Sequence[Effect], most: int) -> SeenValues:
        by_address: dict[int, list[Effect]] = defaultdict(list)
        for effect in effects:
            by_address[effect.address].append(effect)
        seen: dict[tuple[int, str], dict[bytes, None]] = defaultdict(dict)

        def look(subject: Subject, address: int) -> None:
            for effect in by_address[address]:
                spot = Spot(effect.kind, (), effect.register, effect.size)
                seen[address, effect.register][read_value(subject, spot)[0]] = None

        deadline = self._starts.begin()
        with ending(self._starts.start(side, deadline)) as subject:
            watch(subject, list(by_address), most, deadline, partial(look, subject))
        return {key: tuple(values) for key, values in seen.items()}

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        """One run shows all first visits, a copy each of the others."""
        firsts = self._first_sights(side, [spot for spot in spots if is_first(spot)])
        return [firsts.get(spot) if is_first(spot) else self._sight(side, spot) for spot in spots]

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        deadline = self._starts.begin()
        try:
            with ending(self._starts.reach(side, intervention.spot.stops, deadline)) as subject:
                apply(subject, intervention)
                self._starts.run_to(subject, spot.stops, deadline)
                return read_value(subject, spot)[0]
        except (NotReached, ProcessGone):
            return None

    def _first_sights(self, side: Side, spots: Sequence[Spot]) -> dict[Spot, Sighting]:
        by_address: dict[int, list[Spot]] = defaultdict(list)
        for spot in spots:
            by_address[spot.stops[-1].address].append(spot)
        seen: dict[Spot, Sighting] = {}
        deadline = self._starts.begin()

        def look(subject: Subject, address: int) -> None:
            self._starts.require_time()
            for spot in by_address[address]:
                seen[spot] = self._sight_at(side, spot, subject, deadline)

        if by_address:
            with ending(self._starts.start(side, deadline)) as subject:
                watch(subject, list(by_address), 1, deadline, partial(look, subject))
        return seen

    def _sight(self, side: Side, spot: Spot) -> Sighting | None:
        deadline = self._starts.begin()
        try:
            with ending(self._starts.reach(side, spot.stops, deadline)) as subject:
                return self._sight_at(side, spot, subject, deadline)
        except (NotReached, ProcessGone):
            return None

    def _sight_at(self, side: Side, spot: Spot, subject: Subject, deadline: float) -> Sighting:
        """`subject` stands at the spot."""
        frame = self._captures.innermost_frame(side, spot.stops, subject, deadline)
        was, address = read_value(subject, spot)
        return self._describe(subject, frame, was, address, spot.type)

    def _describe(
        self, subject: Subject, frame: VisitedFrame | None, was: bytes, address: int, kind: int | None
    ) -> Sighting:
        scope = Scope(self._program.types, subject.read)
        if frame is not None:
            scope.add(frame.variables)
        thread_pointer, load_map = subject.registers().fs_base, subject.landmarks.load_map
        for row in self._program.globals:
            is_of_thread = row.get("thread", False)
            place = thread_pointer + row["address"] if is_of_thread else load_map.to_run(row["address"])
            scope.add_global(row["name"], place, row["type"])
        leaf = scope.locate(address, len(was)) if address else None
        kind = leaf.type if leaf is not None else kind
        likes = scope.likes(was, kind, address)
        if kind is not None and self._program.types[kind]["kind"] == "pointer":
            likes = tuple(anchored(subject, like) for like in likes)
        return Sighting(was, LIBRARY_MEMBER.sub("", leaf.name) if leaf is not None else None, kind, likes)


def is_first(spot: Spot) -> bool:
    return all(stop.visit == 1 for stop in spot.stops)


def anchored(subject: Subject, like: Like) -> Like:
    address = int.from_bytes(like.data, "little")
    return replace(like, anchor=find_anchor(subject, address)) if address else like
