"""What a search found, as it is told."""

from __future__ import annotations

import signal

import pytest
from cases import Case

from pytest_causechain.causes.explanation import (
    hands_on,
    is_news,
    is_returned,
    same_to_reader,
    told_links,
)
from pytest_causechain.causes.inquiry import Isolated, make_cause
from pytest_causechain.model.chain import Failure, Link, Rule, Tally, Transition
from pytest_causechain.model.moment import Breakpoint, Place
from pytest_causechain.model.runs import Frame, Observation
from pytest_causechain.report.wording import OUTPUT_SHOWN, describe_failure, describe_outcome
from pytest_causechain.states.outside import OutsideDelta

CLAMP = r"""
#include <stdio.h>
#include <stdlib.h>
static int limit;
static int clamp(int value, int max)
{
    if (value > max) /* compare */
        value = max; /* cut */
    return value; /* leave */
}
static int scale(int n)
{
    int twice = n * 2;
    int result = clamp(twice, limit); /* clamp */
    return result;
}
int main(int argc, char **argv)
{
    int number = atoi(argv[1]);
    int most = atoi(argv[2]); /* most */
    limit = most; /* limit */
    number = scale(number); /* scale */
    printf("%d\n", number); /* print */
    return 0;
}
"""

# A value is handed on, made anew twice, and handed on again before it is printed, or kills the program.
SQUARE = r"""
#include <stdio.h>
#include <stdlib.h>
static int show(int value)
{
    printf("%d\n", value); /* show */
    return 100 / value;
}
int main(int argc, char **argv)
{
    int given = atoi(argv[1]); /* given */
    int square = given * given; /* square */
    int less = square - 9; /* less */
    int same = less; /* same */
    return show(same) < 0; /* call */
}
"""

# The cause moves from x to y, back to x, and to y again.
SWING = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int x = atoi(argv[1]), y = 1; /* given */
    y = x; /* there */
    x = 1;
    x = y; /* back */
    y = 1;
    y = x; /* again */
    x = 1;
    printf("%d\n", y);
    return 0;
}
"""

PASS_ON = r"""
#include <stdio.h>
#include <stdlib.h>
static int halve(int count)
{
    int half = count / 2; /* half */
    return half;
}
static int work(int count)
{
    return halve(count) + 1;
}
int main(int argc, char **argv)
{
    int count = atoi(argv[1]);
    int done = work(count);
    printf("%d\n", done);
    return 0;
}
"""


@pytest.fixture(scope="module")
def clamp(open_case) -> Case:
    return open_case(CLAMP, ["3", "100"], ["3", "2"])


@pytest.fixture(scope="module")
def clamp_links(clamp) -> tuple[Link, ...]:
    return clamp.explain().links()


@pytest.fixture(scope="module")
def clamp_transitions(clamp) -> tuple[Transition, ...]:
    return clamp.explain().transitions()


class TestLinks:
    def test_are_the_causes_in_time_order(self, clamp_links):
        told = [
            (link.moment.function, *[(c.variable, c.passing, c.failing) for c in link.causes]) for link in clamp_links
        ]
        assert told == [
            ("main", ("argv[2]", '"100"', '"2"')),
            ("main", ("most", "100", "2")),
            ("main", ("limit", "100", "2")),
            ("clamp", ("max", "100", "2")),
            ("clamp", ("value", "6", "2")),
            ("scale", ("result", "6", "2")),
            ("main", ("number", "6", "2")),
        ]
        assert {link.confirmed for link in clamp_links} == {"both"}
        assert all(link.follows for link in clamp_links)

    def link(self, links: tuple[Link, ...], variable: str) -> Link:
        return next(link for link in links if link.causes[0].variable == variable)

    @pytest.mark.parametrize(
        ("variable", "mark", "function"),
        [
            ("most", "most", "main"),
            ("limit", "limit", "main"),
            # A call makes its parameters.
            ("max", "clamp", "scale"),
            # What a function returned, its caller's statement put there.
            ("result", "clamp", "scale"),
            ("number", "scale", "main"),
        ],
    )
    def test_made_by_one_statement(self, clamp, clamp_links, variable, mark, function):
        made_by = self.link(clamp_links, variable).made_by
        assert made_by is not None
        assert (made_by.line, made_by.function) == (clamp.line(mark), function)

    @pytest.mark.parametrize("variable", ["argv[2]", "value"])
    def test_made_by_nothing_that_both_runs_executed_alone(self, clamp_links, variable):
        assert self.link(clamp_links, variable).made_by is None

    def test_moment(self, clamp, clamp_links):
        moment = self.link(clamp_links, "limit").moment
        assert (moment.line, moment.is_entry, moment.calls) == (clamp.line("scale"), False, "scale")
        assert moment.backtrace == ("main",)
        entry = self.link(clamp_links, "max").moment
        assert (entry.is_entry, entry.backtrace) == (True, ("clamp", "scale", "main"))

    def test_stops_lead_there_in_the_passing_run(self, clamp, clamp_links):
        moment = self.link(clamp_links, "value").moment
        first, last = moment.stops
        assert (first.function, first.offset, first.visit) == ("clamp", 0, 1)
        assert isinstance(last, Breakpoint)
        start = next(f.address for f in clamp.lab.program.functions if f.name == "clamp")
        assert clamp.lab.program.position(start + last.offset).line == clamp.line("leave")

    def test_causes_carry_what_a_replay_needs(self, clamp_links):
        cause = self.link(clamp_links, "limit").causes[0]
        assert (cause.type, cause.kind, cause.frame, cause.assignment) == ("int", "value", None, "limit = 2")

    def test_argument_of_the_same_name_is_no_news(self, open_case):
        case = open_case(PASS_ON, ["9"], ["4"])
        assert [link.causes[0].variable for link in case.explain().links()] == ["argv[1]", "count", "half", "done"]
        assert len(told_links(case.search)) < len(case.search.links())


class TestTransitions:
    def test_between_the_links(self, clamp_transitions):
        assert [(t.from_, t.to) for t in clamp_transitions] == [
            (("argv[2]",), ("most",)),
            (("most",), ("limit",)),
            (("limit",), ("max",)),
            (("max",), ("value",)),
            (("value",), ("result",)),
            (("result",), ("number",)),
        ]

    def test_each_link_has_its_own_where_variables_come_back(self, open_case):
        case = open_case(SWING, ["5"], ["4"])
        links = case.explain().links()
        assert [link.causes[0].variable for link in links] == ["argv[1]", "x", "y", "x", "y"]
        assert links[0].arrived_by is None
        lines = [link.arrived_by.line for link in links[1:] if link.arrived_by is not None]
        assert lines == [case.line(mark) for mark in ("given", "there", "back", "again")]

    def test_are_those_by_which_the_links_arrive(self, clamp_links, clamp_transitions):
        assert [link.arrived_by for link in clamp_links] == [None, *clamp_transitions]

    def test_down_to_one_statement(self, clamp, clamp_transitions):
        transition = clamp_transitions[1]
        assert (transition.line, transition.function) == (clamp.line("limit"), "main")
        assert transition.earliest == Place(transition.file, transition.line, "main")
        assert transition.only_in_failing == ()

    def test_code_that_only_the_failing_run_executes(self, clamp, clamp_transitions):
        transition = clamp_transitions[3]
        assert (transition.line, transition.earliest.line) == (clamp.line("leave"), clamp.line("compare"))
        assert transition.only_in_failing == (f"{transition.file}:{clamp.line('cut')}",)


class TestSuspects:
    @pytest.mark.parametrize("failing", ["4", "3"], ids=["prints", "crashes"])
    def test_new_values_before_those_handed_on_and_the_latest_first(self, open_case, failing):
        case = open_case(SQUARE, ["5"], [failing])
        suspects = case.explain().suspects()
        assert [s.line for s in suspects] == [case.line(mark) for mark in ("less", "square", "call", "same", "given")]
        assert [s.rank for s in suspects] == [1, 2, 3, 4, 5]
        assert suspects[1].function == "main"
        assert suspects[1].why == "here the cause moves from given to square"

    def test_a_line_is_named_once(self, clamp):
        lines = [s.line for s in clamp.explain().suspects()]
        assert len(set(lines)) == len(lines)


def isolated(*deltas: tuple[str, str, str]) -> Isolated:
    """(variable, passing, failing) of each."""
    made = tuple(OutsideDelta(name, name, "int", passing, failing) for name, passing, failing in deltas)
    return Isolated(made, tuple(map(make_cause, made)), len(made), Tally(), "both", ())


class TestReader:
    @pytest.mark.parametrize(
        ("before", "after", "expected"),
        [
            ("2", "2", True),
            ('"2"', "2", True),
            ('"play 3\\n"', '"play 3"', True),
            ("2", "4", False),
            ("12", "2", False),
        ],
    )
    def test_hands_on(self, before, after, expected):
        assert hands_on(isolated(("a", "0", before)), isolated(("b", "1", after))) is expected

    def test_hands_on_all_of_several(self):
        before = isolated(("a", "0", "1"), ("b", "0", "2"))
        assert hands_on(before, isolated(("c", "9", "2"), ("d", "9", "1")))
        assert not hands_on(before, isolated(("c", "9", "2"), ("d", "9", "3")))

    def test_same_to_reader(self):
        one = isolated(("a", "0", "1")).causes
        assert same_to_reader(one, isolated(("a", "0", "1")).causes)
        assert not same_to_reader(one, isolated(("a", "0", "2")).causes)
        assert not same_to_reader(one, isolated(("b", "0", "1")).causes)
        assert not same_to_reader(one, ())

    def test_what_follows_and_takes_a_variable_with_it_is_no_news(self):
        one, both = isolated(("a", "0", "1")), isolated(("a", "0", "1"), ("b", "0", "1"))
        assert not is_news(one, both, follows=True)
        assert is_news(one, both, follows=False)
        assert is_news(both, one, follows=True)
        assert is_news(one, isolated(("a", "0", "2"), ("b", "0", "1")), follows=True)

    def test_told_links_of_a_chain_without_repetitions(self, clamp):
        links = clamp.search.links()
        told = told_links(clamp.search)
        assert told == [link for link in links if not is_returned(link[1])]
        # What `clamp` and `scale` return is no variable of theirs any more.
        assert len(links) - len(told) == 2


class TestOutcomes:
    @pytest.mark.parametrize(
        ("observation", "text"),
        [
            (Observation("exit", 0, b"0 11\n"), 'printed "0 11"'),
            (Observation("exit", 3, b""), "exited with status 3"),
            (Observation("exit", 3, b"  \n"), "exited with status 3"),
            (Observation("exit", 1, b"some text"), 'printed "some text"'),
            (Observation("exit", 0, b"", b"late\n"), 'wrote "late" to stderr'),
            (Observation("exit", 2, b"", b"late\n"), "exited with status 2"),
            (Observation("timeout", 9, b"text"), "did not end in time"),
            (Observation("signal", signal.SIGSEGV), "was killed by SIGSEGV"),
            (
                Observation("signal", signal.SIGABRT, b"x", b"", (Frame("abort"), Frame("check", "a.c", 4))),
                "was killed by SIGABRT in check()",
            ),
            (Observation("signal", 200), "was killed by signal 200"),
            (Observation("exit", 0, b"\xff"), 'printed "\udcff"'),
        ],
    )
    def test_in_words(self, observation, text):
        assert describe_outcome(observation, None) == text

    def test_status_where_that_is_the_rule(self):
        rule = Rule("exit", "it exits with status 1")
        assert describe_outcome(Observation("exit", 1, b"some text"), rule) == "exited with status 1"
        assert describe_outcome(Observation("exit", 0, b"", b"late"), rule) == "exited with status 0"
        assert describe_outcome(Observation("exit", 1, b"text"), Rule("output", "")) == 'printed "text"'

    def test_files_where_they_are_all_it_wrote(self):
        files = (("/t/words.c", b"1"), ("/t/words.h", None), ("/t/words.o", b""))
        rule = Rule("output", "it writes to words.c exactly what the failing run wrote")
        assert describe_outcome(Observation("exit", 0, files=files[:1]), rule) == "wrote words.c"
        assert describe_outcome(Observation("exit", 0, files=files), rule) == "wrote words.c and 2 more files"
        assert describe_outcome(Observation("exit", 1, b"", b"no", files=files), rule) == "exited with status 1"

    def test_long_output_is_cut(self):
        text = describe_outcome(Observation("exit", 0, b"x" * 10_000), None)
        assert len(text) == OUTPUT_SHOWN + len('printed ""')

    def test_failure(self):
        frames = (Frame("next", "list.c", 7), Frame("main", "list.c", 20))
        observation = Observation("signal", signal.SIGSEGV, backtrace=frames)
        assert describe_failure(observation, None) == Failure(
            "signal", "the program was killed by SIGSEGV in next()", frames
        )
