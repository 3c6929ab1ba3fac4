"""Asks the tests what they make of a run, within the budget, and learns from them by what the failure is known."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pytest_causechain.controller.failing_test import FailingTest
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.refusal import Refusal, Unreplayable
from pytest_causechain.model.runs import Observation, Run
from pytest_causechain.model.verdict import Oracle, Verdict, Witness
from pytest_causechain.neighbours.traces import require_room
from pytest_causechain.oracle.oracles import is_same_failure, judge_by_twin, judge_by_user
from pytest_causechain.oracle.symptom import learn_symptom


@dataclass(frozen=True, slots=True)
class TestJudge:
    """Asks a failing test about its own run; `turn` is held meanwhile, as the witness answers one at a time."""

    witness: Witness
    turn: threading.RLock
    budget: Budget
    failing: FailingTest

    def within(self, budget: Budget) -> TestJudge:
        """The same judge, paid from another budget."""
        return replace(self, budget=budget)

    def ask(self, observation: Observation) -> Verdict:
        """What the test says when its program shows this."""
        return self._in_time(partial(self.witness.verdict, self.failing.test, self.failing.run, observation))

    def learn_oracle(self, passing: Observation, failing: Observation) -> Oracle:
        """Between a run and its twin: what the user says of failures comes first, else exactly what the test says. A
        run that was ended by us has not passed, whatever it printed."""
        users = judge_by_user(failing, self.ask)
        if users is not None:
            return users

        def passes(observation: Observation) -> bool:
            return observation.ending != "timeout" and self.ask(observation).outcome == "passed"

        return judge_by_twin(passing, failing, passes)

    def check_failure(self) -> None:
        """A Refusal when the test, run alone, does not fail as it did."""
        verdict, test, crash = self._base(), self.failing.test, self.failing.crash
        if verdict.outcome != "failed":
            raise Refusal(
                f"{test} does not fail when it is run again, so it is flaky or depends on other tests: make it "
                "independent of time, chance and order first."
            )
        if crash is not None and verdict.crash is not None and verdict.crash != crash:
            raise Refusal(
                f"{test} failed at {Path(crash).name}, but at {Path(verdict.crash).name} when it is run again: make it "
                "independent of other tests, time and chance first."
            )

    def check_replay(self, failing: Observation) -> None:
        """A Refusal when the test fails otherwise on what its run shows here than it did with the real program."""
        real, replayed = self._base(), self.ask(failing)
        if real.trail and replayed.outcome == "failed" and not is_same_failure(replayed, real):
            raise Refusal(
                f"{self.failing.test} fails at {real.where}, but at {replayed.where} on the output of its program "
                "under experiments: make the program independent of time, terminals and who starts it."
            )

    def _base(self) -> Verdict:
        return self._in_time(partial(self.witness.base, self.failing.test))

    def _in_time(self, answer: Callable[[], Verdict]) -> Verdict:
        self.budget.check()
        try:
            with self.turn:
                self.witness.timeout_seconds = self.budget.seconds_left
                verdict = answer()
        except Unreplayable:
            self.budget.check()  # else the user would be told of a test what holds for the budget
            raise
        self.budget.charge("question")
        return verdict


@dataclass(frozen=True, slots=True)
class NeighbourJudge(TestJudge):
    """Asks both tests whether their outcomes stand, and the failing one about each experiment."""

    neighbour: str
    neighbour_run: Run

    def learn_oracle(self, passing: Observation, failing: Observation) -> Oracle:
        require_room(self.neighbour_run, passing)
        require_room(self.failing.run, failing)
        self._check_neighbour(passing)
        with contextlib.suppress(Unreplayable):  # a crash or a hang can be told without the test
            self.check_failure()
            self.check_replay(failing)
        return learn_symptom(passing, failing, self.ask)

    def ask(self, observation: Observation) -> Verdict:
        origin, failing = self.neighbour_run.command, self.failing
        return self._in_time(partial(self.witness.verdict, failing.test, failing.run, observation, origin))

    def _check_neighbour(self, passing: Observation) -> None:
        try:
            verdict = self._in_time(partial(self.witness.verdict, self.neighbour, self.neighbour_run, passing))
        except Unreplayable:
            return  # it has just passed, and the oracle will judge its run too
        if verdict.outcome != "passed":
            raise Refusal(
                f"{self.neighbour} does not pass again: run it anew, or choose another by --cause-chain-neighbour."
            )
