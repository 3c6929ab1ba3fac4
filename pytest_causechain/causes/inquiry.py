"""Answers what the search over time asks: which variables cause the failure at this moment?"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property
from typing import Literal, NamedTuple

from pytest_causechain.alignment.timeline import Timeline
from pytest_causechain.causes.picturing import draw_picture, list_trials
from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import RETURN_VALUE, Visit
from pytest_causechain.lab.laboratory import Lab, Side
from pytest_causechain.model.alteration import Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.chain import Cause, Picture, Script, Tally, Trial
from pytest_causechain.model.moment import Moment, Place, Stop
from pytest_causechain.model.runs import Observation, Outcome
from pytest_causechain.model.verdict import Oracle
from pytest_causechain.report.wording import describe_outcome
from pytest_causechain.search.dd import MinimalCause, group_deltas, isolate, restrict
from pytest_causechain.search.rounds import Outcomes, as_it_is
from pytest_causechain.states.deltas import Delta, StateComparison, compare_states, have_failing_values
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Layouts
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.names import find_identifiers
from pytest_causechain.states.outside import OtherCode, OutsideDelta
from pytest_causechain.states.transfer import script_change, transfer_to_failing_run, transfer_to_passing_run

Configuration = frozenset[int]
NOTHING: Configuration = frozenset()

# Shorter ones are anywhere in a memory.
NUMBER = re.compile(rb"-?\d{2,18}")
WORD = re.compile(rb"[^\W\d]\w{2,}")
# Of bytes that an integer may have.
INTEGER_SIZES = (2, 4, 8)


@dataclass(frozen=True, eq=False)
class Isolated:
    """A cause at a moment: the deltas that decide, out of `differences`, and what it took to find them. The words for
    them, `causes`, are found at once: in a large state that takes long, and is part of the search."""

    deltas: tuple[Delta, ...]
    causes: tuple[Cause, ...]
    differences: int
    tally: Tally
    confirmed: Literal["both", "passing", "context"]
    # Where the calls on the failing run's stack stand, innermost first.
    stack: tuple[Place, ...]

    # Asked for again and again while the search goes on.
    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(delta.key for delta in self.deltas)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """What the variables are in the failing run, told in a way that does not change with the calls on the stack."""
        return tuple(delta.value_key or delta.failing for delta in self.deltas)


class Writing(NamedTuple):
    """Bytes that a run may write to on its way from stops to others."""

    stops: tuple[Stop, ...]
    then: tuple[Stop, ...]
    address: int
    size: int


class Comparable:
    """One moment at which both states have been captured, and the experiments made there.

    A configuration is a set of numbers of deltas."""

    def __init__(
        self,
        moment: Moment,
        comparison: StateComparison,
        experiments: Callable[[list[Transfer]], list[Observation | None]],
        judge: Callable[[Observation], Outcome],
        width: int,
        likely: Configuration,
    ) -> None:
        self.moment = moment
        self.likely = likely
        self.comparison = comparison
        self.deltas = comparison.deltas
        self.everything: Configuration = frozenset(range(len(self.deltas)))
        # Output is an effect, and no cause of the failure.
        causes = [number for number, delta in enumerate(self.deltas) if delta.kind != "output"]
        self.units = group_deltas(causes, lambda number: self.deltas[number].group)
        self.unwritten: Configuration = frozenset(causes)
        self.outcomes = Outcomes[Configuration, Observation](
            lambda configurations: experiments([self.transfer(c) for c in configurations]), judge, width
        )

    def transfer(self, configuration: Iterable[int]) -> Transfer:
        return transfer_to_passing_run(self.comparison, [self.deltas[i] for i in sorted(configuration)])

    def numbers(self, keys: frozenset[str]) -> Configuration:
        return frozenset(i for i, delta in enumerate(self.deltas) if delta.key in keys)


class Inquiry:
    """Implements what `search.cts` asks of a laboratory."""

    def __init__(
        self,
        lab: Lab,
        timeline: Timeline,
        oracle: Oracle,
        likelihood: Likelihood,
        budget: Budget,
        code: OtherCode | None = None,
    ) -> None:
        self._code = code
        self._lab, self._timeline, self._oracle, self._budget = lab, timeline, oracle, budget
        self._likelihood = likelihood
        self._comparable: dict[Moment, Comparable] = {}
        self._layouts = Layouts(lab.program.types)
        # Whether with a configuration at a moment a later cause appears: links are asked for when they are found, and
        # when they are told.
        self._lead = cache(self._look_ahead)
        self._extra = Outcomes[tuple[Moment, Transfer], Outcome](
            lambda undos: [self._undo(*undo) for undo in undos], as_it_is
        )
        self._last_values: dict[frozenset[str], tuple[str, ...]] = {}
        # So often was something observed, at one moment.
        self._observed = 0
        self.capture_seconds = 0.0
        self.experiment_seconds = 0.0
        # Why the states at a moment could not be transferred.
        self.refused: dict[Moment, str] = {}
        # Where they could, but the failure shows in what was written before.
        self.shown: set[Moment] = set()
        self.vertices = 0
        self.unreadable = 0
        # Whether some state was larger than what is looked at.
        self.is_cut = False
        self.most_deltas = 0

    @property
    def tally(self) -> Tally:
        """All experiments made so far."""
        tallies = [self._extra.tally, *(c.outcomes.tally for c in self._comparable.values())]
        return Tally(*map(sum, zip(*map(astuple, tallies), strict=True)))

    def variables(self, cause: Isolated) -> frozenset[str]:
        """A cause that stays in its variables but takes on the value it ends with counts as another one."""
        if self._last_values.get(cause.keys) == cause.values:
            return cause.keys | {"with its last value"}
        return cause.keys

    def mind_last_values(self, causes: Iterable[Isolated]) -> None:
        """Of causes in time order: from now on the moment is looked for at which each variable took on the last
        value with which it is a cause. `p = p->next` makes p another p, and NULL the one that matters."""
        self._last_values = {cause.keys: cause.values for cause in causes}

    def isolate(self, moment: Moment, hints: Sequence[Isolated]) -> Isolated | None:
        comparable = self._compare(moment)
        if comparable is None or not self._check(comparable):
            return None
        before = comparable.outcomes.tally
        for hint in hints:
            numbers = comparable.numbers(hint.keys)
            present = {comparable.deltas[i].key for i in numbers}
            if present == hint.keys and comparable.outcomes(numbers) is Outcome.FAIL:
                units = restrict(comparable.units, numbers)
                return self._confirm(comparable, isolate(units, comparable.outcomes), before)
        return self._confirm(comparable, isolate(comparable.units, comparable.outcomes, comparable.likely), before)

    def isolate_for(self, moment: Moment, later: tuple[Moment, Isolated]) -> Isolated | None:
        comparable = self._compare(moment)
        if comparable is None:
            return None
        before = comparable.outcomes.tally
        outcomes = Outcomes[Configuration, Outcome](
            lambda tried: [self._lead(comparable, c, later) for c in tried], as_it_is
        )
        if outcomes(NOTHING) is not Outcome.PASS or outcomes(comparable.unwritten) is not Outcome.FAIL:
            return None
        isolation = isolate(comparable.units, outcomes, comparable.likely)
        if comparable.outcomes(isolation.cause) is not Outcome.FAIL:
            return None
        return self._confirm(comparable, isolation, before)

    def causes(self, earlier: tuple[Moment, Isolated], later: tuple[Moment, Isolated]) -> bool:
        if self.variables(earlier[1]) == self.variables(later[1]):
            return True  # no transition: nothing is said about this pair
        return self.leads_to(earlier, later)

    def leads_to(self, earlier: tuple[Moment, Isolated], later: tuple[Moment, Isolated]) -> bool:
        """Whether the earlier cause alone, in the passing run, makes the later one appear."""
        comparable = self._comparable[earlier[0]]
        numbers = comparable.numbers(earlier[1].keys)
        return self._lead(comparable, numbers, later) is Outcome.FAIL

    def was_so(self, moment: Moment, cause: Isolated) -> bool:
        """Whether the variables of a later cause had the same values at this moment already, in both runs."""
        there = {(delta.key, delta.passing, delta.failing) for delta in self._comparable[moment].deltas}
        return all((delta.key, delta.passing, delta.failing) in there for delta in cause.deltas)

    def written(self, earlier: Moment, later: tuple[Moment, Isolated]) -> Writing | None:
        """Where in the failing run's memory the later cause lies, and how the run gets there from an earlier moment;
        None where that is not known, or the cause lies elsewhere."""
        moment, cause = later
        spot = next((delta.spots[0] for delta in cause.deltas if delta.spots), None)
        route = self._timeline.route(earlier, moment)
        if spot is None or route is None or self.was_so(earlier, cause):
            return None
        return Writing(earlier.failing, route, spot.theirs.address + spot.leaf.offset, spot.leaf.size)

    def illustrate(self, moment: Moment, cause: Isolated) -> tuple[Picture | None, tuple[Trial, ...]]:
        """What a reader may want to see of a cause: both states around it, and the experiments made there."""
        comparable = self._comparable[moment]
        picture = draw_picture(comparable.comparison, cause.deltas)
        return picture, list_trials(comparable.deltas, comparable.outcomes.known)

    def script(self, moment: Moment, cause: Isolated) -> tuple[Script | None, Script | None]:
        """How gdb repeats the experiment that proves a cause, and the one that undoes it."""
        comparison = self._comparable[moment].comparison
        undo = script_change(comparison, cause.deltas, is_forwards=False) if cause.confirmed == "both" else None
        return script_change(comparison, cause.deltas, is_forwards=True), undo

    def _look_ahead(
        self, comparable: Comparable, configuration: Configuration, later: tuple[Moment, Isolated]
    ) -> Outcome:
        """FAIL: with this configuration the later cause appears in the passing run. Its variables then have the failing
        run's values.

        What the run reads later from its input is not looked at: an input cause is there from the start. Code stays
        what the configuration makes it."""
        moment, cause = later
        kinds = {delta.kind for delta in cause.deltas}
        if "code" in kinds and all(comparable.deltas[number].kind != "code" for number in configuration):
            return Outcome.PASS
        if kinds == {"code"}:
            return Outcome.FAIL
        if all(delta.kind == "input" for delta in cause.deltas):
            return Outcome.FAIL if configuration else Outcome.PASS
        route = self._timeline.route(comparable.moment, moment)
        if route is None:
            return Outcome.UNRESOLVED
        visit = self._lab.visit("passing", comparable.moment.passing, comparable.transfer(configuration), route)
        failing = self._comparable[moment].comparison.matching.failing
        if visit is None or [f.function for f in visit.frames] != [f.function for f in failing.visit.frames]:
            return Outcome.UNRESOLVED
        appears = have_failing_values(self._graph(visit), failing, cause.deltas)
        return Outcome.FAIL if appears else Outcome.PASS

    def _check(self, comparable: Comparable) -> bool:
        """The self-check: no delta must PASS, all must FAIL; and what was written by then must not be needed for that,
        else the failure has begun to show already."""
        reason = "no variable differs" if not comparable.deltas else None
        reason = reason or self._unlike(comparable, NOTHING, Outcome.PASS, "without any difference")
        reason = reason or self._unlike(comparable, comparable.everything, Outcome.FAIL, "with all differences")
        if reason is not None and (obstacle := comparable.comparison.outside.obstacle) is not None:
            reason = f"{reason}; {obstacle}"
        if reason is not None:
            self.refused[comparable.moment] = reason
            return False
        if comparable.outcomes(comparable.unwritten) is Outcome.FAIL:
            return True
        self.shown.add(comparable.moment)
        return False

    def _unlike(self, comparable: Comparable, tried: Configuration, expected: Outcome, how: str) -> str | None:
        """What a configuration brought about in the place of the outcome expected of it."""
        outcome = comparable.outcomes(tried)
        if outcome is expected:
            return None
        said = {Outcome.PASS: "passes", Outcome.FAIL: "fails", Outcome.UNRESOLVED: "is unresolved"}[outcome]
        ending = describe_outcome(comparable.outcomes.observed[tried], self._oracle.rule)
        return f"{how} the run {said}: it {ending}"

    def _confirm(self, comparable: Comparable, isolation: MinimalCause[int], before: Tally) -> Isolated:
        deltas = tuple(comparable.deltas[i] for i in sorted(isolation.cause))
        confirmed: Literal["both", "passing", "context"] = "context"
        if isolation.is_alone:
            confirmed = "passing"
            undo = transfer_to_failing_run(comparable.comparison, deltas)
            if self._extra((comparable.moment, undo)) is Outcome.PASS:
                confirmed = "both"
        frames = comparable.comparison.matching.failing.visit.frames
        # Only the program's own code: a function of the C++ library may be compiled into it.
        own = [f for n, f in enumerate(frames) if self._lab.program.function_at(f.pc - (n > 0)) is not None]
        stack = tuple(Place(frame.file or "", frame.line, frame.function) for frame in own)
        tally = comparable.outcomes.since(before)
        return Isolated(deltas, tuple(map(make_cause, deltas)), len(comparable.deltas), tally, confirmed, stack)

    def _undo(self, moment: Moment, transfer: Transfer) -> Outcome:
        (observed,) = self._observe("failing", moment, [transfer])
        assert observed is not None  # the first one always is there
        return self._oracle.judge(observed)

    def _observe(self, side: Side, moment: Moment, transfers: list[Transfer]) -> list[Observation | None]:
        begin = time.monotonic()
        stops = moment.passing if side == "passing" else moment.failing
        observations = self._lab.speculate(side, stops, transfers)
        self.experiment_seconds += time.monotonic() - begin
        self._observed += 1
        self._budget.show(f"experiment {self._observed}, at {moment.position.function}()")
        return observations

    def _compare(self, moment: Moment) -> Comparable | None:
        """None when the moment is not reached again, or the calls on the stack differ."""
        if moment not in self._comparable:
            begin = time.monotonic()
            passing = self._lab.visit("passing", moment.passing)
            failing = self._lab.visit("failing", moment.failing)
            if passing is None or failing is None:
                self.refused[moment] = f"not reached again by the {'passing' if passing is None else 'failing'} run"
                return None
            if [f.function for f in passing.frames] != [f.function for f in failing.frames]:
                self.refused[moment] = "the calls on the stack differ"
                return None
            self.unreadable = max(self.unreadable, passing.unreadable, failing.unreadable)
            graphs = (self._graph(passing), self._graph(failing))
            self.is_cut = self.is_cut or any(graph.is_cut for graph in graphs)
            comparison = compare_states(match_states(*graphs), self._code)
            self.capture_seconds += time.monotonic() - begin
            self.vertices = max(self.vertices, *(graph.vertices for graph in graphs))
            self.most_deltas = max(self.most_deltas, len(comparison.deltas))
            self._comparable[moment] = Comparable(
                moment,
                comparison,
                lambda transfers: self._observe("passing", moment, transfers),
                self._oracle.judge,
                self._lab.width,
                self._likelihood.choose(moment, comparison),
            )
        return self._comparable[moment]

    def _graph(self, visit: Visit) -> MemoryGraph:
        if visit.types is not self._layouts.types:  # those of a new engine, which numbers types anew
            self._layouts = Layouts(visit.types)
        graph = MemoryGraph(visit, self._lab.program, self._layouts, self._budget)
        self._budget.charge("value", graph.vertices)
        return graph


class Likelihood:
    """Chooses, at the moments of a pair of runs, the differences to try before all others: those in variables that the
    lines to come mention, and those in values that the failing run wrote and the passing one did not. The causes known
    at other moments are tried even before."""

    def __init__(self, program: ProgramMap, passing: Observation, failing: Observation) -> None:
        self._program = program
        said, wrong = (run.stdout + run.stderr for run in (passing, failing))
        self._numbers = {int(n) for n in {*NUMBER.findall(wrong)} - {*NUMBER.findall(said)}}
        self._words = {*WORD.findall(wrong)} - {*WORD.findall(said)}

    def choose(self, moment: Moment, comparison: StateComparison) -> frozenset[int]:
        """The numbers of the likely deltas: all of a variable, which belong together."""
        mentioned = self._find_mentioned(moment)
        variables = {number: variable_of(delta) for number, delta in enumerate(comparison.deltas) if delta.spots}
        likely = mentioned & set(variables.values())
        likely |= {name for n, name in variables.items() if self._is_written(comparison, comparison.deltas[n])}
        return frozenset(number for number, name in variables.items() if name in likely)

    def _find_mentioned(self, moment: Moment) -> frozenset[str]:
        """From the line of the moment on, as far as its function goes."""
        function = self._program.function_at(moment.failing[-1].address) if moment.failing else None
        if function is None:
            return frozenset()
        file, line = moment.position.file, moment.position.line
        last = max((s.line for s in function.statements if s.file == file), default=line)
        return find_identifiers(file, line, last)

    def _is_written(self, comparison: StateComparison, delta: Delta) -> bool:
        spot = delta.spots[0]
        if spot.is_pointer or spot.leaf.bits is not None:
            return False
        value = spot.values[1]
        if len(value) in INTEGER_SIZES and int.from_bytes(value, "little", signed=True) in self._numbers:
            return True
        return not self._words.isdisjoint(WORD.findall(value))


def variable_of(delta: Delta) -> str:
    """The name of the one that leads to it."""
    return delta.group[1].rpartition(":")[2]


def make_cause(delta: Delta) -> Cause:
    return Cause(
        variable=delta.name,
        type=delta.type,
        passing=delta.passing,
        failing=delta.failing,
        kind=delta.kind,
        frame=delta.frame,
        assignment=delta.assignment,
        undo=delta.undo,
        lines=delta.lines if isinstance(delta, OutsideDelta) else None,
        is_returned=delta.name == RETURN_VALUE,
    )
