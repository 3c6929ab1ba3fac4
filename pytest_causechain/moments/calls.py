"""What was recorded of one run: all its calls, and sections of it statement by statement."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_causechain.lab.laboratory import Event, Events, Lab, Side
from pytest_causechain.model.moment import Stop
from pytest_causechain.moments.tree import Token, Tree, build_tree

# Looks at the stack, each a visit. Beyond, the tree of calls that libraries make becomes a guess.
LOOKS_LIMIT = 20
# Of a call of which nothing more is known than that it is on the stack.
OUTERMOST, FOREIGN_SITE = 1 << 63, 1


@dataclass(frozen=True, slots=True)
class Section:
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

    def section(self, first: int, last: int | None) -> Section:
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
        return Section(first, events, entries, complete, self.is_opening(first))

    def section_tree(self, section: Section) -> Tree:
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
