"""Which rule tells a failure, and what it says of other runs; the test that is asked is a plain function here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_causechain.model.refusal import Refusal, Unreplayable
from pytest_causechain.model.runs import Frame, Observation, Outcome
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.facts import describe_comparison
from pytest_causechain.oracle.symptom import learn_symptom

PASS, FAIL, UNRESOLVED = Outcome.PASS, Outcome.FAIL, Outcome.UNRESOLVED


def printed(stdout: str, code: int = 0, stderr: str = "") -> Observation:
    return Observation("exit", code, stdout.encode(), stderr.encode())


def crashed(*functions: str | None, code: int = 11) -> Observation:
    """A run killed in the first of these functions; None is one of the library."""
    frames = tuple(Frame("raise") if name is None else Frame(name, "a.c", 1) for name in functions)
    return Observation("signal", code, backtrace=frames)


HUNG = Observation("timeout", 0)


class Failed(Exception):
    """Raised by a replayed test, as a Verdict."""


def check(line: int, left: object, operator: str, right: object) -> None:
    """assert left operator right, at this line of the replayed test"""
    holds = {"==": lambda: left == right, "in": lambda: left in right, "<": lambda: left < right}
    holds["not in"] = lambda: left not in right
    if not holds[operator]():
        raise Failed(
            Verdict(
                "failed",
                "AssertionError",
                "assert",
                trail=(f"t.py:{line}",),
                comparison=describe_comparison(operator, left, right),
            )
        )


def asking(body: Callable[[str, int], None]) -> Callable[[Observation], Verdict]:
    """The verdicts of a test whose body gets stdout and returncode."""

    def ask(observation: Observation) -> Verdict:
        try:
            body(observation.stdout.decode(), observation.returncode)
        except Failed as failed:
            return failed.args[0]
        except Exception as error:
            return Verdict("failed", type(error).__name__, str(error), trail=("t.py:1",))
        return Verdict("passed")

    return ask


def never_asked(observation: Observation) -> Verdict:
    raise Unreplayable("not to be asked")


class TestCrash:
    FAILING = crashed(None, "list_sum", "main")

    def test_same_signal_at_the_same_place(self):
        oracle = learn_symptom(printed("6"), self.FAILING, never_asked)
        assert oracle.rule.kind == "crash"
        assert oracle.rule.fails_when == "it is killed by SIGSEGV in list_sum() called from main()"
        assert oracle.judge(crashed("list_sum", "main")) is FAIL
        assert oracle.judge(crashed("list_sum", "list_sum", "list_sum", "main")) is FAIL
        assert oracle.judge(printed("7", code=1)) is PASS

    @pytest.mark.parametrize(
        "other",
        [
            crashed("list_sum", "main", code=6),
            crashed("main"),
            crashed("print", "main"),
            crashed("list_sum", "print", "main"),
            crashed(),
            HUNG,
        ],
    )
    def test_another_signal_or_place_is_another_failure(self, other):
        assert learn_symptom(printed("6"), self.FAILING, never_asked).judge(other) is UNRESOLVED

    def test_endless_recursion_ends_anywhere(self):
        oracle = learn_symptom(printed(""), crashed("even", "odd", "even", "odd", "main"), never_asked)
        assert oracle.rule.fails_when == "it is killed by SIGSEGV in even()/odd() called from main()"
        assert oracle.judge(crashed("odd", "even", "odd", "main")) is FAIL
        assert oracle.judge(crashed("even", "main")) is UNRESOLVED

    def test_callers_further_up_do_not_count(self):
        oracle = learn_symptom(printed(""), crashed("free_all", "close", "a", "main"), never_asked)
        assert oracle.judge(crashed("free_all", "close", "b", "c", "main")) is FAIL

    def test_without_own_functions_the_signal_counts(self):
        oracle = learn_symptom(printed(""), crashed(None, code=40), never_asked)
        assert oracle.rule.fails_when == "it is killed by signal 40"
        assert oracle.judge(crashed("main", code=40)) is FAIL

    def test_two_crashes_that_print_differently_need_the_test(self):
        failing, passing = (replace(self.FAILING, stdout=out) for out in (b"1", b"2"))
        oracle = learn_symptom(passing, failing, asking(lambda out, code: check(3, code, "==", 0)))
        assert oracle.rule.kind == "output"
        assert oracle.rule.fails_when == "it prints exactly '1' and ends with status -11"


class TestHang:
    def test_no_end_in_time(self):
        oracle = learn_symptom(printed("6"), HUNG, never_asked)
        assert oracle.rule.kind == "hang"
        assert oracle.judge(HUNG) is FAIL
        assert oracle.judge(printed("7", code=1)) is PASS
        assert oracle.judge(crashed("main")) is UNRESOLVED


class TestExit:
    def test_status_the_test_looks_at(self):
        ask = asking(lambda out, code: check(3, code, "==", 0))
        oracle = learn_symptom(printed("b", 0), printed("a", 3), ask)
        assert oracle.rule.kind == "exit"
        assert oracle.rule.fails_when == "it exits with status 3 (0 in the passing run)"
        assert oracle.judge(printed("c", 3)) is FAIL
        assert oracle.judge(printed("a", 0)) is PASS
        assert oracle.judge(printed("a", 4)) is UNRESOLVED
        assert oracle.judge(crashed("main", code=3)) is UNRESOLVED

    def test_status_it_stumbles_over_before_the_output(self):
        def body(out, code):
            check(3, code, "==", 0)
            check(4, out, "==", "25\n")

        assert learn_symptom(printed("7\n"), printed("", 3), asking(body)).rule.kind == "exit"

    def test_check_true(self):
        def body(out, code):
            if code:
                raise ChildProcessError
            check(4, out, "==", "25\n")

        assert learn_symptom(printed("7\n"), printed("", 3), asking(body)).rule.kind == "exit"

    def test_status_the_test_ignores(self):
        ask = asking(lambda out, code: check(4, out, "==", "25\n"))
        oracle = learn_symptom(printed("7\n", 4), printed("52\n", 3), ask)
        assert oracle.rule.fails_when == "the text compared at t.py:4 contains '52'"
        assert oracle.judge(printed("8\n", 5)) is PASS

    def test_two_wrong_statuses(self):
        oracle = learn_symptom(printed("", 1), printed("", 0), asking(lambda out, code: check(3, code, "==", 2)))
        assert oracle.rule.fails_when == "the value compared at t.py:3 is 0 (1 in the passing run)"


class TestFacts:
    """The original paper's program, whose failing run prints a zero."""

    FAILING, PASSING = printed("0 11\n"), printed("6 7 8 9\n")

    def oracle(self, body=lambda out, code: check(14, [int(word) for word in out.split()], "==", [11, 14])):
        return learn_symptom(self.PASSING, self.FAILING, asking(body))

    def test_shown_by_the_failing_run_only(self):
        oracle = self.oracle()
        assert oracle.rule.kind == "symptom"
        assert oracle.rule.fails_when == "the list compared at t.py:14 contains 0"
        assert oracle.judge(printed("0 7 8\n")) is FAIL
        assert oracle.judge(printed("7 8\n")) is PASS
        assert oracle.judge(printed("11 14\n")) is PASS

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(printed("oops\n"), id="fails elsewhere"),
            pytest.param(printed(""), id="shows nothing"),
            pytest.param(printed("7 8\n", code=1), id="gave up"),
            pytest.param(crashed("main"), id="crash"),
            pytest.param(HUNG, id="hang"),
        ],
    )
    def test_another_end_is_another_failure(self, other):
        assert self.oracle().judge(other) is UNRESOLVED

    def test_some_facts_are_not_enough(self):
        oracle = learn_symptom(
            printed("6 7\n"), printed("0 1\n"), asking(lambda out, code: check(3, out.split(), "==", ["6", "9"]))
        )
        assert oracle.rule.fails_when == "the list compared at t.py:3 contains '0', '1' and lacks '6'"
        assert oracle.judge(printed("0 1 2\n")) is FAIL
        assert oracle.judge(printed("0 7\n")) is UNRESOLVED
        assert oracle.judge(printed("6 2\n")) is PASS

    def test_the_observed_value_may_stand_on_the_right(self):
        oracle = self.oracle(lambda out, code: check(14, ["11", "14"], "==", out.split()))
        assert oracle.rule.fails_when == "the list compared at t.py:14 contains '0'"

    def test_when_both_sides_change_the_left_one_counts(self):
        oracle = learn_symptom(
            printed("7 5 3"), printed("2 1"), asking(lambda out, code: check(3, out.split(), "==", sorted(out.split())))
        )
        assert oracle.rule.fails_when == "the list compared at t.py:3 has '2' at index 0, '1' at index 1"

    def test_an_empty_value_can_be_the_symptom(self):
        oracle = learn_symptom(
            printed("1 2"), printed(""), asking(lambda out, code: check(3, out.split(), "==", ["1", "3"]))
        )
        assert oracle.rule.fails_when == "the list compared at t.py:3 lacks '1'"
        assert oracle.judge(printed("4")) is FAIL
        assert oracle.judge(printed("1 4")) is PASS

    def test_contained_text(self):
        oracle = learn_symptom(
            printed("sum 7\n"), printed("sum 52\n"), asking(lambda out, code: check(3, "sum 25", "in", out))
        )
        assert oracle.rule.fails_when == "the text compared at t.py:3 contains '52'"

    def test_what_must_not_be_there_is_no_expectation(self):
        oracle = learn_symptom(
            printed("a error\n"),
            printed("a error: 5\n"),
            asking(lambda out, code: check(3, "error", "not in", out)),
        )
        assert oracle.rule.fails_when == "the text compared at t.py:3 contains 'error:', '5'"

    def test_a_comparison_that_does_not_depend_on_the_run_says_nothing(self):
        with pytest.raises(Refusal, match="says the same of every output"):
            self.oracle(lambda out, code: check(3, 1, "==", 2))


class TestSameExpectation:
    """The passing run's output satisfies the failing test: both tests expect the same."""

    FAILING, PASSING = printed("2 1 3\n"), printed("1 2 3\n")

    def test_facts_against_the_expectation(self):
        ask = asking(lambda out, code: check(3, out.split(), "==", ["1", "2", "3"]))
        oracle = learn_symptom(self.PASSING, self.FAILING, ask)
        assert oracle.rule.fails_when == "the list compared at t.py:3 has '2' at index 0, '1' at index 1"
        assert oracle.judge(printed("2 1\n")) is FAIL
        assert oracle.judge(printed("2 2 1\n")) is UNRESOLVED
        assert oracle.judge(printed("1 2 3\n")) is PASS

    def test_side_found_by_printing_twice(self):
        def body(out, code):
            first = out.split()[0]
            check(3, "1", "==", first * len(out.split()))

        oracle = learn_symptom(printed("1\n"), printed("2\n"), asking(body))
        assert oracle.rule.fails_when == "the text compared at t.py:3 contains '2' and lacks '1'"

    def test_side_unknown(self):
        def body(out, code):
            check(3, {"1\n": "right", "2\n": "wrong"}[out], "==", "right")

        oracle = learn_symptom(printed("1\n"), printed("2\n"), asking(body))
        assert oracle.rule.kind == "assertion"

    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            pytest.param(lambda out, code: check(3, "1 2", "in", out), "lacks '1 2'", id="in"),
            pytest.param(lambda out, code: check(3, "2 1", "not in", out), "contains '2 1'", id="not-in"),
            pytest.param(lambda out, code: check(3, out, "<", "2"), "is not < '2'", id="less"),
            pytest.param(lambda out, code: check(3, out[:3], "in", ["1 2"]), "is not in ['1 2']", id="one-of"),
        ],
    )
    def test_assertion_where_equality_is_not_asked(self, body, sentence):
        oracle = learn_symptom(self.PASSING, self.FAILING, asking(body))
        assert oracle.rule.kind == "assertion"
        assert oracle.rule.fails_when == f"the text compared at t.py:3 {sentence}"
        assert oracle.judge(printed("2 1 4\n")) is FAIL
        assert oracle.judge(printed("1 2 4\n")) is PASS
        for other in (crashed("main"), printed("2 1 4\n", code=1), printed("2 1 4\n", stderr="?"), printed("")):
            assert oracle.judge(other) is not FAIL

    def test_failure_elsewhere_is_another_one(self):
        def body(out, code):
            if out.startswith("2"):
                raise Failed(Verdict("failed", "AssertionError", trail=("t.py:3",)))
            if out.startswith("x"):
                raise Failed(Verdict("failed", "AssertionError", trail=("t.py:4",)))
            if out.startswith("y"):
                raise Failed(Verdict("skipped"))

        oracle = learn_symptom(self.PASSING, self.FAILING, asking(body))
        assert oracle.rule.kind == "assertion"
        assert oracle.judge(printed("2")) is FAIL
        assert oracle.judge(printed("x")) is UNRESOLVED
        assert oracle.judge(printed("y")) is UNRESOLVED
        assert oracle.judge(printed("z")) is PASS


class TestOutput:
    """Both runs fail at an assertion without a comparison."""

    @staticmethod
    def ask(observation: Observation) -> Verdict:
        if observation.stdout == b"right":
            return Verdict("passed")
        digest = observation.stdout.decode() + observation.stderr.decode()
        return Verdict("failed", "AssertionError", "assert False", digest, ("t.py:3",))

    def test_exact_output(self):
        oracle = learn_symptom(printed("6\n"), printed("0 11\n"), self.ask)
        assert oracle.rule.kind == "output"
        assert oracle.rule.fails_when == r"it prints exactly '0 11\n' and ends with status 0"
        assert oracle.judge(printed("0 11\n")) is FAIL
        assert oracle.judge(printed("6\n")) is PASS
        assert oracle.judge(printed("right")) is PASS
        assert oracle.judge(printed("0 11\n", code=1)) is UNRESOLVED
        assert oracle.judge(printed("0 11\n", stderr="x")) is UNRESOLVED
        assert oracle.judge(HUNG) is UNRESOLVED

    def test_a_difference_on_stderr_is_shown(self):
        oracle = learn_symptom(printed(""), printed("", stderr="bad"), self.ask)
        assert oracle.rule.fails_when == "it prints exactly 'bad' on stderr and ends with status 0"

    def test_nothing_printed(self):
        oracle = learn_symptom(printed("6"), printed(""), self.ask)
        assert oracle.rule.fails_when == "it prints exactly nothing and ends with status 0"


class TestProjectsJudge:
    @staticmethod
    def asking_judge(**said):
        return lambda observation: Verdict("failed", judged=said.get(observation.stdout.decode()))

    def test_it_decides(self):
        oracle = learn_symptom(printed("6"), printed("x"), self.asking_judge(**{"6": PASS, "x": FAIL, "y": FAIL}))
        assert oracle.rule.kind == "user"
        assert oracle.rule.fails_when == "the project's pytest_causechain_judge says so"
        assert [oracle.judge(printed(text)) for text in ("6", "y", "z")] == [PASS, FAIL, UNRESOLVED]

    @pytest.mark.parametrize(
        ("passing", "failing", "sentence"),
        [
            (PASS, UNRESOLVED, 'says "unresolved" of the failing run: make it say "fail" there'),
            (FAIL, FAIL, 'says "fail" of the passing run: make it say "pass" there'),
            (None, FAIL, 'says "unresolved" of the passing run: make it say "pass" there'),
        ],
    )
    def test_one_that_does_not_separate_is_named(self, passing, failing, sentence):
        with pytest.raises(Refusal, match=sentence):
            learn_symptom(printed("6"), printed("x"), self.asking_judge(**{"6": passing, "x": failing}))

    def test_markers_function_comes_first(self):
        def ask(observation):
            return Verdict("failed", fails_when=observation.stdout == b"x", judged=PASS)

        assert learn_symptom(printed("6"), printed("x"), ask).rule.fails_when == "the marker's fails_when says so"


class TestUser:
    @staticmethod
    def asking_user(fails_when):
        return lambda observation: Verdict("failed", fails_when=fails_when(observation))

    def test_function_decides(self):
        oracle = learn_symptom(
            printed("6"), printed("0 11"), self.asking_user(lambda run: run.code == 11 or b"0" in run.stdout)
        )
        assert oracle.rule.kind == "user"
        assert oracle.judge(printed("0")) is FAIL
        assert oracle.judge(printed("1")) is PASS
        assert oracle.judge(crashed("main")) is FAIL
        assert oracle.judge(crashed("main", code=6)) is UNRESOLVED
        assert oracle.judge(HUNG) is UNRESOLVED

    def test_function_comes_before_the_crash(self):
        oracle = learn_symptom(printed("6"), crashed("main"), self.asking_user(lambda run: run.ending == "signal"))
        assert oracle.rule.kind == "user"

    @pytest.mark.parametrize(
        ("said", "sentence"),
        [
            (False, "fails_when of the marker cause_chain is false for the failing run"),
            (True, "fails_when of the marker cause_chain is true for the passing run"),
        ],
    )
    def test_function_that_does_not_separate_is_named(self, said, sentence):
        with pytest.raises(Refusal, match=sentence):
            learn_symptom(printed("2"), printed("1"), self.asking_user(lambda run: said))


class TestRefusals:
    @pytest.mark.parametrize(
        ("outcome", "sentence"),
        [("passed", "the test passes"), ("skipped", "is skipped"), ("diverged", "starts other programs")],
    )
    def test_the_failing_run_must_fail_again(self, outcome, sentence):
        with pytest.raises(Refusal, match=sentence) as caught:
            learn_symptom(printed("2"), printed("1"), lambda observation: Verdict(outcome))
        assert "fails_when=" in str(caught.value)

    def test_runs_that_look_alike(self):
        with pytest.raises(Refusal, match=r"nothing tells them apart.*--cause-chain-neighbour"):
            learn_symptom(printed("1"), printed("1"), TestOutput.ask)

    def test_a_test_that_cannot_be_asked(self):
        with pytest.raises(Unreplayable, match="not to be asked"):
            learn_symptom(printed("2"), printed("1"), never_asked)


def test_each_run_is_asked_about_once():
    asked = []

    def ask(observation: Observation) -> Verdict:
        asked.append((observation.ending, observation.code, observation.stdout))
        return asking(lambda out, code: check(14, out.split(), "==", ["11", "14"]))(observation)

    oracle = learn_symptom(printed("6 7"), printed("0 11"), ask)
    for _ in range(3):
        oracle.judge(printed("0 12"))
        oracle.judge(crashed("main"))
    assert asked == [("exit", 0, b"0 11"), ("exit", 0, b"6 7"), ("exit", 0, b"0 12")]


def test_value_picked_out_of_much_else():
    """No made-up form can be read by such a test, but its own output with another number can."""

    def body(stdout: str, code: int) -> None:
        found = dict(line.split() for line in stdout.splitlines())
        check(4, int(found["total"]), "==", 3)
        check(5, int(found["least"]), "==", 2)

    passing, failing = printed("total 3\nleast 2\n"), printed("total 3\nleast 2147483647\n")
    rule = learn_symptom(passing, failing, asking(body)).rule
    assert rule.fails_when == "the value compared at t.py:5 is 2147483647 (2 in the passing run)"
