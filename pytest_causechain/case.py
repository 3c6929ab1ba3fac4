"""One failing test and the runs it can be compared with: its repairs, its twin's chain, its neighbour's chain."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pytest_causechain import diagnosis
from pytest_causechain.diagnosis import Interrupted, Pair
from pytest_causechain.model.chain import Alternative, Chain
from pytest_causechain.model.command import Command
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.recording import Recording, Run
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.verdict import Oracle, Verdict
from pytest_causechain.neighbours.ranking import Neighbour
from pytest_causechain.oracle.answers import UserOracle, is_same_failure
from pytest_causechain.oracle.exact import ExactOracle
from pytest_causechain.oracle.replay import Replay, Replays
from pytest_causechain.oracle.symptom import learn_symptom
from pytest_causechain.oracle.unreplayable import Unreplayable
from pytest_causechain.repairs.search import Attempt, Findings, find_repairs
from pytest_causechain.repairs.suspects import Ranking
from pytest_causechain.report.wording import describe_repair
from pytest_causechain.settings import Settings

# When the nearest passing run or the best repair gives no chain, the next ones are asked, as long as there is time.
NEIGHBOURS_TRIED, TWINS_TRIED = 3, 3
# Of the time for a failing test: for the search for repairs, and of what is left then for the twin.
REPAIRS_SHARE, TWIN_SHARE = 0.4, 0.5
# Other failing tests of the program whose repairs are asked for.
VOTERS = 2
# In chain.json; many repairs of one line are much the same.
REPAIRS_TOLD = 50

Progress = Callable[[str], None]


@dataclass(slots=True)
class Case:
    """`neighbours` are the passing tests to compare with, the nearest first; `absence` says why there is none.
    `recalled` are those that have not run in this session. `crash` is where the test failed."""

    recording: Recording
    run: Run
    crash: str | None
    neighbours: Sequence[Neighbour]
    absence: str | None
    recalled: set[str]
    settings: Settings
    replays: Replays
    progress: Progress
    also_failing: list[Case] = field(default_factory=list)
    # Already spent on its repairs, for the sake of another failing test.
    seconds: float = 0.0
    _findings: Findings | None = None

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
        chains: list[Chain] = []
        try:
            self._collect(chains, deadline)
        except KeyboardInterrupt as interrupt:
            chains += [interrupt.chain] if isinstance(interrupt, Interrupted) else []
            raise Interrupted(self._join(chains, time.monotonic() - begin, "interrupted.")) from None
        return self._join(chains, time.monotonic() - begin)

    def _replay(self) -> Replay:
        """How long it may take to answer, each question says."""
        return self.replays.find([self.test, *(near.recording.test for near in self.neighbours[:NEIGHBOURS_TRIED])])

    def _collect(self, chains: list[Chain], deadline: float) -> None:
        self.find_repairs(deadline)
        now = time.monotonic()
        for other in self.also_failing[:VOTERS]:
            other.find_repairs(time.monotonic() + other.settings.timeout_seconds)
        # The others have time of their own.
        deadline += time.monotonic() - now
        now = time.monotonic()
        end = now + (TWIN_SHARE if self.neighbours else 1.0) * (deadline - now)
        twins = (partial(self._diagnose_twin, found.attempt, end) for found in self._ranking().twins()[:TWINS_TRIED])
        keep_first_told(chains, twins, end)
        peers = (partial(self._diagnose_neighbour, near, deadline) for near in self.neighbours[:NEIGHBOURS_TRIED])
        keep_first_told(chains, peers, deadline)

    # Repairs

    def find_repairs(self, deadline: float) -> Findings:
        """Once; empty where none can be looked for."""
        if self._findings is None:
            self._findings = Findings()
            begin = time.monotonic()
            end = begin + REPAIRS_SHARE * (deadline - begin)
            passing = [neighbour.run.command for neighbour in self.neighbours]
            failing = [other.command for other in self.also_failing]
            try:
                hearing = Hearing(self._replay(), end, self.test, self.run, self.crash)
                hearing.check_failure()
                known = (self._findings, self.settings.libraries, self.settings.cache)
                find_repairs(self.command, passing, failing, hearing.ask, end, self.progress, *known)
            except Refusal:
                pass  # the chain against a neighbour will tell the same, or manage without
            self.seconds = time.monotonic() - begin
        return self._findings

    def _ranking(self, chain: Chain | None = None) -> Ranking:
        own = self._findings or Findings()
        others = [other._findings for other in self.also_failing if other._findings is not None]
        return Ranking([own, *others], chain.suspects if chain is not None else ())

    # Chains

    def _diagnose_twin(self, attempt: Attempt, deadline: float) -> Chain:
        left = deadline - time.monotonic()
        why = f"the same run {describe_repair(attempt.repair)}"
        pair = Pair(self.command, self.command, self.test, self.test, 0.0, why, attempt.alteration, attempt.repair)
        hearing = Hearing(self._replay(), deadline, self.test, self.run, self.crash)
        settings = replace(self.settings, timeout_seconds=left)
        learn = partial(learn_exact, hearing.ask)
        return diagnosis.diagnose_pair(pair, learn, settings, self.progress)

    def _diagnose_neighbour(self, neighbour: Neighbour, deadline: float) -> Chain:
        left = deadline - time.monotonic()
        test = neighbour.recording.test
        pair = Pair(neighbour.run.command, self.command, test, self.test, neighbour.distance, neighbour.why)
        hearing = NeighbourHearing(
            self._replay(), deadline, self.test, self.run, self.crash, test, neighbour.run, test in self.recalled
        )
        settings = replace(self.settings, timeout_seconds=left)
        return diagnosis.diagnose_pair(pair, hearing.learn_oracle, settings, self.progress)

    def _join(self, chains: Sequence[Chain], seconds: float, reason: str | None = None) -> Chain:
        """The twin's chain first where there is one, with all repairs and suspects."""
        told = [chain for chain in chains if chain.status != "none"]
        findings = self._findings or Findings()
        nothing = Chain(self.test, "none", reason or self.absence or str(BudgetUsedUp()), self.command.program)
        if not told and not any(found.is_full for found in findings.found):
            return chains[-1] if chains else nothing
        first = next(iter([*told, *chains, nothing]))
        ranking = self._ranking(next((chain for chain in chains if is_neighbours(chain)), None))
        return replace(
            first,
            status="partial" if reason or not told else first.status,
            reason=reason or first.reason,
            alternatives=tuple(make_alternative(chain) for chain in chains if chain is not first),
            repairs=tuple(found.attempt.repair for found in ranking.repairs()[:REPAIRS_TOLD]),
            suspects=ranking.suspects(),
            statistics=replace(
                first.statistics,
                interventions=findings.experiments,
                seconds=replace(first.statistics.seconds, total=round(seconds, 3), repairs=round(findings.seconds, 3)),
            ),
        )


def keep_first_told(chains: list[Chain], diagnoses: Iterable[Callable[[], Chain]], deadline: float) -> None:
    """Add the first chain that there is, else the first reason why there is none; the first is always asked for."""
    reasons: list[Chain] = []
    for diagnose in diagnoses:
        if reasons and time.monotonic() >= deadline:
            break
        chain = diagnose()
        if chain.status != "none":
            chains.append(chain)
            return
        reasons.append(chain)
    chains += reasons[:1]


def is_neighbours(chain: Chain) -> bool:
    return chain.peer is not None and chain.peer.kind == "neighbour"


def make_alternative(chain: Chain) -> Alternative:
    assert chain.peer is not None  # a diagnosis always has one
    return Alternative(chain.peer, chain.passing, chain.oracle, chain.chain, chain.transitions, chain.reason)


def learn_exact(ask: Callable[[Observation], Verdict], twin: Observation, failing: Observation) -> Oracle:
    """Between a run and its twin; one that was ended by us has not passed, whatever it printed. What the user says of
    failures comes first here too."""
    if ask(failing).fails_when is not None:
        return UserOracle(ask)

    def passes(observation: Observation) -> bool:
        return observation.ending != "timeout" and ask(observation).outcome == "passed"

    return ExactOracle(twin, failing, passes)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Asks the failing test about its run, within the budget. `crash` is where it failed in the user's session."""

    replay: Replay
    deadline: float
    test: str
    run: Run
    crash: str | None

    def ask(self, observation: Observation) -> Verdict:
        return self._in_time(partial(self.replay.verdict, self.test, self.run, observation))

    def check_failure(self) -> None:
        """A Refusal when the test, run alone, does not fail as it did."""
        verdict = self._in_time(partial(self.replay.base, self.test))
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
        real, replayed = self.replay.base(self.test), self.ask(failing)
        if replayed.outcome == "failed" and not is_same_failure(replayed, real):
            raise Refusal(
                f"{self.test} fails at {real.where}, but at {replayed.where} on the output of its program under "
                "experiments: make the program independent of time, terminals and who starts it."
            )

    def _in_time(self, answer: Callable[[], Verdict]) -> Verdict:
        self.replay.timeout_seconds = max(self.deadline - time.monotonic(), 0.0)
        try:
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
    # Whether the neighbour has not run in this session.
    is_recalled: bool

    def learn_oracle(self, passing: Observation, failing: Observation) -> Oracle:
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
            if self.is_recalled:
                raise Refusal(
                    f"{self.neighbour} passed in an earlier session, but cannot be asked whether it still does: run "
                    "the passing tests in this session too."
                ) from None
            return  # it has just passed, and the oracle will judge its run too
        if verdict.outcome != "passed":
            raise Refusal(
                f"{self.neighbour} does not pass again: run it anew, or choose another by --cause-chain-neighbour."
            )
