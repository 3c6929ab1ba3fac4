"""Turns a matching into deltas: the atomic differences between two states.

What only makes sense together is one difference: a string, the elements of a container of the C++ library but not their
values, an object whose class differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from pytest_causechain.debugger.types import (
    FunctionObjectType,
    HashType,
    ListType,
    OptionalType,
    SharedPointerType,
    StringType,
    TreeType,
    VariantType,
)
from pytest_causechain.model.budget import Budget
from pytest_causechain.states.containers import SHOWN, Container
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import VTABLE, Span
from pytest_causechain.states.matching import Matching, Pair, match_states
from pytest_causechain.states.names import drop_this
from pytest_causechain.states.outside import OtherCode, OutsideDelta, OutsideState, is_alike
from pytest_causechain.states.shapes import Object, PlacedLeaf
from pytest_causechain.states.unfolding import no_collection
from pytest_causechain.states.values import Difference, ValuePair

# Of the block that shared pointers share: where their number is.
COUNTS = (8, 16)
# A claim of one that means nothing: the contents of an optional that has none in either run.
VOID = None


class ContainerPair(Difference):
    """A container with all that differs in what it keeps."""

    assignment = undo = value_key = None

    def __init__(self, matching: Matching, ours: Container, theirs: Container) -> None:
        super().__init__(matching, *theirs.place)
        self.ours, self.theirs = ours, theirs

    @cached_property
    def key(self) -> str:
        return self.matching.failing.naming.container_key(self.theirs)

    @cached_property
    def name(self) -> str:
        graph = self.matching.failing
        return drop_this(graph, graph.naming.container_name(self.theirs), self.frame)

    @property
    def type(self) -> str:
        return self.matching.failing.layouts.name(self.theirs.type)

    @property
    def passing(self) -> str:
        return self._shown[0]

    @property
    def failing(self) -> str:
        return self._shown[1]

    @cached_property
    def group(self) -> tuple[str, ...]:
        path = self.holder.shape.path_to(self.theirs.offset, self.theirs.type) or ""
        return self.matching.failing.naming.group(self.holder, self.base, path)

    @cached_property
    def _shown(self) -> tuple[str, str]:
        if isinstance(self.theirs.plan, SharedPointerType):
            return self.spots[0].passing, self.spots[0].failing
        one, other = self.matching.passing.containers, self.matching.failing.containers
        shown = one.show_container(self.ours), other.show_container(self.theirs)
        if shown[0] != shown[1]:
            return shown
        if isinstance(self.theirs.plan, FunctionObjectType):
            return shown[0], f"{shown[1]} of its own"
        if not self.theirs.nodes and not self.theirs.parts:
            return self.spots[0].passing, self.spots[0].failing
        return show_unequal(one.list_elements(self.ours), other.list_elements(self.theirs))


MemoryDelta = ValuePair | ContainerPair
# `key` names the variable independently of the calls on the stack, `name` as a programmer writes it here, in frame
# number `frame`. `assignment` makes this change in the passing run as a C statement, where one can, `undo` takes it
# back in the failing run. `group` are the ever smaller wholes it is a part of: scope, variable, object, members and
# elements. `value_key`, of a pointer, is what it leads to in the failing run, by the key of that. All this is found
# out when it is asked for: of many deltas few are ever told. `spots` are what is to be written to the memory, `part`
# what is to be changed outside. Of several spots the first is at which it is told.
Delta = MemoryDelta | OutsideDelta


def show_unequal(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str, str]:
    """From the first element that differs."""
    first = next((n for n, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
    if first is None:
        first = min(len(ours), len(theirs))
    if len(ours) == len(theirs) == first:
        return "{...} in another order", "{...} in this order"
    return show_from(ours, first), show_from(theirs, first)


def show_from(shown: Sequence[str], first: int) -> str:
    rest = list(shown[first : first + SHOWN])
    before, behind = ["..."] if first else [], ["..."] if first + SHOWN < len(shown) else []
    return "{" + ", ".join([*before, *rest, *behind]) + "}"


class ContainerPairs:
    """Finds for a spot the outermost whole it belongs to."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._claims: dict[Object, list[tuple[int, int, ContainerPair | None]]] = defaultdict(list)
        passing, failing = matching.passing.containers, matching.failing.containers
        for (holder, offset, kind), theirs in failing.found.items():
            mate = matching.mates.get(holder)
            ours = passing.found.get((mate, offset, kind)) if mate is not None else None
            if ours is not None:
                self._claim(ContainerPair(matching, ours, theirs))
        for claims in self._claims.values():
            claims.sort(key=lambda claim: claim[:2])

    def _claim(self, whole: ContainerPair) -> None:
        for o, (start, end) in self._spans(whole):
            self._claims[o].append((start, end, whole))

    def _spans(self, whole: ContainerPair) -> Iterator[tuple[Object, Span]]:
        ours, theirs = whole.ours, whole.theirs
        own = theirs.offset, theirs.offset + self._matching.failing.layouts.size(theirs.type)
        if isinstance(theirs.plan, OptionalType):
            if ours.size != theirs.size:
                yield theirs.holder, own
            elif not theirs.size:
                self._claims[theirs.holder].append((*own, VOID))
            return
        if isinstance(theirs.plan, VariantType) and ours.size == theirs.size and ours.size < 0:
            return
        yield theirs.holder, own
        for o in theirs.owned:
            yield o, (0, o.size)
        yield from self._node_spans(theirs)
        yield from self._buffer_spans(ours, theirs)

    def _node_spans(self, theirs: Container) -> Iterator[tuple[Object, Span]]:
        """All of a node but the value it holds; of a map, but what its key leads to."""
        match theirs.plan:
            case TreeType() | HashType():
                value = self._matching.failing.containers.mapped_span(theirs.plan)
            case ListType(value=start, element=element):
                value = start, start + self._matching.failing.layouts.size(element)
            case _:
                return
        for node, _ in theirs.nodes:
            yield node, (0, value[0] if value[1] else node.size)
            yield node, (value[1], node.size)

    def _buffer_spans(self, ours: Container, theirs: Container) -> Iterator[tuple[Object, Span]]:
        """Elements that only one of the two has, and memory kept for more."""
        live = {buffer: span for buffer, span, _ in ours.parts}
        for buffer, (start, end), _ in theirs.parts:
            mate = self._matching.mates.get(buffer)
            first, last = live.get(mate, (start, start)) if mate is not None else (start, start)
            yield buffer, (0, max(start, first))
            yield buffer, (min(end, last), buffer.size)

    def find(self, spot: ValuePair) -> tuple[bool, ContainerPair | None]:
        """Whether it belongs to one; None: to what means nothing."""
        place, is_found, whole = (spot.theirs, spot.leaf.offset), False, None
        seen: set[ContainerPair] = set()
        while True:
            claims = self._claims.get(place[0], ())
            inside = [claim for claim in claims if claim[0] <= place[1] < claim[1] and claim[2] not in seen]
            if not inside:
                return is_found, whole
            # Of those around each other the outermost.
            _, _, whole = max(inside, key=lambda claim: claim[1] - claim[0])
            is_found = True
            if whole is None:
                return True, None
            seen.add(whole)
            place = (whole.theirs.holder, whole.theirs.offset)


def gather_units(matching: Matching, found: Iterable[ValuePair]) -> list[MemoryDelta]:
    """In the order of their first spots."""
    wholes = ContainerPairs(matching)
    units: list[MemoryDelta] = []
    budget = matching.failing.budget
    for spot in budget.watch(found):
        is_part, whole = wholes.find(spot)
        if not is_part:
            units.append(spot)
        elif whole is not None:
            if not whole.joined:
                units.append(whole)
            whole.joined.append(spot)
    return join_classes(join_counts([unit for unit in units if not is_garbage(unit)], budget))


def is_garbage(unit: MemoryDelta) -> bool:
    """Of a string: only memory that it does not use differs."""
    if not isinstance(unit, ContainerPair) or unit.ours.text != unit.theirs.text:
        return False
    plan = unit.theirs.plan
    if not isinstance(plan, StringType):
        return False
    if not unit.ours.owned and not unit.theirs.owned:
        return True
    graphs = (unit.matching.passing, unit.ours), (unit.matching.failing, unit.theirs)
    capacities = {graph.containers.word(container, plan.local) for graph, container in graphs if container.owned}
    return bool(unit.ours.owned and unit.theirs.owned) and len(capacities) == 1


def join_counts(units: list[MemoryDelta], budget: Budget) -> list[MemoryDelta]:
    """How many share an object goes with the pointer that makes the difference, if there is one."""
    taken: set[MemoryDelta] = set()
    for count in filter(is_count, units):
        budget.check()
        first = next((unit for unit in units if unit is not count and shares(unit, count)), None)
        if first is not None:
            first.joined += count.spots
            taken.add(count)
    return [unit for unit in units if unit not in taken]


def is_count(unit: MemoryDelta) -> TypeGuard[ValuePair]:
    if not isinstance(unit, ValuePair) or not COUNTS[0] <= unit.leaf.offset < COUNTS[1]:
        return False
    return unit.layouts.name(unit.theirs.type).startswith("std::_Sp_counted")


def shares(unit: MemoryDelta, count: ValuePair) -> bool:
    """Whether a pointer in what differs, or an element of such a container, leads to the block a count lies in."""
    targets = [spot.targets for spot in unit.spots if spot.is_pointer]
    if any(source.object is count.ours or target.object is count.theirs for source, target in targets):
        return True
    matching = count.matching
    return isinstance(unit, ContainerPair) and (
        holds_pointer_to(matching.passing, unit.ours, count.ours)
        or holds_pointer_to(matching.failing, unit.theirs, count.theirs)
    )


def holds_pointer_to(graph: MemoryGraph, container: Container, o: Object) -> bool:
    elements = [*(node for node, _ in container.nodes), *(buffer for buffer, _, _ in container.parts)]
    return any(pointer.value == o.address for element in elements for pointer in graph.pointers(element))


def join_classes(units: list[MemoryDelta]) -> list[MemoryDelta]:
    """Of which class an object is, is never changed alone, but with all that differs in it."""
    tables: list[ValuePair] = []
    within = defaultdict[Object, list[MemoryDelta]](list)
    for unit in units:
        if isinstance(unit, ValuePair) and VTABLE in unit.path:
            tables.append(unit)
        else:
            within[unit.spots[0].theirs].append(unit)
    dropped = set[MemoryDelta](tables)
    for table in tables:
        first, *others = *within[table.theirs], table
        for other in others:
            first.joined += other.spots
        dropped.update(others)
    return [unit for unit in units if unit not in dropped]


@dataclass(frozen=True, slots=True)
class StateComparison:
    """Two matched states and all that differs between them."""

    matching: Matching
    outside: OutsideState
    deltas: tuple[Delta, ...]


def compare_states(matching: Matching, code: OtherCode | None = None) -> StateComparison:
    """What lies ahead of the runs comes first. What they have left behind them in files is the last to be blamed."""
    passing, failing = matching.passing, matching.failing
    outside = OutsideState(passing.visit, failing.visit, (passing.memory, failing.memory), code)
    with no_collection():
        return StateComparison(matching, outside, (*outside.inputs(), *memory_deltas(matching), *outside.past()))


def memory_deltas(matching: Matching) -> list[MemoryDelta]:
    """In the order in which a programmer looks: the innermost frame's variables and what they lead to first."""
    budget = matching.failing.budget
    found = [spot for pair in unequal_pairs(matching) for spot in budget.watch(unequal_spots(matching, pair))]
    if not found:
        return []
    order = matching.failing.naming.order
    last = len(order)
    # Variables that are not set yet come last.
    found.sort(key=lambda spot: (spot.theirs.is_unset, order.get((spot.theirs, spot.base), last), spot.leaf.offset))
    deltas = gather_units(matching, found)
    link_required(deltas)
    return deltas


def unequal_pairs(matching: Matching) -> Iterator[Pair]:
    """All pairs that can have a difference: equal contents, and pointers that lead to the same, say that they have
    none, and most have none."""
    passing, failing, mates = matching.passing, matching.failing, matching.mates
    starts, their_starts = passing.starts, failing.starts
    for pair in matching.failing.budget.watch(matching.pairs):
        ours, theirs = pair
        shape = theirs.shape
        if ours.shape is not shape or shape.guesses or shape.raw:
            yield pair
            continue
        left, right = passing.memory.around(ours.address), failing.memory.around(theirs.address)
        if shape.values(*left) != shape.values(*right):
            yield pair
            continue
        if shape.is_text and (passing.hidden_pointers(ours) or failing.hidden_pointers(theirs)):
            yield pair
            continue
        if shape.words is None:
            continue
        for value, other in zip(shape.words(*left), shape.words(*right), strict=True):
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


def unequal_spots(matching: Matching, pair: Pair) -> Iterator[ValuePair]:
    ours, theirs = pair
    passing, failing = matching.passing, matching.failing
    left, right = passing.contents(ours)[: theirs.size], failing.contents(theirs)
    places: Iterable[PlacedLeaf]
    if ours.shape is not theirs.shape and (ours.parts is not None or theirs.parts is not None):
        places = theirs.shape.leaves_around(pointer.offset for pointer in passing.pointers(ours))
    else:
        shape = theirs.shape.widen(ours.shape) if theirs.kept is None else theirs.shape
        places = shape.open_leaves(left, right)
    # Equal bytes are equal values, unless some of them are addresses.
    is_sure = not (passing.hidden_pointers(ours) or failing.hidden_pointers(theirs)) and ours.shape is theirs.shape
    for place in places:
        start, end = place.leaf.offset, place.leaf.offset + place.leaf.size
        is_pointer = failing.layouts.is_pointer(place.leaf.type)
        if left[start:end] == right[start:end] and (not any(right[start:end]) if is_pointer else is_sure):
            continue
        if ours.holds(place.leaf.offset, place.leaf.size):
            spot = ValuePair(matching, ours, theirs, place)
            # Of what only the passing run has in a container's buffer nothing can be told but that.
            is_gone = theirs.kept is None and not theirs.shape.holds(start, place.leaf.size)
            if (kind := "value" if is_gone else spot.find_kind()) is not None:
                spot.kind = kind
                yield spot


def link_required(deltas: Sequence[MemoryDelta]) -> None:
    """A pointer into a block of several objects, to one that the passing run has not there, needs what makes it one."""
    pointing = [(delta, spot.new_part) for delta in deltas for spot in delta.spots]
    wanted = [(delta, part) for delta, part in pointing if part is not None]
    if not wanted:
        return
    within = defaultdict[Object, list[tuple[int, MemoryDelta]]](list)
    for delta in deltas:
        for spot in delta.spots:
            within[spot.theirs].append((spot.leaf.offset, delta))
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


def have_failing_values(graph: MemoryGraph, failing: MemoryGraph, deltas: Sequence[Delta]) -> bool:
    """`deltas` are of a comparison with `failing`; those of the input and the code, which are there from the start, are
    not looked at."""
    parts = [delta.part for delta in deltas if delta.part is not None and delta.kind not in ("code", "input")]
    memories = (graph.memory, failing.memory)
    if not all(is_alike(graph.visit, failing.visit, part, memories) for part in parts):
        return False
    # Of a single value the value: what was joined to it comes with it.
    told = (delta.spots if isinstance(delta, ContainerPair) else delta.spots[:1] for delta in deltas)
    spots = [spot for own in told for spot in own]
    if any(has_value(graph, failing, spot) is False for spot in spots):
        return False
    left = [spot for spot in spots if has_value(graph, failing, spot) is None]
    if not left:
        return True
    matching = match_states(graph, failing, is_altered=True)
    for spot in left:
        mate = matching.mates.get(spot.theirs)
        if mate is None or ValuePair(matching, mate, spot.theirs, spot.place).find_kind() is not None:
            return False
    return True


def has_value(graph: MemoryGraph, failing: MemoryGraph, spot: ValuePair) -> bool | None:
    """None: what it leads to must be compared."""
    if spot.theirs in failing.containers.owners:
        return None  # another way may lead to the same element
    start = follow_key(graph, failing, spot.theirs, spot.base)
    if start is None:
        return False
    wanted = failing.value(spot.theirs, spot.leaf)
    data = graph.memory.read(start + spot.leaf.offset, spot.leaf.size)
    if spot.is_pointer:
        return data == wanted if not any(wanted) else None
    if failing.pointers_within(spot.theirs, spot.leaf.offset, spot.leaf.offset + spot.leaf.size):
        return None
    if data is None:
        return False
    if failing.layouts.is_text_leaf(spot.leaf) and cut_text(spot.values[0]) != cut_text(spot.values[1]):
        # What lies behind the end of a text was not told.
        return cut_text(data) == cut_text(wanted)
    return spot.extract(data) == spot.extract(wanted)


def cut_text(data: bytes) -> bytes:
    return data.partition(b"\0")[0]


def follow_key(graph: MemoryGraph, failing: MemoryGraph, o: Object, base: int) -> int | None:
    """Where another state has the object that goes by the key of this one."""
    root, steps = failing.naming.lasting_way(o, base)
    variable = next((v for v in graph.variables if root is not None and v.key == root.key), None)
    if variable is None:
        return None
    start = variable.address
    nodes = [*(step.start for step in steps[1:]), (o, base)]
    for step, (_, inner) in zip(steps, nodes, strict=True) if steps else ():
        value = graph.memory.word(start + step.at)
        if not value:
            return None
        start = value - step.inside - inner
    return start
