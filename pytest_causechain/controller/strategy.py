"""The strategy for one failing test: its repairs, the chain against the repaired run, the chain against a neighbour."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pytest_causechain.controller import method
from pytest_causechain.controller.failing_test import FailingTest
from pytest_causechain.controller.judges import NeighbourJudge, TestJudge
from pytest_causechain.controller.method import Interrupted, Pair
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.budget import Budget, Shortfall
from pytest_causechain.model.chain import Alternative, Chain, Rival
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.model.verdict import Witness, Witnesses
from pytest_causechain.neighbours.ranking import Neighbour
from pytest_causechain.neighbours.traces import MOST_RUN, Ranked, rank_by_traces
from pytest_causechain.repairs.findings import Attempt, Findings, Ranking
from pytest_causechain.repairs.search import find_repairs
from pytest_causechain.report.wording import describe_repair

# When the nearest passing run or the best repair gives no chain, the next ones are asked, as long as there is time.
NEIGHBOURS_TRIED, TWINS_TRIED = 3, 3
TELLS_LITTLE = "the cause stays in the same variables from beginning to end"
NOTHING_FOUND = "no change of the failing run and no passing run tells why it fails: add a passing test nearer to it."
# Other failing tests of the program whose repairs are asked for.
VOTERS = 2
# In chain.json; many repairs of one line are much the same.
REPAIRS_TOLD = 50


@dataclass(slots=True)
class FoundChains:
    """The chains found so far; of each kind only the best, which is the first."""

    twins: list[Chain] = field(default_factory=list)
    neighbours: list[Chain] = field(default_factory=list)


class Investigation(Closing):
    """Of one failing test. Others of the same program may ask for its repairs at the same time."""

    def __init__(
        self,
        failing: FailingTest,
        *,
        timeout_seconds: float,
        setup: LabSetup,
        replays: Witnesses,
        spent_seconds: float = 0.0,
        cancelled: threading.Event | None = None,
    ) -> None:
        """`spent_seconds` of its time it took to choose the runs."""
        self.failing, self._setup, self._replays = failing, setup, replays
        self._timeout_seconds, self._spent_seconds = timeout_seconds, spent_seconds
        self._cancelled = cancelled or threading.Event()
        self.also_failing: list[Investigation] = []
        # All that speaks against some line, once the chain is found: that tells only the first ones.
        self.ranking: Ranking | None = None
        self._findings: Findings | None = None
        # Why nothing could be found.
        self._obstacle: str | None = None
        self._absence = failing.absence
        self._budget: Budget | None = None
        # Of its findings.
        self._finding = threading.RLock()
        # Where the tests are asked, one question at a time.
        self._witness: Witness | None = None
        self._asking = threading.RLock()

    @property
    def activity(self) -> str:
        """What is being done now; empty before and after."""
        return self._budget.activity if self._budget is not None else ""

    def find_chain(self) -> Chain:
        """Never without what is known when the budget is used up; that, too, when the user interrupts."""
        budget, found = self._open_budget(), FoundChains()
        try:
            with self:
                self._follow(budget, found)
        except KeyboardInterrupt:
            raise Interrupted(self._join(found, budget, "interrupted.")) from None
        return self._join(found, budget)

    def find_neighbours_chain(self) -> Chain | None:
        """As if there were no repairs; None where there is no neighbour."""
        budget, found = self._open_budget(), FoundChains()
        with self:
            self._compare_neighbours(found, budget, None)
        return next(iter(found.neighbours), None)

    def close(self) -> None:
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def _open_budget(self) -> Budget:
        """Less what its repairs have taken already, for the sake of another failing test."""
        spent = self._spent_seconds + (self._findings.seconds if self._findings is not None else 0.0)
        self._budget = self._make_budget(spent)
        return self._budget

    def _make_budget(self, spent: float = 0.0) -> Budget:
        return Budget(self._timeout_seconds, spent=spent, workers=self._setup.size, cancelled=self._cancelled)

    def _follow(self, budget: Budget, found: FoundChains) -> None:
        """Repairs, then the chain against the repaired run, then the neighbour's. That one needs no repairs: where a
        worker is free, it is looked for meanwhile, and waits with the last details for word of the other."""
        is_told: Future[bool] = Future()
        share = self._setup.share
        with ThreadPoolExecutor(1, "causechain-neighbour") as pool:
            beside = None
            if self.failing.neighbours and share is not None and share.has_room:
                beside = pool.submit(self._compare_neighbours, found, budget.beside(), is_told)
            try:
                self.find_repairs(budget)
                with budget.paused():  # the others have budgets of their own
                    for other in self.also_failing[:VOTERS]:
                        other.vote()
                is_last = beside is not None or not self.failing.neighbours
                self._compare_twins(found, budget if is_last else budget.part("twin"))
            finally:
                is_told.set_result(any(chain.status != "none" for chain in found.twins))
            if beside is None:
                self._compare_neighbours(found, budget.beside(), is_told)
            else:
                beside.result()

    # Repairs

    def vote(self) -> None:
        """Find its repairs for the sake of another failing test, which may be diagnosed at the same time."""
        with self._finding:
            if self._findings is None:
                with self:
                    self.find_repairs(self._make_budget())

    def find_repairs(self, budget: Budget) -> Findings:
        """Once; empty where none can be looked for."""
        with self._finding:
            if self._findings is None:
                self._findings = Findings()
                part = budget.part("repairs")
                try:
                    self._find_repairs(part, self._findings)
                finally:
                    self._findings.seconds = part.seconds_spent
            return self._findings

    def _find_repairs(self, budget: Budget, findings: Findings) -> None:
        commands = [neighbour.run.command for neighbour in self.failing.neighbours]
        present = {cwd for cwd in {command.cwd for command in commands} if Path(cwd).is_dir()}
        try:
            judge = self._open_judge(budget)
            judge.check_failure()
            find_repairs(
                self.failing.command,
                passing=[command for command in commands if command.cwd in present],
                also_failing=[other.failing.command for other in self.also_failing],
                ask=judge.ask,
                budget=budget,
                setup=self._setup,
                findings=findings,
            )
        except Hopeless:
            raise
        except BudgetUsedUp:
            pass  # noted as cut short
        except Refusal as refusal:
            self._obstacle = str(refusal)  # the chain against a neighbour will tell the same, or manage without

    def _open_judge(self, budget: Budget) -> TestJudge:
        """The first one opens where the tests are asked."""
        with self._asking:
            if self._witness is None:
                candidates = self.failing.neighbours[:MOST_RUN]
                tests = [self.failing.test, *(near.recording.test for near in candidates)]
                self._witness = self._replays.borrow(tests)
            return TestJudge(self._witness, self._asking, budget, self.failing)

    def _rank(self, found: FoundChains) -> Ranking:
        own = self._findings or Findings()
        # Not of all whose repairs are known by now, which depends on who was diagnosed first.
        others = [other._findings for other in self.also_failing[:VOTERS] if other._findings is not None]
        chain = next(iter(found.neighbours), None)
        return Ranking([own, *others], chain.suspects if chain is not None else ())

    # Chains

    def _compare_twins(self, found: FoundChains, budget: Budget) -> None:
        twins = self._rank(found).twins()[:TWINS_TRIED]
        diagnoses = (partial(self._diagnose_twin, twin.attempt, budget) for twin in twins)
        with keeping(found.twins):
            found.twins += keep_best(diagnoses, budget, lambda chain: chain.status != "none")[:1]

    def _diagnose_twin(self, attempt: Attempt, budget: Budget) -> Chain:
        command, test = self.failing.command, self.failing.test
        why = f"the same run {describe_repair(attempt.repair)}"
        pair = Pair(command, command, test, test, 0.0, why, attempt.alteration, attempt.repair)
        return method.find_chain(pair, self._open_judge(budget), budget, self._setup)

    def _compare_neighbours(self, found: FoundChains, budget: Budget, is_told: Future[bool] | None) -> None:
        ranked = self._rank_neighbours(budget)
        peers = ranked.neighbours[:NEIGHBOURS_TRIED]
        if ranked.refused and not peers:
            closest, why = ranked.refused[0]
            self._absence = f"no passing neighbour; {closest.recording.test} comes closest, but {why}"
        diagnoses = (partial(self._diagnose_neighbour, near, budget, is_told) for near in peers)
        with keeping(found.neighbours):
            tried = keep_best(diagnoses, budget, lambda chain: bool(chain.transitions))
            found.neighbours += [name_rivals(best, tried, ranked) for best in tried[:1]]

    def _rank_neighbours(self, budget: Budget) -> Ranked:
        """By what their runs do; a single one is taken as it is."""
        if len(self.failing.neighbours) < 2:
            return Ranked(self.failing.neighbours)
        budget.show("comparing the passing runs with it")
        return rank_by_traces(self.failing.command, self.failing.neighbours, budget.part("traces"), self._setup)

    def _diagnose_neighbour(self, neighbour: Neighbour, budget: Budget, is_told: Future[bool] | None) -> Chain:
        test, own = neighbour.recording.test, self._open_judge(budget)
        pair = Pair(
            neighbour.run.command, self.failing.command, test, self.failing.test, neighbour.distance, neighbour.why
        )
        judge = NeighbourJudge(own.witness, own.turn, budget, self.failing, test, neighbour.run)
        return method.find_chain(pair, judge, budget, self._setup, None if neighbour.is_asked_for else is_told)

    # All together

    def _join(self, found: FoundChains, budget: Budget, reason: str | None = None) -> Chain:
        """The twin's chain first where there is one, with all repairs and suspects."""
        chains = [*found.twins, *found.neighbours]
        ranking = self.ranking = self._rank(found)
        told = [chain for chain in chains if chain.status != "none"]
        findings = self._findings or Findings()
        why = reason or self._obstacle or self._absence or NOTHING_FOUND
        nothing = Chain(self.failing.test, "none", why, self.failing.command.program)
        if not told and not any(repair.is_full for repair in findings.found):
            return add_effort(chains[-1] if chains else nothing, findings, budget, self.failing.shortfalls)
        first = next(iter([*told, *chains, nothing]))
        chain = replace(
            first,
            status="partial" if reason or not told else first.status,
            reason=reason or first.reason,
            alternatives=tuple(make_alternative(chain) for chain in chains if chain is not first),
            without_neighbour=self._absence,
            repairs=tuple(repair.attempt.repair for repair in ranking.repairs()[:REPAIRS_TOLD]),
            suspects=ranking.suspects(),
        )
        return add_effort(chain, findings, budget, self.failing.shortfalls)


def keep_best(
    diagnoses: Iterable[Callable[[], Chain]], budget: Budget, is_enough: Callable[[Chain], bool]
) -> list[Chain]:
    """The chains of those that were asked until one was enough, the best first; the first is always asked."""
    chains: list[Chain] = []
    for diagnose in diagnoses:
        if chains and budget.is_over:
            break
        chains.append(diagnose())
        if is_enough(chains[-1]):
            break
    return sorted(chains, key=lambda chain: (is_enough(chain), chain.status != "none"), reverse=True)


@contextlib.contextmanager
def keeping(chains: list[Chain]) -> Iterator[None]:
    """What was known when the user interrupted, too."""
    try:
        yield
    except Interrupted as interrupt:
        chains.append(interrupt.chain)
        raise KeyboardInterrupt from None


def name_rivals(best: Chain, tried: Sequence[Chain], ranked: Ranked) -> Chain:
    """Those that were looked at beside the one that was taken."""
    if best.passing is None:
        return best
    reasons = {chain.passing.test: chain.reason or TELLS_LITTLE for chain in tried if chain.passing is not None}
    told = [
        Rival(near.recording.test, near.distance, near.why, reasons.get(near.recording.test))
        for near in ranked.neighbours[: max(ranked.traced, len(tried))]
    ]
    refused = [Rival(near.recording.test, None, near.why, reason) for near, reason in ranked.refused]
    rivals = [rival for rival in (*told, *refused) if rival.test != best.passing.test]
    return replace(best, passing=replace(best.passing, rivals=tuple(rivals)))


def add_effort(chain: Chain, findings: Findings, budget: Budget, before: Sequence[Shortfall]) -> Chain:
    """With what it took in all to find it, or to find none, and what was cut short, also `before` it began."""
    known = chain.statistics
    seconds = replace(known.seconds, total=round(budget.seconds_spent, 3), repairs=round(findings.seconds, 3))
    statistics = replace(known, interventions=findings.experiments, seconds=seconds)
    return replace(chain, statistics=statistics, cut_short=(*before, *budget.shortfalls))


def make_alternative(chain: Chain) -> Alternative:
    assert chain.peer is not None  # a diagnosis always has one
    return Alternative(chain.peer, chain.passing, chain.oracle, chain.chain, chain.transitions, chain.reason)
