"""Which statement wrote to a variable last, by itself or by what it calls."""

from __future__ import annotations

import pytest
from places import find_function, find_global, find_line, find_statement, open_remote_lab

from pytest_causechain.lab.local_lab import MOST_WRITES
from pytest_causechain.model.moment import Stop

WRITERS = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int count;
static long total;
static char text[16];
static char raw[4];

static void add(int by)
{
    count += by;
}

static void busy(void)
{
    for (int i = 0; i < 100000; i++)
        total++;
}

static void end(void)
{
}

int main(void)
{
    count = 1;
    add(2);
    add(3);
    strcpy(text, "copied"); /* by the library */
    if (read(0, raw, 3) < 0) /* by the system */
        return 1;
    busy();
    end();
    return 0;
}
"""


@pytest.fixture
def lab(build, kind):
    with open_remote_lab(kind, build(WRITERS), stdin=b"abc") as lab:
        yield lab


def find_writer(lab, variable: str, size: int, *, begin: str = "count = 1", end: int | None = None):
    """From one statement to the call of a function, by default of end()."""
    state = lab.visit("failing", ())
    address = state.load_map.to_run(find_global(lab, variable))
    stops = (Stop(find_statement(lab, WRITERS, begin), 1),)
    then = (Stop(end if end is not None else find_function(lab, "end"), 1),)
    return lab.find_writer("failing", stops, then, address, size)


def test_last_of_several(lab):
    place = find_writer(lab, "count", 4)
    assert (place.line, place.function) == (find_line(WRITERS, "count += by"), "add")


def test_statement_that_the_run_stands_before(lab):
    place = find_writer(lab, "count", 4, end=find_function(lab, "add"))
    assert (place.line, place.function) == (find_line(WRITERS, "count = 1"), "main")


def test_library_writes_for_its_caller(lab):
    place = find_writer(lab, "text", 16)
    assert (place.line, place.function) == (find_line(WRITERS, "strcpy"), "main")


def test_what_the_system_writes_is_not_seen(lab):
    assert find_writer(lab, "raw", 4) is None


def test_what_is_not_written(lab):
    assert find_writer(lab, "count", 4, begin="strcpy") is None


def test_what_is_written_too_often(lab):
    assert MOST_WRITES < 100000
    assert find_writer(lab, "total", 8) is None


def test_end_that_is_not_reached(lab):
    assert find_writer(lab, "count", 4, begin="return 0", end=find_function(lab, "add")) is None
