"""Moments of real runs: each is reached in both, in the right order, and leads to the later ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from reaching import check_order, check_reached, check_route, find_line

from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.moment import Moment
from pytest_causechain.moments import timeline as timelines
from pytest_causechain.moments.timeline import Timeline

# The n-th argument of a run tells how often something is done.
WALK = r"""
#include <stdio.h>
#include <stdlib.h>

static int ticks;

static int leaf(int n)
{
    ticks++;
    return n + 1;
}

static int sum8(int a, int b, int c, int d, int e, int f, int g, int h)
{
    ticks += 8;
    return a + b + c + d + e + f + g + h;
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a;
    int y = leaf(*(const int *)b) - 1;
    return x - y;
}

static int climb(int depth)
{
    int here = leaf(depth);
    if (depth > 0)
        here += climb(depth - 1);
    if (depth > 1)
        here += climb(depth - 2);
    return here;
}

static void only_sometimes(void)
{
    ticks += 100;
}

int main(int argc, char **argv)
{
    int loops = atoi(argv[1]), height = atoi(argv[2]), sort = atoi(argv[3]), early = atoi(argv[4]);
    int total = leaf(0);
    for (int i = 0; i < loops; i++) {
        total += leaf(i);
        if (i == 1)
            only_sometimes();
    }
    total += climb(height);
    total += sum8(1, 2, 3, 4, 5, 6,
                  leaf(7),
                  leaf(8));
    if (early)
        exit(total % 7);
    int numbers[] = {4, 2, 5, 1, 3, 6};
    qsort(numbers, sort, sizeof *numbers, compare);
    printf("%d %d %d\n", total, ticks, leaf(numbers[0]));
    return 0;
}
"""


def lines_of(lab: LocalLab, events) -> list[int]:
    return [lab.program.position(event.address).line for event in events if not event.return_address]


def names(moments) -> list[str]:
    return [moment.position.function for moment in moments]


class TestCalls:
    def test_loops_of_different_lengths(self, compare):
        _, timeline = compare(WALK, ["3", "0", "0", "0"], ["1", "0", "0", "0"])
        assert names(timeline.calls()) == ["main", "leaf", "leaf", "climb", "leaf", "leaf", "leaf", "sum8", "leaf"]
        assert timeline.complete
        # In the passing run two more calls of leaf and one of only_sometimes lie between.
        assert [(m.event, m.passing_event) for m in timeline.calls()[2:4]] == [(2, 2), (3, 6)]
        check_order(timeline.calls())

    def test_backtraces(self, compare):
        _, timeline = compare(WALK, ["1", "1", "0", "0"], ["1", "2", "0", "0"])
        assert ("leaf", "climb", "climb", "main") in [m.backtrace for m in timeline.calls()]
        assert all(m.is_entry for m in timeline.calls())

    def test_one_function_called_from_two_places(self, compare):
        """The call behind the loop is not taken for one in it."""
        _, timeline = compare(WALK, ["2", "0", "0", "0"], ["0", "0", "0", "0"])
        call = next(m for m in timeline.calls() if m.position.function == "climb")
        after = timeline.calls()[timeline.calls().index(call) + 1]
        assert (after.event, after.passing_event) == (3, 6)
        assert after.backtrace == ("leaf", "climb", "main")

    def test_early_exit(self, compare):
        _, timeline = compare(WALK, ["1", "0", "4", "0"], ["1", "0", "4", "1"])
        assert names(timeline.calls()) == ["main", "leaf", "leaf", "climb", "leaf", "leaf", "leaf", "sum8"]
        assert timeline.complete

    def test_visits(self, compare):
        _, timeline = compare(WALK, ["3", "0", "0", "0"], ["1", "0", "0", "0"])
        assert [m.visit for m in timeline.calls() if m.position.function == "leaf"] == [1, 2, 3, 4, 5, 6]

    def test_matched(self, compare):
        _, timeline = compare(WALK, ["0", "0", "2", "0"], ["0", "0", "3", "0"])
        assert timeline.matched == len(timeline.calls())
        window = timeline.statements(timeline.calls()[0], timeline.calls()[1])
        assert timeline.matched == len(timeline.calls()) + len(window)

    @pytest.mark.parametrize(
        ("passing", "failing"),
        [
            (["2", "1", "5", "0"], ["1", "2", "6", "0"]),
            (["1", "3", "0", "0"], ["3", "2", "0", "1"]),
        ],
        ids=["sorting", "early exit"],
    )
    def test_each_is_reached_in_both_runs(self, compare, passing, failing):
        lab, timeline = compare(WALK, passing, failing)
        check_order(timeline.calls())
        assert len(timeline.calls()) > 12
        for moment in timeline.calls():
            check_reached(lab, moment)

    def test_each_leads_to_the_next(self, compare):
        lab, timeline = compare(WALK, ["2", "1", "5", "0"], ["1", "2", "6", "0"])
        for earlier, later in pairwise(timeline.calls()):
            check_route(lab, timeline, earlier, later)


class TestWindows:
    def open(
        self, compare, passing, failing, first: int = 0, last: int | None = None
    ) -> tuple[LocalLab, Timeline, tuple[Moment, ...]]:
        lab, timeline = compare(WALK, passing, failing)
        calls = timeline.calls()
        return lab, timeline, timeline.statements(calls[first], None if last is None else calls[last])

    def test_between_two_calls(self, compare):
        lab, timeline, window = self.open(compare, ["2", "0", "0", "0"], ["2", "0", "0", "0"], 1, 2)
        expected = ["return n + 1;", "int total = leaf(0);", "for (int i", "total += leaf(i);"]
        lines = [m.position.line for m in window]
        assert lines[0] == find_line(WALK, "return n + 1;")
        assert lines[-2:] == [find_line(WALK, text) for text in expected[-2:]]
        assert not any(m.is_entry for m in window)
        for moment in window:
            check_reached(lab, moment)
        assert timeline.called_at(window[-1]) == "leaf"
        assert timeline.called_at(window[0]) is None
        assert timeline.called_at(timeline.calls()[1]) is None

    def test_to_the_end_with_calls_in_between(self, compare):
        """Statements behind a call come later than the call, whichever window they are in."""
        lab, timeline, window = self.open(compare, ["1", "1", "3", "0"], ["2", "2", "2", "0"], 0)
        moments = window
        check_order(moments)
        together = tuple(sorted((*timeline.calls(), *moments), key=lambda m: m.time))
        check_order(together)
        assert [m.position.line for m in moments][-1] == find_line(WALK, "return 0;") + 1
        for moment in moments[::3]:
            check_reached(lab, moment)

    def test_each_leads_to_the_next(self, compare):
        lab, timeline, window = self.open(compare, ["1", "1", "3", "0"], ["2", "2", "2", "0"], 0)
        together = sorted((*timeline.calls(), *window), key=lambda m: m.time)
        for earlier, later in list(pairwise(together))[::3]:
            check_route(lab, timeline, earlier, later)

    def test_far_ahead(self, compare):
        """From a statement behind calls that only the failing run makes, to a later call of the same function."""
        lab, timeline, window = self.open(compare, ["1", "1", "3", "0"], ["3", "1", "2", "0"], 2, -1)
        here = next(m for m in window if m.position.line == find_line(WALK, "total += climb(height);"))
        later = [m for m in sorted((*timeline.calls(), *window), key=lambda m: m.time) if m.time > here.time]
        assert any(m.position.function == "leaf" for m in later)
        for moment in later[::4]:
            check_route(lab, timeline, here, moment)

    def test_the_same_window_is_traced_once(self, compare, monkeypatch):
        lab, timeline, window = self.open(compare, ["2", "0", "0", "0"], ["2", "0", "0", "0"], 1, 2)
        monkeypatch.setattr(lab, "trace", lambda *a, **k: pytest.fail("traced again"))
        assert timeline.statements(timeline.calls()[1], timeline.calls()[2]) == window
        assert timeline.statements(window[0], window[-1]) == window[1:-1]

    def test_early_exit(self, compare):
        lab, _, window = self.open(compare, ["1", "0", "4", "0"], ["1", "0", "4", "1"], -1)
        assert [m.position.line for m in window][-1] == find_line(WALK, "if (early)")
        for moment in window:
            check_reached(lab, moment)

    @pytest.mark.parametrize(("calls", "statements"), [(9, 25), (9, 500)], ids=["both", "calls"])
    def test_cut_off_traces(self, compare, monkeypatch, calls, statements):
        """Whatever part of the runs was seen, its moments are true."""
        lab, whole = compare(WALK, ["1", "1", "3", "0"], ["2", "2", "2", "0"])
        monkeypatch.setattr(lab, "recordable", calls)
        timeline = Timeline(lab)
        assert not timeline.complete
        assert 2 < len(timeline.calls()) <= calls
        monkeypatch.setattr(lab, "recordable", statements)
        window = timeline.statements(timeline.calls()[0])
        check_order(window)
        every = whole.statements(whole.calls()[0])
        assert 5 < len(window) < len(every)
        for moment in (timeline.calls()[-1], *window[-4:]):
            check_reached(lab, moment)
            assert timeline.route(timeline.calls()[0], moment) is not None
        assert timeline.executed(timeline.calls()[0], every[-1]) is None
        assert timeline.called_at(every[-1]) is None


class TestSpread:
    def test_more_and_more_between_two(self, compare, monkeypatch):
        _, timeline = compare(WALK, ["3", "6", "5", "0"], ["2", "6", "6", "0"])
        every = timeline.calls()
        statements = timeline.statements(every[0])
        monkeypatch.setattr(timelines, "SPREAD", 5)
        some = timeline.calls()
        assert [every.index(m) for m in some] == [(len(every) - 1) * n // 4 for n in range(5)]
        found = set(some)
        while len(found) < len(every):
            in_order = sorted(found, key=lambda m: m.time)
            new = {m for pair in pairwise(in_order) for m in timeline.calls(*pair)} - found
            assert new
            found |= new
        assert found == set(every)
        assert timeline.calls(every[4], every[5]) == ()
        first = timeline.statements(every[0])
        assert set(first) < set(statements)
        assert (first[0], first[-1]) == (statements[0], statements[-1])


class TestExecuted:
    def lines(self, lab, executed) -> list[list[int]]:
        return [lines_of(lab, events) for events in executed]

    def test_between_statements(self, compare):
        lab, timeline = compare(WALK, ["1", "0", "0", "0"], ["2", "0", "0", "0"])
        window = timeline.statements(timeline.calls()[0])
        loop, behind = (
            next(m for m in window if m.position.line == find_line(WALK, text))
            for text in ("for (int i", "total += climb(height);")
        )
        passing, failing = self.lines(lab, timeline.executed(loop, behind))
        once = [
            find_line(WALK, "total += leaf(i);"),
            find_line(WALK, "ticks++;"),
            find_line(WALK, "return n + 1;"),
            find_line(WALK, "return n + 1;") + 1,
            find_line(WALK, "if (i == 1)"),
        ]
        head = find_line(WALK, "for (int i")
        assert passing == [head, *once, head]
        assert failing[: len(passing)] == passing
        only = find_line(WALK, "only_sometimes();")
        assert failing.count(only) == 1
        assert failing[0] == failing[-1] == head

    def test_from_a_call(self, compare):
        """Its own statement is the first of its body."""
        lab, timeline = compare(WALK, ["1", "0", "0", "0"], ["2", "0", "0", "0"])
        window = timeline.statements(timeline.calls()[1], timeline.calls()[2])
        begin = find_line(WALK, "ticks++;")
        assert self.lines(lab, timeline.executed(timeline.calls()[1], window[0])) == [[begin], [begin]]
        whole = self.lines(lab, timeline.executed(timeline.calls()[1], timeline.calls()[2]))
        assert whole[0] == whole[1]
        assert whole[0][0] == begin
        assert whole[0][-1] == find_line(WALK, "total += leaf(i);")

    def test_up_to_a_call_in_the_middle_of_a_window(self, compare):
        lab, timeline = compare(WALK, ["1", "0", "0", "0"], ["2", "0", "0", "0"])
        timeline.statements(timeline.calls()[0])
        climb = next(m for m in timeline.calls() if m.position.function == "climb")
        following = timeline.calls()[timeline.calls().index(climb) + 1]
        expected = [find_line(WALK, "int here = leaf(depth);")]
        assert self.lines(lab, timeline.executed(climb, following)) == [expected, expected]

    def test_what_was_not_traced(self, compare):
        _, timeline = compare(WALK, ["0", "2", "0", "0"], ["0", "1", "0", "0"])
        assert timeline.executed(timeline.calls()[0], timeline.calls()[1]) is None
        assert timeline.route(timeline.calls()[0], timeline.calls()[1]) is not None
        timeline.statements(timeline.calls()[1], timeline.calls()[2])
        assert timeline.executed(timeline.calls()[0], timeline.calls()[1]) is None
        assert timeline.executed(timeline.calls()[1], timeline.calls()[2]) is not None
        assert timeline.executed(timeline.calls()[1], timeline.calls()[3]) is None


class TestCalledAt:
    def test_a_call_among_its_arguments(self, compare):
        _, timeline = compare(WALK, ["1", "0", "0", "0"], ["2", "0", "0", "0"])
        window = timeline.statements(timeline.calls()[0])
        calling = {m.position.line: timeline.called_at(m) for m in window}
        assert calling[find_line(WALK, "int total = leaf(0);")] == "leaf"
        assert calling[find_line(WALK, "total += climb(height);")] == "climb"
        assert calling[find_line(WALK, "if (early)")] is None
        assert calling[find_line(WALK, "int numbers[]")] is None

    def test_where_a_window_ends(self, compare):
        _, timeline = compare(WALK, ["0", "0", "0", "0"], ["0", "1", "0", "0"])
        climb = next(n for n, m in enumerate(timeline.calls()) if m.position.function == "climb")
        window = timeline.statements(timeline.calls()[climb - 1], timeline.calls()[climb])
        assert window[-1].position.line == find_line(WALK, "total += climb(height);")
        assert timeline.called_at(window[-1]) == "climb"
