"""Finds the moments two runs have in common: calls of the whole run first, statements where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_causechain.lab.laboratory import Event, Lab
from pytest_causechain.model.moment import Moment, Position, Stop
from pytest_causechain.moments.alignment import align_trees
from pytest_causechain.moments.calls import Calls, Section
from pytest_causechain.moments.tree import Invocation, Line


@dataclass(frozen=True, slots=True)
class Window:
    """The statements of both runs between two calls, and the moments among them."""

    moments: tuple[Moment, ...]
    passing: Section
    failing: Section


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
            if isinstance(ours, Invocation) and isinstance(theirs, Invocation) and theirs.event >= 0
        )
        self.complete = self._passing.complete and self._failing.complete
        # Whether there were more calls than can be recorded, rather than a run without end.
        self.is_cut = self._passing.is_cut or self._failing.is_cut

    def _call(self, ours: Invocation, theirs: Invocation) -> Moment:
        program = self._lab.program
        body = Stop(program.function_at(theirs.function).body, 1)  # type: ignore[union-attr]
        if self._failing.is_opening(theirs.event):
            return self._beginning(theirs)
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

    def _beginning(self, invocation: Invocation) -> Moment:
        """Where both runs begin inside of a call."""
        visit = self._lab.visit("failing", ())
        position = self._lab.program.position(invocation.function)
        if visit is not None and visit.frames[0].file is not None:
            position = Position(position.function, visit.frames[0].file, visit.frames[0].line)
        return Moment(position, self._backtrace(invocation), 0, 0, 0, 0, 1, (), ())

    def _backtrace(self, invocation: Invocation) -> tuple[str, ...]:
        return tuple(self._lab.program.position(i.function).function for i in reversed(invocation.path()))

    def window(self, earlier: Moment, later: Moment | None) -> Window:
        """The statements between two calls, or from a call to the end of the runs."""
        key = (earlier.event, later.event if later else None)
        if key not in self._windows:
            passing = self._passing.section(earlier.passing_event, later.passing_event if later else None)
            failing = self._failing.section(earlier.event, later.event if later else None)
            self._windows[key] = Window(tuple(self._statements(passing, failing)), passing, failing)
        return self._windows[key]

    def _statements(self, passing: Section, failing: Section) -> Iterator[Moment]:
        trees = (self._passing.section_tree(passing), self._failing.section_tree(failing))
        holders = holders_of(trees[1])
        times = (passing.when(), failing.when())
        for ours, theirs in align_trees(*trees):
            if not isinstance(ours, Line) or not isinstance(theirs, Line):
                continue
            holder = holders[theirs.event]
            is_begun = holder.event < 0 and failing.is_opening
            if is_first_statement(holder, theirs) and not is_begun:
                continue  # the call itself is that moment
            here, there = times[0][ours.event], times[1][theirs.event]
            yield Moment(
                position=self._lab.program.position(theirs.address),
                backtrace=self._backtrace(holder),
                event=there.event,
                step=there.step,
                passing_event=here.event,
                passing_step=here.step,
                visit=there.visit,
                passing=(*self._passing.stops(here.event), Stop(ours.address, here.visit)),
                failing=(*self._failing.stops(there.event), Stop(theirs.address, there.visit)),
            )

    @property
    def matched(self) -> int:
        return len({*self.calls, *(m for window in self._windows.values() for m in window.moments)})

    def called_at(self, moment: Moment) -> str | None:
        """The function that the failing run's statement at this moment calls first, where that was traced."""
        if moment.step == 0:
            return None
        for (_, last), window in self._windows.items():
            section = window.failing
            if not section.covers(moment.event):
                continue
            following = section.index(moment.event, moment.step) + 1
            if following < len(section.events):
                event = section.events[following]
            elif last is not None and section.complete:
                event = self._failing.events[last]
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
            if section.covers(later.event) and section.index(later.event, later.step) < len(section.events):
                begin = section.index(earlier.event, earlier.step) + 1
                between = section.events[begin : section.index(later.event, later.step) + 1]
                address = later.failing[-1].address
                return (Stop(address, sum(event.address == address for event in between)),)
        return None

    def executed(self, earlier: Moment, later: Moment) -> tuple[tuple[Event, ...], tuple[Event, ...]] | None:
        """What the passing and the failing run executed from one moment, its own statement first, to another;
        None where that was not traced: both must lie in one window or at its ends."""
        for (_, last), window in self._windows.items():
            ends = later.event == last and later.is_entry
            passing = executed_part(
                window.passing,
                (earlier.passing_event, earlier.passing_step),
                None if ends else (later.passing_event, later.passing_step),
            )
            failing = executed_part(window.failing, earlier.time, None if ends else later.time)
            if passing is not None and failing is not None:
                return passing, failing
        return None


def executed_part(section: Section, begin: tuple[int, int], end: tuple[int, int] | None) -> tuple[Event, ...] | None:
    """From one moment's statement up to another's, or to the end of the section; None where it does not reach."""
    if not section.covers(begin[0]) or not (section.complete if end is None else section.covers(end[0])):
        return None
    last = len(section.events) if end is None else section.index(*end)
    return section.events[max(0, section.index(*begin)) : last] if last <= len(section.events) else None


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
