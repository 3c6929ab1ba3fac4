"""Functions that the C library calls, not the program: compared, handled, registered, constructed."""

from __future__ import annotations

from reaching import check_order, check_reached, check_route

SOURCE = r"""
#include <search.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int ticks;

static int plain(int n)
{
    ticks += n;
    return ticks;
}

__attribute__((constructor)) static void early(void)
{
    plain(1);
}

static int compare(const void *a, const void *b)
{
    int difference = *(const int *)a - *(const int *)b;
    ticks++;
    return difference;
}

static int compare_rows(const void *a, const void *b)
{
    int rows[4] = {3, 1, 4, 2};
    qsort(rows, 4, sizeof *rows, compare);
    return compare(a, b);
}

static void show(const void *node, VISIT which, int depth)
{
    if (which == postorder || which == leaf)
        plain(depth);
}

static void handle(int sign)
{
    plain(sign);
}

static void late(void)
{
    plain(2);
}

int main(int argc, char **argv)
{
    int count = atoi(argv[1]), numbers[] = {7, 2, 5, 1, 3, 6, 4};
    void *tree = NULL;
    plain(1);
    qsort(numbers, count, sizeof *numbers, compare);
    plain(2);
    if (argc > 2)
        qsort(numbers, 3, sizeof *numbers, compare_rows);
    for (int i = 0; i < 3; i++)
        tsearch(&numbers[i], &tree, compare);
    plain(3);
    twalk(tree, show);
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    atexit(late);
    printf("%d\n", ticks > 0);
    return 0;
}
"""


def test_each_call_is_reached_as_it_says(compare):
    lab, timeline = compare(SOURCE, ["7"], ["6"])
    check_order(timeline.calls())
    backtraces = {moment.backtrace for moment in timeline.calls()}
    assert backtraces >= {
        ("early",),
        ("plain", "early"),
        ("main",),
        ("compare", "main"),
        ("show", "main"),
        ("plain", "show", "main"),
        ("handle", "main"),
        ("plain", "handle", "main"),
        ("late",),
        ("plain", "late"),
    }
    for backtrace in sorted(backtraces):  # the first and the last of each kind
        alike = [moment for moment in timeline.calls() if moment.backtrace == backtrace]
        check_reached(lab, alike[0])
        check_reached(lab, alike[-1])


def test_statements(compare):
    lab, timeline = compare(SOURCE, ["7"], ["6"])
    begin = next(n for n, m in enumerate(timeline.calls()) if m.backtrace == ("compare", "main"))
    end = next(n for n, m in enumerate(timeline.calls()) if m.backtrace == ("show", "main"))
    window = timeline.statements(timeline.calls()[begin], timeline.calls()[end])
    check_order(sorted((*timeline.calls(), *window), key=lambda m: m.time))
    for moment in window[::5]:
        check_reached(lab, moment)
        check_route(lab, timeline, timeline.calls()[begin], moment)


def test_a_library_within_a_library(compare):
    """One of them only in the failing run: the calls behind it match nevertheless."""
    lab, timeline = compare(SOURCE, ["4"], ["4", "rows"])
    assert ("show", "main") in {moment.backtrace for moment in timeline.calls()}
    for moment in timeline.calls()[::5]:
        check_reached(lab, moment)
    lab, timeline = compare(SOURCE, ["4", "rows"], ["3", "rows"])
    assert ("compare", "compare_rows", "main") in {moment.backtrace for moment in timeline.calls()}
    for moment in timeline.calls()[::8]:
        check_reached(lab, moment)
