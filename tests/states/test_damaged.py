"""States of programs that have lost their way: whatever lies in memory, it is read as far as it makes sense.

FUZZ is the number of examples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_runs import TwoRuns, find_variable

from pytest_causechain.causes.picturing import draw_picture
from pytest_causechain.debugger.types import BitVectorType
from pytest_causechain.debugger.visit import Region, Visit
from pytest_causechain.states.deltas import compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.transfer import script_change, transfer_to_failing_run, transfer_to_passing_run

SOURCE = r"""
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

struct Base { virtual ~Base() {} int kind = 1; };
struct Derived : Base { std::string name = "derived, and longer than fits into it"; };
struct Node { Node *next; char *text; union { long number; Node *other; }; int flags : 3; short tail[1]; };

static Node *list;
static char buffer[64] = "in a buffer";
static std::vector<std::string> words{"one", "two", "three and more than fits"};
static std::vector<bool> bits(70, true);
static std::map<std::string, int> counts{{"a", 1}, {"b", 2}, {"c", 3}};
static std::set<int> numbers{5, 6, 7};
static std::unordered_map<int, std::string> names{{1, "x"}, {2, "y"}};
static std::deque<long> queue{1, 2, 3};
static std::list<short> shorts{1, 2};
static std::shared_ptr<Base> shared = std::make_shared<Derived>();
static std::unique_ptr<Base> own(new Derived);
static std::optional<int> maybe = 3;
static std::variant<int, std::string> either = "text";
static void *nothing = &list;

int main(int argc, char **argv)
{
    for (int i = 0; i < 3 + argc % 2; i++) {
        Node *node = new Node{list, strdup(argv[0]), {i}, i, {}};
        list = node;
    }
    double local = argc;
    char **words_again = argv;
    return local > 9 || words_again == nullptr; /* here */
}
"""
fuzz = settings.get_profile("fuzz")


@pytest.fixture(scope="module")
def runs(open_shared) -> TwoRuns:
    return open_shared(SOURCE, ["a"], ["a", "b"])


@pytest.fixture(scope="module")
def graphs(runs) -> tuple[MemoryGraph, MemoryGraph]:
    return runs.graph("passing"), runs.graph("failing")


# Where: an object and a place in it; what: bytes, a number that may be a size, or the address of another object.
damages = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(0, 200),
        st.one_of(
            st.binary(min_size=1, max_size=24),
            st.sampled_from([0, 1, 7, 8, 1 << 20, 1 << 31, (1 << 47) - 8, 1 << 63, (1 << 64) - 1]),
            st.tuples(st.integers(0, 10_000), st.integers(-17, 40)),
        ),
    ),
    min_size=1,
    max_size=12,
)


def damage(graph: MemoryGraph, changes) -> Visit:
    regions = {region.start: bytearray(region.data) for region in graph.visit.regions}
    for number, offset, what in changes:
        o = graph.objects[number % len(graph.objects)]
        if isinstance(what, tuple):
            what = graph.objects[what[0] % len(graph.objects)].address + what[1]
        data = what if isinstance(what, bytes) else (what & (1 << 64) - 1).to_bytes(8, "little")
        at = o.address + offset % max(o.size, 1)
        region = graph.memory.region(at)
        if region is not None:
            start = max(start for start in regions if start <= at)
            room = regions[start]
            place = at - start
            room[place : place + len(data)] = data[: max(0, len(room) - place)]
    kinds = {region.start: region.kind for region in graph.visit.regions}
    damaged = tuple(Region(start, bytes(data), kinds[start]) for start, data in regions.items())
    return replace(graph.visit, regions=damaged)


def test_a_bit_vector_without_end(runs, graphs):
    """Where in its last word it ends is a number above 63."""
    number = next(n for n, o in enumerate(graphs[0].objects) if o is find_variable(graphs[0], "bits"))
    before, after = (runs.make_graph(damage(graphs[0], [(number, 24, end)])) for end in (6, 1 << 31))
    sizes = [
        [c.size for c in graph.containers.found.values() if isinstance(c.plan, BitVectorType)]
        for graph in (before, after)
    ]
    assert sizes == [[70], []]


@fuzz
@given(damages, damages)
def test_states(runs, graphs, passing_changes, failing_changes):
    passing, failing = (
        runs.make_graph(damage(graph, changes))
        for graph, changes in zip(graphs, (passing_changes, failing_changes), strict=True)
    )
    comparison = compare_states(match_states(passing, failing))
    assert passing.vertices > 0
    assert all(delta.name and isinstance(delta.passing, str) for delta in comparison.deltas)
    for transfer in (
        transfer_to_passing_run(comparison, comparison.deltas),
        transfer_to_failing_run(comparison, comparison.deltas),
    ):
        assert all(0 <= address < 1 << 64 for address, _ in transfer.writes)
    script_change(comparison, comparison.deltas, is_forwards=True)
    draw_picture(comparison, comparison.deltas[:3])
    assert failing.to_networkx().number_of_nodes() > 0


def test_a_vector_that_lies_in_its_own_buffer(open_runs):
    """As one left behind by a copy byte for byte: its buffer was opened again each time it had been looked through."""
    source = """
        #include <cstring>
        #include <vector>
        struct node { std::vector<node> children; };
        static std::vector<node> *top;
        int main(int argc, char **argv)
        {
            std::vector<node> first(2);
            std::memcpy(&first[0], &first, sizeof first);
            top = &first;
            return argc - 1; /* here */
        }
    """
    graph = open_runs(source).graph("passing")
    assert {container.size for container in graph.containers.found.values()} == {0, 2}
