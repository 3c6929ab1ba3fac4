"""A memory graph as one of networkx, and its pictures."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from two_runs import TwoRuns, find_target, find_variable

from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.pictures import ROOT, draw_difference, draw_graph

# The example of the paper: of two lists the second link differs.
LIST = r"""
#include <stdio.h>
#include <stdlib.h>
struct node { int value; struct node *next; };
static struct node *list;
static void append(int value)
{
    struct node **at = &list;
    while (*at)
        at = &(*at)->next;
    *at = calloc(1, sizeof **at);
    (*at)->value = value;
}
int main(int argc, char **argv)
{
    struct node *node;
    int n;
    for (n = 1; n < argc; n++)
        append(atoi(argv[n]));
    argv = NULL;
    for (node = list; node; node = node->next) /* here */
        printf("%d ", node->value);
    return 0;
}
"""
COMMON, PASSING, FAILING = (
    "color=black",
    'color=red, fontcolor=red, style=dashed, tooltip="only in the passing run"',
    'color=blue, fontcolor=blue, style=bold, tooltip="only in the failing run"',
)
DIFFERENCE = rf"""digraph state {{
  rankdir=LR;
  node [fontname=monospace];
  n0 [shape=oval, label="list: struct node *\l", {COMMON}];
  n1 [shape=box, label="list: struct node\l()->value = 14\l", {COMMON}];
  n2 [shape=box, label="list->next: struct node\l()->value = 15\l", {FAILING}];
  n3 [shape=box, label="list->next: struct node\l()->value = 20\l", {PASSING}];
  n4 [shape=box, label="list->next->next: struct node\l()->value = 23\l()->next = NULL\l", {COMMON}];
  n0 -> n1 [label="()", {COMMON}];
  n1 -> n2 [label="()->next", {FAILING}];
  n2 -> n4 [label="()->next", {FAILING}];
  n1 -> n3 [label="()->next", {PASSING}];
  n3 -> n4 [label="()->next", {PASSING}];
}}
"""


class TestListOfThePaper:
    @pytest.fixture
    def runs(self, open_runs) -> TwoRuns:
        return open_runs(LIST, ["14", "20", "23"], ["14", "15", "23"])

    def test_one_object_is_created_and_one_deleted(self, runs):
        matching = runs.comparison.matching
        single = [
            [int.from_bytes(graph.contents(o)[:4], "little") for o in graph.objects if o not in matching.mates]
            for graph in (matching.passing, matching.failing)
        ]
        assert single == [[20], [15]]

    def test_each_delta_alone_leaves_a_proper_list(self, runs):
        assert runs.told() == [("list->next", "{20, ...}", "{15, ...}", "create")]
        for delta in runs.deltas:
            assert runs.alter_passing([delta]).stdout == b"14 15 23 "
            assert runs.alter_failing([delta]).stdout == b"14 20 23 "

    def test_picture_of_the_difference(self, runs):
        assert draw_difference(runs.comparison) == DIFFERENCE
        assert draw_difference(runs.compare()) == DIFFERENCE


STATE = r"""
#include <stdlib.h>
#include <string.h>
struct point { int x; struct { short low, high; } range; };
struct tree { char *word; struct tree *left, *right; } *root;
struct point point = { 3, { 4, 5 } }, *to_point = &point, *points, *behind;
int numbers[4] = { 6, 7, 8, 9 }, *cursor = numbers + 2, **twice = &cursor;
char *odd;
int main(int argc, char **argv)
{
    root = calloc(1, sizeof *root); root->word = strdup("top"); root->left = root;
    root->right = calloc(1, sizeof *root); root->right->word = root->word;
    points = calloc(5, sizeof *points); points[1].range.high = 11; points[4].x = 1; behind = points + 5;
    odd = strdup("say \"\\n\" }\n]; n0 -> n1");
    return 0; /* here */
}
"""


@pytest.fixture(scope="module")
def graph(open_shared) -> MemoryGraph:
    return open_shared(STATE).graph("passing")


def walk(view, *operations: str) -> dict[str, object]:
    """The vertex at the end of a way from the root."""
    vertex = ROOT
    for operation in operations:
        (vertex,) = [end for _, end, known in view.out_edges(vertex, data="operation") if known == operation]
    return view.nodes[vertex]


class TestView:
    @pytest.mark.parametrize(
        ("way", "name", "kind", "value"),
        [
            ("point ().x", "point.x", "int", "3"),
            ("point ().range.high", "point.range.high", "short", "5"),
            ("to_point *() ().x", "point.x", "int", "3"),
            ("numbers ()[1]", "numbers[1]", "int", "7"),
            ("cursor *()", "numbers[2]", "int", "8"),
            ("twice *() *()", "numbers[2]", "int", "8"),
            ("root () ()->word *()", "*root->word", "char", '"top"'),
            ("root () ()->right () ()->word *()", "*root->word", "char", '"top"'),
            ("root () ()->left () ()->left () ()->right () ()->left", "root->right->left", "struct tree *", "NULL"),
            ("points () ()[1].range.high", "points[1].range.high", "short", "11"),
        ],
    )
    def test_operations_lead_to_values(self, graph, way, name, kind, value):
        vertex = walk(graph.to_networkx(), *way.split())
        assert (vertex["name"], vertex["type"], vertex["value"]) == (name, kind, value)

    def test_objects(self, graph):
        view = graph.to_networkx()
        whole = walk(view, "points", "()")
        assert (whole["kind"], whole["type"], whole["value"]) == ("heap", "struct point [5]", None)
        assert whole["address"] == find_target(graph, "points").address
        assert walk(view, "numbers")["kind"] == "variable"

    def test_pointer_behind_the_end(self, graph):
        assert walk(graph.to_networkx(), "behind", "() - 40 bytes")["name"] == "points"

    def test_every_vertex_is_reached_from_the_root(self, graph):
        import networkx

        view = graph.to_networkx()
        assert set(view) == {ROOT, *networkx.descendants(view, ROOT)}


class TestPicture:
    def test_around_given_objects(self, graph):
        picture = draw_graph(graph, [find_variable(graph, "root")])
        titles = re.findall(r'label="(.*?)\\l', picture)
        assert titles == [
            "root: struct tree *",
            "root: struct tree",
            "root->word: char",
            "root->right: struct tree",
        ]
        assert '  n1 -> n1 [label="()->left", color=black];' in picture.splitlines()

    def test_way_to_an_object_is_drawn(self, graph):
        assert 'label="root: struct tree *' in draw_graph(graph, [find_target(graph, "root->right")])

    def test_texts_of_the_program_cannot_break_out(self, graph):
        picture = draw_graph(graph, [find_variable(graph, "odd")])
        (line,) = [line for line in picture.splitlines() if "say" in line]
        string = r'"(?:[^"\\]|\\.)*"'
        assert re.fullmatch(rf"  n1 \[shape=box, label={string}, color=black\];", line)

    def test_too_large_a_picture_says_so(self, graph):
        picture = draw_graph(graph, limit=5)
        assert len(re.findall(r"^  n\d+ \[shape", picture, re.M)) == 5
        assert re.search(r'more \[shape=plaintext, label="\d+ more objects"\]', picture)

    def test_large_array_is_cut(self, open_runs):
        source = "int many[1000]; int main(void) { many[999] = 5; return 0; /* here */\n}"
        graph = open_runs(source).graph("passing")
        picture = draw_graph(graph, [find_variable(graph, "many")])
        assert "many: int [1000]" in picture and "992 more values" in picture

    def test_same_state_same_picture_wherever_it_lies(self, open_runs):
        """Addresses are nothing one looks at."""
        source = LIST.replace("int n;", 'int n; void *pad = malloc(atoi(getenv("PAD")));')
        runs = open_runs(source, ["1", "2"], ["1", "2"], environment=((("PAD", "10"),), (("PAD", "5000"),)))
        here, there = (runs.graph(side) for side in ("passing", "failing"))
        assert find_target(here, "list").address != find_target(there, "list").address
        here, there = (draw_graph(graph, [find_variable(graph, "list")]) for graph in (here, there))
        assert here == there
        assert "0x" not in here


def test_networkx_is_not_loaded_before_it_is_asked_for():
    source = (
        "import pytest_causechain.compare, pytest_causechain.states.pictures, sys; print('networkx' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
