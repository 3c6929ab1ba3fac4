"""Each configuration runs once, and everything is counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.chain import Tally
from pytest_causechain.model.runs import Outcome
from pytest_causechain.search.dd import group_deltas, isolate
from pytest_causechain.search.rounds import Outcomes, as_it_is

PASS, FAIL, UNRESOLVED = BY_SIZE = [Outcome.PASS, Outcome.FAIL, Outcome.UNRESOLVED]


@given(st.lists(st.frozensets(st.integers(0, 3))))
def test_no_configuration_runs_twice(configurations: list[frozenset[int]]) -> None:
    runs: list[frozenset[int]] = []

    def experiment(configuration: frozenset[int]) -> Outcome:
        runs.append(configuration)
        return BY_SIZE[len(configuration) % 3]

    outcomes = Outcomes[frozenset[int], Outcome](lambda tried: map(experiment, tried), as_it_is)
    assert [outcomes(c) for c in configurations] == [BY_SIZE[len(c) % 3] for c in configurations]
    assert runs == list(dict.fromkeys(configurations))
    counts = [sum(len(c) % 3 == kind for c in runs) for kind in range(3)]
    assert outcomes.tally == Tally(*counts, cached=len(configurations) - len(runs))


def test_what_was_counted_since() -> None:
    outcomes = Outcomes[int, Outcome](lambda numbers: [BY_SIZE[number % 3] for number in numbers], as_it_is)
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

    outcomes = Outcomes[str, Outcome](lambda tried: map(experiment, tried), as_it_is)
    with pytest.raises(KeyboardInterrupt):
        outcomes("once")
    assert outcomes.tally == Tally()
    assert outcomes("once") is Outcome.FAIL
    assert outcomes.tally == Tally(fail=1)


def test_a_second_search_over_the_same_outcomes_is_free() -> None:
    outcomes = Outcomes[frozenset[int], Outcome](
        lambda tried: [FAIL if {1, 5} <= c else PASS if 1 in c else UNRESOLVED for c in tried], as_it_is
    )
    units = group_deltas(range(8))
    first = isolate(units, outcomes)
    spent = outcomes.tally
    assert isolate(units, outcomes) == first
    assert outcomes.since(spent) == Tally(cached=spent.total + spent.cached)


def test_what_nobody_asked_for_is_not_judged() -> None:
    judged: list[int] = []

    def judge(number: int) -> Outcome:
        judged.append(number)
        return PASS

    outcomes = Outcomes[int, int](lambda numbers: [10 * number for number in numbers], judge, width=3)
    outcomes.run([1, 2, 2, 3])
    assert (judged, outcomes.tally) == ([], Tally())
    assert 2 in outcomes.observed
    assert 2 not in outcomes.known
    assert outcomes(2) is PASS
    assert (judged, outcomes.tally, outcomes.known[2]) == ([20], Tally(pass_=1), PASS)


def test_what_was_cancelled_runs_when_it_is_asked_for() -> None:
    tried: list[list[int]] = []

    def experiments(numbers: Sequence[int]) -> list[Outcome | None]:
        tried.append(list(numbers))
        return [BY_SIZE[numbers[0] % 3], *(None for _ in numbers[1:])]

    outcomes = Outcomes[int, Outcome](experiments, as_it_is, width=3)
    outcomes.run([0, 1, 2])
    assert list(outcomes.observed) == [0]
    assert [outcomes(number) for number in (0, 1)] == [PASS, FAIL]
    assert tried == [[0, 1, 2], [1]]
    assert outcomes.tally == Tally(pass_=1, fail=1)
