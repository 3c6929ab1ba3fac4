"""States that are larger than what is looked at: the first of it is, and the rest is told to be missing."""

from __future__ import annotations

from two_runs import find_variable

from pytest_causechain.diagnosis import diagnose
from pytest_causechain.lab import captures
from pytest_causechain.model.observation import Outcome
from pytest_causechain.states import unfolding

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>

struct node { struct node *next; long value; };

static struct node *list;
static long factor;

static long sum(void)
{
    long total = 0;
    for (struct node *node = list; node != NULL; node = node->next)
        total += factor * node->value;
    return total;
}

int main(int argc, char **argv)
{
    char *reserved = argc > 2 ? malloc(80 << 20) : NULL;
    for (int i = 0; i < 300; i++) {
        struct node *node = malloc(sizeof *node);
        node->next = list;
        node->value = i;
        list = node;
    }
    factor = atol(argv[1]);
    long total = sum(); /* here */
    printf("%ld\n", total);
    return reserved != NULL;
}
"""
SENTENCE = "the program keeps more in memory than is looked at; give the failing test a smaller input."


def test_small_ones_are_whole(open_runs):
    assert not open_runs(SOURCE, ["1"], ["2"]).graph("failing").is_cut


def test_memory(open_runs, monkeypatch):
    monkeypatch.setattr(captures, "MEMORY_LIMIT", 1 << 16)
    graph = open_runs(SOURCE, ["1"], ["2"]).graph("failing")
    assert graph.is_cut
    assert graph.visit.unreadable > 50_000
    assert {"image", "stack"} <= {region.kind for region in graph.visit.regions}
    assert graph.contents(find_variable(graph, "factor")) == (2).to_bytes(8, "little")


def test_a_very_large_block(open_runs):
    visit = open_runs(SOURCE, ["1"], ["2", "reserve"]).graph("failing").visit
    assert 80 << 20 <= visit.unreadable < 81 << 20


def test_objects(open_runs, monkeypatch):
    monkeypatch.setattr(unfolding, "OBJECTS_LIMIT", 100)
    runs = open_runs(SOURCE, ["1"], ["2"])
    graph = runs.graph("failing")
    assert graph.is_cut
    assert 100 <= len(graph.objects) < 200
    chain = diagnose(*runs.commands, lambda run: Outcome.PASS if run.stdout == b"44850\n" else Outcome.FAIL)
    assert (chain.status, chain.reason) == ("partial", SENTENCE)
    assert [cause.variable for link in chain.chain for cause in link.causes][-1] == "total"
