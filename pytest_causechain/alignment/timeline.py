"""Finds the moments two runs have in common: calls of the whole run first, statements where they are asked for.

There may be millions. Those asked for are spread evenly over their part of the run; where the search narrows down, it
asks for those between two of them, until there are none."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_causechain.alignment.trees import CommonPairs, Token, Tree, align_trees, build_tree
from pytest_causechain.lab.laboratory import Event, Events, Lab, Side
from pytest_causechain.model.moment import Moment, Position, Stop

# Looks at the stack, each a visit. Beyond, the tree of calls that libraries make becomes a guess.
LOOKS_LIMIT = 20
# Of a call of which nothing more is known than that it is on the stack.
OUTERMOST, FOREIGN_SITE = 1 << 63, 1
T = TypeVar("T")
# Moments given at a time.
SPREAD = 1_000
# Events of a run that does not end: some more than the other run has. They go on without anything new.
ENDLESS_LEAST, ENDLESS_FACTOR = 100_000, 10


@dataclass(frozen=True, slots=True)
class TracedSection:
    """What a run executed behind the call numbered `first`; `entries` are the indices of the calls after it.

    `complete`: up to the wanted call, or to the end of the run. `is_opening`: the run begins in that call."""

    first: int
    events: Events
    entries: list[int]
    complete: bool
    is_opening: bool = False

    def covers(self, event: int) -> bool:
        return self.first <= event <= self.first + len(self.entries)

    def index(self, event: int, step: int) -> int:
        """Of the statement that a moment stands before; that of a call begins its body. Where a run begins is before
        all that it executes."""
        entry = -1 if event == self.first else self.entries[event - self.first - 1]
        return entry + (step if self.is_opening and event == self.first else max(1, step))

    def time(self, index: int) -> tuple[int, int]:
        """The call that came last before an event, and the events since then."""
        calls = bisect_right(self.entries, index)
        return self.first + calls, index - (self.entries[calls - 1] if calls else -1)

    def visit(self, index: int) -> int:
        """How many executions there were since that call."""
        addresses, step = self.events.addresses, self.time(index)[1]
        return addresses[max(index - step, 0) : index + 1].count(addresses[index])


class Calls:
    """The calls of one run: their events, the tree, and where each function is called for the n-th time.

    A run that begins inside of calls opens with these as events, which need no stops. `most` is how many events are
    recorded of it at a time, if that is less than the lab can."""

    def __init__(self, lab: Lab, side: Side, most: int | None = None) -> None:
        self._lab, self._side, self._most = lab, side, most
        self.opening = find_opening(lab, side) if lab.begins_inside else []
        addresses = [function.address for function in lab.program.functions]
        trace = lab.trace(side, (), addresses, limit=self._limit)
        self.complete = trace.complete
        self.is_cut = len(trace) >= lab.recordable
        self.events = prepend(self.opening, trace.events)
        self._visits: dict[int, list[int]] = defaultdict(list)
        for number, address in enumerate(trace.events.addresses, len(self.opening)):
            self._visits[address].append(number)
        self._looks: dict[object, int | None] = {}
        self.tree = build_tree(self.events, lab.program, (), self.count_callers)

    @property
    def _limit(self) -> int:
        return self._lab.recordable if self._most is None else min(self._most, self._lab.recordable)

    def stop(self, event: int, after: int = -1) -> Stop:
        """The stop that reaches an event from another one (by default from the start)."""
        address = self.events.addresses[event]
        numbers = self._visits[address]
        return Stop(address, bisect_right(numbers, event) - bisect_right(numbers, after))

    def stops(self, event: int) -> tuple[Stop, ...]:
        """Those that reach an event from the start."""
        return () if self.is_opening(event) else (self.stop(event),)

    def is_opening(self, event: int) -> bool:
        return event < len(self.opening)

    def functions(self, event: int) -> list[int]:
        """On the stack behind a call, outermost first."""
        return [self.tree.tokens[item][0] for item in self.tree.path(event)]

    def section(self, first: int, last: int | None) -> TracedSection:
        """The statements between two calls, or from a call to the end.

        Only those of the functions that run in this part of the run: each watched address costs."""
        program = self._lab.program
        involved = {*self.functions(first), *self.events.addresses[first:last]}
        addresses = sorted(involved)
        addresses += sorted(s.address for a in involved for s in program.function_at(a).statements)  # type: ignore[union-attr]
        until = self.stop(last, first) if last is not None else None
        if until is not None and until.address not in involved:
            addresses.append(until.address)
        trace = self._lab.trace(self._side, self.stops(first), addresses, until, self._limit)
        entries = [index for index, back in enumerate(trace.events.returns) if back]
        events, complete = trace.events, trace.complete
        known = len(self.events) - 1 - first
        if len(entries) > known:  # the calls were recorded up to a limit
            events, entries, complete = events[: entries[known]], entries[:known], False
        return TracedSection(first, events, entries, complete, self.is_opening(first))

    def section_tree(self, section: TracedSection) -> Tree:
        """Opened by the calls that were on the stack before."""
        tree = self.tree
        above = [(tree.tokens[item], tree.pointers[item]) for item in tree.path(section.first)]

        def count_callers(number: int, stack: Sequence[Token]) -> int | None:
            return self.count_callers(section.first + 1 + bisect_left(section.entries, number), stack)

        return build_tree(section.events, self._lab.program, above, count_callers)

    def count_callers(self, event: int, stack: Sequence[Token]) -> int | None:
        """How many of these calls enclose one that foreign code made; asked once for calls in equal circumstances."""
        if self.is_opening(event):
            return len(stack)
        circumstances = (self.events[event].address, self.events[event].return_address, tuple(stack))
        if circumstances not in self._looks and len(self._looks) < LOOKS_LIMIT:
            self._looks[circumstances] = self._look_at_stack(event, stack)
        return self._looks.get(circumstances)

    def _look_at_stack(self, event: int, stack: Sequence[Token]) -> int | None:
        program = self._lab.program
        body = Stop(program.function_at(self.events[event].address).body, 1)  # type: ignore[union-attr]
        visit = self._lab.visit(self._side, (self.stop(event), body))
        if visit is None:
            return None
        # A return address lies behind its call, perhaps behind the whole function.
        callers = [program.function_at(frame.pc - 1) for frame in visit.frames[:0:-1]]
        seen = [function.address for function in callers if function is not None]
        return len(seen) if seen == [function for function, _ in stack[: len(seen)]] else None


def find_opening(lab: Lab, side: Side) -> list[Event]:
    """The calls on the stack where a run begins, outermost first."""
    visit = lab.visit(side, ())
    frames = [] if visit is None else list(visit.frames)
    opening = []
    for frame, caller in reversed(list(zip(frames, [*frames[1:], None], strict=True))):
        function = lab.program.function_at(frame.pc - (frame is not frames[0]))
        if function is not None:
            # The stack pointer of a call is where its return address lies; nothing tells that of the outermost.
            sp, call_site = (caller.sp - 8, caller.pc) if caller is not None else (OUTERMOST, FOREIGN_SITE)
            opening.append(Event(function.address, sp, call_site))
    return opening


def prepend(opening: Sequence[Event], events: Events) -> Events:
    if not opening:
        return events
    addresses, sps, returns = (list(column) for column in zip(*opening, strict=True))
    return Events([*addresses, *events.addresses], [*sps, *events.sps], [*returns, *events.returns])


@dataclass(frozen=True, slots=True)
class Window:
    """The statements of both runs from one common call to another, the `last`, or to the end."""

    passing: TracedSection
    failing: TracedSection
    passing_tree: Tree
    failing_tree: Tree
    common: CommonPairs
    last: int | None

    def statements(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Those that the runs have in common, of the failing run's events from one to another, as numbers in the
        trees. Without the first one of each call: the call itself is that moment, unless the run begins in it."""
        tree, common = self.failing_tree, self.common
        numbers = range(common.first_from(begin + tree.above), common.first_from(end + tree.above))
        pairs = (common[n] for n in numbers)
        begun = tree.above if self.failing.is_opening else -1
        return [
            (ours, theirs)
            for ours, theirs in pairs
            if not tree.tokens[theirs][1] and (theirs == begun or tree.parents[theirs] != theirs - 1)
        ]


class Timeline:
    """The common moments of the two runs of a lab. `is_endless`: the failing run does not end by itself."""

    def __init__(self, lab: Lab, is_endless: bool = False) -> None:
        self._lab = lab
        self._passing = Calls(lab, "passing")
        enough = max(ENDLESS_LEAST, ENDLESS_FACTOR * len(self._passing.events))
        self._failing = Calls(lab, "failing", enough if is_endless else None)
        # By the indices of the common calls at their ends.
        self._windows: dict[tuple[int, int], Window] = {}
        self._common = align_trees(self._passing.tree, self._failing.tree)
        # The index of the first common call that is a moment: of those that both runs begin in, the innermost.
        self._first = max(0, len(self._failing.opening) - 1)
        self.complete = self._passing.complete and self._failing.complete
        # Whether there were more calls than can be recorded, rather than a run without end.
        self.is_cut = self._passing.is_cut or self._failing.is_cut

    def calls(self, earlier: Moment | None = None, later: Moment | None = None) -> tuple[Moment, ...]:
        """Common calls, spread over the time between two moments, or over the whole run."""
        first = self._common.first_from(earlier.event + 1) if earlier is not None else self._first
        return self._spread_calls(first, self._call_from(later))

    def statements(self, earlier: Moment, later: Moment | None = None) -> tuple[Moment, ...]:
        """Common statements, spread over the time between two moments, or behind one."""
        window = self._window(self._common.first_from(earlier.event + 1) - 1, self._call_from(later))
        begin = window.failing.index(*earlier.time) + (not earlier.is_entry)
        end = len(window.failing.events)
        if later is not None and later.time != (window.last, 0):
            end = window.failing.index(*later.time)
        return tuple(self._statement(window, *pair) for pair in evenly(window.statements(begin, end)))

    def _call_from(self, moment: Moment | None) -> int:
        """The index of the first common call that comes not before a moment."""
        if moment is None:
            return len(self._common)
        return self._common.first_from(moment.event + (not moment.is_entry))

    def _spread_calls(self, first: int, end: int) -> tuple[Moment, ...]:
        return tuple(self._call(*self._common[n]) for n in evenly(range(first, end)))

    def _call(self, ours: int, theirs: int) -> Moment:
        program = self._lab.program
        function = self._failing.events.addresses[theirs]
        if self._failing.is_opening(theirs):
            return self._beginning(theirs)
        body = Stop(program.function_at(function).body, 1)  # type: ignore[union-attr]
        stop = self._failing.stop(theirs)
        return Moment(
            position=program.position(function),
            backtrace=self._backtrace(self._failing.tree, theirs),
            event=theirs,
            step=0,
            passing_event=ours,
            passing_step=0,
            visit=stop.visit,
            passing=(self._passing.stop(ours), body),
            failing=(stop, body),
        )

    def _beginning(self, call: int) -> Moment:
        """Where both runs begin inside of a call."""
        visit = self._lab.visit("failing", ())
        position = self._lab.program.position(self._failing.events.addresses[call])
        if visit is not None and visit.frames[0].file is not None:
            position = Position(position.function, visit.frames[0].file, visit.frames[0].line)
        return Moment(position, self._backtrace(self._failing.tree, call), call, 0, call, 0, 1, (), ())

    def _backtrace(self, tree: Tree, call: int) -> tuple[str, ...]:
        return tuple(self._lab.program.position(tree.tokens[i][0]).function for i in reversed(tree.path(call)))

    def _statement(self, window: Window, ours: int, theirs: int) -> Moment:
        tree = window.failing_tree
        here, there = ours - window.passing_tree.above, theirs - tree.above
        address = tree.tokens[theirs][0]
        passing, failing = window.passing.time(here), window.failing.time(there)
        visit = window.failing.visit(there)
        return Moment(
            position=self._lab.program.position(address),
            backtrace=self._backtrace(tree, tree.parents[theirs]),
            event=failing[0],
            step=failing[1],
            passing_event=passing[0],
            passing_step=passing[1],
            visit=visit,
            passing=(*self._passing.stops(passing[0]), Stop(address, window.passing.visit(here))),
            failing=(*self._failing.stops(failing[0]), Stop(address, visit)),
        )

    def _window(self, first: int, last: int) -> Window:
        if (first, last) not in self._windows:
            ours, theirs = self._common[first]
            end_ours, end_theirs = self._common[last] if last < len(self._common) else (None, None)
            passing, failing = self._passing.section(ours, end_ours), self._failing.section(theirs, end_theirs)
            trees = self._passing.section_tree(passing), self._failing.section_tree(failing)
            self._windows[first, last] = Window(passing, failing, *trees, align_trees(*trees), end_theirs)
        return self._windows[first, last]

    @property
    def matched(self) -> int:
        """How many moments are known: windows may overlap."""
        statements = {
            window.failing.time(theirs - window.failing_tree.above)
            for window in self._windows.values()
            for _, theirs in window.statements(0, len(window.failing.events))
        }
        return len(self._common) - self._first + len(statements)

    def called_at(self, moment: Moment) -> str | None:
        """The function that the failing run's statement at this moment calls first, where that was traced."""
        if moment.step == 0:
            return None
        for window in self._windows.values():
            section = window.failing
            if not section.covers(moment.event):
                continue
            following = section.index(*moment.time) + 1
            if following < len(section.events):
                event = section.events[following]
            elif window.last is not None and section.complete:
                event = self._failing.events[window.last]
            else:
                continue
            return self._lab.program.position(event.address).function if event.return_address else None
        return None

    def route(self, earlier: Moment, later: Moment) -> tuple[Stop, ...] | None:
        """The stops that lead from one moment to a later one as the failing run goes; None when unknown."""
        if later.event != earlier.event:
            return (self._failing.stop(later.event, earlier.event), later.failing[-1])
        for window in self._windows.values():
            section = window.failing
            if section.covers(later.event) and section.index(*later.time) < len(section.events):
                address = later.failing[-1].address
                between = section.events.addresses[section.index(*earlier.time) + 1 : section.index(*later.time) + 1]
                return (Stop(address, between.count(address)),)
        return None

    def executed(self, earlier: Moment, later: Moment) -> tuple[Events, Events] | None:
        """What the passing and the failing run executed from one moment, its own statement first, to another;
        None where that was not traced: both must lie in one window or at its ends."""
        for window in self._windows.values():
            ends = later.time == (window.last, 0)
            passing = executed_part(
                window.passing,
                (earlier.passing_event, earlier.passing_step),
                None if ends else (later.passing_event, later.passing_step),
            )
            failing = executed_part(window.failing, earlier.time, None if ends else later.time)
            if passing is not None and failing is not None:
                return passing, failing
        return None


def executed_part(section: TracedSection, begin: tuple[int, int], end: tuple[int, int] | None) -> Events | None:
    """From one moment's statement up to another's, or to the end of the section; None where it does not reach."""
    if not section.covers(begin[0]) or not (section.complete if end is None else section.covers(end[0])):
        return None
    last = len(section.events) if end is None else section.index(*end)
    return section.events[max(0, section.index(*begin)) : last] if last <= len(section.events) else None


def evenly(items: Sequence[T]) -> Sequence[T]:
    """At most so many of them, with the first and the last."""
    if len(items) <= SPREAD:
        return items
    return [items[(len(items) - 1) * n // (SPREAD - 1)] for n in range(SPREAD)]
