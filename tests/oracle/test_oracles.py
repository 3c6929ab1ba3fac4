"""The oracles between a run and its twin, and of what programs say of themselves before they end."""

from __future__ import annotations

import pytest

from pytest_causechain.model.runs import Observation, Outcome
from pytest_causechain.model.verdict import Oracle, Verdict
from pytest_causechain.oracle.oracles import find_report, judge_by_report, judge_by_twin
from pytest_causechain.oracle.symptom import learn_symptom

TWIN = Observation("exit", 0, b"right")


def make_oracle(failing: Observation, twin: Observation = TWIN) -> Oracle:
    return judge_by_twin(twin, failing, lambda run: run.ending == "exit" and run.stdout == b"right")


@pytest.mark.parametrize(
    ("failing", "kind"),
    [
        (Observation("exit", 0, b"wrong"), "output"),
        (Observation("exit", 3, b"right"), "exit"),
        (Observation("signal", 11, b""), "crash"),
        (Observation("timeout", 9, b"wrong wrong"), "hang"),
    ],
)
def test_tells_both_runs_apart(failing, kind):
    oracle = make_oracle(failing)
    assert (oracle.judge(failing), oracle.judge(TWIN)) == (Outcome.FAIL, Outcome.PASS)
    assert oracle.rule.kind == kind


@pytest.mark.parametrize(
    "other",
    [
        Observation("exit", 0, b"another"),
        Observation("exit", 1, b"wrong"),
        Observation("exit", 0, b"wrong", b"and a message"),
        Observation("signal", 11, b"wrong"),
    ],
)
def test_anything_else_is_unresolved(other):
    assert make_oracle(Observation("exit", 0, b"wrong")).judge(other) is Outcome.UNRESOLVED


def test_how_much_a_run_without_end_printed_is_chance():
    oracle = make_oracle(Observation("timeout", 9, b"x" * 100))
    assert oracle.judge(Observation("timeout", 9, b"x" * 90)) is Outcome.FAIL


def test_status_is_told():
    rule = make_oracle(Observation("exit", 3, b"right")).rule
    assert rule.fails_when == "it exits with status 3 (0 in its twin)"


def test_file_is_told_where_nothing_else_differs():
    kept, wrong, right = ("/t/a.log", b"same"), ("/t/b.c", b"2147483647"), ("/t/b.c", b"2")
    twin = Observation("exit", 0, files=(kept, right))
    rule = make_oracle(Observation("exit", 0, files=(kept, wrong)), twin).rule
    assert (rule.kind, rule.fails_when) == ("output", "it writes to b.c exactly what the failing run wrote")
    rule = make_oracle(Observation("exit", 0, files=(kept,)), twin).rule
    assert (rule.kind, rule.fails_when) == ("output", "it writes to b.c exactly what the failing run wrote")
    rule = make_oracle(Observation("exit", 3, files=(kept, wrong)), twin).rule
    assert rule.fails_when == "it exits with status 3 (0 in its twin)"


ASSERTION = b"list: src/list.c:12: int sum(struct list *): Assertion `size > 0' failed.\n"
UNDEFINED = b"src/add.c:7:13: runtime error: signed integer overflow: %d + 1 cannot be represented in type 'int'\n"
ADDRESS = (
    b"=====\n==%d==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x6020\n"
    b"SUMMARY: AddressSanitizer: heap-buffer-overflow /home/me/src/list.c:%d in sum\nShadow bytes\n"
)


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        (ASSERTION, "the assertion size > 0 at list.c:12 does not hold"),
        (b"reading\n" + ASSERTION, "the assertion size > 0 at list.c:12 does not hold"),
        (UNDEFINED % 5, "UndefinedBehaviorSanitizer reports signed integer overflow at add.c:7"),
        (
            b"a.c:3:5: runtime error: index 12 out of bounds for type 'int [4]'\n",
            "UndefinedBehaviorSanitizer reports index ... out of bounds for type 'int [...]' at a.c:3",
        ),
        (ADDRESS % (99, 7), "AddressSanitizer reports heap-buffer-overflow at list.c:7"),
        (
            b"    #0 0x1 in memset /src/libsanitizer/interceptors.inc:799\n    #1 0x2 in main /home/me/act.c:5\n"
            b"SUMMARY: AddressSanitizer: heap-buffer-overflow /src/libsanitizer/interceptors.inc:799 in memset\n",
            "AddressSanitizer reports heap-buffer-overflow at act.c:5",
        ),
        (
            b"SUMMARY: AddressSanitizer: SEGV (/usr/bin/x+0x1234) in f\n",
            "AddressSanitizer reports SEGV",
        ),
    ],
)
def test_sentence(stderr, sentence):
    report = find_report(Observation("exit", 1, stderr=stderr))
    assert report is not None
    assert judge_by_report(report).rule.fails_when == sentence


@pytest.mark.parametrize("stderr", [b"", b"a.c:3:5: warning: unused\n", b"Assertion of rights failed\n"])
def test_no_report(stderr):
    assert find_report(Observation("exit", 1, stderr=stderr)) is None


def fail_always(observation: Observation) -> Verdict:
    return Verdict("failed", "AssertionError", trail=("t.py:3",), digest=observation.stdout.decode())


class TestOracle:
    def test_same_kind_and_place(self):
        oracle = learn_symptom(
            Observation("exit", 0, b"6"), Observation("exit", 1, b"", ADDRESS % (1, 7)), lambda run: fail_always(run)
        )
        assert oracle.rule.kind == "crash"
        assert oracle.judge(Observation("exit", 1, b"so far", ADDRESS % (2, 7))) is Outcome.FAIL
        assert oracle.judge(Observation("exit", 1, b"", ADDRESS % (2, 8))) is Outcome.UNRESOLVED
        assert oracle.judge(Observation("signal", 11)) is Outcome.UNRESOLVED
        assert oracle.judge(Observation("exit", 0, b"7")) is Outcome.PASS

    def test_before_the_signal_of_abort(self):
        oracle = learn_symptom(Observation("exit", 0), Observation("signal", 6, b"", ASSERTION), fail_always)
        assert oracle.rule.fails_when == "the assertion size > 0 at list.c:12 does not hold"
        assert oracle.judge(Observation("signal", 6)) is Outcome.UNRESOLVED

    def test_a_warning_counts_where_the_test_looks_at_it(self):
        def look_at_stderr(observation: Observation) -> Verdict:
            if not observation.stderr:
                return Verdict("passed")
            return Verdict("failed", "AssertionError", digest=observation.stderr.decode(), trail=("t.py:3",))

        runs = Observation("exit", 0, b"6"), Observation("exit", 0, b"5", UNDEFINED % 5)
        oracle = learn_symptom(*runs, look_at_stderr)
        assert oracle.rule.fails_when.startswith("UndefinedBehaviorSanitizer reports signed integer overflow")
        assert oracle.judge(Observation("exit", 0, b"4", UNDEFINED % 6)) is Outcome.FAIL
        assert learn_symptom(*runs, fail_always).rule.kind == "output"
