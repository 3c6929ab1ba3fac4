"""A pair of runs becomes a chain: the whole method, one step after the other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from pytest_causechain.causes.approach import approach
from pytest_causechain.causes.endings import describe_failure, describe_outcome
from pytest_causechain.causes.explanation import Explanation, told_links, told_transitions
from pytest_causechain.causes.inquiry import Inquiry, Isolated
from pytest_causechain.causes.likelihood import Likelihood
from pytest_causechain.lab.laboratory import Side
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.chain import Chain, Moments, Party, Peer, Refused, Repair, Rule, Seconds, Statistics
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch
from pytest_causechain.model.moment import Moment
from pytest_causechain.model.observation import Observation, Outcome
from pytest_causechain.model.place import Place
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.transfer import NOTHING
from pytest_causechain.model.verdict import Oracle
from pytest_causechain.moments.timeline import Timeline
from pytest_causechain.report.wording import count_of, name_code
from pytest_causechain.search.cts import TransitionSearch
from pytest_causechain.settings import Settings
from pytest_causechain.states.greater import OtherCode
from pytest_causechain.states.wording import Wording

# The original runs are repeated this often before anything is concluded from them.
REPETITIONS = 3
# When so many were tried, a chain that is told beside another one is looked at no closer.
ENOUGH_MOMENTS = 20
# Rules that tell for any input whether a run is right. Where the output is wrong, a run with an input that no test has
# may print something else that is wrong, too.
TELLING = ("crash", "hang", "user")


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
        told = Wording(name, name, "code", passing, failing, ("surroundings", name))
        return OtherCode(self.alteration.address, self.alteration.code, self.alteration.was, told)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a diagnosis, with what was known by then."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self.chain = chain


@dataclass(frozen=True, slots=True)
class Judge:
    """An oracle from a plain function."""

    judge: Callable[[Observation], Outcome]
    rule: Rule = field(default_factory=lambda: Rule("user", "the given function says so"))


LearnOracle = Callable[[Observation, Observation], Oracle]
Progress = Callable[[str], None]


def diagnose(
    passing: Command,
    failing: Command,
    judge: Callable[[Observation], Outcome],
    settings: Settings | None = None,
) -> Chain:
    """The same engine without pytest."""
    return diagnose_pair(Pair(passing, failing), lambda _passing, _failing: Judge(judge), settings or Settings())


def diagnose_pair(
    pair: Pair,
    learn_oracle: LearnOracle,
    settings: Settings,
    progress: Progress = lambda text: None,
    is_told: Callable[[], bool] | None = None,
) -> Chain:
    """Never raises but Interrupted: a problem becomes the chain's reason, what is known by then stays in it. When it
    takes long, `is_told` is asked whether another chain tells how the failure comes about: then this one need not be
    known to the last statement."""
    diagnosis = _Diagnosis(pair, learn_oracle, settings, progress, is_told)
    try:
        diagnosis.run()
    except Refusal as refusal:
        return diagnosis.chain(str(refusal))
    except KeyboardInterrupt:
        raise Interrupted(diagnosis.chain("interrupted.")) from None
    return diagnosis.chain()


class _Diagnosis:
    """The steps in order, keeping what each found so that a chain can be made at any time."""

    def __init__(
        self,
        pair: Pair,
        learn_oracle: LearnOracle,
        settings: Settings,
        progress: Progress,
        is_told: Callable[[], bool] | None,
    ) -> None:
        self.pair, self.learn_oracle, self.settings, self.progress = pair, learn_oracle, settings, progress
        self.is_told = is_told
        self.begin = time.monotonic()
        self.deadline = self.begin + settings.timeout_seconds
        self.trace_seconds = 0.0
        self.known = Chain(pair.failing_test, "none", program=pair.failing.program, peer=pair.peer)
        # What the two runs showed.
        self.seen: tuple[Observation, Observation] | None = None
        self.lab: RemoteLab | None = None
        self.timeline: Timeline | None = None
        self.inquiry: Inquiry | None = None
        self.search: TransitionSearch[Moment, Isolated] | None = None
        self.unshown: set[Moment] = set()
        self.left_out: set[Moment] = set()
        self.writers: dict[Moment, Place] = {}
        # Whether it is known how the links, as they were then, hang together.
        self.is_completed = False

    def run(self) -> None:
        with self.open_lab() as lab:
            oracle = self.repeat_runs(lab, self.learn_oracle)
            nearer = self.approach(lab, oracle)
            if nearer is None:
                self.find_causes(lab, oracle)
        if nearer is not None:
            self.pair = nearer
            with self.open_lab() as lab:
                self.find_causes(lab, self.repeat_runs(lab, lambda _passing, _failing: oracle))

    def open_lab(self) -> RemoteLab:
        self.progress("preparing the laboratory")
        pair, settings = self.pair, self.settings
        self.lab = RemoteLab(
            pair.passing,
            pair.failing,
            deadline=self.deadline,
            libraries=settings.libraries,
            cache=settings.cache,
            repair=pair.alteration,
            precautions=settings.precautions,
            share=settings.share,
        )
        return self.lab

    def approach(self, lab: RemoteLab, oracle: Oracle) -> Pair | None:
        """A pair whose passing run is nearer to the failing one. A twin has the same input already."""
        if self.pair.alteration is not None or oracle.rule.kind not in TELLING:
            return None
        self.progress("looking for a nearer passing run")
        usual = lab.experiment("passing").code

        def judge(observation: Observation) -> Outcome:
            outcome = oracle.judge(observation)
            # It may have been stopped by a complaint about its input.
            is_odd = outcome is Outcome.PASS and (observation.ending, observation.code) != ("exit", usual)
            return Outcome.UNRESOLVED if is_odd else outcome

        nearer = approach(self.pair.passing, self.pair.failing, lab.observe, judge)
        if nearer is None or any(judge(lab.observe(nearer.command)) is not Outcome.PASS for _ in range(REPETITIONS)):
            return None
        why = f"its input made nearer to the failing run's: {count_of(nearer.edits, 'edit')}"
        return replace(self.pair, passing=nearer.command, why=why, is_made=True)

    def find_causes(self, lab: RemoteLab, oracle: Oracle) -> None:
        self.progress("tracing both runs")
        begin = time.monotonic()
        self.timeline = Timeline(lab, oracle.rule.kind == "hang")
        self.trace_seconds += time.monotonic() - begin
        assert self.seen is not None
        likelihood = Likelihood(lab.program, *self.seen)
        self.inquiry = Inquiry(lab, self.timeline, oracle, likelihood, self.progress, self.pair.code)
        self.search = TransitionSearch(self.inquiry, order=lambda m: m.time, is_call=lambda m: m.is_entry)
        self.search.add(self.timeline.calls())
        goes_on = partial(self.goes_on, lab, self.inquiry, self.search)
        self.find_transitions(self.inquiry, self.search, goes_on)
        self.refine(self.timeline, self.search, goes_on)
        self.find_transitions(self.inquiry, self.search, goes_on)
        self.complete_links(lab, self.inquiry, self.search)

    def goes_on(self, lab: RemoteLab, inquiry: Inquiry, search: TransitionSearch[Moment, Isolated]) -> bool:
        """Whether more moments are to be looked at."""
        if self.is_told is None or len(search.known) + len(search.refused) < ENOUGH_MOMENTS:
            return True
        if not self.is_completed:
            # The answer may have to be waited for: then there is time for what is left to do where it is yes.
            self.complete_links(lab, inquiry, search)
        with lab.resting():
            return not self.is_told()

    def complete_links(self, lab: RemoteLab, inquiry: Inquiry, search: TransitionSearch[Moment, Isolated]) -> None:
        self.is_completed = True
        self.verify_links(inquiry, search)
        self.find_writers(lab, inquiry, search)

    def repeat_runs(self, lab: RemoteLab, learn_oracle: LearnOracle) -> Oracle:
        """Both runs again, several times: the oracle must tell them apart each time."""
        self.progress("repeating both runs")
        passing = self.repeat_passing(lab)
        failing = [lab.experiment("failing")]
        self.seen = passing[0], failing[0]
        self.introduce(passing[0], failing[0], None)
        oracle = learn_oracle(passing[0], failing[0])
        self.introduce(passing[0], failing[0], oracle.rule)
        failing += lab.experiments("failing", (), [NOTHING] * (REPETITIONS - 1))
        again: tuple[tuple[str, str, Outcome, list[Observation]], ...] = (
            (self.pair.passing_test, "passed", Outcome.PASS, passing),
            (self.pair.failing_test, "failed", Outcome.FAIL, failing),
        )
        for test, verb, expected, runs in again:
            count = [oracle.judge(run) for run in runs].count(expected)
            if count < REPETITIONS:
                raise Refusal(
                    f"{test} is flaky: of {REPETITIONS} more runs of its program {count} {verb}; make it independent "
                    "of time, addresses and chance first."
                )
        return oracle

    def repeat_passing(self, lab: RemoteLab) -> list[Observation]:
        """They tell how long a run may take; the first one of all takes longer than any later."""
        runs, seconds = [], []
        for _ in range(REPETITIONS):
            begin = time.monotonic()
            runs.append(lab.experiment("passing"))
            seconds.append(time.monotonic() - begin)
        lab.allow(statistics.median(seconds))
        return runs

    def introduce(self, passing: Observation, failing: Observation, rule: Rule | None) -> None:
        self.known = replace(
            self.known,
            passing=self.party("passing", passing, rule),
            failing=self.party("failing", failing, rule),
            failure=describe_failure(failing, rule),
            oracle=rule,
        )

    def party(self, side: Side, observation: Observation, rule: Rule | None) -> Party:
        command = self.pair.passing if side == "passing" else self.pair.failing
        chosen = side == "passing"
        return Party(
            test=self.pair.passing_test if chosen else self.pair.failing_test,
            argv=command.argv,
            cwd=command.cwd,
            stdin=command.stdin.decode("utf-8", "surrogateescape"),
            outcome=describe_outcome(observation, rule),
            distance=self.pair.distance if chosen else None,
            why=self.pair.why if chosen else None,
            is_made=chosen and self.pair.is_made,
            environment=command.environment,
        )

    def find_transitions(
        self, inquiry: Inquiry, search: TransitionSearch[Moment, Isolated], goes_on: Callable[[], bool]
    ) -> None:
        """Where the cause moves to other variables; then, where it takes on the values it ends with."""
        search.run(goes_on)
        inquiry.mind_last_values(search.known[m] for m in sorted(search.known, key=lambda m: m.time))
        search.run(goes_on)

    def verify_links(self, inquiry: Inquiry, search: TransitionSearch[Moment, Isolated]) -> None:
        """Each link of the chain as it will be told must lead to the next. One to which none leads, and without which
        the chain goes on, is another cause of the same failure: it is left out."""
        self.left_out = set()
        links = told_links(search)
        self.unshown = {later[0] for _, later in pairwise(links)}
        place = 1
        while place < len(links):
            earlier, later, after = links[place - 1], links[place], links[place + 1 : place + 2]
            if inquiry.leads_to(earlier, later):
                self.unshown.discard(later[0])
            elif after and inquiry.leads_to(earlier, after[0]):
                self.left_out.add(later[0])
                links = told_links(search, self.left_out)
                continue
            place += 1

    def find_writers(self, lab: RemoteLab, inquiry: Inquiry, search: TransitionSearch[Moment, Isolated]) -> None:
        """What the failing run did to the variables of each link since the one before."""
        pairs = [(earlier, later) for (earlier, _), (later, _) in pairwise(told_links(search, self.left_out))]
        for earlier, later in [*pairs, *((t.before, t.after) for t in told_transitions(search, self.left_out))]:
            writing = inquiry.written(earlier, (later, search.known[later]))
            if later not in self.writers and writing is not None:
                self.progress(f"looking for what wrote at {later.position.function}()")
                if (place := lab.find_writer("failing", *writing)) is not None:
                    self.writers[later] = place

    def refine(
        self, timeline: Timeline, search: TransitionSearch[Moment, Isolated], goes_on: Callable[[], bool]
    ) -> None:
        """Finer moments where the cause moves, until there are none.

        The latest first: should it end before, it is the reading of the input that stays coarse."""
        if not search.known:
            for call in timeline.calls()[:1]:
                self.look_closer(search, call, timeline.statements(call))
        opened: set[tuple[Moment, Moment | None]] = set()
        while gap := next((gap for gap in gaps(search) if gap not in opened), None):
            if not goes_on():
                break
            if not self.look_closer(search, gap[0], timeline.calls(*gap)):
                opened.add(gap)
                self.look_closer(search, gap[0], timeline.statements(*gap))

    def look_closer(
        self, search: TransitionSearch[Moment, Isolated], moment: Moment, finer: tuple[Moment, ...]
    ) -> bool:
        """False when these moments are known already."""
        self.progress(f"looking closer at {moment.position.function}()")
        is_new = search.add(finer)
        search.run()
        return is_new

    def chain(self, reason: str | None = None) -> Chain:
        """What is known by now."""
        if reason is None and self.timeline is not None and self.timeline.is_cut:
            reason = "the runs make more calls than can be looked at; give the failing test a smaller input."
        if reason is None and self.inquiry is not None and self.inquiry.is_cut:
            reason = "the program keeps more in memory than is looked at; give the failing test a smaller input."
        if reason is None and self.lab is not None and self.lab.notes:
            reason = " ".join(self.lab.notes)
        known = replace(self.known, reason=reason, statistics=self.statistics())
        if self.lab is None or self.timeline is None or self.inquiry is None or self.search is None:
            return known
        explanation = Explanation(
            self.lab.program, self.timeline, self.search, self.unshown, self.left_out, self.inquiry, self.writers
        )
        links = explanation.links()
        if not links:
            return replace(known, reason=reason or self.nothing_transferable(self.search, self.inquiry.most_deltas))
        return replace(
            known,
            status="partial" if reason else "complete",
            chain=links,
            transitions=explanation.transitions(),
            suspects=explanation.suspects(),
        )

    def nothing_transferable(self, search: TransitionSearch[Moment, Isolated], deltas: int) -> str:
        if self.pair.alteration is not None:
            return (
                "between the failing run and its twin no difference in memory was found that brings the failure about: "
                "look at the repairs."
            )
        if not search.refused:
            return "the two runs have no call of a function in common; add a passing test nearer to the failing one."
        if not deltas:
            return (
                f"the variables of the two runs are equal at all {len(search.refused)} moments tried, and so are their "
                "open files, directory and environment; the runs differ in something else (other processes, files "
                "opened later, time): give both tests the same."
            )
        return (
            f"at none of {len(search.refused)} moments did the differences between the two runs, written into the "
            "passing run, bring the failure about; add a passing test nearer to the failing one."
        )

    def statistics(self) -> Statistics:
        seconds = Seconds(
            trace=round(self.trace_seconds, 3),
            capture=round(self.inquiry.capture_seconds, 3) if self.inquiry else 0.0,
            experiments=round(self.inquiry.experiment_seconds, 3) if self.inquiry else 0.0,
            total=round(time.monotonic() - self.begin, 3),
        )
        if self.inquiry is None or self.search is None or self.timeline is None:
            return Statistics(seconds=seconds, **self.laboratory())
        known, refused, late = len(self.search.known), len(self.search.refused), len(self.inquiry.shown)
        moments = Moments(self.timeline.matched, known + refused, known + late, late, self.refused(self.inquiry))
        return Statistics(
            experiments=self.inquiry.tally,
            moments=moments,
            vertices=self.inquiry.vertices,
            deltas=self.inquiry.most_deltas,
            unreadable=self.inquiry.unreadable,
            seconds=seconds,
            **self.laboratory(),
        )

    def laboratory(self) -> dict[str, Any]:
        workers = self.settings.share.size if self.settings.share is not None else 1
        known = {"lab": self.lab.name, "isolation": self.lab.isolation} if self.lab is not None else {}
        return {"workers": workers, **known}

    def refused(self, inquiry: Inquiry) -> tuple[Refused, ...]:
        """In time order."""
        return tuple(
            Refused(moment.position.function, moment.position.file, moment.position.line, moment.visit, reason)
            for moment, reason in sorted(inquiry.refused.items(), key=lambda item: item[0].time)
        )


def gaps(search: TransitionSearch[Moment, Isolated]) -> list[tuple[Moment, Moment | None]]:
    """Behind the last known moment, up to the next one that was tried, and inside each transition."""
    if not search.known:
        return []
    last = max(search.known, key=lambda moment: moment.time)
    beyond = [moment for moment in search.refused if moment.time > last.time]
    end = min(beyond, key=lambda moment: moment.time, default=None)
    return [(last, end), *((t.before, t.after) for t in reversed(search.transitions()))]
