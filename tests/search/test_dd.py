"""What delta debugging guarantees for any outcome function."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.runs import Outcome
from pytest_causechain.search.dd import (
    CONJUNCTION_LIMIT,
    DeltaGroup,
    MinimalCause,
    Narrowing,
    group_deltas,
    isolate,
    narrow,
)
from pytest_causechain.search.rounds import Outcomes, as_it_is, settle

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

    def outcomes(self, width: int = 1) -> Outcomes[Configuration]:
        return Outcomes(lambda configurations: [self(c) for c in configurations], as_it_is, width=width)

    def narrow(self, units: Sequence[DeltaGroup[int]] | None = None, width: int = 1) -> Narrowing[int]:
        return settle(narrow(frozenset(), tuple(units or group_deltas(range(self.k)))), self.outcomes(width))

    def isolate(self, order: Sequence[int] | None = None) -> MinimalCause[int]:
        return isolate(group_deltas(order or range(self.k)), self.outcomes())


def deltas(found: Narrowing[int]) -> tuple[int, ...]:
    return tuple(delta for unit in found.difference for delta in unit.deltas)


def check_guarantees(program: Program) -> None:
    found = program.narrow()
    k = program.k
    assert found.passing < found.failing
    assert deltas(found) == tuple(sorted(found.failing - found.passing))
    assert program.outcome(found.passing) is PASS
    assert program.outcome(found.failing) is FAIL
    if len(found.difference) > 1:
        for delta in deltas(found):
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
    assert len(program.narrow().difference) == 1
    assert len(program.tried) <= math.ceil(math.log2(k))


@given(st.data(), st.integers(1, 300))
def test_one_cause_is_found_exactly(data: st.DataObject, k: int) -> None:
    cause = data.draw(st.integers(0, k - 1))
    program = Program(k, lambda configuration: FAIL if cause in configuration else PASS)
    assert deltas(program.narrow()) == (cause,)
    assert len(program.tried) <= math.ceil(math.log2(k))


@given(st.integers(2, 14), st.integers())
def test_the_same_experiments_every_time(k: int, seed: int) -> None:
    first, second = (Program(k, by_chance(seed, [PASS, FAIL, *[UNRESOLVED] * 5])) for _ in range(2))
    assert deltas(first.narrow()) == deltas(second.narrow())
    assert first.tried == second.tried


@given(st.permutations(range(6)))
def test_the_order_given_is_the_order_of_the_difference(order: list[int]) -> None:
    found = Program(6, lambda configuration: UNRESOLVED).narrow(group_deltas(order))
    assert (found.passing, deltas(found)) == (frozenset(), tuple(order))


def test_differing_variables_of_the_compiler() -> None:
    """Tables 2 and 3 of the 2002 paper, step by step."""
    tried = []

    def experiment(configuration: frozenset[str]) -> Outcome:
        tried.append(configuration)
        return UNRESOLVED if "first_loop_store_insn" in configuration else PASS

    variables = ["reg_rtx_no", "cur_insn_uid", "first_loop_store_insn", "last_linenum"]
    outcomes = Outcomes[frozenset[str], Outcome](lambda configurations: map(experiment, configurations), as_it_is)
    (unit,) = settle(narrow(frozenset(), group_deltas(variables)), outcomes).difference
    assert unit.deltas == ("first_loop_store_insn",)
    assert tried == [frozenset(variables[:2]), frozenset(variables[:3]), frozenset(variables[:2] + variables[3:])]


def test_nothing_resolved_doubles_the_parts() -> None:
    program = Program(8, lambda configuration: UNRESOLVED)
    assert deltas(program.narrow()) == tuple(range(8))
    sizes = [len(configuration) for configuration in program.tried]
    assert sizes == [4] * 2 + [2] * 4 + [6] * 4 + [1] * 8 + [7] * 8


def test_the_complement_is_removed_with_one_part_less() -> None:
    """The third case: only after no part alone fails and no complement passes is a passing part taken over."""
    program = Program(8, lambda configuration: PASS if configuration == {2, 3} else UNRESOLVED)
    found = program.narrow()
    assert found.passing == {2, 3}
    assert deltas(found) == (0, 1, 4, 5, 6, 7)
    # After two halves and four quarters each way the six left are three parts, of which the first makes a half.
    assert program.tried[10:12] == [frozenset({2, 3, 4, 5}), frozenset({2, 3, 6, 7})]


def test_the_failing_side_shrinks_by_a_part() -> None:
    """The fourth case."""
    program = Program(4, lambda configuration: FAIL if configuration == {0, 1, 3} else UNRESOLVED)
    found = program.narrow()
    assert (found.passing, deltas(found)) == (frozenset(), (0, 1, 3))


def test_what_is_known_is_not_tried_again() -> None:
    """The last of the failing side goes, then the first, again and again: 112 steps, more than 9*9 + 3*9."""
    failing = [frozenset(range(first, 8)) for first in range(7)]
    program = Program(9, lambda configuration: FAIL if configuration in failing else UNRESOLVED)
    check_guarantees(program)
    assert deltas(program.narrow()) == (6, 7)


class TestGroups:
    def test_what_belongs_together_is_found_together(self) -> None:
        """Two hundred groups of five; one of them is the cause, and half of it makes nonsense."""
        groups = [frozenset(range(5 * i, 5 * i + 5)) for i in range(200)]

        def outcome(configuration: Configuration) -> Outcome:
            if any(configuration & group not in (frozenset(), group) for group in groups):
                return UNRESOLVED
            return FAIL if groups[77] <= configuration else PASS

        program = Program(1000, outcome)
        found = program.narrow(group_deltas(range(1000), lambda delta: (delta // 5,)))
        assert frozenset(deltas(found)) == groups[77]
        assert len(program.tried) <= 8 + 10

    @given(st.data(), st.integers(1, 60), st.integers(1, 8))
    def test_a_cause_inside_a_group(self, data: st.DataObject, k: int, size: int) -> None:
        cause = data.draw(st.integers(0, k - 1))
        program = Program(k, lambda configuration: FAIL if cause in configuration else PASS)
        found = program.narrow(group_deltas(range(k), lambda delta: (delta // (size * 3), delta // size)))
        assert deltas(found) == (cause,)
        assert len(program.tried) <= math.ceil(math.log2(k)) + 4

    @given(programs(), st.integers(1, 5))
    def test_guarantees(self, program: Program, size: int) -> None:
        found = program.narrow(group_deltas(range(program.k), lambda delta: (delta % size,)))
        assert program.outcome(found.passing) is PASS
        assert program.outcome(found.failing) is FAIL
        assert len(program.tried) == len(set(program.tried))


class TestAtATime:
    @given(programs(), st.integers(2, 9))
    def test_the_same_result(self, program: Program, width: int) -> None:
        one, many = program.narrow(), program.narrow(width=width)
        assert (one.passing, deltas(one)) == (many.passing, deltas(many))

    @given(programs(), st.integers(2, 9))
    def test_the_same_cause_and_count(self, program: Program, width: int) -> None:
        units = group_deltas(range(program.k), lambda delta: (delta // 3,))
        ones, many = program.outcomes(), program.outcomes(width)
        assert isolate(units, ones) == isolate(units, many)
        assert ones.tally == many.tally

    @given(programs(), st.integers(2, 9), st.integers())
    def test_the_same_where_some_are_cancelled(self, program: Program, width: int, seed: int) -> None:
        """Nobody but the first has a right to be carried out."""
        units = group_deltas(range(program.k), lambda delta: (delta // 3,))
        choose = random.Random(seed)

        def experiments(configurations: Sequence[Configuration]) -> list[Outcome | None]:
            first, *others = configurations
            return [program(first), *(choose.choice([program(other), None]) for other in others)]

        ones, many = program.outcomes(), Outcomes[Configuration, Outcome](experiments, as_it_is, width=width)
        assert isolate(units, ones) == isolate(units, many)
        assert ones.tally == many.tally

    @pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 15])
    def test_rounds(self, width: int) -> None:
        """For any cause among a thousand, and on average not more than a search in that many parts takes."""
        rounds: list[int] = []
        causes = range(0, 1000, 37)
        for cause in causes:

            def experiments(configurations: Sequence[Configuration], cause: int = cause) -> list[Outcome]:
                rounds.append(len(configurations))
                return [FAIL if cause in configuration else PASS for configuration in configurations]

            settle(narrow(frozenset(), group_deltas(range(1000))), Outcomes(experiments, as_it_is, width=width))
        assert len(rounds) / len(causes) <= math.log(1000, width + 1) + 1
        assert max(rounds) <= width


class TestConjunctions:
    @given(st.data(), st.integers(2, 60))
    def test_the_same_set_for_every_order(self, data: st.DataObject, k: int) -> None:
        needed = data.draw(st.frozensets(st.integers(0, k - 1), min_size=1, max_size=min(k, CONJUNCTION_LIMIT)))
        half = data.draw(st.sampled_from([PASS, UNRESOLVED]))

        def outcome(configuration: Configuration) -> Outcome:
            if needed <= configuration:
                return FAIL
            return half if needed & configuration else PASS

        order = data.draw(st.permutations(range(k)))
        program = Program(k, outcome)
        assert program.isolate(order) == MinimalCause(needed, is_alone=True)

    def test_cost(self) -> None:
        needed = {3, 250, 777}
        program = Program(1000, lambda configuration: FAIL if needed <= configuration else PASS)
        assert program.isolate().cause == needed
        assert len(program.tried) <= 10 + 3 * 2 * 10

    def test_one_of_two_that_do_is_enough(self) -> None:
        program = Program(64, lambda c: FAIL if 5 in c and (9 in c or 40 in c) else PASS)
        found = program.isolate()
        assert found.is_alone
        assert found.cause in ({5, 9}, {5, 40})

    def test_what_decides_only_beside_others_is_left_out(self) -> None:
        """Delta 3 makes up for what 1 and 2 spoil; 0 alone does it."""
        program = Program(4, lambda c: FAIL if 0 in c and (3 in c or not c & {1, 2}) else PASS)
        assert program.isolate() == MinimalCause(frozenset({0}), is_alone=True)

    @given(st.integers(2, 12), st.integers(), st.sampled_from([1, 2, 10]))
    def test_each_delta_is_needed(self, k: int, seed: int, unresolved: int) -> None:
        program = Program(k, by_chance(seed, [PASS, FAIL] + [UNRESOLVED] * unresolved))
        found = program.isolate()
        if found.is_alone:
            assert program.outcome(found.cause) is FAIL
            assert all(program.outcome(found.cause - {delta}) is not FAIL for delta in found.cause)

    def test_what_is_not_needed_of_a_group_is_left_out(self) -> None:
        """Of two that are needed, one is in a group, which is not opened while the other one is missing."""
        units = group_deltas(range(4), lambda delta: ("group",) if delta < 3 else ("other",))

        def judge(configuration: frozenset[int]) -> Outcome:
            found = len(configuration & {1, 3})
            return (Outcome.PASS, Outcome.UNRESOLVED, Outcome.FAIL)[found]

        outcomes = Outcomes[frozenset[int], Outcome](lambda tried: map(judge, tried), as_it_is)
        assert isolate(units, outcomes) == MinimalCause(frozenset({1, 3}), is_alone=True)

    def test_too_many_are_not_told(self) -> None:
        needed = frozenset(range(0, 60, 3))
        found = Program(60, lambda c: FAIL if needed <= c else PASS).isolate()
        assert not found.is_alone
        assert len(found.cause) == 1
        assert found.cause <= needed


class TestLikely:
    @pytest.mark.parametrize("size", [1_000, 100_000])
    def test_right_ones_save_most_experiments(self, size: int) -> None:
        likely = frozenset(range(0, size, size // 8))
        program = Program(size, lambda c: FAIL if size // 8 * 5 in c else PASS)
        found = isolate(group_deltas(range(size)), program.outcomes(), likely)
        assert found == MinimalCause(frozenset({size // 8 * 5}), is_alone=True)
        assert len(program.tried) <= 1 + 3 + 1

    @pytest.mark.parametrize("size", [1_000, 100_000])
    def test_wrong_ones_cost_one_experiment(self, size: int) -> None:
        likely = frozenset(range(0, size, size // 8))
        program = Program(size, lambda c: FAIL if 7 in c else PASS)
        assert isolate(group_deltas(range(size)), program.outcomes(), likely).cause == {7}
        assert len(program.tried) <= 1 + math.ceil(math.log2(size)) + 1

    def test_more_than_a_half_tell_nothing(self) -> None:
        plain, program = (Program(100, lambda c: FAIL if 7 in c else PASS) for _ in range(2))
        plain.isolate()
        isolate(group_deltas(range(100)), program.outcomes(), frozenset(range(50)))
        assert program.tried == plain.tried

    @given(st.data(), programs(), st.integers(2, 9))
    def test_guarantees_hold_at_any_width(self, data: st.DataObject, program: Program, width: int) -> None:
        likely = data.draw(st.frozensets(st.integers(0, program.k - 1)))
        units = group_deltas(range(program.k), lambda delta: (delta // 3,))
        ones, many = program.outcomes(), program.outcomes(width)
        found = isolate(units, ones, likely)
        assert found == isolate(units, many, likely)
        assert ones.tally == many.tally
        if found.is_alone and len(found.cause) <= CONJUNCTION_LIMIT:
            assert program.outcome(found.cause) is FAIL
            assert all(program.outcome(found.cause - {delta}) is not FAIL for delta in found.cause)


def test_no_deltas() -> None:
    with pytest.raises(ValueError, match="no deltas"):
        isolate((), Outcomes[frozenset[int], Outcome](lambda configurations: [PASS], as_it_is))
