"""The order of neighbours, the edits that decide it, and why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Program, Recording, Run
from pytest_causechain.neighbours import ranking
from pytest_causechain.neighbours.ranking import (
    count_bag_edits,
    count_edits,
    explain_absence,
    find_named,
    rank_neighbours,
    take_selected,
    trim_common_ends,
    weigh_edits,
)

SAMPLE = Program("/build/sample", "b1")
REBUILT = Program("/build/sample", "b2")
OTHER = Program("/build/other", "c1")


def run(arguments="", stdin="", program=SAMPLE, environment=(), cwd="/", name="sample"):
    return Run(Command(program, (name, *arguments.split()), cwd, environment, stdin.encode()), 0)


def passed(test, *runs, refusals=()):
    return Recording(test, "passed", runs, refusals)


def failed(test, *runs):
    return Recording(test, "failed", runs)


FAILING = failed("t.py::test_sorts[two]", run("11 14"))


def rank(*candidates, failing=FAILING):
    return rank_neighbours(failing, failing.runs[-1], candidates)


def names(*candidates, failing=FAILING):
    return [neighbour.recording.test for neighbour in rank(*candidates, failing=failing)]


class TestOrder:
    def test_fewest_edits_first(self):
        assert names(
            passed("t.py::test_sorts[a]", run("9 8 7 6")),
            passed("t.py::test_sorts[b]", run("11 15")),
            passed("t.py::test_sorts[c]", run("11 99")),
            passed("t.py::test_sorts[d]", run("11")),
        ) == [f"t.py::test_sorts[{x}]" for x in "bcda"]

    def test_same_function_before_all_others(self):
        assert names(
            passed("t.py::test_near", run("11 15")),
            passed("t.py::test_sorts[far]", run("1 2 3 4 5 6 7")),
            passed("t.py::test_sorts_more[two]", run("11 15")),
        ) == ["t.py::test_sorts[far]", "t.py::test_near", "t.py::test_sorts_more[two]"]

    def test_node_ids_break_ties(self):
        candidates = [passed(f"t.py::test_sorts[{x}]", run("11 15")) for x in "cab"]
        assert names(*candidates) == names(*reversed(candidates)) == [f"t.py::test_sorts[{x}]" for x in "abc"]

    def test_input_counts_by_lines(self):
        failing = failed("t.py::test_f[x]", run(stdin="one\ntwo\nthree\n"))
        assert names(
            passed("t.py::test_f[far]", run(stdin="four\n")),
            passed("t.py::test_f[near]", run(stdin="one\ntwo\nthrew\n")),
            passed("t.py::test_f[less]", run(stdin="one\nthree\n")),
            failing=failing,
        ) == ["t.py::test_f[near]", "t.py::test_f[less]", "t.py::test_f[far]"]

    def test_the_nearest_run_of_a_test(self):
        (neighbour,) = rank(passed("t.py::test_x", run("1 2 3"), run("11 15"), run("11 14", program=OTHER)))
        assert neighbour.run == run("11 15")

    def test_many_candidates_are_screened(self, monkeypatch):
        monkeypatch.setattr(ranking, "MAX_COMPARED", 2)
        candidates = [passed(f"t.py::test_sorts[{n}]", run("5 " * n)) for n in (9, 3, 5, 2)]
        near, nearer, *others = rank(*candidates)
        assert [near.recording.test, nearer.recording.test] == ["t.py::test_sorts[2]", "t.py::test_sorts[3]"]
        # The others follow as they were screened.
        assert [other.recording.test for other in others] == ["t.py::test_sorts[5]", "t.py::test_sorts[9]"]
        assert [other.distance for other in others] == [5, 9]


class TestCandidates:
    def test_refused_ones(self):
        assert not rank(
            failed("t.py::test_sorts[fails]", run("1 2")),
            passed("t.py::test_sorts[two]", run("1 2")),
            passed("t.py::test_sorts[other]", run("1 2", program=OTHER)),
            passed("t.py::test_sorts[rebuilt]", run("1 2", program=REBUILT)),
            passed("t.py::test_sorts[same]", run("11 14")),
            passed("t.py::test_sorts[none]"),
        )

    @pytest.mark.parametrize(
        "different", [run("11 14", stdin="x"), run("11 14", cwd="/elsewhere"), run("11 14", environment=(("A", "1"),))]
    )
    def test_any_difference_of_the_command_counts(self, different):
        assert names(passed("t.py::test_x", run("11 14"), different)) == ["t.py::test_x"]

    def test_another_copy_of_the_same_build(self):
        copy = Program("/elsewhere/sample", "b1")
        (neighbour,) = rank(passed("t.py::test_x", run("11 15", program=copy, name="/elsewhere/sample")))
        assert neighbour.distance == 0.5

    def test_the_first_recording_of_a_test_counts(self):
        (neighbour,) = rank(passed("t.py::test_x", run("1")), passed("t.py::test_x", run("11 15")))
        assert neighbour.run == run("1")


class TestWhy:
    @pytest.mark.parametrize(
        ("test", "other", "distance", "why"),
        [
            ("t.py::test_sorts[a]", run("9 8 7 6"), 4.0, "same test function, 4 edits in the arguments"),
            ("t.py::test_sorts[a]", run("11 15"), 0.5, "same test function, 1 edit in the arguments"),
            ("t.py::test_x", run("11 14", "x\ny\n"), 2.0, "another test, 2 edits in the input"),
            (
                "t.py::test_x",
                run("11", "x", environment=(("A", None), ("B", "1"))),
                4.0,
                "another test, 1 edit in the arguments, 1 edit in the input, 2 edits in the environment",
            ),
            ("t.py::test_x", run("11 14", cwd="/elsewhere"), 0.0, "another test, the same command in another place"),
        ],
    )
    def test_phrase(self, test, other, distance, why):
        (neighbour,) = rank(passed(test, other))
        assert (neighbour.distance, neighbour.why) == (distance, why)


class TestNamed:
    KNOWN = (
        passed("t.py::test_sorts[far]", run("1 2 3 4")),
        passed("t.py::test_twice", run("1")),
        passed("u.py::test_twice", run("1")),
        passed("t.py::test_other", run("1", program=OTHER)),
        passed("t.py::test_rebuilt", run("1", program=REBUILT)),
        passed("t.py::test_same", run("11 14")),
        passed("t.py::test_nothing"),
        passed("t.py::test_refused", refusals=("sample is started through a shell: do not.",)),
        failed("t.py::test_fails", run("1")),
        FAILING,
    )

    @pytest.mark.parametrize("nodeid", ["t.py::test_sorts[far]", "test_sorts[far]"])
    def test_found(self, nodeid):
        neighbour = find_named(nodeid, self.KNOWN, FAILING.runs[0])
        assert neighbour.run == run("1 2 3 4")
        assert neighbour.why == "asked for, 4 edits in the arguments"

    @pytest.mark.parametrize(
        ("nodeid", "sentence"),
        [
            ("test_absent", "No passing test test_absent is known: run it in the same session, or check its name."),
            ("test_twice", "Several passing tests are called test_twice: give the whole node id."),
            ("test_fails", "The neighbour asked for, test_fails, does not pass: name a test that passes."),
            ("test_sorts[two]", "The neighbour asked for, test_sorts[two], does not pass: name a test that passes."),
            (
                "test_other",
                "t.py::test_other runs another program (/build/other) than the failing test (/build/sample): "
                "use a passing test that runs sample.",
            ),
            ("test_rebuilt", "t.py::test_rebuilt ran another build of sample: run both tests with the same build."),
            (
                "test_same",
                "t.py::test_same runs exactly the same command as the failing test: "
                "use a passing test that gives sample other arguments or input.",
            ),
            ("test_nothing", "t.py::test_nothing starts no program: use a passing test that runs sample."),
            ("test_refused", "sample is started through a shell: do not."),
        ],
    )
    def test_refused(self, nodeid, sentence):
        with pytest.raises(Refusal) as raised:
            find_named(nodeid, self.KNOWN, FAILING.runs[0])
        assert str(raised.value) == sentence

    def test_a_later_recording_of_the_right_build(self):
        known = [passed("t.py::test_x", run("1", program=REBUILT)), passed("t.py::test_x", run("2"))]
        assert find_named("t.py::test_x", known, FAILING.runs[0]).run == run("2")


class TestAbsence:
    @pytest.mark.parametrize(
        ("candidates", "sentence"),
        [
            (
                [],
                "no passing neighbour, since no other test runs sample: add a passing test that runs the same program.",
            ),
            (
                [passed("t.py::test_other", run("1", program=OTHER))],
                "no passing neighbour, since t.py::test_other runs another program (/build/other) than the failing "
                "test (/build/sample): use a passing test that runs sample.",
            ),
            (
                [passed("t.py::test_sh", refusals=("cc is stripped: x.", "./sample 1 is started through a shell: y."))],
                "no passing neighbour for sample; t.py::test_sh passes, but ./sample 1 is started through a shell: y.",
            ),
            (
                [failed("t.py::test_f", run("1"))],
                "no passing neighbour for sample, since the only other test that runs it fails too: "
                "add a passing test that runs the same program.",
            ),
            (
                [failed("t.py::test_f", run("1")), failed("t.py::test_g", run("1"))],
                "no passing neighbour for sample, since 2 other tests that run it fail too: "
                "add a passing test that runs the same program.",
            ),
            (
                [passed("t.py::test_old", run("1", program=REBUILT)), failed("t.py::test_f", run("1"))],
                "no passing neighbour, since t.py::test_old ran another build of sample: "
                "run both tests with the same build.",
            ),
            (
                [passed("t.py::test_a", run("11 14")), passed("t.py::test_sorts[same]", run("11 14"))],
                "no passing neighbour, since t.py::test_sorts[same] runs exactly the same command as the failing test: "
                "use a passing test that gives sample other arguments or input.",
            ),
        ],
    )
    def test_sentence(self, candidates, sentence):
        assert not rank(*candidates)
        assert explain_absence(FAILING, FAILING.runs[0], [FAILING, *candidates]) == sentence


class TestSelected:
    CANDIDATES = tuple(rank(passed("t.py::test_a", run("1")), passed("t.py::test_b", run("1 2 3"))))

    def select(self, answer):
        return take_selected(answer, list(self.CANDIDATES))

    def test_one(self):
        (chosen,) = self.select(lambda candidates: candidates[1].recording.test)
        assert (chosen.recording, chosen.why) == (
            self.CANDIDATES[1].recording,
            f"selected, {self.CANDIDATES[1].why}",
        )

    def test_none(self):
        assert self.select(lambda candidates: None) == list(self.CANDIDATES)

    def test_something_else(self):
        with pytest.raises(Refusal, match=r"select_neighbour returned 'test_a': return the node id of one of"):
            self.select(lambda candidates: "test_a")

    def test_exception(self):
        with pytest.raises(Refusal, match=r"select_neighbour raised KeyError\('x'\): fix it"):
            self.select(lambda candidates: {}["x"])


texts = st.text("abc", max_size=7)
lists = st.lists(st.text("ab", max_size=3), max_size=5)


def align_naively(one: Sequence[str], other: Sequence[str], weigh: Callable[[str, str], float]) -> float:
    """The definition, tried out in all ways."""

    @cache
    def rest(i: int, j: int) -> float:
        if i == len(one) or j == len(other):
            return float(len(one) - i + len(other) - j)
        return min(rest(i + 1, j + 1) + weigh(one[i], other[j]), rest(i + 1, j) + 1, rest(i, j + 1) + 1)

    return rest(0, 0)


def weigh_equality(one: str, other: str) -> float:
    return float(one != other)


def weigh_characters(one: str, other: str) -> float:
    return align_naively(one, other, weigh_equality) / max(len(one), len(other), 1)


class TestGuarantees:
    @given(texts, texts)
    def test_count_is_the_levenshtein_distance(self, one, other):
        assert count_edits(one, other) == align_naively(one, other, weigh_equality)

    @given(lists, lists)
    def test_weight_counts_shares_of_elements(self, one, other):
        assert weigh_edits(one, other) == pytest.approx(align_naively(one, other, weigh_characters))

    @given(lists, lists)
    def test_weight_is_zero_only_for_equals(self, one, other):
        assert (weigh_edits(one, other) == 0) == (one == other)
        assert weigh_edits(one, other) <= count_edits(one, other)

    @given(texts, texts)
    def test_bag_is_a_lower_bound(self, one, other):
        assert count_bag_edits(Counter(one), Counter(other)) <= count_edits(one, other)

    @given(texts, texts)
    def test_trimmed_ends_are_common(self, one, other):
        trimmed_one, trimmed_other = trim_common_ends(one, other)
        assert len(one) - len(trimmed_one) == len(other) - len(trimmed_other)
        assert not (trimmed_one and trimmed_other) or trimmed_one[0] != trimmed_other[0]
        assert not (trimmed_one and trimmed_other) or trimmed_one[-1] != trimmed_other[-1]


class TestLargeSequences:
    def test_common_ends_cost_nothing(self):
        common = [f"line {i}" for i in range(20_000)]
        assert count_edits([*common, "a", *common], [*common, "b", "c", *common]) == 2
        assert weigh_edits([*common, "abcd", *common], [*common, "abXd", *common]) == 0.25

    @pytest.mark.parametrize("measure", [count_edits, weigh_edits])
    def test_beyond_the_limit_nothing_is_aligned(self, measure, monkeypatch):
        monkeypatch.setattr(ranking, "_align", lambda *_: pytest.fail("aligned"))
        one = [f"one {i}" for i in range(5_000)]
        other = [f"other {i}" for i in range(6_000)]
        assert measure(one, other) == 6_000

    def test_one_long_element(self):
        assert weigh_edits(["a" * 100_000], ["b" * 50_000 + "a" * 50_000]) == 0.5

    def test_long_elements_are_compared_whole(self):
        one, other = ["x" * 300, "y", "z"], ["q" * 300, "y", "w"]
        assert weigh_edits(one, other) == 2
