"""What isolate_difference guarantees for any outcome function."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.observation import Outcome
from pytest_causechain.search.dd import Isolation, isolate_difference

PASS, FAIL, UNRESOLVED = Outcome.PASS, Outcome.FAIL, Outcome.UNRESOLVED
Configuration = frozenset[int]


@dataclass
class Program:
    """An experiment on the deltas 0 .. k-1 whose ends are as required; notes the configurations tried."""

    k: int
    between: Callable[[Configuration], Outcome]
    tried: list[Configuration] = field(default_factory=list)

    def outcome(self, configuration: Configuration) -> Outcome:
        if not configuration:
            return PASS
        return FAIL if len(configuration) == self.k else self.between(configuration)

    def __call__(self, configuration: Configuration) -> Outcome:
        self.tried.append(configuration)
        return self.outcome(configuration)

    def isolate(self) -> Isolation[int]:
        return isolate_difference(range(self.k), self)


def check_guarantees(program: Program) -> None:
    found = program.isolate()
    k = program.k
    assert found.passing < found.failing
    assert found.difference == tuple(sorted(found.failing - found.passing))
    assert program.outcome(found.passing) is PASS
    assert program.outcome(found.failing) is FAIL
    if len(found.difference) > 1:
        for delta in found.difference:
            assert program.outcome(found.passing | {delta}) is UNRESOLVED
            assert program.outcome(found.failing - {delta}) is UNRESOLVED
    assert len(program.tried) <= k * k + 3 * k
    assert len(program.tried) == len(set(program.tried))
    assert frozenset() not in program.tried
    assert frozenset(range(k)) not in program.tried


def by_chance(seed: int, outcomes: Sequence[Outcome]) -> Callable[[Configuration], Outcome]:
    """A fixed outcome for each configuration, drawn from `outcomes` without any order in it."""
    return lambda configuration: random.Random(f"{seed} {sorted(configuration)}").choice(outcomes)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Causes that must come together, in state that must not be torn apart: monotone but for UNRESOLVED."""
    k = draw(st.integers(1, 24))
    causes = draw(st.frozensets(st.integers(0, k - 1), min_size=1))
    groups = draw(st.lists(st.frozensets(st.integers(0, k - 1), min_size=2), max_size=3) if k > 1 else st.just([]))

    def outcome(configuration: Configuration) -> Outcome:
        if any(configuration & group not in (frozenset(), group) for group in groups):
            return UNRESOLVED
        return FAIL if causes <= configuration else PASS

    return Program(k, outcome)


@given(programs())
def test_guarantees_on_programs_with_inseparable_state(program: Program) -> None:
    check_guarantees(program)


@given(st.integers(1, 14), st.integers(), st.sampled_from([1, 2, 10, 50]))
def test_guarantees_without_any_monotony(k: int, seed: int, unresolved: int) -> None:
    check_guarantees(Program(k, by_chance(seed, [PASS, FAIL] + [UNRESOLVED] * unresolved)))


def all_programs(k: int) -> Iterator[Program]:
    """One program for each sequence of outcomes the algorithm can meet; it answers as the algorithm asks."""
    story: list[Outcome] = []
    while True:
        answers: dict[Configuration, Outcome] = {}

        def answer(configuration: Configuration, answers: dict[Configuration, Outcome] = answers) -> Outcome:
            if configuration not in answers:
                if len(answers) == len(story):
                    story.append(PASS)
                answers[configuration] = story[len(answers)]
            return answers[configuration]

        yield Program(k, answer)
        # The next story in counting order: as long as what was asked this time.
        del story[len(answers) :]
        while story and story[-1] is UNRESOLVED:
            story.pop()
        if not story:
            return
        story[-1] = FAIL if story[-1] is PASS else UNRESOLVED


@pytest.mark.parametrize(("k", "stories"), [(1, 1), (2, 5), (3, 43), (4, 2061)])
def test_guarantees_for_all_outcome_functions_of_few_deltas(k: int, stories: int) -> None:
    checked = 0
    for program in all_programs(k):
        check_guarantees(program)
        checked += 1
    assert checked == stories


@given(st.integers(1, 300), st.integers())
def test_a_binary_search_when_everything_is_resolved(k: int, seed: int) -> None:
    program = Program(k, by_chance(seed, [PASS, FAIL]))
    assert len(program.isolate().difference) == 1
    assert len(program.tried) <= math.ceil(math.log2(k))


@given(st.data(), st.integers(1, 300))
def test_one_cause_is_found_exactly(data: st.DataObject, k: int) -> None:
    cause = data.draw(st.integers(0, k - 1))
    program = Program(k, lambda configuration: FAIL if cause in configuration else PASS)
    assert program.isolate().difference == (cause,)
    assert len(program.tried) <= math.ceil(math.log2(k))


@given(st.integers(2, 14), st.integers())
def test_the_same_experiments_every_time(k: int, seed: int) -> None:
    first, second = (Program(k, by_chance(seed, [PASS, FAIL, *[UNRESOLVED] * 5])) for _ in range(2))
    assert first.isolate() == second.isolate()
    assert first.tried == second.tried


@given(st.permutations(range(6)))
def test_the_order_given_is_the_order_of_the_difference(order: list[int]) -> None:
    found = isolate_difference(order, lambda configuration: UNRESOLVED)
    assert found == Isolation(frozenset(), frozenset(range(6)), tuple(order))


def test_differing_variables_of_the_compiler() -> None:
    """Tables 2 and 3 of the 2002 paper, step by step."""
    tried = []

    def experiment(configuration: frozenset[str]) -> Outcome:
        tried.append(configuration)
        return UNRESOLVED if "first_loop_store_insn" in configuration else PASS

    variables = ["reg_rtx_no", "cur_insn_uid", "first_loop_store_insn", "last_linenum"]
    found = isolate_difference(variables, experiment)
    assert found.difference == ("first_loop_store_insn",)
    assert tried == [frozenset(variables[:2]), frozenset(variables[:3]), frozenset(variables[:2] + variables[3:])]


def test_nothing_resolved_doubles_the_parts() -> None:
    program = Program(8, lambda configuration: UNRESOLVED)
    assert program.isolate().difference == tuple(range(8))
    sizes = [len(configuration) for configuration in program.tried]
    assert sizes == [4] * 2 + [2] * 4 + [6] * 4 + [1] * 8 + [7] * 8


def test_the_complement_is_removed_with_one_part_less() -> None:
    """The third case: only after no part alone fails and no complement passes is a passing part taken over."""
    program = Program(8, lambda configuration: PASS if configuration == {2, 3} else UNRESOLVED)
    found = program.isolate()
    assert found.passing == {2, 3}
    assert found.difference == (0, 1, 4, 5, 6, 7)
    # After two halves and four quarters each way the six left are three parts, of which the first makes a half.
    assert program.tried[10:12] == [frozenset({2, 3, 4, 5}), frozenset({2, 3, 6, 7})]


def test_the_failing_side_shrinks_by_a_part() -> None:
    """The fourth case."""
    program = Program(4, lambda configuration: FAIL if configuration == {0, 1, 3} else UNRESOLVED)
    found = program.isolate()
    assert found == Isolation(frozenset(), frozenset({0, 1, 3}), (0, 1, 3))


def test_what_is_known_is_not_tried_again() -> None:
    """The last of the failing side goes, then the first, again and again: 112 steps, more than 9*9 + 3*9."""
    failing = [frozenset(range(first, 8)) for first in range(7)]
    program = Program(9, lambda configuration: FAIL if configuration in failing else UNRESOLVED)
    check_guarantees(program)
    assert program.isolate().difference == (6, 7)


def test_no_deltas() -> None:
    with pytest.raises(ValueError, match="no deltas"):
        isolate_difference([], lambda configuration: PASS)
