"""Finds the moments two runs have in common: calls of the whole run first, statements where they are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_causechain.lab.laboratory import Event, Lab, Side
from pytest_causechain.model.moment import Moment, Stop
from pytest_causechain.moments.alignment import align_trees
from pytest_causechain.moments.tree import Invocation, Line, build_tree

# A living gdb records some four thousand events a second.
CALLS_LIMIT = 20_000
STATEMENTS_LIMIT = 6_000


@dataclass(frozen=True, slots=True)
class Window:
    """The statements of both runs between two calls, and the moments among them."""

    moments: tuple[Moment, ...]
    passing: tuple[Event, ...]
    failing: tuple[Event, ...]


class Calls:
    """The calls of one run: their events, the tree, and where each function is called for the n-th time."""

    def __init__(self, lab: Lab, side: Side) -> None:
        addresses = [function.address for function in lab.program.functions]
        trace = lab.trace(side, (), addresses, limit=CALLS_LIMIT)
        self.complete = trace.complete
        self.events = trace.events
        self.roots, self.invocations = build_tree(trace.events, lab.program)
        self._visits: dict[int, list[int]] = defaultdict(list)
        for number, event in enumerate(trace.events):
            self._visits[event.address].append(number)

    def stop(self, event: int, after: int = -1) -> Stop:
        """The stop that reaches an event from another one (by default from the start)."""
        address = self.events[event].address
        numbers = self._visits[address]
        return Stop(address, bisect_right(numbers, event) - bisect_right(numbers, after))


class Timeline:
    """The common moments of the two runs of a lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._passing, self._failing = Calls(lab, "passing"), Calls(lab, "failing")
        self._windows: dict[tuple[int, int | None], Window] = {}
        pairs = align_trees(self._passing.roots, self._failing.roots)
        self.calls = tuple(
            self._call(ours, theirs)
            for ours, theirs in pairs
            if isinstance(ours, Invocation) and isinstance(theirs, Invocation)
        )
        self.complete = self._passing.complete and self._failing.complete

    def _call(self, ours: Invocation, theirs: Invocation) -> Moment:
        program = self._lab.program
        body = Stop(program.function_at(theirs.function).body, 1)  # type: ignore[union-attr]
        stop = self._failing.stop(theirs.event)
        return Moment(
            position=program.position(theirs.function),
            backtrace=self._backtrace(theirs),
            event=theirs.event,
            step=0,
            passing_event=ours.event,
            passing_step=0,
            visit=stop.visit,
            passing=(self._passing.stop(ours.event), body),
            failing=(stop, body),
        )

    def _backtrace(self, invocation: Invocation) -> tuple[str, ...]:
        return tuple(self._lab.program.position(i.function).function for i in reversed(invocation.path()))

    def window(self, earlier: Moment, later: Moment | None) -> Window:
        """The statements between two calls, or from a call to the end of the runs."""
        key = (earlier.event, later.event if later else None)
        if key not in self._windows:
            passing = self._statements("passing", earlier.passing_event, later.passing_event if later else None)
            failing = self._statements("failing", earlier.event, later.event if later else None)
            self._windows[key] = self._match(earlier, passing, failing)
        return self._windows[key]

    def _calls(self, side: Side) -> Calls:
        return self._passing if side == "passing" else self._failing

    def _statements(self, side: Side, first: int, last: int | None) -> tuple[Event, ...]:
        """Statements only of the functions that run in this part of the run: each watched address costs."""
        calls, program = self._calls(side), self._lab.program
        involved = {i.function for i in calls.invocations[first].path()}
        involved |= {event.address for event in calls.events[first:last]}
        addresses = sorted(involved)
        addresses += sorted(s.address for a in involved for s in program.function_at(a).statements)  # type: ignore[union-attr]
        until = calls.stop(last, first) if last is not None else None
        if until is not None and until.address not in involved:
            addresses.append(until.address)
        return self._lab.trace(side, (calls.stop(first),), addresses, until, STATEMENTS_LIMIT).events

    def _match(self, earlier: Moment, passing: tuple[Event, ...], failing: tuple[Event, ...]) -> Window:
        program = self._lab.program
        trees = []
        for calls, first, events in (
            (self._passing, earlier.passing_event, passing),
            (self._failing, earlier.event, failing),
        ):
            trees.append(build_tree(events, program, calls.invocations[first].path())[0])
        moments = []
        seen: dict[tuple[Side, int], list[int]] = defaultdict(list)
        sides: tuple[tuple[Side, tuple[Event, ...]], ...] = (("passing", passing), ("failing", failing))
        for side, events in sides:
            for number, event in enumerate(events):
                seen[side, event.address].append(number)
        holders = holders_of(trees[1])
        for ours, theirs in align_trees(*trees):
            if not isinstance(ours, Line) or not isinstance(theirs, Line):
                continue
            holder = holders[theirs.event]
            if is_first_statement(holder, theirs):
                continue  # the call itself is that moment
            visit = bisect_right(seen["failing", theirs.address], theirs.event)
            moments.append(
                Moment(
                    position=program.position(theirs.address),
                    backtrace=self._backtrace(holder),
                    event=earlier.event,
                    step=theirs.event + 1,
                    passing_event=earlier.passing_event,
                    passing_step=ours.event + 1,
                    visit=visit,
                    passing=(
                        earlier.passing[0],
                        Stop(ours.address, bisect_right(seen["passing", ours.address], ours.event)),
                    ),
                    failing=(earlier.failing[0], Stop(theirs.address, visit)),
                )
            )
        return Window(tuple(moments), passing, failing)

    @property
    def matched(self) -> int:
        return len(self.calls) + sum(len(window.moments) for window in self._windows.values())

    def called_at(self, moment: Moment) -> str | None:
        """The function that the failing run's statement at this moment calls first, where that was traced."""
        for (first, last), window in self._windows.items():
            if first == moment.event and moment.step:
                following = window.failing[moment.step : moment.step + 1]
                if not following and moment.step == len(window.failing) and last is not None:
                    following = self._failing.events[last : last + 1]
                if following and following[0].return_address:
                    return self._lab.program.position(following[0].address).function
        return None

    def route(self, earlier: Moment, later: Moment) -> tuple[Stop, ...] | None:
        """The stops that lead from one moment to a later one as the failing run goes; None when unknown."""
        if later.event != earlier.event:
            return (self._failing.stop(later.event, earlier.event), later.failing[1])
        window = next((w for (first, _), w in self._windows.items() if first == earlier.event), None)
        if window is None:
            return None
        between = window.failing[max(1, earlier.step) : later.step]
        address = later.failing[1].address
        return (Stop(address, sum(event.address == address for event in between)),)

    def executed(self, earlier: Moment, later: Moment) -> tuple[tuple[Event, ...], tuple[Event, ...]] | None:
        """What the passing and the failing run executed from one moment, its own statement first, to another;
        None where that was not traced: both must lie in one window or at its ends."""
        for (first, last), window in self._windows.items():
            if first == earlier.event and later.event in (first, last):
                passing_end = later.passing_step - 1 if later.event == first else None
                failing_end = later.step - 1 if later.event == first else None
                return (
                    window.passing[max(0, earlier.passing_step - 1) : passing_end],
                    window.failing[max(0, earlier.step - 1) : failing_end],
                )
        return None


def holders_of(roots: Sequence[Invocation]) -> dict[int, Invocation]:
    """The invocation each statement's event belongs to."""
    result: dict[int, Invocation] = {}
    pending = list(roots)
    while pending:
        invocation = pending.pop()
        for child in invocation.children:
            if isinstance(child, Line):
                result[child.event] = invocation
            else:
                pending.append(child)
    return result


def is_first_statement(holder: Invocation, line: Line) -> bool:
    return holder.children[0] is line and line.event == holder.event + 1
