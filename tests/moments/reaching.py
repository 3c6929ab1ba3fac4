"""Checks that moments are what they say they are, by going there."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.moment import Moment
from pytest_causechain.moments.timeline import Timeline


def find_line(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def own_functions(visit: Visit, lab: LocalLab) -> tuple[str, ...]:
    """Of the program itself; a return address may lie behind the whole function."""
    return tuple(
        frame.function
        for number, frame in enumerate(visit.frames)
        if lab.program.function_at(frame.pc - (number > 0)) is not None
    )


def check_reached(lab: LocalLab, moment: Moment) -> None:
    """In both runs, at its line, with its calls on the stack."""
    for side, stops in (("passing", moment.passing), ("failing", moment.failing)):
        visit = lab.visit(side, stops)
        assert visit is not None, (side, moment)
        frame = visit.frames[0]
        assert (frame.function, frame.file, frame.line) == (
            moment.position.function,
            moment.position.file,
            moment.position.line,
        ), (side, moment)
        assert own_functions(visit, lab) == moment.backtrace, (side, moment)


def check_order(moments: Sequence[Moment]) -> None:
    assert [m.time for m in moments] == sorted({m.time for m in moments})
    passing = [(m.passing_event, m.passing_step) for m in moments]
    assert passing == sorted(set(passing))


def check_route(lab: LocalLab, timeline: Timeline, earlier: Moment, later: Moment) -> None:
    """The way from one to the other ends in the very state that the later one has."""
    route = timeline.route(earlier, later)
    assert route is not None, (earlier, later)
    there, direct = lab.visit("failing", earlier.failing, then=route), lab.visit("failing", later.failing)
    assert there is not None, (earlier, later)
    assert there.frames == direct.frames, (earlier, later)
    # The stack and the C library's own memory hold random numbers.
    assert [r for r in there.regions if r.kind in ("image", "heap")] == [
        r for r in direct.regions if r.kind in ("image", "heap")
    ], (earlier, later)
