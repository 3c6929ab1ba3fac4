"""Compares the states of two runs at one place in the source, for scripts that look at states themselves."""

from __future__ import annotations

from pytest_causechain.lab.laboratory import Lab, Open, Side
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command
from pytest_causechain.states.deltas import StateComparison, compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Layouts
from pytest_causechain.states.matching import match_states

TIMEOUT_SECONDS = 60.0


def compare_runs(
    passing: Command, failing: Command, place: str, visit: int = 1, timeout_seconds: float = TIMEOUT_SECONDS
) -> StateComparison:
    """Compares the states of both runs when they reach a line, given as "sample.c:29", for the visit-th time."""
    with RemoteLab(Open(passing, failing), Budget(timeout_seconds)) as lab:
        stop = find_stop(lab, place, visit)
        layouts = Layouts(lab.program.types)
        ours, theirs = (capture_state(lab, side, stop, place, layouts) for side in ("passing", "failing"))
        return compare_states(match_states(ours, theirs))


def capture_state(lab: Lab, side: Side, stop: Stop, place: str, layouts: Layouts) -> MemoryGraph:
    visit = lab.visit(side, (stop,))
    if visit is None:
        raise Refusal(f"the {side} run does not come to {place} {stop.visit} times: choose a place both runs reach.")
    return MemoryGraph(visit, lab.program, layouts)


def find_stop(lab: Lab, place: str, visit: int) -> Stop:
    file, _, line = place.rpartition(":")
    for function in lab.program.functions:
        for statement in function.statements:
            if statement.file.endswith(file) and str(statement.line) == line:
                return Stop(statement.address, visit)
    raise Refusal(f"no statement begins at {place}: give the file and number of a line with code.")
