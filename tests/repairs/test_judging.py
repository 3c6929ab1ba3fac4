"""Whether an altered run repairs the test, comes nearer, or neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Observation, Outcome
from pytest_causechain.model.verdict import Comparison, Value, Verdict
from pytest_causechain.repairs.harm import RepairJudge, find_expected_numbers, is_nearer

FAILING = Observation("exit", 0, b"1 9 9")


def compared(*elements: str, where: str = "test_x.py:7") -> Verdict:
    sides = Value("sequence", "", elements), Value("sequence", "", ("1", "2", "3"))
    return Verdict("failed", "AssertionError", trail=(where,), comparison=Comparison("==", *sides))


VERDICTS = {
    b"1 9 9": compared("1", "9", "9"),
    b"1 2 3": Verdict("passed"),
    b"1 2 9": compared("1", "2", "9"),
    b"7 2 3": compared("7", "2", "3"),
    b"1 8 9": compared("1", "8", "9"),
    b"1 9 9 9": compared("1", "9", "9", "9"),
    b"later": compared(where="test_x.py:9"),
    b"earlier": compared("1", "2", "9", where="test_x.py:5"),
    b"skips": Verdict("skipped"),
    b"strays": Verdict("diverged"),
    b"marked": Verdict("passed", fails_when=True),
    b"judged": Verdict("passed", judged=Outcome.UNRESOLVED),
}


class Test:
    def __init__(self) -> None:
        self.asked: list[bytes] = []

    __test__ = False

    def __call__(self, observation: Observation) -> Verdict:
        self.asked.append(observation.stdout)
        return VERDICTS[observation.stdout]


@pytest.mark.parametrize(
    ("stdout", "judgement"),
    [
        (b"1 2 3", "repaired"),
        (b"1 2 9", "nearer"),
        (b"later", "nearer"),
        (b"1 8 9", "touched"),
        (b"1 9 9 9", "no"),
        (b"1 9 9", "no"),
        (b"7 2 3", "no"),
        (b"earlier", "no"),
        (b"skips", "no"),
        (b"strays", "no"),
        (b"marked", "no"),
        (b"judged", "no"),
    ],
)
def test_judgement(stdout, judgement):
    assert RepairJudge(FAILING, Test())(Observation("exit", 0, stdout)) == judgement


def test_each_run_is_asked_about_once():
    test = Test()
    judge = RepairJudge(FAILING, test)
    for stdout in (b"1 2 3", b"1 9 9", b"1 2 3"):
        judge(Observation("exit", 0, stdout))
    assert test.asked == [b"1 9 9", b"1 2 3"]


def test_test_must_fail_on_its_own_failing_run():
    with pytest.raises(Refusal, match="does not fail when replayed"):
        RepairJudge(Observation("exit", 0, b"1 2 3"), Test())


def test_run_that_we_ended_has_not_passed():
    assert RepairJudge(FAILING, Test())(Observation("timeout", 9, b"1 2 3")) == "no"


def line_of(text: str) -> Comparison:
    return Comparison("==", Value("lines", "", ("same", text)), Value("lines", "", ("same", "sum 12 mean 4.0")))


def test_more_words_of_the_first_wrong_line_are_nearer():
    failure = Verdict("failed", "AssertionError", trail=("test_x.py:7",), comparison=line_of("sum 13 mean 4.5"))
    assert is_nearer(replace(failure, comparison=line_of("sum 12 mean 4.5")), failure)
    assert not is_nearer(replace(failure, comparison=line_of("sum 14 mean 4.0")), failure)


def test_numbers_that_only_one_side_of_the_first_wrong_line_has():
    assert find_expected_numbers(line_of("sum 13 mean 4.0")) == ("12", "13")
    assert find_expected_numbers(line_of("sum 12 mean -4e-3")) == ("4.0", "-4e-3")
    assert find_expected_numbers(None) == ()
