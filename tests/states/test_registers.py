"""Variables that have no address: they live in registers, or where a called function has saved these."""

from __future__ import annotations

import time

import pytest
from two_runs import TwoRuns, check_both_ways, find_variable

from pytest_causechain.debugger.visit import REGISTERS_START, find_register, merge_register
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int inner(char *text)
{
    register int sum = 0;
    register char *at;
    for (at = text; *at; at++)
        sum += *at;
    return sum; /* here */
}
static int middle(char *text)
{
    int result = inner(text);
    return result + 1;
}
int main(int argc, char **argv)
{
    register int number = atoi(argv[1]);
    register char *word = strdup(argv[2]);
    number += middle(word);
    printf("%d %s\n", number, word);
    return 0;
}
"""


@pytest.fixture
def runs(open_runs) -> TwoRuns:
    return open_runs(SOURCE, ["3", "abc"], ["5", "defghijklmnopqrstuvwxyz 0123456789"])


def test_of_the_innermost_frame_and_its_callers(runs):
    graph = runs.graph("failing")
    assert find_register(find_variable(graph, "sum").address) is not None
    # Saved by `inner`, which uses the same registers.
    assert find_variable(graph, "number").address < REGISTERS_START
    assert graph.contents(find_variable(graph, "number")) == (5).to_bytes(4, "little")
    names = [delta.name for delta in runs.deltas]
    assert {"sum", "number", "word"} <= set(names)


def test_written_both_ways(runs):
    check_both_ways(runs)


def test_without_gdb_as_with_it(runs):
    """The second visit of the same functions asks no gdb."""
    commands = runs.commands
    with LocalLab(Open(*commands, deadline=time.monotonic() + 300)) as lab:
        seen = [lab.visit("failing", runs.stops) for _ in range(2)]
    assert seen[0] is not None
    assert seen[1] is not None
    assert seen[0].frames == seen[1].frames
    assert {v.name for frame in seen[0].frames for v in frame.variables} >= {"sum", "at", "number", "word"}


def test_merge_leaves_the_rest_of_a_register_alone():
    assert merge_register(0x1122334455667788, 0, b"\1\2\3\4") == 0x1122334404030201
    assert find_register(REGISTERS_START + 8 + 4) == ("rbx", 4)
    assert find_register(REGISTERS_START - 1) is None


class TestReturnValue:
    SOURCE = r"""
        #include <stdio.h>
        #include <stdlib.h>
        static int square(int n)
        {
            return n * n;
        } /* here */
        static void show(int n)
        {
            printf("%d\n", n);
        } /* shown */
        int main(int argc, char **argv)
        {
            int n = square(atoi(argv[1]));
            show(n);
            return 0;
        }
    """

    def test_is_a_value_at_the_end_of_its_function(self, open_runs):
        runs = open_runs(self.SOURCE, ["3"], ["4"])
        assert ("return value", "9", "16", "value") in runs.told()
        assert runs.alter_passing([runs.delta("return value")]).stdout == b"16\n"
        assert runs.delta("return value").assignment == "$rax = 16"
        assert runs.delta("return value").undo == "$rax = 9"

    def test_of_a_function_that_returns_nothing(self, open_runs):
        runs = open_runs(self.SOURCE, ["3"], ["4"])
        graph = runs.graph("failing", runs.at("/* shown */"))
        assert "return value" not in [o.name for o in graph.variables]
