"""Causes at single moments, and which causes which, by real experiments."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import Case, told

from pytest_causechain.model.chain import Tally
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.place import Place

CLAMP = r"""
#include <stdio.h>
#include <stdlib.h>
static int limit;
static int clamp(int value, int max)
{
    if (value > max)
        value = max;
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
    int most = atoi(argv[2]);
    limit = most;
    number = scale(number); /* scale */
    printf("%d\n", number); /* print */
    return 0; /* end */
}
"""

# What is wrong comes from a further argument, which is nothing without the count of them.
COUNTED = r"""
#include <stdio.h>
static int bad;
static void look(int count, char **words)
{
    for (int i = 1; i < count; i++)
        bad += words[i][0] == 'b';
}
int main(int argc, char **argv)
{
    look(argc, argv);
    puts(bad ? "bad" : "good");
    return 0;
}
"""

# What decides waits in a pipe, which is no part of a state.
PIPED = r"""
#include <stdio.h>
#include <unistd.h>
static void wait_for(int end)
{
    char letter;
    if (read(end, &letter, 1) == 1)
        printf("%c\n", letter);
}
int main(int argc, char **argv)
{
    int ends[2];
    if (pipe(ends) == 0 && write(ends[1], argv[1], 1) == 1)
        wait_for(ends[0]);
    return 0;
}
"""

# Behind the end of `copy` lies what an earlier call has left there.
REMAINS = r"""
#include <stdio.h>
#include <string.h>
static void leave(const char *text)
{
    char rest[64];
    memset(rest, text[0], sizeof rest);
}
static void show(const char *text)
{
    char copy[64];
    strcpy(copy, text);
    puts(copy); /* copied */
}
int main(int argc, char **argv)
{
    leave(argv[2]);
    show(argv[1]);
    return argc - argc;
}
"""

# Fails when x and y say so, in the way that the third argument names; z never matters.
COMBINE = r"""
#include <stdio.h>
#include <stdlib.h>
static int x, y, z;
static int judge(char how)
{
    if (how == '&')
        return x && y; /* judge */
    return x || y;
}
int main(int argc, char **argv)
{
    x = y = z = atoi(argv[1]);
    argv[1] = NULL;
    puts(judge(argv[2][0]) ? "bad" : "good");
    return 0;
}
"""

SIDES = r"""
#include <stdio.h>
#include <stdlib.h>
static int x, y;
static int weigh(int side)
{
    return side * 2;
}
int main(int argc, char **argv)
{
    int left, right;
    x = y = atoi(argv[1]);
    left = weigh(x);
    right = weigh(y);
    puts(left || right ? "bad" : "good"); /* print */
    return 0;
}
"""

MAKE = r"""
#include <stdio.h>
#include <stdlib.h>
static struct node { int value; } *list;
static void look(void)
{
    printf("%d\\n", list ? list->value : 0);
}
int main(int argc, char **argv)
{
    int number = atoi(argv[1]), other = atoi(argv[2]);
    if (number == other) { /* make */
        list = malloc(sizeof *list);
        list->value = number;
    }
    look();
    return 0;
}
"""

DOUBLE = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int total = atoi(argv[1]), n;
    for (n = 0; n < 3; n++)
        total = 2 * total; /* double */
    printf("%d\n", total); /* print */
    return 0;
}
"""

READ = r"""
#include <stdio.h>
#include <stdlib.h>
static int sum;
static void add(int number)
{
    sum += number;
}
int main(void)
{
    char line[20];
    while (fgets(line, sizeof line, stdin))
        add(atoi(line));
    printf("%d\n", sum > 5);
    return 0;
}
"""


@pytest.fixture(scope="module")
def clamp(open_case) -> Case:
    return open_case(CLAMP, ["3", "100"], ["3", "2"])


@pytest.fixture(scope="module")
def double(open_case) -> Case:
    return open_case(DOUBLE, ["1"], ["2"])


class TestIsolate:
    @pytest.mark.parametrize(
        ("function", "cause", "differences"),
        [
            ("main", ("argv[2]", '"100"', '"2"'), 1),
            ("scale", ("limit", "100", "2"), 3),
            ("clamp", ("max", "100", "2"), 4),
        ],
    )
    def test_the_variable_that_decides(self, clamp, function, cause, differences):
        isolated = clamp.isolate(clamp.call(function))
        assert told(isolated) == [cause]
        assert isolated.confirmed == "both"
        assert isolated.differences == differences

    def test_at_a_statement(self, clamp):
        isolated = clamp.isolate(clamp.at("print"))
        assert told(isolated) == [("number", "6", "2")]

    def test_stack_of_the_failing_run(self, clamp):
        isolated = clamp.isolate(clamp.call("clamp"))
        assert [(place.function, place.line) for place in isolated.stack] == [
            ("clamp", clamp.line("leave") - 2),
            ("scale", clamp.line("clamp")),
            ("main", clamp.line("scale")),
        ]
        assert isinstance(isolated.stack[0], Place)

    def test_one_of_two_causes_each_enough(self, open_case):
        case = open_case(COMBINE, ["0", "|"], ["1", "|"])
        isolated = case.isolate(case.call("judge"))
        assert len(isolated.deltas) == 1
        assert told(isolated)[0][0] in ("x", "y")
        # Alone it makes the passing run fail, but without it the failing run fails all the same.
        assert isolated.confirmed == "passing"

    def test_two_causes_both_needed(self, open_case):
        case = open_case(COMBINE, ["0", "&"], ["1", "&"])
        isolated = case.isolate(case.call("judge"))
        assert {name for name, _, _ in told(isolated)} == {"x", "y"}
        assert isolated.confirmed == "both"

    def test_line_of_the_input(self, open_case):
        case = open_case(READ, [], [], stdin=(b"1\n2\n1\n", b"1\n7\n1\n"))
        isolated = case.isolate(case.call("main"))
        assert told(isolated) == [("stdin line 2", '"2"', '"7"')]
        assert isolated.confirmed == "both"
        isolated = case.isolate(case.call("add", 3))
        assert told(isolated) == [("sum", "3", "8")]


class TestLeading:
    def test_arguments_that_an_experiment_creates(self, open_case):
        case = open_case(COUNTED, ["a"], ["a", "b"])
        begin, look = (case.call(name) for name in ("main", "look"))
        first, later = case.isolate(begin), case.isolate(look)
        assert {name for name, _, _ in told(first)} == {"argc", "argv"}
        assert {name for name, _, _ in told(later)} == {"count", "words"}
        assert case.inquiry.leads_to((begin, first), (look, later))

    def test_what_lies_behind_the_end_of_a_text_is_not_asked_for(self, open_case):
        case = open_case(REMAINS, ["good", "x"], ["bad", "y"])
        begin, copied = case.call("main"), case.at("copied")
        first, later = case.isolate(begin), case.isolate(copied)
        assert [name for name, _, _ in told(first)] == ["argv[1]"]
        assert [name for name, _, _ in told(later)] == ["copy"]
        assert case.inquiry.leads_to((begin, first), (copied, later))


class TestRefusals:
    def test_failure_that_has_shown_already(self, clamp):
        before = clamp.inquiry.tally
        assert clamp.inquiry.isolate(clamp.at("end"), []) is None
        after = clamp.inquiry.tally
        # No delta, all deltas, and all but what is written by then.
        assert (after.pass_ - before.pass_, after.fail - before.fail) == (2, 1)
        assert clamp.at("end") in clamp.inquiry.shown

    def test_difference_that_is_not_transferred(self, open_case):
        case = open_case(PIPED, ["a"], ["b"])
        assert case.inquiry.isolate(case.call("wait_for"), []) is None
        # No delta and all deltas were tried, and both passed.
        assert (case.inquiry.tally.total, case.inquiry.tally.pass_) == (2, 2)
        assert case.inquiry.refused[case.call("wait_for")] == (
            'with all differences the run passes: it printed "a"; pipe is open, which no other run can be given'
        )

    def test_moment_that_is_not_reached_again(self, clamp):
        moment = clamp.call("clamp")
        far = replace(moment, failing=(Stop(moment.failing[0].address, 50),))
        assert clamp.inquiry.isolate(far, []) is None
        assert clamp.inquiry.refused[far] == "not reached again by the failing run"

    def test_moment_with_other_calls_on_the_stack(self, clamp):
        mixed = replace(clamp.call("clamp"), passing=clamp.call("scale").passing)
        assert clamp.inquiry.isolate(mixed, []) is None
        assert clamp.inquiry.refused[mixed] == "the calls on the stack differ"
        assert clamp.inquiry.isolate_for(mixed, (clamp.call("clamp"), clamp.isolate(clamp.call("clamp")))) is None

    def test_moment_at_which_nothing_differs(self, open_case):
        case = open_case(SIDES, ["0"], ["0"])
        assert case.inquiry.isolate(case.call("weigh"), []) is None
        assert case.inquiry.refused[case.call("weigh")] == "no variable differs"

    def test_transferable_moment_has_no_reason(self, clamp):
        clamp.isolate(clamp.call("clamp"))
        assert clamp.call("clamp") not in clamp.inquiry.refused


class TestHints:
    def test_cause_known_nearby_takes_one_experiment(self, open_case):
        case = open_case(CLAMP, ["30", "100"], ["30", "2"])
        known = case.isolate(case.call("scale"))
        before = case.inquiry.tally
        isolated = case.isolate(case.at("clamp", since="scale"), [known])
        assert told(isolated) == [("limit", "100", "2")]
        assert isolated.tally == Tally(fail=1, cached=1)
        # Besides it: none, all, and the cause undone in the failing run.
        assert case.inquiry.tally.total - before.total == 4

    def test_all_are_tried_before_the_search_in_their_order(self, open_case):
        case = open_case(CLAMP, ["31", "100"], ["31", "2"])
        start, scale = case.isolate(case.call("main")), case.isolate(case.call("scale"))
        isolated = case.isolate(case.at("clamp", since="scale"), [start, scale])
        assert told(isolated) == [("limit", "100", "2")]
        assert isolated.tally == Tally(pass_=1, fail=1, cached=1)

    def test_hint_that_does_not_hold_is_no_harm(self, open_case):
        case = open_case(CLAMP, ["32", "100"], ["32", "2"])
        start = case.isolate(case.call("main"))
        assert told(case.isolate(case.call("clamp"), [start])) == [("max", "100", "2")]

    def test_hint_of_variables_that_are_gone_costs_nothing(self, open_case):
        case = open_case(CLAMP, ["33", "100"], ["33", "2"])
        inner = case.isolate(case.call("clamp"))
        without = case.isolate(case.call("scale"))
        other = open_case(CLAMP, ["34", "100"], ["34", "2"])
        assert other.isolate(other.call("scale"), [inner]).tally == without.tally

    def test_moment_is_captured_once(self, open_case):
        case = open_case(CLAMP, ["35", "100"], ["35", "2"])
        first = case.isolate(case.call("scale"))
        seconds, experiments = case.inquiry.capture_seconds, case.inquiry.tally.total
        again = case.isolate(case.call("scale"))
        assert told(again) == told(first)
        assert (case.inquiry.capture_seconds, case.inquiry.tally.total) == (seconds, experiments)
        assert again.tally.total == 0


class TestLinks:
    def test_cause_that_makes_the_next_one_appear(self, clamp):
        inquiry, calls = clamp.inquiry, [clamp.call(name) for name in ("main", "scale", "clamp")]
        links = [(moment, clamp.isolate(moment)) for moment in calls]
        assert inquiry.leads_to(links[0], links[1])
        assert inquiry.leads_to(links[1], links[2])
        assert inquiry.leads_to(links[0], links[2])
        assert inquiry.causes(links[0], links[1])

    def test_pair_is_looked_at_once(self, clamp, monkeypatch):
        links = [(moment, clamp.isolate(moment)) for moment in (clamp.call("scale"), clamp.call("clamp"))]
        assert clamp.inquiry.leads_to(*links)
        monkeypatch.setattr(clamp.lab, "visit", None)
        assert clamp.inquiry.leads_to(*links)

    def test_within_one_window(self, clamp):
        inner = (clamp.call("clamp"), clamp.isolate(clamp.call("clamp")))
        end = clamp.at("print", since="clamp")
        assert clamp.inquiry.leads_to(inner, (end, clamp.isolate(end)))

    def test_variable_that_has_been_read_already(self, clamp):
        scale, inner = clamp.call("scale"), clamp.call("clamp")
        cause = clamp.isolate(scale)
        comparable = clamp.inquiry._compare(scale)
        assert comparable is not None
        spent = replace(cause, deltas=tuple(d for d in comparable.deltas if d.name == "argv[2]"))
        assert len(spent.deltas) == 1
        assert not clamp.inquiry.leads_to((scale, spent), (inner, clamp.isolate(inner)))

    def test_variable_that_does_not_come_into_being(self, open_case):
        """With only `other` altered there is no list: its value cannot be what it was in the failing run."""
        case = open_case(MAKE, ["1", "1"], ["2", "2"])
        start, end = case.at("make"), case.call("look")
        cause = case.isolate(end)
        assert told(cause) == [("list->value", "1", "2")]
        comparable = case.inquiry._compare(start)
        assert comparable is not None
        both = [d for d in comparable.deltas if d.name in ("number", "other")]
        for deltas, leads in (([both[0]], False), ([both[1]], False), (both, True)):
            assert case.inquiry.leads_to((start, replace(cause, deltas=tuple(deltas))), (end, cause)) is leads

    def test_same_variables_need_no_experiment(self, clamp):
        moment = clamp.call("scale")
        cause = clamp.isolate(moment)
        elsewhere = replace(clamp.call("clamp"), event=10_000)
        assert clamp.inquiry.causes((moment, cause), (elsewhere, cause))

    def test_isolate_for_a_later_cause(self, clamp):
        scale, inner = clamp.call("scale"), clamp.call("clamp")
        earlier = clamp.inquiry.isolate_for(scale, (inner, clamp.isolate(inner)))
        assert earlier is not None
        assert told(earlier) == [("limit", "100", "2")]

    @pytest.mark.parametrize(("later_variable", "earlier_variable"), [("left", "side"), ("right", "y")])
    def test_isolate_for_chooses_what_leads_there(self, open_case, later_variable, earlier_variable):
        """Either variable makes the run fail; the later cause tells which one is meant."""
        case = open_case(SIDES, ["0"], ["1"])
        call, end = case.call("weigh"), case.at("print")
        cause = case.isolate(end)
        comparable = case.inquiry._compare(end)
        assert comparable is not None
        cause = replace(cause, deltas=tuple(d for d in comparable.deltas if d.name == later_variable))
        earlier = case.inquiry.isolate_for(call, (end, cause))
        assert earlier is not None
        assert [name for name, _, _ in told(earlier)] == [earlier_variable]

    def test_input_is_there_from_the_start(self, open_case):
        case = open_case(READ, [], [], stdin=(b"1\n2\n1\n", b"1\n7\n1\n"))
        first, second = case.call("main"), case.call("add", 1)
        links = [(moment, case.isolate(moment)) for moment in (first, second)]
        assert [told(cause)[0][0] for _, cause in links] == ["stdin line 2", "stdin line 2"]
        assert case.inquiry.leads_to(*links)


class TestLastValues:
    def test_variable_with_its_last_value_counts_as_another_cause(self, double):
        inquiry = double.inquiry
        causes = [double.isolate(double.at("double", visit)) for visit in (1, 2, 3)]
        assert [told(cause) for cause in causes] == [
            [("total", "1", "2")],
            [("total", "2", "4")],
            [("total", "4", "8")],
        ]
        assert len({inquiry.variables(cause) for cause in causes}) == 1
        inquiry.mind_last_values(causes)
        first, second, third = (inquiry.variables(cause) for cause in causes)
        assert first == second == causes[0].keys
        assert third > first


class TestStatistics:
    def test_what_was_looked_at(self, clamp):
        clamp.isolate(clamp.call("clamp"))
        assert clamp.inquiry.most_deltas >= 4
        assert clamp.inquiry.vertices > 10
        assert clamp.inquiry.capture_seconds > 0
        assert clamp.inquiry.experiment_seconds > 0
        assert clamp.inquiry.unreadable == 0

    def test_progress_counts_experiments(self, open_case):
        case = open_case(CLAMP, ["36", "100"], ["36", "2"])
        case.isolate(case.call("scale"))
        assert case.said == [f"experiment {n}, at scale()" for n in range(1, case.inquiry.tally.total + 1)]
