"""The method: turns a pair of runs into a chain, one visible step after the other.

Each step takes a stage and returns the next one. What is known at a stage is all that a partial answer needs: whatever
ends a diagnosis, its chain is that of the last stage reached."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from pytest_causechain.alignment.timeline import Timeline
from pytest_causechain.causes.approach import approach
from pytest_causechain.causes.explanation import Explanation, told_links, told_transitions
from pytest_causechain.causes.inquiry import Inquiry, Isolated, Likelihood
from pytest_causechain.lab.laboratory import Side
from pytest_causechain.lab.remote_lab import LabSetup, RemoteLab
from pytest_causechain.model.alteration import NOTHING, Intervention, Patch
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.chain import Chain, Moments, Party, Peer, Refused, Repair, Rule, Seconds, Statistics
from pytest_causechain.model.moment import Moment, Place
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.runs import Command, Observation, Outcome
from pytest_causechain.model.verdict import Oracle
from pytest_causechain.report.wording import count_of, describe_failure, describe_outcome, name_code
from pytest_causechain.search.cts import TransitionSearch
from pytest_causechain.states.outside import OtherCode, OutsideDelta

# The original runs are repeated this often before anything is concluded from them.
REPETITIONS = 3
# When so many were tried, a chain that may be told beside another one waits until it is known whether it will be.
ENOUGH_MOMENTS = 20
# Rules that tell for any input whether a run is right. Where the output is wrong, a run with an input that no test has
# may print something else that is wrong, too.
TELLING = ("crash", "hang", "user")
# While another chain is waited for.
LOOK_UP_SECONDS = 0.2


class Judge(Protocol):
    """Says whether a run shows the failure in question: asked for an oracle when both runs have been seen."""

    def learn_oracle(self, passing: Observation, failing: Observation) -> Oracle: ...


@dataclass(frozen=True, slots=True)
class FunctionJudge:
    """A judge, and an oracle, from a plain function."""

    judge: Callable[[Observation], Outcome]
    rule: Rule = field(default_factory=lambda: Rule("user", "the given function says so"))

    def learn_oracle(self, passing: Observation, failing: Observation) -> Oracle:
        return self


@dataclass(frozen=True, slots=True)
class Pair:
    """The two runs to be compared, with the tests they belong to and how the neighbour was chosen. With an
    `alteration` the passing one is the twin, the failing one altered so, which is told as a `repair`."""

    passing: Command
    failing: Command
    passing_test: str = "passing"
    failing_test: str = "failing"
    distance: float | None = None
    why: str | None = None
    alteration: Intervention | Patch | None = None
    repair: Repair | None = None
    # Whether no test made the passing run: its command is one between those of the two tests.
    is_made: bool = False

    @property
    def peer(self) -> Peer:
        return Peer("neighbour" if self.alteration is None else "twin", self.passing_test, self.repair)

    @property
    def code(self) -> OtherCode | None:
        """Of the program, where it is what makes the twin one."""
        if not isinstance(self.alteration, Patch) or self.repair is None:
            return None
        name, passing, failing = name_code(self.repair)
        told = OutsideDelta(name, name, "code", passing, failing, ("surroundings", name))
        return OtherCode(self.alteration.address, self.alteration.code, self.alteration.was, told)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a diagnosis, with what was known by then."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self.chain = chain


def diagnose(
    passing: Command,
    failing: Command,
    judge: Callable[[Observation], Outcome],
    *,
    timeout_seconds: float = 60.0,
    setup: LabSetup | None = None,
) -> Chain:
    """The same engine without pytest."""
    return find_chain(Pair(passing, failing), FunctionJudge(judge), Budget(timeout_seconds), setup or LabSetup())


def find_chain(pair: Pair, judge: Judge, budget: Budget, setup: LabSetup, is_told: Future[bool] | None = None) -> Chain:
    """The chain of the last stage reached. Never raises but Interrupted: a problem becomes the chain's reason."""
    begun = Begun(pair, budget)
    stage: MethodStage = begun
    try:
        for reached in advance(begun, judge, setup, is_told):
            stage = reached
    except Refusal as refusal:
        return stage.chain(str(refusal))
    except KeyboardInterrupt:
        raise Interrupted(stage.chain("interrupted.")) from None
    return stage.chain()


def advance(begun: Begun, judge: Judge, setup: LabSetup, is_told: Future[bool] | None = None) -> Iterator[MethodStage]:
    """All stages in order. `is_told` will say whether another chain tells how the failure comes about: then this one
    need not be known to the last statement, and waits for that word when it has come far enough."""
    with prepare(begun, setup) as prepared:
        yield prepared
        yield (seen := see_both(prepared))
        yield (apart := tell_apart(seen, judge))
        yield (repeated := repeat(apart))
        nearer = come_nearer(repeated)
        if nearer is None:
            yield (traced := trace(repeated))
            yield search(traced, is_told)
    if nearer is not None:
        with prepare(replace(begun, pair=nearer), setup) as prepared:
            yield prepared
            yield (seen := see_both(prepared))
            yield (repeated := repeat(Apart(seen, apart.oracle)))
            yield (traced := trace(repeated))
            yield search(traced, is_told)


# The stages


@dataclass(frozen=True, slots=True)
class Begun:
    """A pair, and what may be spent on it."""

    pair: Pair
    budget: Budget

    def chain(self, reason: str | None = None) -> Chain:
        pair = self.pair
        known = Chain(pair.failing_test, "none", reason, program=pair.failing.program, peer=pair.peer)
        return replace(known, statistics=Statistics(seconds=self.seconds))

    @property
    def seconds(self) -> Seconds:
        return Seconds(total=round(self.budget.seconds_spent, 3))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A laboratory has been opened for the pair."""

    begun: Begun
    lab: RemoteLab
    workers: int = 1

    @property
    def pair(self) -> Pair:
        return self.begun.pair

    @property
    def budget(self) -> Budget:
        return self.begun.budget

    def chain(self, reason: str | None = None) -> Chain:
        """What was left out counts where nothing else went wrong."""
        known = self.begun.chain(reason or " ".join(self.lab.notes) or None)
        told = replace(known.statistics, lab=self.lab.name, isolation=self.lab.isolation, workers=self.workers)
        return replace(known, statistics=told)


@dataclass(frozen=True, slots=True)
class Seen:
    """Both runs were made again, the passing one several times."""

    prepared: Prepared
    passing: tuple[Observation, ...]
    failing: Observation

    def chain(self, reason: str | None = None, rule: Rule | None = None) -> Chain:
        return replace(
            self.prepared.chain(reason),
            passing=self._party("passing", self.passing[0], rule),
            failing=self._party("failing", self.failing, rule),
            failure=describe_failure(self.failing, rule),
            oracle=rule,
        )

    def _party(self, side: Side, observation: Observation, rule: Rule | None) -> Party:
        pair, chosen = self.prepared.pair, side == "passing"
        command = pair.passing if chosen else pair.failing
        return Party(
            test=pair.passing_test if chosen else pair.failing_test,
            argv=command.argv,
            cwd=command.cwd,
            stdin=command.stdin.decode("utf-8", "surrogateescape"),
            outcome=describe_outcome(observation, rule),
            distance=pair.distance if chosen else None,
            why=pair.why if chosen else None,
            is_made=chosen and pair.is_made,
            environment=command.environment,
        )


@dataclass(frozen=True, slots=True)
class Apart:
    """An oracle has been learned that tells the two runs apart; after `repeat` it is known to do so each time."""

    seen: Seen
    oracle: Oracle

    @property
    def prepared(self) -> Prepared:
        return self.seen.prepared

    def chain(self, reason: str | None = None) -> Chain:
        return self.seen.chain(reason, self.oracle.rule)


@dataclass(frozen=True, slots=True)
class Traced:
    """Both runs have been traced; from here on `search` knows some of the causes."""

    repeated: Apart
    timeline: Timeline
    inquiry: Inquiry
    search: TransitionSearch[Moment, Isolated]
    trace_seconds: float
    links: Links = field(default_factory=lambda: Links())

    @property
    def prepared(self) -> Prepared:
        return self.repeated.prepared

    def chain(self, reason: str | None = None) -> Chain:
        if reason is None and self.timeline.is_cut:
            reason = "the runs make more calls than can be looked at; give the failing test a smaller input."
        if reason is None and self.inquiry.is_cut:
            reason = "the program keeps more in memory than is looked at; give the failing test a smaller input."
        known = self.repeated.chain(reason)
        known = replace(known, statistics=self._statistics(known.statistics))
        prepared = self.prepared
        explanation = Explanation(
            prepared.lab.program,
            self.timeline,
            self.search,
            self.links.unshown,
            self.links.left_out,
            self.inquiry,
            self.links.writers,
        )
        links = explanation.links()
        if not links:
            return replace(known, reason=known.reason or self._nothing_transferable())
        return replace(
            known,
            status="partial" if known.reason else "complete",
            chain=links,
            transitions=explanation.transitions(),
            suspects=explanation.suspects(),
        )

    def _nothing_transferable(self) -> str:
        refused = len(self.search.refused)
        if self.prepared.pair.alteration is not None:
            return (
                "between the failing run and its twin no difference in memory was found that brings the failure about: "
                "look at the repairs."
            )
        if not refused:
            return "the two runs have no call of a function in common; add a passing test nearer to the failing one."
        if not self.inquiry.most_deltas:
            return (
                f"the variables of the two runs are equal at all {refused} moments tried, and so are their open files, "
                "directory and environment; the runs differ in something else (other processes, files opened later, "
                "time): give both tests the same."
            )
        return (
            f"at none of {refused} moments did the differences between the two runs, written into the passing run, "
            "bring the failure about; add a passing test nearer to the failing one."
        )

    def _statistics(self, known: Statistics) -> Statistics:
        inquiry, found, late = self.inquiry, len(self.search.known), len(self.inquiry.shown)
        seconds = replace(
            known.seconds,
            trace=round(self.trace_seconds, 3),
            capture=round(inquiry.capture_seconds, 3),
            experiments=round(inquiry.experiment_seconds, 3),
        )
        refused = tuple(
            Refused(moment.position.function, moment.position.file, moment.position.line, moment.visit, reason)
            for moment, reason in sorted(inquiry.refused.items(), key=lambda item: item[0].time)
        )
        return replace(
            known,
            experiments=inquiry.tally,
            moments=Moments(self.timeline.matched, found + len(self.search.refused), found + late, late, refused),
            vertices=inquiry.vertices,
            deltas=inquiry.most_deltas,
            unreadable=inquiry.unreadable,
            seconds=seconds,
        )


@dataclass(slots=True)
class Links:
    """How the links of a chain hang together: those of which it was not shown that the one before leads to them, those
    that are not told, and where the failing run wrote to what is the cause at a moment."""

    unshown: set[Moment] = field(default_factory=set)
    left_out: set[Moment] = field(default_factory=set)
    writers: dict[Moment, Place] = field(default_factory=dict)


MethodStage = Begun | Prepared | Seen | Apart | Traced


# The steps


@contextlib.contextmanager
def prepare(begun: Begun, setup: LabSetup) -> Iterator[Prepared]:
    """Open a laboratory for the pair."""
    pair, budget = begun.pair, begun.budget
    budget.show("preparing the laboratory")
    with setup.open_lab(pair.passing, pair.failing, budget=budget, repair=pair.alteration) as lab:
        yield Prepared(begun, lab, setup.size)


def see_both(prepared: Prepared) -> Seen:
    """Make both runs again. They tell how long a run may take; the first one of all takes longer than any later."""
    lab = prepared.lab
    prepared.budget.show("repeating both runs")
    runs, seconds = [], []
    for _ in range(REPETITIONS):
        begin = time.monotonic()
        runs.append(lab.experiment("passing"))
        seconds.append(time.monotonic() - begin)
    lab.allow(statistics.median(seconds))
    return Seen(prepared, tuple(runs), lab.experiment("failing"))


def tell_apart(seen: Seen, judge: Judge) -> Apart:
    """Learn by what the failure is known."""
    return Apart(seen, judge.learn_oracle(seen.passing[0], seen.failing))


def repeat(apart: Apart) -> Apart:
    """The oracle must tell the runs apart each time; else a Refusal."""
    seen, pair = apart.seen, apart.prepared.pair
    failing = [seen.failing, *apart.prepared.lab.experiments("failing", (), [NOTHING] * (REPETITIONS - 1))]
    again = (
        (pair.passing_test, "passed", Outcome.PASS, seen.passing),
        (pair.failing_test, "failed", Outcome.FAIL, failing),
    )
    for test, verb, expected, runs in again:
        count = [apart.oracle.judge(run) for run in runs].count(expected)
        if count < REPETITIONS:
            raise Refusal(
                f"{test} is flaky: of {REPETITIONS} more runs of its program {count} {verb}; make it independent "
                "of time, addresses and chance first."
            )
    return apart


def come_nearer(repeated: Apart) -> Pair | None:
    """A pair whose passing run is nearer to the failing one. A twin has the same input already."""
    oracle, lab, pair = repeated.oracle, repeated.prepared.lab, repeated.prepared.pair
    if pair.alteration is not None or oracle.rule.kind not in TELLING:
        return None
    repeated.prepared.budget.show("looking for a nearer passing run")
    usual = lab.experiment("passing").code

    def judge(observation: Observation) -> Outcome:
        outcome = oracle.judge(observation)
        # It may have been stopped by a complaint about its input.
        is_odd = outcome is Outcome.PASS and (observation.ending, observation.code) != ("exit", usual)
        return Outcome.UNRESOLVED if is_odd else outcome

    nearer = approach(pair.passing, pair.failing, lab.observe, judge)
    if nearer is None or any(judge(lab.observe(nearer.command)) is not Outcome.PASS for _ in range(REPETITIONS)):
        return None
    why = f"its input made nearer to the failing run's: {count_of(nearer.edits, 'edit')}"
    return replace(pair, passing=nearer.command, why=why, is_made=True)


def trace(repeated: Apart) -> Traced:
    """Find the moments that both runs have in common."""
    prepared, seen = repeated.prepared, repeated.seen
    prepared.budget.show("tracing both runs")
    begin = time.monotonic()
    timeline = Timeline(prepared.lab, repeated.oracle.rule.kind == "hang")
    trace_seconds = time.monotonic() - begin
    likelihood = Likelihood(prepared.lab.program, seen.passing[0], seen.failing)
    inquiry = Inquiry(prepared.lab, timeline, repeated.oracle, likelihood, prepared.budget, prepared.pair.code)
    found = TransitionSearch[Moment, Isolated](inquiry, order=lambda m: m.time, is_call=lambda m: m.is_entry)
    found.add(timeline.calls())
    return Traced(repeated, timeline, inquiry, found, trace_seconds)


def search(traced: Traced, is_told: Future[bool] | None = None) -> Traced:
    """Isolate causes at moments, closer and closer where they move, and show how they hang together.

    The stage holds what is known at any time, also after an exception."""
    try:
        _Narrowing(traced, is_told).run()
    except BudgetUsedUp:
        tried = len(traced.search.known) + len(traced.search.refused)
        traced.prepared.budget.cut_short(traced.prepared.pair.peer.kind, tried)
        raise
    return traced


class _Narrowing:
    """The search over time, until every transition is down to single statements."""

    def __init__(self, traced: Traced, is_told: Future[bool] | None) -> None:
        self._timeline, self._inquiry, self._search = traced.timeline, traced.inquiry, traced.search
        self._lab, self._budget, self._links = traced.prepared.lab, traced.prepared.budget, traced.links
        self._is_told = is_told
        # Whether it is known how the links, as they were then, hang together.
        self._is_completed = False

    def run(self) -> None:
        self._find_transitions()
        self._refine()
        self._find_transitions()
        self._complete_links()

    def _find_transitions(self) -> None:
        """Where the cause moves to other variables; then, where it takes on the values it ends with."""
        self._search.run(self._goes_on)
        known = self._search.known
        self._inquiry.mind_last_values(known[m] for m in sorted(known, key=lambda m: m.time))
        self._search.run(self._goes_on)

    def _goes_on(self) -> bool:
        """Whether more moments are to be looked at."""
        if self._is_told is None or len(self._search.known) + len(self._search.refused) < ENOUGH_MOMENTS:
            return True
        if not self._is_completed:
            # The answer may have to be waited for: then there is time for what is left to do where it is yes.
            self._complete_links()
        with self._lab.resting():
            while not self._is_told.done():
                self._budget.check()
                wait([self._is_told], LOOK_UP_SECONDS)
        return not self._is_told.result()

    def _refine(self) -> None:
        """Finer moments where the cause moves, until there are none.

        The latest first: should it end before, it is the reading of the input that stays coarse."""
        timeline, found = self._timeline, self._search
        if not found.known:
            for call in timeline.calls()[:1]:
                self._look_closer(call, timeline.statements(call))
        opened: set[tuple[Moment, Moment | None]] = set()
        while gap := next((gap for gap in list_gaps(found) if gap not in opened), None):
            if not self._goes_on():
                break
            if not self._look_closer(gap[0], timeline.calls(*gap)):
                opened.add(gap)
                self._look_closer(gap[0], timeline.statements(*gap))

    def _look_closer(self, moment: Moment, finer: tuple[Moment, ...]) -> bool:
        """False when these moments are known already."""
        self._budget.show(f"looking closer at {moment.position.function}()")
        is_new = self._search.add(finer)
        self._search.run()
        return is_new

    def _complete_links(self) -> None:
        self._is_completed = True
        self._verify_links()
        self._find_writers()

    def _verify_links(self) -> None:
        """Each link of the chain as it will be told must lead to the next. One to which none leads, and without which
        the chain goes on, is another cause of the same failure: it is left out."""
        unshown, left_out = self._links.unshown, self._links.left_out
        left_out.clear()
        links = told_links(self._search)
        unshown.clear()
        unshown.update(later[0] for _, later in pairwise(links))
        place = 1
        while place < len(links):
            earlier, later, after = links[place - 1], links[place], links[place + 1 : place + 2]
            if self._inquiry.leads_to(earlier, later):
                unshown.discard(later[0])
            elif after and self._inquiry.leads_to(earlier, after[0]):
                left_out.add(later[0])
                links = told_links(self._search, left_out)
                continue
            place += 1

    def _find_writers(self) -> None:
        """What the failing run did to the variables of each link since the one before."""
        left_out, writers = self._links.left_out, self._links.writers
        pairs = [(earlier, later) for (earlier, _), (later, _) in pairwise(told_links(self._search, left_out))]
        for earlier, later in [*pairs, *((t.before, t.after) for t in told_transitions(self._search, left_out))]:
            writing = self._inquiry.written(earlier, (later, self._search.known[later]))
            if later not in writers and writing is not None:
                self._budget.show(f"looking for what wrote at {later.position.function}()")
                if (place := self._lab.find_writer("failing", *writing)) is not None:
                    writers[later] = place


def list_gaps(search: TransitionSearch[Moment, Isolated]) -> list[tuple[Moment, Moment | None]]:
    """Behind the last known moment, up to the next one that was tried, and inside each transition."""
    if not search.known:
        return []
    last = max(search.known, key=lambda moment: moment.time)
    beyond = [moment for moment in search.refused if moment.time > last.time]
    end = min(beyond, key=lambda moment: moment.time, default=None)
    return [(last, end), *((t.before, t.after) for t in reversed(search.transitions()))]
