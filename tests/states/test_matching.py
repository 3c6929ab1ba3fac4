"""Which object of one run is taken for which of the other."""

from __future__ import annotations

import pytest
from two_runs import TwoRuns, find_target, find_variable

from pytest_causechain.states.shapes import IMAGE, Target

LISTS = r"""
#include <stdlib.h>
struct node { int value; struct node *next; };
struct { struct node *current, *first, *last; } list;
struct node *spare;
static void look(struct node *from, int count)
{
    if (count)
        look(from->next, count - 1);
    else
        count = from->value; /* inside */
}
int main(int argc, char **argv)
{
    int n;
    struct node left = { 1 }, right = { 2 }, *chosen = argc > 2 ? &right : &left;
    for (n = 1; n < argc; n++) {
        struct node *node = calloc(1, sizeof *node);
        node->value = atoi(argv[n]);
        if (list.last) list.last->next = node; else list.first = node;
        list.last = node;
    }
    list.current = argc > 4 ? list.last : list.first;
    argc = 0; argv = NULL;
    look(list.first, 1); /* here */
    return 0;
}
"""


def pairs_of_values(runs: TwoRuns) -> list[tuple[int, int]]:
    """The numbers in the nodes of the heap that are paired."""
    matching = runs.comparison.matching
    graphs = (matching.passing, matching.failing)
    return sorted(
        tuple(int.from_bytes(graph.contents(o)[:4], "little") for graph, o in zip(graphs, pair, strict=True))
        for pair in matching.pairs
        if pair[0].kind == "heap"
    )


def test_equal_contents_before_a_pointer_to_another_place(open_runs):
    """`current` comes first, but leads to different nodes of the same list."""
    assert pairs_of_values(open_runs(LISTS, ["3", "4", "5"], ["3", "4", "5", "6"])) == [(3, 3), (4, 4), (5, 5)]


def test_places_decide_where_contents_differ(open_runs):
    assert pairs_of_values(open_runs(LISTS, ["3", "4", "5"], ["6", "7", "8"])) == [(3, 6), (4, 7), (5, 8)]


def test_object_of_one_run_only(open_runs):
    runs = open_runs(LISTS, ["3"], ["3", "4"])
    failing = runs.comparison.matching.failing
    assert pairs_of_values(runs) == [(3, 3)]
    assert find_target(failing, "list.last") not in runs.comparison.matching.mates


@pytest.mark.parametrize(
    ("passing", "failing", "expected"),
    [
        pytest.param("3 4 5", "2 3 4 5", "3 4 5", id="inserted-first"),
        pytest.param("2 3 4 5", "3 4 5", "3 4 5", id="removed-first"),
        pytest.param("3 4 5", "4 5 6", "4 5", id="shifted"),
        pytest.param("14 20 23", "14 15 23", "14 23", id="replaced"),
        pytest.param("1 2 3 9", "1 7 8 9", "1 9", id="two-replaced"),
        pytest.param("1 1 2 1", "1 2 1", "1 1 2", id="several-equal"),
    ],
)
def test_links_with_the_same_contents(open_runs, passing, failing, expected):
    """Wherever they are; those of which only one run has any are created or deleted."""
    runs = open_runs(LISTS, passing.split(), failing.split())
    assert pairs_of_values(runs) == [(int(value), int(value)) for value in expected.split()]


def test_links_that_are_equal_by_chance(open_runs):
    """Nothing goes on alike behind them: places decide."""
    runs = open_runs(LISTS, ["2", "4", "6", "8"], ["3", "6", "9", "12"])
    assert pairs_of_values(runs) == [(2, 3), (4, 6), (6, 9), (8, 12)]


def test_links_of_a_long_list(open_runs):
    """So many that they are not all weighed against each other."""
    numbers = [str(number) for number in range(100, 300)]
    runs = open_runs(LISTS, numbers, ["99", *numbers])
    assert pairs_of_values(runs) == [(number, number) for number in range(100, 300)]
    assert ("list.first", "{100, ...}", "{99, ...}", "create") in runs.told()


TREES = r"""
#include <stdlib.h>
#include <string.h>
struct tree { char *word; int height; long size; struct tree *left, *right; } *root;
static struct tree *make(char *word, int height, struct tree *left, struct tree *right)
{
    struct tree *tree = calloc(1, sizeof *tree);
    tree->word = strdup(word); tree->height = height; tree->size = 77; tree->left = left; tree->right = right;
    return tree;
}
int main(int argc, char **argv)
{
    if (argc > 1) root = make("b", 2, make("a", 1, NULL, NULL), make("c", 1, NULL, NULL));
    else root = make("a", 3, NULL, make("b", 2, NULL, make("c", 1, NULL, NULL)));
    argc = 0; argv = NULL;
    return 0; /* here */
}
"""


def test_links_that_differ_a_little(open_runs):
    """A tree that was turned: its nodes stay the same, although their heights change."""
    runs = open_runs(TREES, [], ["x"])
    graph = runs.comparison.matching.failing
    mates = runs.comparison.matching.mates
    for place, word in (("root", b"b"), ("root->left", b"a"), ("root->right", b"c")):
        mate = mates[find_target(graph, place)]
        assert (
            runs.comparison.matching.passing.memory.read_text(runs.comparison.matching.passing.words(mate)[0])
            == word + b"\0"
        )
    assert {(d.kind, d.passing, d.failing) for d in runs.deltas if d.name.endswith("height")} == {("value", "3", "1")}
    assert not [d for d in runs.deltas if d.kind in ("create", "delete", "alias")]


def test_objects_that_moved_to_another_place(open_runs):
    """In order of the heap where several are equal."""
    source = r"""
        #include <stdlib.h>
        struct point { int x, y; } *here[3], *there[3];
        int main(int argc, char **argv)
        {
            int n;
            for (n = 0; n < 3; n++) {
                struct point *point = calloc(1, sizeof *point);
                point->x = n == 1 ? 5 : 7; point->y = 2;
                if (argc > 1) there[n] = point; else here[n] = point;
            }
            return 0; /* here */
        }
    """
    matching = open_runs(source, [], ["x"]).comparison.matching
    for n in range(3):
        ours, theirs = find_target(matching.passing, f"here[{n}]"), find_target(matching.failing, f"there[{n}]")
        assert matching.mates[theirs] is ours


def test_addresses_say_nothing(open_runs):
    """Each run has at the address of its first node what the other has as its second."""
    source = r"""
        #include <stdlib.h>
        struct node { int value; struct node *next; } *first;
        int main(int argc, char **argv)
        {
            struct node *low = calloc(1, sizeof *low), *high = calloc(1, sizeof *high);
            first = argc > 1 ? high : low;
            first->value = 1; first->next = argc > 1 ? low : high; first->next->value = 2;
            low = high = NULL; argc = 0; argv = NULL;
            return 0; /* here */
        }
    """
    runs = open_runs(source, [], ["x"])
    ours, theirs = (find_target(runs.graph(side), "first").address for side in ("passing", "failing"))
    assert ours != theirs
    assert pairs_of_values(runs) == [(1, 1), (2, 2)]
    assert runs.told() == []


def test_tags_of_variants_must_agree(open_runs):
    """What a union holds depends on them: with another tag it is another thing."""
    source = r"""
        #include <stdlib.h>
        enum code { NUMBER, PAIR };
        struct value { enum code code; union { long number; struct value *pair[2]; } as; } *value;
        enum state { OPEN, SHUT };
        struct door { enum state state; int width; } *door;
        int main(int argc, char **argv)
        {
            value = calloc(1, sizeof *value); door = calloc(1, sizeof *door); door->width = 90;
            if (argc > 1) { value->code = PAIR; value->as.pair[0] = calloc(1, sizeof *value); door->state = SHUT; }
            else value->as.number = 5;
            argc = 0; argv = NULL;
            return 0; /* here */
        }
    """
    told = {(name, kind) for name, _, _, kind in open_runs(source, [], ["x"]).told()}
    assert told == {("value", "create"), ("door->state", "value")}


def test_variables_pair_by_name_whatever_points_to_them(open_runs):
    runs = open_runs(LISTS, ["3"], ["3", "4"])
    matching = runs.comparison.matching
    for name in ("left", "right", "chosen", "n", "list", "spare"):
        assert matching.mates[find_variable(matching.failing, name)] is find_variable(matching.passing, name)
    assert ("chosen", "&left", "&right", "repoint") in runs.told()


def test_pairs_stay_when_functions_are_entered(open_runs):
    """Inside, `from` leads to the second node, and would pair nodes by the innermost frame's variables."""
    runs = open_runs(LISTS, ["3", "4", "5"], ["4", "5", "6"])
    outside, inside = runs.comparison.matching, runs.compare(runs.at("/* inside */")).matching
    before = {(ours.address, theirs.address) for ours, theirs in outside.pairs}
    after = {(ours.address, theirs.address) for ours, theirs in inside.pairs}
    assert before < after
    assert len(after) - len(before) == 4  # two calls of look with two variables each


def test_same_target(open_runs):
    runs = open_runs(LISTS, ["3", "4"], ["3", "5"])
    matching = runs.comparison.matching
    ours, theirs = find_target(matching.passing, "list.current"), find_target(matching.failing, "list.current")
    last = find_target(matching.failing, "list.last")
    assert matching.same_target(Target(ours, 8), Target(theirs, 8))
    assert not matching.same_target(Target(ours, 8), Target(theirs, 0))
    assert not matching.same_target(Target(ours, 0), Target(last, 0))
    assert not matching.same_target(Target(ours, 0), Target(None, 0))
    assert matching.same_target(Target(None, 0x4010, IMAGE), Target(None, 0x4010, IMAGE))
    assert not matching.same_target(Target(None, 0x4010, IMAGE), Target(None, 0x4010))


def test_object_too_large_for_its_place_has_no_partner(open_runs):
    source = r"""
        #include <stdlib.h>
        int *numbers;
        int main(int argc, char **argv)
        {
            numbers = calloc(atoi(argv[1]), sizeof *numbers);
            return 0; /* here */
        }
    """
    matching = open_runs(source, ["10"], ["100"]).comparison.matching
    assert find_target(matching.failing, "numbers") not in matching.mates
    matching = open_runs(source, ["100"], ["10"]).comparison.matching
    assert matching.mates[find_target(matching.failing, "numbers")] is find_target(matching.passing, "numbers")


def test_array_whose_length_is_known_only_at_run_time(open_runs):
    source = r"""
        #include <stdlib.h>
        int main(int argc, char **argv)
        {
            int size = atoi(argv[1]);
            int numbers[size], n;
            for (n = 0; n < size; n++) numbers[n] = n;
            return 0; /* here */
        }
    """
    matching = open_runs(source, ["5"], ["3"]).comparison.matching
    assert find_variable(matching.failing, "numbers") in matching.mates
    matching = open_runs(source, ["3"], ["5"]).comparison.matching
    assert find_variable(matching.failing, "numbers") not in matching.mates
