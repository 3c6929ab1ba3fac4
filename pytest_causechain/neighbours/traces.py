"""Ranks the best candidates anew, by how much of what their runs do the failing run does too.

Calls are compared in their context, as moments are matched, and functions by their order, as Renieris and Reiss do
("Fault localization with nearest neighbor queries", 2003). A run that shows the same as the failing one is of no use,
however near: nothing would tell the two apart.
"""

from __future__ import annotations

import signal
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_causechain.alignment.trees import align_trees, build_tree
from pytest_causechain.lab.laboratory import Events, Lab, Side, name_other
from pytest_causechain.lab.remote_lab import LabSetup, RemoteLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.model.runs import Command, Observation, Run
from pytest_causechain.neighbours.ranking import Neighbour

# Runs looked at, in search of so many that show something else than the failing one.
MOST_RUN, MOST_TRACED = 24, 6
# Of each run. Runs that are alike for so long are near enough.
MOST_CALLS = 5_000
SHOWS_THE_SAME = "it shows the same as the failing run: add a passing test whose run shows something else."


@dataclass(frozen=True, slots=True)
class Likeness:
    """`common` of all `calls` that the two runs make, counted once where both make them, have the same context in
    both; so many of their functions have to `move` until those of one run stand in the other's order."""

    common: int
    calls: int
    moves: int

    @property
    def distance(self) -> float:
        """Returns the share of the calls that only one of the two makes."""
        return round(1 - self.common / self.calls, 3) if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates, nearest first, of which so many were `traced`; and those of no use, with the reason."""

    neighbours: tuple[Neighbour, ...]
    traced: int = 0
    refused: tuple[tuple[Neighbour, str], ...] = ()


def rank_by_traces(
    failing: Command,
    candidates: Sequence[Neighbour],
    budget: Budget,
    setup: LabSetup,
) -> Ranked:
    """`candidates` come in the order that decides where traces do not, and in which those follow that were not
    traced. As far as the budget allows; where nothing can be traced the order stays."""
    commands = [near.run.command for near in candidates[:MOST_RUN]]
    comparison = _Comparison(candidates)
    try:
        with setup.open_lab(failing, failing, budget=budget, others=commands) as lab:
            comparison.run(lab)
    except BudgetUsedUp:
        budget.cut_short("neighbours", comparison.looked_at, len(commands))
    except Hopeless:
        raise
    except Refusal:
        pass  # the diagnosis itself will tell why
    return comparison.result()


class _Comparison:
    def __init__(self, candidates: Sequence[Neighbour]) -> None:
        self._candidates = candidates
        self._traced: list[tuple[Likeness, Neighbour]] = []
        self._refused: dict[int, str] = {}

    def run(self, lab: RemoteLab) -> None:
        functions = [function.address for function in lab.program.functions]
        failing: tuple[Observation, Events] | None = None
        for number, near in enumerate(self._candidates[:MOST_RUN]):
            side = name_other(number)
            try:
                begin = time.monotonic()
                shown = lab.experiment(side)
                require_room(near.run, shown)
            except BudgetUsedUp:
                raise
            except Refusal as refusal:
                self._refused[number] = str(refusal)
                continue
            if failing is None:
                # One that hangs must not take all the time.
                lab.allow(time.monotonic() - begin)
                failing = lab.experiment("failing"), trace_calls(lab, "failing", functions)
            if is_alike(shown, failing[0]):
                self._refused[number] = SHOWS_THE_SAME
                continue
            likeness = compare_calls(lab, trace_calls(lab, side, functions), failing[1])
            why = f"{near.why}, {likeness.common} of {likeness.calls} calls in common"
            self._traced.append((likeness, replace(near, distance=likeness.distance, why=why)))
            if len(self._traced) == MOST_TRACED:
                return

    @property
    def looked_at(self) -> int:
        return len(self._traced) + len(self._refused)

    def result(self) -> Ranked:
        traced = sorted(self._traced, key=lambda entry: (entry[0].distance, entry[0].moves))
        known = {near.recording.test for _, near in traced}
        others = [
            near
            for number, near in enumerate(self._candidates)
            if number not in self._refused and near.recording.test not in known
        ]
        refused = tuple((self._candidates[number], reason) for number, reason in self._refused.items())
        return Ranked((*(near for _, near in traced), *others), len(traced), refused)


def require_room(run: Run, observation: Observation) -> None:
    """Raises a Refusal when an experiment was ended for its output where the test has seen all of it."""
    if run.returncode is not None and (observation.ending, observation.code) == ("timeout", signal.SIGXFSZ):
        raise Refusal(
            f"{Path(run.command.program.path).name} writes more than an experiment may: raise output in "
            "cause_chain_limits, or give the test a smaller input."
        )


def is_alike(passing: Observation, failing: Observation) -> bool:
    """Tells whether two runs show the same; where they were when they ended does not count."""
    return replace(passing, backtrace=()) == replace(failing, backtrace=())


def trace_calls(lab: Lab, side: Side, functions: Sequence[int]) -> Events:
    return lab.trace(side, (), functions, limit=MOST_CALLS).events


def compare_calls(lab: Lab, passing: Events, failing: Events) -> Likeness:
    common = len(align_trees(build_tree(passing, lab.program), build_tree(failing, lab.program)))
    calls = len(passing) + len(failing) - common
    return Likeness(common, calls, count_moves(passing.addresses, failing.addresses))


def count_moves(passing: Sequence[int], failing: Sequence[int]) -> int:
    """Counts the fewest functions to move until one run's order is the other's (Ulam's distance); each order is that of
    the functions one of the runs calls, rarest first. Those that stay are a longest increasing subsequence."""
    counts = Counter(passing), Counter(failing)
    functions = sorted(counts[0].keys() | counts[1].keys())
    ours, theirs = (sorted(functions, key=count.__getitem__) for count in counts)
    places = {function: place for place, function in enumerate(theirs)}
    # last[n]: the least place that an increasing subsequence of n + 1 functions can end with.
    last: list[int] = []
    for place in (places[function] for function in ours):
        found = bisect_left(last, place)
        last[found : found + 1] = [place]
    return len(functions) - len(last)
