"""How closely two runs are compared, and what is known at each stage of that."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from pytest_causechain.controller import method
from pytest_causechain.controller.method import Begun, FunctionJudge, Pair, Traced, advance, find_chain
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.budget import Budget, Shortfall
from pytest_causechain.model.chain import Chain
from pytest_causechain.model.refusal import BudgetUsedUp
from pytest_causechain.model.runs import Command, Observation, Outcome

SOURCE = r"""
#include <stdio.h>

static int tripled(int number)
{
    int doubled = number + number;
    int sum = doubled + number;
    return sum;
}

int main(int argc, char **argv)
{
    int first = argc, second = first + 1;
    int third = tripled(second);
    int fourth = third + 1;
    printf("%d\n", fourth);
    return argv == 0;
}
"""
JUDGE = FunctionJudge(lambda run: Outcome.FAIL if run.stdout == b"10\n" else Outcome.PASS)


@pytest.fixture(scope="module")
def pair(build) -> Pair:
    program = build(SOURCE)
    directory = Path(program.path).parent
    passing, failing = (Command(program, ("program", *words), str(directory)) for words in ((), ("x",)))
    return Pair(passing, failing)


def diagnose(pair: Pair, is_told: bool) -> Chain:
    answer: Future[bool] = Future()
    answer.set_result(is_told)
    return find_chain(pair, JUDGE, Budget(60), LabSetup(), answer)


def list_causes(chain: Chain) -> list[str]:
    assert chain.status == "complete"
    return [cause.variable for link in chain.chain for cause in link.causes]


@pytest.fixture(scope="module")
def whole(pair) -> Chain:
    return diagnose(pair, is_told=False)


def test_a_short_chain_is_whole_beside_another_too(pair, whole):
    told = list_causes(whole)
    assert {"argc", "number", "fourth"} <= set(told)
    assert list_causes(diagnose(pair, is_told=True)) == told


def test_a_long_one_is_not_known_to_the_last_statement_then(pair, whole, monkeypatch):
    monkeypatch.setattr(method, "ENOUGH_MOMENTS", 3)
    beside = diagnose(pair, is_told=True)
    assert beside.statistics.moments.tried < whole.statistics.moments.tried
    assert set(list_causes(beside)) < set(list_causes(whole))
    assert list_causes(diagnose(pair, is_told=False)) == list_causes(whole)


class TestStages:
    """A diagnosis can be stopped behind any of them, and has a chain there."""

    def test_each_knows_more(self, pair):
        reached = list(advance(Begun(pair, Budget(60)), JUDGE, LabSetup()))
        names = [type(stage).__name__ for stage in reached]
        assert names == ["Prepared", "Seen", "Apart", "Apart", "Traced", "Traced"]

    def test_a_diagnosis_can_be_stopped_behind_any(self, pair):
        chains = {}
        for stage in advance(Begun(pair, Budget(60)), JUDGE, LabSetup()):
            chains[type(stage).__name__] = stage.chain()
            if isinstance(stage, Traced):
                break
        assert (chains["Prepared"].statistics.lab, chains["Prepared"].failing) == ("fork", None)
        assert chains["Seen"].failing is not None and chains["Seen"].failing.outcome == 'printed "10"'
        assert (chains["Seen"].oracle, chains["Apart"].oracle) == (None, JUDGE.rule)
        assert chains["Traced"].statistics.moments.matched > 0
        assert (chains["Traced"].status, chains["Traced"].chain) == ("none", ())

    def test_end_of_the_budget_leaves_the_chain_of_the_last_one(self, pair):
        budget = Budget(60)

        class Expensive(FunctionJudge):
            def learn_oracle(self, passing: Observation, failing: Observation) -> FunctionJudge:
                budget.charge("run second", 1_000)
                budget.check()
                return self

        chain = find_chain(pair, Expensive(JUDGE.judge), budget, LabSetup())
        told = "all the work that the time limit of 60 s allows was done: raise --cause-chain-timeout."
        assert (chain.status, chain.reason, chain.oracle) == ("none", told, None)
        assert chain.failing is not None and chain.failing.outcome == 'printed "10"'

    def test_interruption_keeps_what_is_known(self, pair):
        budget = Budget(60)

        class Leaving(FunctionJudge):
            def learn_oracle(self, passing: Observation, failing: Observation) -> FunctionJudge:
                budget.cancelled.set()
                return self

        with pytest.raises(method.Interrupted) as interrupted:
            find_chain(pair, Leaving(JUDGE.judge), budget, LabSetup())
        assert (interrupted.value.chain.reason, interrupted.value.chain.oracle) == ("interrupted.", JUDGE.rule)

    def test_search_that_is_cut_short_is_noted(self, pair):
        budget = Budget(60)
        stages = advance(Begun(pair, budget), JUDGE, LabSetup())
        for stage in stages:
            if isinstance(stage, Traced):
                break
        budget.charge("run second", 1_000)
        with pytest.raises(BudgetUsedUp):
            next(stages)
        assert budget.shortfalls == (Shortfall("neighbour", 0),)
