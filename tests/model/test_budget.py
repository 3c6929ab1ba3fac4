"""What a diagnosis may spend."""

from __future__ import annotations

import pytest

from pytest_causechain.model.budget import MORE_BY_WORKER, SHARES, SLACK, WORK_PER_SECOND, Budget, Shortfall
from pytest_causechain.model.refusal import BudgetUsedUp


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock) -> Budget:
    return Budget(60, clock=clock)


def test_lasts_until_its_work_is_done(budget):
    budget.charge("run second", 60 * WORK_PER_SECOND - 1)
    budget.check()
    budget.charge("run second", 1)
    with pytest.raises(BudgetUsedUp, match="all the work that the time limit of 60 s allows was done"):
        budget.check()


def test_lasts_until_its_time_is_over(budget, clock):
    clock.now += 59
    budget.check()
    clock.now += 1
    with pytest.raises(BudgetUsedUp, match="the time limit of 60 s was reached"):
        budget.check()


def test_interruption_comes_first(budget):
    budget.charge("run second", 1_000)
    budget.cancelled.set()
    with pytest.raises(KeyboardInterrupt):
        budget.check()


class TestPart:
    def test_has_its_share_of_the_work_that_is_left(self, budget):
        budget.charge("run second", 6)
        part = budget.part("repairs")
        part.charge("run second", SHARES["repairs"] * (60 * WORK_PER_SECOND - 6) + 0.001)
        assert part.is_over and not budget.is_over
        with pytest.raises(BudgetUsedUp, match="the share of the time limit of 60 s that is for this was used up"):
            part.check()

    def test_what_it_spends_is_missing_above(self, budget):
        budget.part("repairs").part("coverage").charge("experiment", 500)
        assert budget.work_spent == pytest.approx(0.5)

    def test_has_more_time_than_its_share(self, budget, clock):
        """So that a machine that is somewhat slower does the same work."""
        assert budget.part("repairs").seconds_left == pytest.approx(60 * SHARES["repairs"] * SLACK)
        clock.now += 50
        assert budget.part("twin").seconds_left == pytest.approx(10 * SHARES["twin"] * SLACK)

    def test_says_which_limit_when_all_is_over(self, budget, clock):
        part = budget.part("twin")
        clock.now += 60
        with pytest.raises(BudgetUsedUp, match="the time limit of 60 s was reached"):
            part.check()


def test_another_beside_it_has_work_of_its_own(budget, clock):
    clock.now += 20
    beside = budget.beside()
    beside.charge("run second", 1_000)
    assert beside.is_over and not budget.is_over
    assert beside.deadline == budget.deadline
    assert beside.cancelled is budget.cancelled


def test_time_paid_by_others_does_not_count(budget, clock):
    with budget.paused():
        clock.now += 30
    assert (budget.seconds_left, budget.seconds_spent) == (60, 0)


def test_shortfalls_and_activity_are_those_of_all_parts(budget):
    part = budget.part("repairs")
    part.cut_short("coverage", 3, 30)
    part.cut_short("repairs", 200, 900)
    part.cut_short("repairs", 212, 900)
    budget.beside().show("tracing both runs")
    assert budget.shortfalls == (Shortfall("coverage", 3, 30), Shortfall("repairs", 212, 900))
    assert budget.activity == "tracing both runs"


def test_seconds_spent_already_count(clock):
    budget = Budget(60, spent=20, clock=clock)
    assert (budget.seconds_left, budget.seconds_spent) == (40, 20)
    budget.charge("run second", 40 * WORK_PER_SECOND)
    with pytest.raises(BudgetUsedUp, match="the time limit of 60 s"):
        budget.check()


def test_workers_do_more_in_the_same_time(clock):
    budget = Budget(60, workers=3, clock=clock)
    budget.charge("run second", 60 * WORK_PER_SECOND * (1 + 2 * MORE_BY_WORKER) - 0.1)
    assert not budget.is_over
    budget.charge("run second", 0.1)
    assert budget.is_over
