"""Turns what the search found into the links, transitions and suspects of a Chain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pytest_causechain.alignment.timeline import Timeline
from pytest_causechain.causes.inquiry import Inquiry, Isolated
from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import RETURN_VALUE
from pytest_causechain.lab.laboratory import Event
from pytest_causechain.model.chain import Cause, Link, Suspect, Transition, When
from pytest_causechain.model.moment import Moment, Place
from pytest_causechain.search.cts import CauseMove as Step
from pytest_causechain.search.cts import TransitionSearch


class Explanation:
    def __init__(
        self,
        program: ProgramMap,
        timeline: Timeline,
        search: TransitionSearch[Moment, Isolated],
        unshown: Collection[Moment],
        left_out: Collection[Moment],
        inquiry: Inquiry,
        writers: Mapping[Moment, Place],
    ) -> None:
        """`unshown` are the links of which it was not shown that the one before leads to them, `left_out` those that
        are not told; `writers` tell where the failing run wrote to what is the cause at a moment."""
        self._program, self._timeline, self._search = program, timeline, search
        self._was_so, self._illustrate, self._script = inquiry.was_so, inquiry.illustrate, inquiry.script
        self._unshown, self._left_out, self._writers = unshown, left_out, writers
        self._steps = told_transitions(search, left_out)
        self._before = {step.after: step.before for step in self._steps}
        # By the moments that they lead to.
        self._transitions = {
            step.after: self._transition(step) for step in self._steps if self._is_news(step.before, step.after)
        }

    def links(self) -> tuple[Link, ...]:
        told = told_links(self._search, self._left_out)
        # What may lie before the first is not told.
        arrivals = [None, *(self._transitions.get(moment) for moment, _ in told[1:])]
        return tuple(
            self._link(moment, cause, arrived_by) for (moment, cause), arrived_by in zip(told, arrivals, strict=False)
        )

    def _link(self, moment: Moment, cause: Isolated, arrived_by: Transition | None) -> Link:
        before = self._before.get(moment)
        made_by = None
        if before is not None and not self._was_so(before, cause):
            made_by = self._only_statement(before, moment)
        picture, trials = self._illustrate(moment, cause)
        replay, undo = self._script(moment, cause)
        return Link(
            moment=self._when(moment),
            causes=cause.causes,
            differences=cause.differences,
            experiments=cause.tally,
            confirmed=cause.confirmed,
            arrived_by=arrived_by,
            made_by=made_by,
            written_by=self._writers.get(moment),
            follows=moment not in self._unshown,
            picture=picture,
            trials=trials,
            replay=replay,
            undo=undo,
        )

    def _when(self, moment: Moment) -> When:
        position = moment.position
        return When(
            function=position.function,
            file=position.file,
            line=position.line,
            visit=moment.visit,
            event=moment.event,
            backtrace=moment.backtrace,
            is_entry=moment.is_entry,
            calls=self._timeline.called_at(moment),
            stops=tuple(map(self._program.breakpoint, moment.passing)),
            failing_stops=tuple(map(self._program.breakpoint, moment.failing)),
        )

    def _only_statement(self, before: Moment, after: Moment) -> Place | None:
        """The one statement that both runs completed between two moments, and nothing else: the one executed,
        or the one that a function now left was called from."""
        executed = self._timeline.executed(before, after)
        if executed is None:
            return None
        left = len(before.backtrace) - len(after.backtrace)
        if left > 0:
            own = [self._program.function_at(e.address) for events in executed for e in statements(events)]
            if any(function is None or function.name == after.position.function for function in own):
                return None
            return self._search.known[before].stack[left]
        if any(len(statements(events)) != 1 for events in executed):
            return None
        position = self._program.position(statements(executed[1])[0].address)
        return Place(position.file, position.line, position.function)

    def transitions(self) -> tuple[Transition, ...]:
        return tuple(self._transitions.values())

    def _is_news(self, before: Moment, after: Moment) -> bool:
        known = self._search.known
        return is_news(known[before], known[after], (before, after) not in self._search.unproven())

    def _transition(self, step: Step[Moment]) -> Transition:
        before, after = step.before, step.after
        here = self._only_statement(before, after)
        start, end = before.position, after.position
        place = here or self._writers.get(after) or Place(end.file, end.line, end.function)
        known = self._search.known
        return Transition(
            from_=tuple(delta.name for delta in known[before].deltas),
            to=tuple(delta.name for delta in known[after].deltas),
            file=place.file,
            line=place.line,
            function=place.function or end.function,
            earliest=here or Place(start.file, start.line, start.function),
            only_in_failing=self._only_in_failing(before, after),
        )

    def _only_in_failing(self, before: Moment, after: Moment) -> tuple[str, ...]:
        executed = self._timeline.executed(before, after)
        if executed is None:
            return ()
        passing, failing = ({self._program.position(e.address) for e in statements(events)} for events in executed)
        alone = sorted({(p.file, p.line) for p in failing} - {(p.file, p.line) for p in passing})
        return tuple(f"{file}:{line}" for file, line in alone)

    def suspects(self) -> tuple[Suspect, ...]:
        """The lines of the transitions: first those where a new value comes about, then those that hand one on.

        The latest first: what comes early is mostly how the program reads its input. A variable that was as it is
        before the transition already says nothing about these lines."""
        known = self._search.known
        ordered = [
            step
            for step in reversed(self._steps)
            if step.after in self._transitions and not self._was_so(step.before, known[step.after])
        ]
        ordered.sort(key=lambda step: hands_on(known[step.before], known[step.after]))
        suspects: list[Suspect] = []
        for transition in (self._transitions[step.after] for step in ordered):
            where = (transition.file, transition.line)
            if where not in [(s.file, s.line) for s in suspects]:
                why = f"here the cause moves from {', '.join(transition.from_)} to {', '.join(transition.to)}"
                suspects.append(Suspect(len(suspects) + 1, *where, transition.function, why))
        return tuple(suspects)


def hands_on(before: Isolated, after: Isolated) -> bool:
    """Whether the failing run's new value is only a copy of the old one, perhaps converted from text."""
    values = {value.strip('"').removesuffix("\\n") for value in before.values}
    return all(value.strip('"').removesuffix("\\n") in values for value in after.values)


def statements(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if not event.return_address]


def is_returned(cause: Isolated) -> bool:
    """Whether all there is of a cause is on its way from one variable, in a function that ends, to another."""
    return all(delta.name == RETURN_VALUE for delta in cause.deltas)


def told_transitions(
    search: TransitionSearch[Moment, Isolated], left_out: Collection[Moment] = ()
) -> list[Step[Moment]]:
    """A value on its way out of a function is no news, nor is what is left out: two transitions are one."""
    told: list[Step[Moment]] = []
    for transition in search.transitions():
        if told and (told[-1].after in left_out or is_returned(search.known[told[-1].after])):
            transition = Step(told.pop().before, transition.after)
        told.append(transition)
    # What main returns at last, the failure tells.
    return told[:-1] if told and is_returned(search.known[told[-1].after]) else told


def told_links(
    search: TransitionSearch[Moment, Isolated], left_out: Collection[Moment] = ()
) -> list[tuple[Moment, Isolated]]:
    """No news to a reader: a value handed on under its own name, as an argument, or returned; and a cause that has
    come to take another variable with it, which follows from it."""
    told: list[tuple[Moment, Isolated]] = []
    links = [link for link in search.links() if link[0] not in left_out]
    unproven = {after for _, after in search.unproven()}
    for moment, cause in [link for link in links if not is_returned(link[1])] or links:
        if not told or is_news(told[-1][1], cause, follows=moment not in unproven):
            told.append((moment, cause))
    return told


def is_news(before: Isolated, after: Isolated, follows: bool) -> bool:
    """`follows`: the earlier cause leads to the later one."""
    one, other = before.causes, after.causes
    return not (same_to_reader(one, other) or (follows and len(one) < len(other) and is_part(one, other)))


def is_part(one: Sequence[Cause], other: Sequence[Cause]) -> bool:
    wide = [(c.variable, c.failing) for c in other]
    return all((c.variable, c.failing) in wide for c in one)


def same_to_reader(one: Sequence[Cause], other: Sequence[Cause]) -> bool:
    return [(c.variable, c.passing, c.failing) for c in one] == [(c.variable, c.passing, c.failing) for c in other]
