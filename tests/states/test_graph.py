"""What is found from the variables of a stopped run, and what it is called."""

from __future__ import annotations

import pytest
from two_runs import TwoRuns, find_target, find_variable

from pytest_causechain.states.graph import MemoryGraph

STRUCTURES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node { int value; struct node *next, *prev; };
struct tree { int key; struct tree *child[2]; };
struct row { int count; struct node *cells[]; };
struct shape { int kind; };
struct circle { struct shape shape; double radius; char *label; };

struct { int max; struct node *nodes; } config;
struct node table[3];
struct node *list, *ring, *pair[2];
struct tree *root;
struct row *row;
struct node **link;
struct node **links;
void *any, *anything;
char *text;
struct shape *shapes[1];
int *past, *before;
FILE *stream, *opened;
struct node *dangling, *wild = (struct node *) 0x1234;
char *stale;

static struct node *make(int value, struct node *next)
{
    struct node *node = calloc(1, sizeof *node);
    node->value = value;
    node->next = next;
    if (next)
        next->prev = node;
    return node;
}

static int count(int by)
{
    static int calls;
    static struct node *last;
    last = make(calls += by, NULL);
    return calls;
}

static void leave(void)
{
    char local[4000] = "gone";
    stale = local;
}

static void look(struct node *first, int *numbers, struct node *inner)
{
    int sum = first->value + numbers[1];
    if (sum) {
        int deeper = sum * 2;
        sum += deeper; /* here */
        int later = sum;
        sum = later;
    }
    printf("%d\n", sum);
}

int main(int argc, char **argv, char **environment)
{
    int *numbers = malloc(3 * sizeof *numbers);
    char **rest = argv + 2, *option = argv[1] + 1;
    struct circle *circle = calloc(1, sizeof *circle);
    numbers[0] = 1; numbers[1] = 2; numbers[2] = 3;
    list = make(1, make(2, make(3, NULL)));
    ring = make(7, NULL); ring->next = ring;
    pair[1] = list->next;
    root = calloc(1, sizeof *root); root->child[1] = calloc(1, sizeof *root); root->child[1]->key = 4;
    row = calloc(1, sizeof *row + 2 * sizeof(struct node *)); row->count = 2; row->cells[1] = make(9, NULL);
    link = malloc(sizeof *link); *link = make(8, NULL);
    links = malloc(3 * sizeof *links); links[0] = list; links[1] = NULL; links[2] = make(6, NULL);
    any = list; anything = malloc(16); *(char **) anything = strdup("through an unknown pointer");
    text = strdup("some text");
    circle->radius = 1.5; circle->label = strdup("label"); shapes[0] = &circle->shape; circle = NULL;
    past = numbers + 6; before = numbers + 1;
    stream = stdout; opened = fopen("/dev/null", "w");
    dangling = make(5, NULL); free(dangling);
    leave();
    count(3);
    look(list, numbers, list->next->next);
    return 0;
}
"""


@pytest.fixture(scope="module")
def runs(open_shared) -> TwoRuns:
    return open_shared(STRUCTURES, ["-a", "b"], ["-x", "y", "z"], environment=((), (("GREETING", "hello"),)))


@pytest.fixture(scope="module")
def graph(runs) -> MemoryGraph:
    return runs.graph("failing")


def value(graph: MemoryGraph, name: str, path: str = "") -> int:
    """A number in what a pointer leads to."""
    o = find_target(graph, name)
    leaf = next(place.leaf for place in o.shape.leaves() if place.leaf.path == path)
    return int.from_bytes(graph.value(o, leaf), "little")


class TestNames:
    @pytest.mark.parametrize(
        ("name", "number"),
        [("first", 1), ("pair[1]", 2), ("inner", 3), ("ring", 7), ("*link", 8), ("links[2]", 6), ("row->cells[1]", 9)],
    )
    def test_shortest_way_from_the_innermost_frame(self, graph, name, number):
        assert value(graph, name, ".value") == number

    def test_parts_of_structs_and_arrays(self, graph):
        assert value(graph, "root->child[1]", ".key") == 4
        assert value(graph, "numbers", "") == 1
        numbers = find_target(graph, "numbers")
        assert [place.leaf.offset for place in numbers.shape.leaves()][:3] == [0, 4, 8]
        assert [place.leaf.offset for place in graph.leaves_near(numbers, 8, 1)] == [4, 8, 12]
        assert [place.leaf.offset for place in graph.leaves_near(numbers, 0, 1)] == [0, 4]

    def test_static_variables_of_functions_that_do_not_run(self, graph):
        assert find_variable(graph, "count::calls").frame is None
        assert value(graph, "count::last", ".value") == 3

    def test_frames_are_counted_from_the_innermost(self, graph):
        naming = graph.naming
        frames = {naming.name(o): naming.frame(o) for o in graph.objects}
        assert (frames["first"], frames["inner"], frames["numbers"]) == (0, 0, 0)
        assert (frames["argc"], frames["rest"], frames["argv"]) == (1, 1, 1)
        assert (frames["list"], frames["pair[1]"], frames["ring"]) == (None, None, None)

    def test_memory_without_a_type(self, graph):
        inner = find_target(graph, "((void **) anything)[0]")
        assert graph.contents(inner).startswith(b"through an unknown pointer\0")

    def test_every_object_has_a_name_and_a_key(self, graph):
        assert [o for o in graph.objects if not graph.naming.name(o) or not graph.naming.key(o)] == []
        for objects in (graph.variables, [o for o in graph.objects if o.kind != "variable"]):
            assert len({graph.naming.key(o) for o in objects}) == len(objects)


class TestExtents:
    def test_slack_of_a_block_belongs_to_it(self, graph):
        numbers = find_target(graph, "numbers")
        assert (numbers.size, numbers.count, graph.is_single(numbers)) == (24, 6, False)

    def test_one_element_in_the_smallest_block_for_it_is_single(self, graph):
        assert graph.is_single(find_target(graph, "first"))
        assert graph.is_single(find_target(graph, "link"))
        assert not graph.is_single(find_target(graph, "links"))

    def test_array_at_the_end_of_a_struct_fills_its_block(self, graph):
        row = find_target(graph, "row")
        assert [place.path for place in row.shape.leaves()] == ["[].count", "[].cells[0]", "[].cells[1]"]

    def test_object_of_a_larger_type_behind_a_pointer_to_its_first_member(self, open_runs):
        source = r"""
            #include <stdlib.h>
            struct shape { int kind; struct shape *next; };
            struct circle { struct shape shape; double radius; char *label; };
            struct shape *shape;
            int main(void)
            {
                struct circle *circle = calloc(1, sizeof *circle);
                circle->radius = 1.5;
                circle->label = calloc(1, 200);
                circle->label[0] = 'x';
                shape = &circle->shape;
                circle = NULL;
                return 0; /* here */
            }
        """
        graph = open_runs(source).graph("failing")
        circle = find_target(graph, "shape")
        assert (circle.count, circle.shape.raw) == (1, ((16, 40),))
        leaves = [place.leaf for place in circle.shape.leaves()]
        assert [(leaf.path, leaf.offset, leaf.size) for leaf in leaves] == [
            (".kind", 0, 4),
            (".next", 8, 8),
            ("", 16, 24),
        ]
        assert find_target(graph, "((void **) shape)[3]").size == 200

    def test_text_and_vector_of_the_arguments(self, graph):
        vector = find_target(graph, "argv")
        assert (vector.kind, vector.count) == ("vector", 5)
        assert graph.contents(find_target(graph, "argv[1]")) == b"-x\0"
        assert graph.contents(find_target(graph, "argv[2]")) == b"y\0"

    def test_environment(self, graph):
        texts = [graph.contents(o) for o in graph.objects if graph.naming.name(o).startswith("environment[")]
        assert b"GREETING=hello\0" in texts
        assert find_target(graph, "environment").count == len(texts) + 1


class TestPointers:
    def lead(self, graph: MemoryGraph, name: str) -> tuple[str | None, int]:
        pointer = graph.pointers(find_variable(graph, name))[0]
        target = graph.target(pointer.value)
        return (graph.naming.name(target.object) if target.object else None), target.offset

    @pytest.mark.parametrize(
        ("name", "leads_to"),
        [
            ("first", ("first", 0)),
            ("list", ("first", 0)),
            ("any", ("first", 0)),
            ("before", ("numbers", 4)),
            # The block has room for six, so this is one past its end.
            ("past", ("numbers", 24)),
            ("rest", ("argv", 16)),
            ("option", ("argv[1]", 1)),
            ("dangling", ("dangling", 0)),
        ],
    )
    def test_lead_to_objects(self, graph, name, leads_to):
        assert self.lead(graph, name) == leads_to

    @pytest.mark.parametrize("name", ["stale", "wild", "stream", "opened"])
    def test_lead_to_nothing_known(self, graph, name):
        assert self.lead(graph, name)[0] is None

    def test_type_from_the_reference_that_says_most(self, graph):
        assert graph.layouts.name(find_target(graph, "first").type) == "struct node"
        assert graph.layouts.is_char(find_target(graph, "text").type)

    def test_variables_that_hold_nothing_yet_are_marked(self, graph):
        is_unset = {o.name: o.is_unset for o in graph.variables if o.name in ("sum", "deeper", "later")}
        assert is_unset == {"sum": False, "deeper": False, "later": True}

    def test_vertices_are_the_values_one_could_name(self, open_runs):
        source = r"""
            struct { int a, b; char name[10]; } x[3];
            int main(void)
            {
                return 0; /* here */
            }
        """
        assert open_runs(source).graph("failing").vertices == 9


class TestKeys:
    SOURCE = r"""
        #include <stdlib.h>
        struct node { int value; struct node *next; };
        static int deepest(struct node *it, int depth)
        {
            if (depth)
                return deepest(it->next, depth - 1);
            return it->value; /* inside */
        }
        int main(int argc, char **argv)
        {
            struct node *list = NULL;
            int n, *numbers = calloc(10, sizeof *numbers);
            for (n = 0; n < 4; n++) {
                struct node *node = malloc(sizeof *node);
                node->value = n;
                node->next = list;
                list = node;
            }
            n = numbers[3]; /* here */
            return deepest(list, 2);
        }
    """

    def test_stay_when_functions_are_entered(self, open_runs):
        runs = open_runs(self.SOURCE)
        outside, inside = runs.graph("failing"), runs.graph("failing", runs.at("/* inside */"))
        keys = {o.address: outside.naming.key(o) for o in outside.objects}
        common = [o for o in inside.objects if o.address in keys]
        assert len(common) > 8
        assert {o.address: inside.naming.key(o) for o in common} == {o.address: keys[o.address] for o in common}
        assert {inside.naming.name(o) for o in common} >= {"list", "it", "it->next", "numbers"}

    def test_tell_calls_of_one_function_apart(self, open_runs):
        runs = open_runs(self.SOURCE)
        graph = runs.graph("failing", runs.at("/* inside */"))
        assert [o.key for o in graph.variables if o.name == "depth"] == [
            "4:deepest:0:depth",
            "3:deepest:0:depth",
            "2:deepest:0:depth",
        ]

    def test_of_static_variables_of_one_name_in_one_function(self, open_runs):
        source = r"""
            #include <stdio.h>
            static int count(int which)
            {
                if (which) {
                    static int calls = 10;
                    return ++calls; /* here */
                } else {
                    static int calls = 20;
                    return ++calls;
                }
            }
            int main(int argc, char **argv)
            {
                count(0);
                if (argc > 1) count(0);
                printf("%d", count(1));
                printf(" %d\n", count(0));
                return 0;
            }
        """
        runs = open_runs(source, [], ["x"])
        assert ("calls", "21", "22", "value") in runs.told()
        assert runs.alter_passing(runs.deltas).stdout == runs.original("failing").stdout == b"11 23\n"

    def test_and_names_of_a_long_list_count_its_steps(self, open_runs):
        source = r"""
            #include <stdlib.h>
            struct node { int value; struct link *link; struct node *next; } *list;
            struct link { struct node *node; int pad; };
            struct node *chain;
            int main(int argc, char **argv)
            {
                int n;
                for (n = 0; n < 500; n++) {
                    struct node *node = calloc(1, sizeof *node);
                    node->next = list;
                    list = node;
                    node = calloc(1, sizeof *node);
                    node->value = n == 0 ? argc : 0;
                    node->link = calloc(1, sizeof *node->link);
                    node->link->node = chain;
                    chain = node;
                }
                list->next->next->next->next->value = list->next->next->next->next->next->next->next->value = argc;
                argc = 0; argv = NULL;
                return 0; /* here */
            }
        """
        runs = open_runs(source, [], ["x"])
        direct, counted, cut = runs.deltas
        assert direct.name == "list->next->next->next->next->value"
        assert direct.assignment == f"{direct.name} = 2"
        assert (counted.name, counted.assignment) == ("list(->next 7 times)->value", None)
        assert cut.name.startswith("chain->link->node->link->node") and cut.name.endswith("->value")
        assert len(cut.name) < 600
        assert cut.assignment is None
        graph = runs.comparison.matching.failing
        assert len({graph.naming.key(o) for o in graph.objects if o.kind == "heap"}) == 1500
        assert runs.alter_passing(runs.deltas).ending == "exit"


class TestShadows:
    def test_names_of_hidden_variables_say_where_they_are(self, open_runs):
        source = r"""
            int total = 1;
            static int count(int by)
            {
                static int total;
                return total += by; /* here */
            }
            static int other(void)
            {
                static int total;
                return ++total;
            }
            int main(void)
            {
                int total = other();
                return count(total);
            }
        """
        graph = open_runs(source).graph("failing")
        names = sorted(o.name for o in graph.variables if o.name.endswith("total"))
        assert names == ["'program.c'::total", "other::total", "total", "total"]


CXX = r"""
#include <map>
#include <memory>
#include <string>
#include <vector>
struct Base { int id; virtual ~Base() {} virtual int weight() { return id; } };
struct Derived : Base { std::string name; int weight() override { return 2 * id; } };
struct Holder { int &number; };
static int look(int &number, const std::string &text, Derived *derived)
{
    return number + text.size() + derived->weight(); /* here */
}
extern "C" void run(int argc, char **argv)
{
    int number = argc;
    std::string text = argv[1], longer = text + " and much more than fits into the object itself";
    std::vector<std::string> words(3, text);
    std::map<std::string, int> numbers;
    Derived derived;
    Holder holder{number};
    derived.id = 4;
    derived.name = text;
    numbers[text] = 1;
    std::unique_ptr<Base> base(new Derived(derived));
    Base &same = derived;
    number += look(number, text, &derived) + holder.number + same.weight();
}
"""


@pytest.fixture(scope="module")
def cxx(open_shared) -> MemoryGraph:
    return open_shared(CXX, ["word"], ["word"]).graph("failing")


class TestCxx:
    def test_members_of_a_base_class_have_no_further_name(self, cxx):
        derived = find_variable(cxx, "derived")
        paths = [leaf.path for leaf in cxx.layouts.leaves(cxx.layouts.target(derived.type))]
        assert ".id" in paths
        assert ".name._M_string_length" in paths

    def test_references_are_left_to_what_they_refer_to(self, cxx):
        names = [(o.name, o.frame) for o in cxx.variables]
        assert ("number", 0) not in names and ("text", 0) not in names
        assert ("number", 1) in names and ("text", 1) in names

    def test_text_inside_and_outside_of_its_object(self, cxx):
        text, longer = find_variable(cxx, "text"), find_variable(cxx, "longer")
        inside = cxx.target(cxx.pointers(text)[0].value)
        outside = cxx.target(cxx.pointers(longer)[0].value)
        assert inside.object is text
        assert outside.object is not None
        assert cxx.contents(outside.object).startswith(b"word and much more")
