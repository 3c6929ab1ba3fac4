"""Differences that are tried before the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int spare[40];
int factor, price;
char label[16];

static int scale(int amount)
{
    int twice = 2 * amount + 0 * price;
    printf("scaled\n");
    return twice * factor; /* factor */
}

int main(int argc, char **argv)
{
    int start = atoi(argv[1]);
    for (int i = 0; i < 40; i++)
        spare[i] = start + 100 + i;
    price = start + 4200;
    strcpy(label, start ? "expensive" : "cheap");
    factor = start + 1;
    int scaled = scale(5);
    if (scaled > 10)
        printf(argc > 2 ? "%s: %d\n" : "too much\n", label, price);
    return 0;
}
"""


@pytest.fixture
def case(open_case) -> Case:
    return open_case(SOURCE, ["0"], ["3"])


def likely_names(case, moment):
    comparison = case.inquiry._compare(moment).comparison
    return {comparison.deltas[i].name for i in case.likelihood.choose(moment, comparison)}


def test_variables_that_the_next_lines_mention(case):
    assert likely_names(case, case.call("scale")) == {"factor", "price"}


def test_lines_that_are_over_do_not_count(case):
    assert likely_names(case, case.at("factor", since="scale")) == {"factor"}


def test_words_and_numbers_that_only_the_failing_run_writes(open_case):
    case = open_case(SOURCE, ["0", "more"], ["3", "more"])
    assert likely_names(case, case.at("factor", since="scale")) == {"factor", "label", "price"}


def test_without_the_source(open_case):
    case = open_case(SOURCE.replace("too much", "far too much"), ["0"], ["3"])
    moment = case.call("scale")
    Path(moment.position.file).unlink()
    assert likely_names(case, moment) == set()


def test_the_cause_takes_fewer_experiments(case, open_case, monkeypatch):
    cause = case.isolate(case.at("factor", since="scale"))
    assert [delta.name for delta in cause.deltas] == ["factor"]
    monkeypatch.setattr("pytest_causechain.causes.inquiry.Likelihood.choose", lambda *_: frozenset())
    plain = open_case(SOURCE, ["0"], ["5"])
    without = plain.isolate(plain.at("factor", since="scale"))
    assert without.keys == cause.keys
    assert cause.tally.total < without.tally.total
