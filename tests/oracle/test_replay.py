"""Verdicts of real tests in a real isolated session, on runs their program never made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from talking import SUITE, ask_last, make_replay, printed

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Observation, Outcome
from pytest_causechain.oracle.replay import Replay
from pytest_causechain.oracle.symptom import learn_symptom


@pytest.fixture(scope="module")
def replay(suite: Path) -> Iterator[Replay]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_XDIST_WORKER", "gw0")
        patch.setenv("COV_CORE_SOURCE", "x")
        with make_replay(suite, "test_suite.py") as replay:
            replay.base("test_suite.py::test_list")  # the session keeps the environment it is started with
            yield replay


class Case(NamedTuple):
    """What a test says of a run; `at` counts lines from the test's first, unless `file` is not the test's."""

    test: str
    observation: Observation
    outcome: str = "failed"
    exception: str | None = "AssertionError"
    at: int | None = 1
    compared: tuple[str, str, str] | None = None
    message: str | None = None
    file: str | None = None


CRASHED = Observation("signal", 11)

CASES = [
    Case("test_list", printed("11 14\n"), "passed"),
    Case("test_list", printed("0 7\n"), compared=("['0', '7']", "==", "['11', '14']")),
    Case("test_list", CRASHED, compared=("[]", "==", "['11', '14']")),
    Case(
        "test_numbers", printed("0 x\n"), exception="ValueError", message="invalid literal for int() with base 10: 'x'"
    ),
    Case("test_text", printed("total 25\n"), "passed"),
    Case("test_text", printed("7\n"), compared=(r"'7\n'", "==", r"'total 25\n'")),
    Case("test_number", printed("9"), compared=("9", "==", "25")),
    Case("test_dict", printed("a=2"), at=2, compared=("{'a': '2'}", "==", "{'a': '1', 'b': '1'}")),
    Case("test_in", printed("sum 5"), compared=("'sum 25'", "in", "'sum 5'")),
    Case("test_in", printed("sum 256"), "passed"),
    Case("test_status", printed("text\n"), "passed"),
    Case("test_status", printed("text\n", 4), at=2, compared=("4", "==", "0")),
    Case("test_status", printed("other"), at=3, compared=("'other'", "==", r"'text\n'")),
    Case("test_check", printed("text\n"), "passed"),
    Case("test_check", printed("text\n", 4), exception="CalledProcessError", file="conftest.py", at=13),
    Case("test_check", printed("other"), compared=("'other'", "==", r"'text\n'")),
    Case("test_over_many_lines", printed("5"), compared=("['5']", "==", "['1']"), message="a message"),
    Case("test_function_of_the_module", printed("5"), at=-2, compared=("['5']", "==", "['11', '14']")),
    Case("test_function_of_a_plain_module", printed("5"), file="plain_module.py", at=3),
    Case("test_function_of_a_plain_module", printed("11 14"), "passed"),
    Case("test_earlier_comparison", printed("5"), at=5, message="no x"),
    Case("test_skipping", printed("none\n"), "skipped"),
    Case("test_ids[0 11]", printed("5"), compared=("['5']", "==", "['11']")),
    Case("test_ids[a/b::c[d]]", printed("11"), "passed"),
    Case("test_ids[]", printed("11"), "passed"),
    Case("TestMethods::test_state", printed("1\n"), "passed"),
    Case("TestMethods::test_state", printed("5"), at=2, compared=("['5']", "==", r"['1\n']")),
    Case("test_tmp_path", printed("1\n"), "passed"),
    Case("test_tmp_path", printed("5"), at=4, compared=("'5'", "==", r"'1\n'")),
    Case("test_changing_names", printed("1\n"), "passed"),
    Case("test_fixture_start", printed("1\n"), "passed"),
    Case("test_fixture_start", printed("5"), compared=(r"'hello\n5'", "==", r"'hello\n1\n'")),
    Case("test_module_fixture", printed("1\n"), "passed"),
    Case("test_module_fixture_too", printed("1\n"), compared=(r"'1\n'", "==", r"'2\n'")),
    Case("test_module_fixture_and_own", printed("1\n"), "passed"),
    Case("test_module_fixture", printed("5"), compared=("'5'", "==", r"'1\n'")),
    Case("test_loop", printed("c\n"), "passed"),
    Case("test_loop", printed("5"), at=2, compared=("'5'", "==", r"'c\n'")),
    Case("test_random", printed("1\n"), "diverged", message="the test did not start the program as before"),
    Case("test_another_program", printed("1\n"), "passed"),
    Case("test_sessions", printed("1\n"), "passed"),
]


class TestVerdicts:
    @pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case.test}" for i, case in enumerate(CASES)])
    def test_verdict(self, replay, suite, case):
        verdict = ask_last(replay, suite, f"test_suite.py::{case.test}", case.observation)
        assert verdict.outcome == case.outcome
        if case.message is not None:
            assert verdict.message == case.message
        if case.outcome != "failed":
            assert (verdict.exception, verdict.where, verdict.comparison) == (None, None, None)
            return
        assert verdict.exception == case.exception
        name = case.test.split("::")[-1].split("[")[0]
        first = next(i for i, line in enumerate(SUITE.splitlines(), 1) if f"def {name}(" in line)
        assert verdict.where == (f"{case.file}:{case.at}" if case.file else f"test_suite.py:{first + case.at}")
        compared = verdict.comparison
        shown = None if compared is None else (compared.left.text, compared.operator, compared.right.text)
        assert shown == case.compared

    def test_base_is_the_real_program_s(self, replay, suite):
        assert replay.base("test_suite.py::test_list").comparison.left.elements == ("'0'", "'11'")
        assert replay.base("test_suite.py::test_sessions").outcome == "passed"
        assert replay.base("test_suite.py::test_loop").comparison.left.text == r"'b\n'"

    def test_one_run_is_judged_alike_each_time(self, replay, suite):
        test = "test_suite.py::test_tmp_path"
        assert len({ask_last(replay, suite, test, printed(out)) for out in ("5", "1\n", "5", "1\n")}) == 2

    def test_much_output(self, replay, suite):
        verdict = ask_last(replay, suite, "test_suite.py::test_list", printed("1234567 " * 200_000))
        assert verdict.comparison.left.elements[:2] == ("'1234567'", "'1234567'")

    def test_run_without_end(self, replay, suite):
        verdict = ask_last(replay, suite, "test_suite.py::test_check", Observation("timeout", 0))
        assert verdict.exception == "CalledProcessError"


class TestFailsWhen:
    TEST = "test_suite.py::test_fails_when"

    def test_is_asked_with_text(self, replay, suite):
        assert replay.base(self.TEST).fails_when is None
        assert ask_last(replay, suite, self.TEST, Observation("exit", 0, b"0 \xff")).fails_when is True
        assert ask_last(replay, suite, self.TEST, printed("1\n")).fails_when is False
        assert ask_last(replay, suite, self.TEST, printed("0", code=1)).fails_when is False
        assert ask_last(replay, suite, self.TEST, Observation("timeout", 0, b"0")).fails_when is True

    def test_an_exception_in_it_is_told(self, replay, suite):
        with pytest.raises(Refusal) as caught:
            ask_last(replay, suite, self.TEST, printed(""))
        assert type(caught.value) is Refusal
        assert str(caught.value) == (
            "fails_when of test_suite.py::test_fails_when, says_zero, raised IndexError: list index out of range: "
            "make it cope with any output."
        )

    def test_as_an_oracle(self, replay, suite):
        oracle = learn_symptom(printed("1"), printed("0"), lambda run: ask_last(replay, suite, self.TEST, run))
        assert oracle.rule.kind == "user"
        assert oracle.judge(printed("7 8")) is Outcome.PASS


class TestSymptoms:
    @pytest.mark.parametrize(
        ("test", "failing", "passing", "kind", "fails_when"),
        [
            ("test_numbers", printed("0 11\n"), printed("6 7 8\n"), "symptom", "the list compared at {} contains 0"),
            ("test_text", printed("a 52\n"), printed("a 7\n"), "symptom", "the text compared at {} contains '52'"),
            (
                "test_number",
                printed("5"),
                printed("7"),
                "symptom",
                "the value compared at {} is 5 (7 in the passing run)",
            ),
            ("test_in", printed("sum 52"), printed("a sum 25"), "assertion", "the text compared at {} lacks 'sum 25'"),
            ("test_status", printed("", 3), printed("text\n"), "exit", "it exits with status 3 (0 in the passing run)"),
            ("test_check", printed("x", 3), printed("y"), "exit", "it exits with status 3 (0 in the passing run)"),
        ],
    )
    def test_rule(self, replay, suite, test, failing, passing, kind, fails_when):
        node = f"test_suite.py::{test}"
        oracle = learn_symptom(passing, failing, lambda run: ask_last(replay, suite, node, run))
        assert oracle.rule.kind == kind
        assert oracle.rule.fails_when == fails_when.format(ask_last(replay, suite, node, failing).where)
        assert oracle.judge(failing) is Outcome.FAIL
        assert oracle.judge(passing) is Outcome.PASS
