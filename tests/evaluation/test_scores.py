from __future__ import annotations

import pytest

from benchmarks.evaluation.measures import (
    Counts,
    best_by_coverage,
    blame,
    chance_of_hit,
    chance_within,
    count_examined,
    dstar,
    nearest_neighbour,
    ochiai,
    op2,
    rank_by,
    share_within,
    tarantula,
)


def lines(*numbers: int) -> tuple[tuple[str, int], ...]:
    return tuple(("a.c", number) for number in numbers)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [(tarantula, 1 / (1 + 0.25)), (ochiai, 2 / (2 * 3) ** 0.5), (op2, 2 - 1 / 5), (dstar, 4.0)],
)
def test_formula(formula, expected):
    assert formula(Counts(failing=2, passing=1, all_failing=2, all_passing=4)) == pytest.approx(expected)


def test_only_failing_tests_execute_it():
    assert dstar(Counts(1, 0, 1, 5)) == float("inf")
    assert tarantula(Counts(1, 0, 1, 0)) == 1.0


def test_lines_of_one_score_are_one_group():
    ranking = rank_by(op2, lines(1, 2, 3, 4), [lines(1, 2, 3)], [lines(1, 2), lines(1, 4)])
    assert ranking == [lines(3), lines(2), lines(1), lines(4)]
    assert rank_by(op2, lines(1, 2, 3), [lines(1, 2)], []) == [lines(1, 2), lines(3)]


def test_nearest_neighbour_leaves_something_to_blame():
    passing = [lines(1), lines(1, 2, 3, 9), lines(1, 2)]
    assert nearest_neighbour(lines(1, 2, 3), passing) == lines(3)


def test_coverage_cannot_tell_lines_apart_that_the_same_tests_execute():
    assert best_by_coverage(lines(1, 2, 3), [lines(1, 2, 3), lines(3)], lines(2)) == [lines(1, 2), lines(3)]


def test_blamed_lines_then_executed_ones_then_all():
    assert blame(lines(2), lines(1, 2), lines(1, 2, 3)) == [lines(2), lines(1), lines(3)]


def test_ties_count_against_the_ranking():
    examined = count_examined([lines(1), lines(2, 3, 4)], lines(3), 10)
    assert (examined.worst, examined.mid) == (4, 3.0)
    assert (examined.share, examined.mid_share) == (0.4, 0.3)


def test_each_line_of_a_defect_will_do():
    examined = count_examined([lines(1, 2, 3, 4)], lines(3, 4), 10)
    assert (examined.worst, examined.mid) == (3, pytest.approx(5 / 3))


def test_first_line_is_pinpointed_in_a_small_program_too():
    assert count_examined([lines(1)], lines(1), 10).share == 0.0


def test_defect_that_is_nowhere_takes_all_statements():
    assert count_examined([lines(1)], lines(7), 10).worst == 10


def test_chance():
    assert chance_of_hit(2, executed=4, defects=1) == 0.5
    assert chance_of_hit(9, executed=4, defects=1) == 1.0
    assert chance_of_hit(1, executed=4, defects=0) == 0.0
    assert chance_within(0.01, executed=4, defects=1, statements=10) == 0.25
    assert chance_within(0.2, executed=4, defects=1, statements=10) == 0.5


def test_share_within_is_a_percentage():
    assert share_within([0.0, 0.1, 0.5], 0.1) == pytest.approx(200 / 3)
