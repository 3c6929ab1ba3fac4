"""What only makes sense together: the members by which a container of the C++ library keeps its elements.

A string, a container's elements but not their values, an object whose class differs: each is one difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
from pytest_causechain.states.containers import SHOWN, Container, Span
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import VTABLE
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.names import drop_this
from pytest_causechain.states.objects import Object
from pytest_causechain.states.spots import PATH_PART, Kind, Spot

Found = tuple[Spot, Kind]
# Of the block that shared pointers share: where their number is.
COUNTS = (8, 16)
# A claim of one that means nothing: the contents of an optional that has none in either run.
VOID = None


@dataclass(eq=False)
class Whole:
    """A container as a delta tells it. `spots` are all that differs in what it keeps."""

    matching: Matching
    ours: Container
    theirs: Container
    spots: list[Spot] = field(default_factory=list)

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

    @property
    def frame(self) -> int | None:
        holder = self.theirs.holder
        return self.matching.failing.naming.frame(holder, holder.shape.base_of(self.theirs.offset))

    @property
    def assignment(self) -> str | None:
        return None

    @property
    def undo(self) -> str | None:
        return None

    @property
    def value_key(self) -> str | None:
        return None

    @property
    def group(self) -> tuple[str, ...]:
        holder, naming = self.theirs.holder, self.matching.failing.naming
        base = holder.shape.base_of(self.theirs.offset)
        root = naming.root(holder, base)
        path = PATH_PART.findall(holder.shape.path_to(self.theirs.offset, self.theirs.type) or "")
        if root is None:
            return ("", naming.key(holder, base), *path)
        scope = "global" if root.frame is None else root.key.rpartition(":")[0]
        return (scope, root.key, naming.key(holder, base), *path)

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


class Wholes:
    """Finds for a spot the outermost whole it belongs to."""

    def __init__(self, matching: Matching) -> None:
        self._matching = matching
        self._claims: dict[Object, list[tuple[int, int, Whole | None]]] = defaultdict(list)
        passing, failing = matching.passing.containers, matching.failing.containers
        for (holder, offset, kind), theirs in failing.found.items():
            mate = matching.mates.get(holder)
            ours = passing.found.get((mate, offset, kind)) if mate is not None else None
            if ours is not None:
                self._claim(Whole(matching, ours, theirs))
        for claims in self._claims.values():
            claims.sort(key=lambda claim: claim[:2])

    def _claim(self, whole: Whole) -> None:
        for o, (start, end) in self._spans(whole):
            self._claims[o].append((start, end, whole))

    def _spans(self, whole: Whole) -> Iterator[tuple[Object, Span]]:
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

    def find(self, spot: Spot) -> tuple[bool, Whole | None]:
        """Whether it belongs to one; None: to what means nothing."""
        place, is_found, whole = (spot.theirs, spot.leaf.offset), False, None
        seen: set[Whole] = set()
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


@dataclass(frozen=True, slots=True)
class Unit:
    """What is told as one, and the spots that are written for it."""

    told: Spot | Whole
    kind: Kind
    spots: list[Spot]


def gather_units(matching: Matching, found: Iterable[Found]) -> list[Unit]:
    """In the order of their first spots."""
    wholes = Wholes(matching)
    units: list[Unit] = []
    for spot, kind in found:
        is_part, whole = wholes.find(spot)
        if not is_part:
            units.append(Unit(spot, kind, [spot]))
        elif whole is not None:
            if not whole.spots:
                units.append(Unit(whole, "value", whole.spots))
            whole.spots.append(spot)
    return join_classes(join_counts([unit for unit in units if not is_garbage(unit.told)]))


def is_garbage(told: Spot | Whole) -> bool:
    """Of a string: only memory that it does not use differs."""
    if not isinstance(told, Whole) or told.ours.text != told.theirs.text:
        return False
    plan = told.theirs.plan
    if not isinstance(plan, StringType):
        return False
    if not told.ours.owned and not told.theirs.owned:
        return True
    graphs = (told.matching.passing, told.ours), (told.matching.failing, told.theirs)
    capacities = {graph.containers.word(container, plan.local) for graph, container in graphs if container.owned}
    return bool(told.ours.owned and told.theirs.owned) and len(capacities) == 1


def join_counts(units: list[Unit]) -> list[Unit]:
    """How many share an object goes with the pointer that makes the difference, if there is one."""
    counts = [unit.told for unit in units if is_count(unit.told)]
    taken: set[Spot | Whole] = set()
    for count in counts:
        sharing = (unit for unit in units if unit.told is not count and shares(unit, count))
        if (first := next(sharing, None)) is not None and isinstance(count, Spot):
            first.spots.append(count)
            taken.add(count)
    return [unit for unit in units if unit.told not in taken]


def is_count(told: Spot | Whole) -> bool:
    if not isinstance(told, Spot) or not COUNTS[0] <= told.leaf.offset < COUNTS[1]:
        return False
    return told.layouts.name(told.theirs.type).startswith("std::_Sp_counted")


def shares(unit: Unit, count: Spot | Whole) -> bool:
    """Whether a pointer in what differs, or an element of such a container, leads to the block a count lies in."""
    if not isinstance(count, Spot):
        return False
    targets = [spot.targets for spot in unit.spots if spot.is_pointer]
    if any(source.object is count.ours or target.object is count.theirs for source, target in targets):
        return True
    matching = count.matching
    if not isinstance(unit.told, Whole):
        return False
    return holds_pointer_to(matching.passing, unit.told.ours, count.ours) or holds_pointer_to(
        matching.failing, unit.told.theirs, count.theirs
    )


def holds_pointer_to(graph: MemoryGraph, container: Container, o: Object) -> bool:
    elements = [*(node for node, _ in container.nodes), *(buffer for buffer, _, _ in container.parts)]
    return any(pointer.value == o.address for element in elements for pointer in graph.pointers(element))


def join_classes(units: list[Unit]) -> list[Unit]:
    """Of which class an object is, is never changed alone, but with all that differs in it."""
    tables = {id(unit): unit for unit in units if isinstance(unit.told, Spot) and VTABLE in unit.told.path}
    kept: list[Unit] = []
    for table in tables.values():
        o = table.spots[0].theirs
        others = [unit for unit in units if id(unit) not in tables and unit.spots[0].theirs is o]
        for other in others[1:]:
            others[0].spots.extend(other.spots)
        if others:
            others[0].spots.extend(table.spots)
            kept.extend(others[1:])
        kept.append(table)
    dropped = {id(unit) for unit in kept}
    return [unit for unit in units if id(unit) not in dropped]
