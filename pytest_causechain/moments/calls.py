"""What was recorded of one run: all its calls, and sections of it statement by statement."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_causechain.lab.laboratory import Event, Lab, Side
from pytest_causechain.model.moment import Stop
from pytest_causechain.moments.tree import Invocation, build_tree

# Looks at the stack, each a visit. Beyond, the tree of calls that libraries make becomes a guess.
LOOKS_LIMIT = 20
# Of a call of which nothing more is known than that it is on the stack.
OUTERMOST, FOREIGN_SITE = 1 << 63, 1


class When(NamedTuple):
    """The call that came last, the statements since then, and how many of them were executions of this one."""

    event: int
    step: int
    visit: int


@dataclass(frozen=True, slots=True)
class Section:
    """What a run executed behind the call numbered `first`; `entries` are the indices of the calls after it.

    `complete`: up to the wanted call, or to the end of the run. `is_opening`: the run begins in that call."""

    first: int
    events: tuple[Event, ...]
    entries: tuple[int, ...]
    complete: bool
    is_opening: bool = False

    def covers(self, event: int) -> bool:
        return self.first <= event <= self.first + len(self.entries)

    def index(self, event: int, step: int) -> int:
        """Of the statement that a moment stands before; that of a call begins its body. Where a run begins is before
        all that it executes."""
        entry = -1 if event == self.first else self.entries[event - self.first - 1]
        return entry + (step if self.is_opening and event == self.first else max(1, step))

    def when(self) -> list[When]:
        """For each event; the first call itself is not among them."""
        result: list[When] = []
        event, entry = self.first, -1
        executions: dict[int, int] = defaultdict(int)
        for index, executed in enumerate(self.events):
            if executed.return_address:
                event, entry = event + 1, index
                executions.clear()
            executions[executed.address] += 1
            result.append(When(event, index - entry, executions[executed.address]))
        return result


class Calls:
    """The calls of one run: their events, the tree, and where each function is called for the n-th time.

    A run that begins inside of calls begins with the innermost of them as an event, which needs no stop."""

    def __init__(self, lab: Lab, side: Side) -> None:
        self._lab, self._side = lab, side
        self.opening, above = find_opening(lab, side) if lab.begins_inside else ((), [])
        addresses = [function.address for function in lab.program.functions]
        trace = lab.trace(side, (), addresses, limit=lab.recordable)
        self.complete = trace.complete
        self.is_cut = len(trace) >= lab.recordable
        self.events = (*self.opening, *trace.events)
        self._visits: dict[int, list[int]] = defaultdict(list)
        for number, event in enumerate(trace.events, len(self.opening)):
            self._visits[event.address].append(number)
        self._looks: dict[object, int | None] = {}
        self.roots, self.invocations = build_tree(self.events, lab.program, above, self.count_callers)

    def stop(self, event: int, after: int = -1) -> Stop:
        """The stop that reaches an event from another one (by default from the start)."""
        address = self.events[event].address
        numbers = self._visits[address]
        return Stop(address, bisect_right(numbers, event) - bisect_right(numbers, after))

    def stops(self, event: int) -> tuple[Stop, ...]:
        """Those that reach an event from the start."""
        return () if self.is_opening(event) else (self.stop(event),)

    def is_opening(self, event: int) -> bool:
        return event < len(self.opening)

    def section(self, first: int, last: int | None) -> Section:
        """The statements between two calls, or from a call to the end.

        Only those of the functions that run in this part of the run: each watched address costs."""
        program = self._lab.program
        involved = {i.function for i in self.invocations[first].path()}
        involved |= {event.address for event in self.events[first:last]}
        addresses = sorted(involved)
        addresses += sorted(s.address for a in involved for s in program.function_at(a).statements)  # type: ignore[union-attr]
        until = self.stop(last, first) if last is not None else None
        if until is not None and until.address not in involved:
            addresses.append(until.address)
        trace = self._lab.trace(self._side, self.stops(first), addresses, until, self._lab.recordable)
        entries = tuple(index for index, event in enumerate(trace.events) if event.return_address)
        events, complete = trace.events, trace.complete
        known = len(self.events) - 1 - first
        if len(entries) > known:  # the calls were recorded up to a limit
            events, entries, complete = events[: entries[known]], entries[:known], False
        return Section(first, events, entries, complete, self.is_opening(first))

    def section_tree(self, section: Section) -> list[Invocation]:
        """Its invocations without a parent, opened by the calls that were on the stack before."""
        above = self.invocations[section.first].path()

        def count_callers(number: int, stack: Sequence[Invocation]) -> int | None:
            return self.count_callers(section.first + 1 + number, stack)

        return build_tree(section.events, self._lab.program, above, count_callers)[0]

    def count_callers(self, event: int, stack: Sequence[Invocation]) -> int | None:
        """How many of these calls enclose one that foreign code made; asked once for calls in equal circumstances."""
        if self.is_opening(event):
            return len(stack)
        address, call_site = self.events[event].address, self.events[event].return_address
        circumstances = (address, call_site, tuple(invocation.token for invocation in stack))
        if circumstances not in self._looks and len(self._looks) < LOOKS_LIMIT:
            self._looks[circumstances] = self._look_at_stack(event, stack)
        return self._looks.get(circumstances)

    def _look_at_stack(self, event: int, stack: Sequence[Invocation]) -> int | None:
        program = self._lab.program
        body = Stop(program.function_at(self.events[event].address).body, 1)  # type: ignore[union-attr]
        visit = self._lab.visit(self._side, (self.stop(event), body))
        if visit is None:
            return None
        # A return address lies behind its call, perhaps behind the whole function.
        callers = [program.function_at(frame.pc - 1) for frame in visit.frames[:0:-1]]
        seen = [function.address for function in callers if function is not None]
        return len(seen) if seen == [invocation.function for invocation in stack[: len(seen)]] else None


def find_opening(lab: Lab, side: Side) -> tuple[tuple[Event, ...], list[Invocation]]:
    """The innermost of the calls on the stack where a run begins, as an event, and the path of those around it."""
    visit = lab.visit(side, ())
    path: list[Invocation] = []
    frames = [] if visit is None else list(visit.frames)
    for frame, caller in reversed(list(zip(frames, [*frames[1:], None], strict=True))):
        function = lab.program.function_at(frame.pc - (frame is not frames[0]))
        if function is not None:
            # The stack pointer of a call is where its return address lies; nothing tells that of the outermost.
            sp, call_site = (caller.sp - 8, caller.pc) if caller is not None else (OUTERMOST, FOREIGN_SITE)
            path.append(Invocation(function.address, call_site, sp, -1, path[-1] if path else None))
    if not path:
        return (), []
    return (Event(path[-1].function, path[-1].sp, path[-1].call_site),), path[:-1]
