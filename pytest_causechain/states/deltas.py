"""Turns a matching into deltas: the atomic differences between two states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_causechain.states.greater import Greater, OtherCode, Part, PartKind
from pytest_causechain.states.matching import Matching, Pair
from pytest_causechain.states.objects import Object
from pytest_causechain.states.shapes import Place
from pytest_causechain.states.spots import Kind, Spot
from pytest_causechain.states.unfolding import no_collection
from pytest_causechain.states.wholes import Unit, gather_units
from pytest_causechain.states.wording import Told


@dataclass(frozen=True, slots=True)
class Slot:
    """The same bytes in a pair of objects; `is_whole`: all bytes, of which one of the two may have more."""

    passing: Object
    failing: Object
    offset: int
    size: int
    bits: tuple[int, int] | None = None
    is_pointer: bool = False
    is_whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """One difference: slots of the memory, or a part of the greater state. Of several slots the first is at which it
    is told.

    What it takes to tell it is found out when it is asked for: of many deltas few are ever told. `requires` are those
    without which it makes no sense: a pointer to an object that lies where the other run has none in a block."""

    kind: Kind | PartKind
    told: Told
    slots: tuple[Slot, ...] = ()
    part: Part | None = None
    requires: list[Delta] = field(default_factory=list, repr=False)

    @property
    def key(self) -> str:
        return self.told.key

    @property
    def name(self) -> str:
        return self.told.name

    @property
    def type(self) -> str:
        return self.told.type

    @property
    def passing(self) -> str:
        return self.told.passing

    @property
    def failing(self) -> str:
        return self.told.failing

    @property
    def frame(self) -> int | None:
        return self.told.frame

    @property
    def assignment(self) -> str | None:
        return self.told.assignment

    @property
    def undo(self) -> str | None:
        return self.told.undo

    @property
    def value_key(self) -> str | None:
        return self.told.value_key

    @property
    def group(self) -> tuple[str, ...]:
        return self.told.group


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two matched states and all that differs between them."""

    matching: Matching
    greater: Greater
    deltas: tuple[Delta, ...]


def compare_states(matching: Matching, code: OtherCode | None = None) -> Comparison:
    """What lies ahead of the runs comes first. What they have left behind them in files is the last to be blamed."""
    passing, failing = matching.passing, matching.failing
    greater = Greater(passing.visit, failing.visit, (passing.memory, failing.memory), code)
    inputs = [Delta(part.kind, told, part=part) for part, told in greater.inputs()]
    past = [Delta(part.kind, told, part=part) for part, told in greater.past()]
    with no_collection():
        return Comparison(matching, greater, (*inputs, *memory_deltas(matching), *past))


def memory_deltas(matching: Matching) -> list[Delta]:
    """In the order in which a programmer looks: the innermost frame's variables and what they lead to first."""
    found = [(spot, kind) for pair in unequal_pairs(matching) for spot, kind in unequal_spots(matching, pair)]
    if not found:
        return []
    order = matching.failing.naming.order
    last = len(order)
    found.sort(key=lambda pair: rank_spot(pair[0], order, last))
    units = gather_units(matching, found)
    deltas = [Delta(unit.kind, unit.told, tuple(map(make_slot, unit.spots))) for unit in units]
    link_required(deltas, units)
    return deltas


def rank_spot(spot: Spot, order: dict[tuple[Object, int], int], last: int) -> tuple[bool, int, int]:
    """Variables that are not set yet come last."""
    return spot.theirs.is_unset, order.get((spot.theirs, spot.base), last), spot.leaf.offset


def unequal_pairs(matching: Matching) -> Iterator[Pair]:
    """All pairs that can have a difference: equal contents, and pointers that lead to the same, say that they have
    none, and most have none."""
    passing, failing, mates = matching.passing, matching.failing, matching.mates
    starts, their_starts = passing.starts, failing.starts
    for pair in matching.pairs:
        ours, theirs = pair
        shape = theirs.shape
        if ours.shape is not shape or shape.guesses or shape.raw:
            yield pair
            continue
        left, right = passing.memory.region(ours.address), failing.memory.region(theirs.address)
        assert left is not None and right is not None
        at, there = ours.address - left.start, theirs.address - right.start
        if shape.values(left.data, at) != shape.values(right.data, there):
            yield pair
            continue
        if shape.is_text and (passing.hidden_words(ours) or failing.hidden_words(theirs)):
            yield pair
            continue
        if shape.words is None:
            continue
        for value, other in zip(shape.words(left.data, at), shape.words(right.data, there), strict=True):
            if not value and not other:
                continue
            source, target = starts.get(value), their_starts.get(other)
            if source is not None and target is not None:
                is_same = mates.get(target) is source
            else:
                is_same = matching.same_target(passing.target(value), failing.target(other))
            if not is_same:
                yield pair
                break


def unequal_spots(matching: Matching, pair: Pair) -> Iterator[tuple[Spot, Kind]]:
    ours, theirs = pair
    passing, failing = matching.passing, matching.failing
    left, right = passing.contents(ours)[: theirs.size], failing.contents(theirs)
    places: Iterable[Place]
    if ours.shape is not theirs.shape and (ours.parts is not None or theirs.parts is not None):
        places = theirs.shape.leaves_around(pointer.offset for pointer in passing.pointers(ours))
    else:
        shape = theirs.shape.widen(ours.shape) if theirs.kept is None else theirs.shape
        places = shape.open_leaves(left, right)
    # Equal bytes are equal values, unless some of them are addresses.
    is_sure = not (passing.hidden_words(ours) or failing.hidden_words(theirs)) and ours.shape is theirs.shape
    for place in places:
        start, end = place.leaf.offset, place.leaf.offset + place.leaf.size
        is_pointer = failing.layouts.is_pointer(place.leaf.type)
        if left[start:end] == right[start:end] and (not any(right[start:end]) if is_pointer else is_sure):
            continue
        if ours.holds(place.leaf.offset, place.leaf.size):
            spot = Spot(matching, ours, theirs, place)
            # Of what only the passing run has in a container's buffer nothing can be told but that.
            is_gone = theirs.kept is None and not theirs.shape.holds(start, place.leaf.size)
            if (kind := "value" if is_gone else spot.find_kind()) is not None:
                yield spot, kind


def make_slot(spot: Spot) -> Slot:
    leaf = spot.leaf
    return Slot(spot.ours, spot.theirs, leaf.offset, leaf.size, leaf.bits, spot.is_pointer, spot.is_whole)


def link_required(deltas: Sequence[Delta], units: Sequence[Unit]) -> None:
    """A pointer into a block of several objects, to one that the passing run has not there, needs what makes it one."""
    pointing = [(d, spot.new_part) for d, unit in zip(deltas, units, strict=True) for spot in unit.spots]
    wanted = [(delta, part) for delta, part in pointing if part is not None]
    if not wanted:
        return
    within = defaultdict[Object, list[tuple[int, Delta]]](list)
    for delta in deltas:
        for slot in delta.slots:
            within[slot.failing].append((slot.offset, delta))
    for delta, (o, start, end) in wanted:
        others = [other for offset, other in within[o] if start <= offset < end and other is not delta]
        delta.requires.extend(dict.fromkeys(others))


def close_configuration(deltas: Iterable[Delta]) -> list[Delta]:
    """The deltas, in their order, with all they require."""
    closed: dict[Delta, None] = {}
    pending = list(deltas)[::-1]
    while pending:
        delta = pending.pop()
        if delta not in closed:
            closed[delta] = None
            pending += delta.requires
    return list(closed)
