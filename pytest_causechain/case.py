"""One failing test and the runs it can be compared with: its repairs, its twin's chain, its neighbour's chain."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pytest_causechain import diagnosis
from pytest_causechain.diagnosis import Interrupted, Pair
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.model.chain import Alternative, Chain, Rival
from pytest_causechain.model.command import Command
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.recording import Recording, Run
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal, Unreplayable
from pytest_causechain.model.verdict import Oracle, Verdict, Witness
from pytest_causechain.neighbours.ranking import Neighbour
from pytest_causechain.neighbours.traces import MOST_RUN, Ranked, rank_by_traces, require_room
from pytest_causechain.oracle.oracles import ExactOracle, is_same_failure, take_users_word
from pytest_causechain.oracle.symptom import learn_symptom
from pytest_causechain.repairs.findings import Attempt, Findings
from pytest_causechain.repairs.search import find_repairs
from pytest_causechain.repairs.suspects import Ranking
from pytest_causechain.report.wording import describe_repair
from pytest_causechain.settings import Settings

# When the nearest passing run or the best repair gives no chain, the next ones are asked, as long as there is time.
NEIGHBOURS_TRIED, TWINS_TRIED = 3, 3
# Of the time for a failing test: for the search for repairs; of what is left then, for the twin; and of what is left
# when neighbours are compared, for finding the nearest.
REPAIRS_SHARE, TWIN_SHARE, TRACES_SHARE = 0.4, 0.5, 0.1
TELLS_LITTLE = "the cause stays in the same variables from beginning to end"
# Other failing tests of the program whose repairs are asked for.
VOTERS = 2
# In chain.json; many repairs of one line are much the same.
REPAIRS_TOLD = 50

OpenReplay = Callable[[Sequence[str]], Witness]
Progress = Callable[[str], None]
H = TypeVar("H")


@dataclass(slots=True)
class Case(Closing):
    """`neighbours` are the passing tests to compare with, the nearest first; `absence` says why there is none. `crash`
    is where the test failed."""

    recording: Recording
    run: Run
    neighbours: Sequence[Neighbour]
    absence: str | None
    settings: Settings
    open_replay: OpenReplay
    progress: Progress
    crash: str | None = None
    also_failing: list[Case] = field(default_factory=list)
    # Already spent on its repairs, for the sake of another failing test.
    seconds: float = 0.0
    # All lines that something speaks against, once the chain is found: it tells only the first ones.
    ranking: Ranking | None = None
    _findings: Findings | None = None
    # Why there are none.
    _obstacle: str | None = None
    # Of its findings: several failing tests may be diagnosed at a time.
    _lock: threading.RLock = field(default_factory=threading.RLock)
    # Where the tests are asked, one question at a time.
    _witness: Witness | None = None
    _asking: threading.RLock = field(default_factory=threading.RLock)

    @property
    def test(self) -> str:
        return self.recording.test

    @property
    def command(self) -> Command:
        return self.run.command

    def find_chain(self) -> Chain:
        """Never without what is known when the time is over; that, too, when the user interrupts."""
        deadline = time.monotonic() + self.settings.timeout_seconds - self.seconds
        begin = time.monotonic()
        twins: list[Chain] = []
        nears: list[Chain] = []
        try:
            with self:
                self._collect(twins, nears, deadline)
        except KeyboardInterrupt:
            raise Interrupted(self._join([*twins, *nears], time.monotonic() - begin, "interrupted.")) from None
        return self._join([*twins, *nears], time.monotonic() - begin)

    def find_neighbours_chain(self) -> Chain | None:
        """As if there were no repairs; None where there is no neighbour."""
        chains: list[Chain] = []
        with self:
            self._compare_neighbours(chains, time.monotonic() + self.settings.timeout_seconds, None)
        return next(iter(chains), None)

    def close(self) -> None:
        if self._witness is not None:
            self._witness.close()
            self._witness = None

    def _hear(self, make: Callable[..., H], deadline: float, *more: Any) -> H:
        """A Hearing of that kind; the first one opens where the tests are asked."""
        with self._asking:
            if self._witness is None:
                candidates = self.neighbours[:MOST_RUN]
                self._witness = self.open_replay([self.test, *(near.recording.test for near in candidates)])
            return make(self._witness, self._asking, deadline, self.test, self.run, self.crash, *more)

    def _collect(self, twins: list[Chain], nears: list[Chain], deadline: float) -> None:
        """The neighbour's chain needs no repairs: where a worker is free, both are looked for at a time."""
        share = self.settings.share
        are_compared = threading.Event()

        def is_told() -> bool:
            """By the twin's chain; the neighbour's waits for that."""
            are_compared.wait()
            return any(chain.status != "none" for chain in twins)

        with ThreadPoolExecutor(1, "causechain-neighbour") as pool:
            beside = None
            if self.neighbours and share is not None and share.has_room:
                beside = pool.submit(self._compare_neighbours, nears, deadline, is_told)
            try:
                # Another failing test that asks for our repairs meanwhile waits for them.
                self.find_repairs(deadline)
                now = time.monotonic()
                for other in self.also_failing[:VOTERS]:
                    other.vote()
                # The others have time of their own.
                deadline += time.monotonic() - now
                now = time.monotonic()
                is_last = beside is not None or not self.neighbours
                self._compare_twins(twins, now + (1.0 if is_last else TWIN_SHARE) * (deadline - now))
            finally:
                are_compared.set()
            if beside is None:
                self._compare_neighbours(nears, deadline, is_told)
            else:
                beside.result()

    def _compare_twins(self, chains: list[Chain], deadline: float) -> None:
        twins = self._rank().twins()[:TWINS_TRIED]
        diagnoses = (partial(self._diagnose_twin, found.attempt, deadline) for found in twins)
        with keeping(chains):
            chains += keep_best(diagnoses, deadline, lambda chain: chain.status != "none")[:1]

    def _compare_neighbours(self, chains: list[Chain], deadline: float, is_told: Callable[[], bool] | None) -> None:
        ranked = self._rank_neighbours(deadline)
        peers = ranked.neighbours[:NEIGHBOURS_TRIED]
        if ranked.refused and not peers:
            closest, why = ranked.refused[0]
            self.absence = f"no passing neighbour; {closest.recording.test} comes closest, but {why}"
        diagnoses = (partial(self._diagnose_neighbour, near, deadline, is_told) for near in peers)
        with keeping(chains):
            tried = keep_best(diagnoses, deadline, lambda chain: bool(chain.transitions))
            chains += [name_rivals(best, tried, ranked) for best in tried[:1]]

    def _rank_neighbours(self, deadline: float) -> Ranked:
        """By what their runs do; a single one is taken as it is."""
        if len(self.neighbours) < 2:
            return Ranked(tuple(self.neighbours))
        self.progress("comparing the passing runs with it")
        now = time.monotonic()
        end = now + TRACES_SHARE * (deadline - now)
        known = (self.settings.libraries, self.settings.cache, self.settings.precautions, self.settings.share)
        return rank_by_traces(self.command, self.neighbours, end, *known)

    # Repairs

    def vote(self) -> None:
        """Find its repairs for the sake of another failing test, which may be diagnosed at the same time."""
        with self._lock:
            if self._findings is None:
                deadline = time.monotonic() + self.settings.timeout_seconds
                with self:
                    self.find_repairs(deadline)

    def find_repairs(self, deadline: float) -> Findings:
        """Once; empty where none can be looked for."""
        with self._lock:
            return self._find_repairs(deadline)

    def _find_repairs(self, deadline: float) -> Findings:
        if self._findings is None:
            self._findings = Findings()
            begin = time.monotonic()
            end = begin + REPAIRS_SHARE * (deadline - begin)
            commands = [neighbour.run.command for neighbour in self.neighbours]
            present = {cwd for cwd in {command.cwd for command in commands} if Path(cwd).is_dir()}
            passing = [command for command in commands if command.cwd in present]
            failing = [other.command for other in self.also_failing]
            try:
                hearing = self._hear(Hearing, end)
                hearing.check_failure()
                settings = self.settings
                known = (self._findings, settings.libraries, settings.cache, settings.precautions, settings.share)
                find_repairs(self.command, passing, failing, hearing.ask, end, self.progress, *known)
            except Hopeless:
                raise
            except BudgetUsedUp:
                pass
            except Refusal as refusal:
                self._obstacle = str(refusal)  # the chain against a neighbour will tell the same, or manage without
            self.seconds = time.monotonic() - begin
        return self._findings

    def _rank(self, chains: Sequence[Chain] = ()) -> Ranking:
        own = self._findings or Findings()
        # Not of all whose repairs are known by now, which depends on who was diagnosed first.
        others = [other._findings for other in self.also_failing[:VOTERS] if other._findings is not None]
        chain = next((chain for chain in chains if is_neighbours(chain)), None)
        return Ranking([own, *others], chain.suspects if chain is not None else ())

    # Chains

    def _diagnose_twin(self, attempt: Attempt, deadline: float) -> Chain:
        left = deadline - time.monotonic()
        why = f"the same run {describe_repair(attempt.repair)}"
        pair = Pair(self.command, self.command, self.test, self.test, 0.0, why, attempt.alteration, attempt.repair)
        hearing = self._hear(Hearing, deadline)
        settings = replace(self.settings, timeout_seconds=left)
        learn = partial(learn_exact, hearing.ask)
        return diagnosis.diagnose_pair(pair, learn, settings, self.progress)

    def _diagnose_neighbour(self, neighbour: Neighbour, deadline: float, is_told: Callable[[], bool] | None) -> Chain:
        left = deadline - time.monotonic()
        test = neighbour.recording.test
        pair = Pair(neighbour.run.command, self.command, test, self.test, neighbour.distance, neighbour.why)
        hearing = self._hear(NeighbourHearing, deadline, test, neighbour.run)
        settings = replace(self.settings, timeout_seconds=left)
        is_told = None if neighbour.is_asked_for else is_told
        return diagnosis.diagnose_pair(pair, hearing.learn_oracle, settings, self.progress, is_told)

    def _join(self, chains: Sequence[Chain], seconds: float, reason: str | None = None) -> Chain:
        """The twin's chain first where there is one, with all repairs and suspects."""
        ranking = self.ranking = self._rank(chains)
        told = [chain for chain in chains if chain.status != "none"]
        findings = self._findings or Findings()
        why = reason or self._obstacle or self.absence or str(BudgetUsedUp())
        nothing = Chain(self.test, "none", why, self.command.program)
        if not told and not any(found.is_full for found in findings.found):
            return add_effort(chains[-1] if chains else nothing, findings, seconds)
        first = next(iter([*told, *chains, nothing]))
        chain = replace(
            first,
            status="partial" if reason or not told else first.status,
            reason=reason or first.reason,
            alternatives=tuple(make_alternative(chain) for chain in chains if chain is not first),
            without_neighbour=self.absence,
            repairs=tuple(found.attempt.repair for found in ranking.repairs()[:REPAIRS_TOLD]),
            suspects=ranking.suspects(),
        )
        return add_effort(chain, findings, seconds)


def keep_best(
    diagnoses: Iterable[Callable[[], Chain]], deadline: float, is_enough: Callable[[Chain], bool]
) -> list[Chain]:
    """The chains of those that were asked until one was enough, the best first; the first is always asked."""
    chains: list[Chain] = []
    for diagnose in diagnoses:
        if chains and time.monotonic() >= deadline:
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


def is_neighbours(chain: Chain) -> bool:
    return chain.peer is not None and chain.peer.kind == "neighbour"


def add_effort(chain: Chain, findings: Findings, seconds: float) -> Chain:
    """With what it took in all to find it, or to find none."""
    known = chain.statistics
    spent = replace(known.seconds, total=round(seconds, 3), repairs=round(findings.seconds, 3))
    return replace(chain, statistics=replace(known, interventions=findings.experiments, seconds=spent))


def make_alternative(chain: Chain) -> Alternative:
    assert chain.peer is not None  # a diagnosis always has one
    return Alternative(chain.peer, chain.passing, chain.oracle, chain.chain, chain.transitions, chain.reason)


def learn_exact(ask: Callable[[Observation], Verdict], twin: Observation, failing: Observation) -> Oracle:
    """Between a run and its twin; one that was ended by us has not passed, whatever it printed. What the user says of
    failures comes first here too."""
    users = take_users_word(ask, failing)
    if users is not None:
        return users

    def passes(observation: Observation) -> bool:
        return observation.ending != "timeout" and ask(observation).outcome == "passed"

    return ExactOracle(twin, failing, passes)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Asks the failing test about its run, within the budget; `asking` is held meanwhile. `crash` is where it failed in
    the user's session."""

    replay: Witness
    asking: threading.RLock
    deadline: float
    test: str
    run: Run
    crash: str | None

    def ask(self, observation: Observation) -> Verdict:
        return self._in_time(partial(self.replay.verdict, self.test, self.run, observation))

    def check_failure(self) -> None:
        """A Refusal when the test, run alone, does not fail as it did."""
        verdict = self._base()
        if verdict.outcome != "failed":
            raise Refusal(
                f"{self.test} does not fail when it is run again, so it is flaky or depends on other tests: make it "
                "independent of time, chance and order first."
            )
        if None not in (self.crash, verdict.crash) and verdict.crash != self.crash:
            places = (f"{Path(place).name}" for place in (self.crash, verdict.crash) if place)
            raise Refusal(
                "{} failed at {}, but at {} when it is run again: make it independent of other tests, time and chance "
                "first.".format(self.test, *places)
            )

    def check_replay(self, failing: Observation) -> None:
        """A Refusal when the test fails otherwise on what its run shows here than it did with the real program."""
        real, replayed = self._base(), self.ask(failing)
        if real.trail and replayed.outcome == "failed" and not is_same_failure(replayed, real):
            raise Refusal(
                f"{self.test} fails at {real.where}, but at {replayed.where} on the output of its program under "
                "experiments: make the program independent of time, terminals and who starts it."
            )

    def _base(self) -> Verdict:
        return self._in_time(partial(self.replay.base, self.test))

    def _in_time(self, answer: Callable[[], Verdict]) -> Verdict:
        try:
            with self.asking:
                self.replay.timeout_seconds = max(self.deadline - time.monotonic(), 0.0)
                verdict = answer()
        except Unreplayable:
            self._check_budget()
            raise
        self._check_budget()
        return verdict

    def _check_budget(self) -> None:
        if time.monotonic() >= self.deadline:
            raise BudgetUsedUp


@dataclass(frozen=True, slots=True)
class NeighbourHearing(Hearing):
    """Asks both tests whether their outcomes stand, and the failing one about each experiment."""

    neighbour: str
    neighbour_run: Run

    def learn_oracle(self, passing: Observation, failing: Observation) -> Oracle:
        require_room(self.neighbour_run, passing)
        require_room(self.run, failing)
        self._check_neighbour(passing)
        with contextlib.suppress(Unreplayable):  # a crash or a hang can be told without the test
            self.check_failure()
            self.check_replay(failing)
        return learn_symptom(passing, failing, self.ask)

    def ask(self, observation: Observation) -> Verdict:
        origin = self.neighbour_run.command
        return self._in_time(partial(self.replay.verdict, self.test, self.run, observation, origin))

    def _check_neighbour(self, passing: Observation) -> None:
        try:
            verdict = self._in_time(partial(self.replay.verdict, self.neighbour, self.neighbour_run, passing))
        except Unreplayable:
            return  # it has just passed, and the oracle will judge its run too
        if verdict.outcome != "passed":
            raise Refusal(
                f"{self.neighbour} does not pass again: run it anew, or choose another by --cause-chain-neighbour."
            )
