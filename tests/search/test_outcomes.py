"""Each configuration runs once, and everything is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.chain import Tally
from pytest_causechain.model.observation import Outcome
from pytest_causechain.search.cache import Outcomes
from pytest_causechain.search.dd import isolate_difference

BY_SIZE = [Outcome.PASS, Outcome.FAIL, Outcome.UNRESOLVED]


@given(st.lists(st.frozensets(st.integers(0, 3))))
def test_no_configuration_runs_twice(configurations: list[frozenset[int]]) -> None:
    runs: list[frozenset[int]] = []

    def experiment(configuration: frozenset[int]) -> Outcome:
        runs.append(configuration)
        return BY_SIZE[len(configuration) % 3]

    outcomes = Outcomes(experiment)
    assert [outcomes(c) for c in configurations] == [BY_SIZE[len(c) % 3] for c in configurations]
    assert runs == list(dict.fromkeys(configurations))
    counts = [sum(len(c) % 3 == kind for c in runs) for kind in range(3)]
    assert outcomes.tally == Tally(*counts, cached=len(configurations) - len(runs))


def test_what_was_counted_since() -> None:
    outcomes = Outcomes(lambda number: BY_SIZE[number % 3])
    for number in (0, 1, 1):
        outcomes(number)
    earlier = outcomes.tally
    assert outcomes.since(earlier) == Tally()
    for number in (0, 1, 2, 3, 4, 5):
        outcomes(number)
    assert earlier == Tally(pass_=1, fail=1, cached=1)
    assert outcomes.since(earlier) == Tally(pass_=1, fail=1, unresolved=2, cached=2)


def test_an_experiment_that_raises_leaves_no_trace() -> None:
    answers = iter([KeyboardInterrupt(), Outcome.FAIL])

    def experiment(configuration: str) -> Outcome:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    outcomes = Outcomes(experiment)
    with pytest.raises(KeyboardInterrupt):
        outcomes("once")
    assert outcomes.tally == Tally()
    assert outcomes("once") is Outcome.FAIL
    assert outcomes.tally == Tally(fail=1)


def test_a_second_search_over_the_same_outcomes_is_free() -> None:
    outcomes = Outcomes(lambda c: Outcome.FAIL if {1, 5} <= c else Outcome.PASS if 1 in c else Outcome.UNRESOLVED)
    first = isolate_difference(range(8), outcomes)
    spent = outcomes.tally
    assert spent.cached == 0
    assert isolate_difference(range(8), outcomes) == first
    assert outcomes.since(spent) == Tally(cached=spent.total)
