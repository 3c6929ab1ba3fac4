"""Structures made by chance, in pairs: the one must become the other.

The program reads its seed from a file, so that one pair of runs serves for all pairs of seeds.
"""

from __future__ import annotations

import random

import pytest
from seeds import (
    Seeds,
    check_all_deltas,
    check_ends,
    check_nothing_is_left,
    check_pointers,
    choose_deltas,
    pairs_of_seeds,
    state_with,
)

from pytest_causechain.model.alteration import Transfer
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.transfer import transfer_to_passing_run

SOURCE = r"""
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node { int value; char *label; struct node *next, *prev; };
struct tree { short key; struct tree *child[2], *parent; union { double weight; char tag[4]; } extra; };
struct record { char name[12]; unsigned flags : 4; signed level : 3; double weight; struct node **index; };

struct vertex { int id; struct vertex *to[3]; };

static unsigned long state;
static struct vertex *sources[3];
static struct { struct node *head, *tail, *cursor; int length; } list;
static struct tree *root;
static long *numbers;
static struct record *records;
static char *texts[5];
static void *any;

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (state >> 33) % below;
}

static char *make_text(void)
{
    int n, length = draw(40);
    char *text = malloc(length + 1);
    for (n = 0; n < length; n++)
        text[n] = 'a' + draw(26);
    text[length] = 0;
    return text;
}

static void append(void)
{
    struct node *node = calloc(1, sizeof *node);
    node->value = draw(100);
    node->label = make_text();
    node->prev = list.tail;
    if (list.tail) list.tail->next = node; else list.head = node;
    list.tail = node;
    if (!list.cursor || !draw(3)) list.cursor = node;
    list.length++;
}

static void insert(short key)
{
    struct tree **at = &root, *parent = NULL;
    while (*at) {
        parent = *at;
        at = &parent->child[key > parent->key];
    }
    *at = calloc(1, sizeof **at);
    (*at)->key = key;
    (*at)->parent = parent;
    (*at)->extra.weight = key / 4.0;
}

static void connect(void)
{
    struct vertex *made[8];
    int n, i, count = draw(7) + 1;
    for (n = 0; n < count; n++) {
        made[n] = calloc(1, sizeof *made[n]);
        made[n]->id = draw(1000);
        for (i = 0; n && i < 3; i++)
            if (draw(2)) made[n]->to[i] = made[draw(n)];
    }
    for (n = 0; n < 3; n++) sources[n] = made[draw(count)];
}

static int weigh(struct vertex *vertex, int depth)
{
    int n, sum = vertex ? vertex->id : 0;
    for (n = 0; vertex && depth < 9 && n < 3; n++) sum = sum * 3 + weigh(vertex->to[n], depth + 1);
    return sum;
}

static void build(void)
{
    int n, count = draw(8);
    connect();
    for (n = draw(7); n > 0; n--) append();
    for (n = draw(9); n > 0; n--) insert(draw(50));
    numbers = calloc(count + 1, sizeof *numbers);
    for (n = 0; n < count; n++) numbers[n] = draw(1000) + 1;
    count = draw(5);
    records = calloc(count + 1, sizeof *records);
    for (n = 0; n < count; n++) {
        sprintf(records[n].name, "r%d", draw(1000));
        records[n].flags = draw(16);
        records[n].level = draw(8);
        records[n].weight = draw(100) / 8.0;
        if (list.head && draw(2)) {
            records[n].index = calloc(3, sizeof(struct node *));
            records[n].index[draw(2)] = list.cursor;
        }
    }
    for (n = 0; n < 5; n++) if (draw(3)) texts[n] = n && draw(2) ? texts[n - 1] : make_text();
    if (draw(2)) { any = malloc(24); *(char **) any = make_text(); }
}

static void show_tree(struct tree *tree, int depth)
{
    if (!tree || depth > 20) return;
    show_tree(tree->child[0], depth + 1);
    printf("%d:%d^%d %g\n", depth, tree->key, tree->parent ? tree->parent->key : -1, tree->extra.weight);
    show_tree(tree->child[1], depth + 1);
}

static void show(void)
{
    struct node *node;
    int n, i;
    printf("%d %lu\n", list.length, state);
    for (n = 0, node = list.head; node && n < 50; node = node->next, n++) printf("%d %s\n", node->value, node->label);
    for (n = 0, node = list.tail; node && n < 50; node = node->prev, n++) printf("%d ", node->value);
    for (n = 0, node = list.cursor; node && n < 50; node = node->next, n++) printf("%d ", node->value);
    for (n = 0; numbers[n]; n++) printf("%ld ", numbers[n]);
    for (n = 0; records[n].name[0]; n++) {
        printf("%s %d %d %g", records[n].name, records[n].flags, records[n].level, records[n].weight);
        for (i = 0; records[n].index && i < 3; i++)
            printf(" %s", records[n].index[i] ? records[n].index[i]->label : "-");
        puts("");
    }
    for (n = 0; n < 5; n++) printf("%s %d\n", texts[n] ? texts[n] : "-", n && texts[n] == texts[n - 1]);
    printf("%s\n", any ? *(char **) any : "-");
    for (n = 0; n < 3; n++) printf("%d %d\n", weigh(sources[n], 0), sources[n] == sources[0]);
    show_tree(root, 0);
}

static void release(void)
{
    int n;
    append();
    insert(7);
    for (n = 0; records[n].name[0]; n++) free(records[n].index);
    while (list.head) {
        struct node *node = list.head;
        list.head = node->next;
        free(node->label);
        free(node);
    }
    for (n = 0; n < 5; n++) if (texts[n] && (n == 4 || texts[n] != texts[n + 1])) free(texts[n]);
    free(numbers);
    free(records);
    puts("released");
}

/* The allocator looks at its blocks when it joins and gives back free ones; it ends a program whose heap is broken. */
static void exercise(void)
{
    void *taken[200];
    int n, round;
    for (round = 0; round < 5; round++) {
        for (n = 0; n < 200; n++) taken[n] = malloc(draw(3000) + 1);
        for (n = 0; n < 200; n += 2) free(taken[n]);
        for (n = 1; n < 200; n += 2) free(taken[n]);
        malloc_trim(0);
    }
    puts("sound");
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "r");
    fscanf(file, "%lu", &state);
    fclose(file);
    file = NULL;
    build();
    show(); /* here */
    if (argc > 2 && !strcmp(argv[2], "release"))
        release();
    if (argc > 2 && !strcmp(argv[2], "exercise"))
        exercise();
    return 0;
}
"""


@pytest.fixture(scope="module")
def releasing(open_shared, tmp_path_factory) -> Seeds:
    directory = tmp_path_factory.mktemp("seeds")
    return Seeds(
        open_shared(SOURCE, [f"{directory}/passing", "release"], [f"{directory}/failing", "release"]), directory
    )


@pytest.fixture(scope="module")
def exercising(open_shared, tmp_path_factory) -> Seeds:
    """The allocator fills what it gives and takes back with other values than 0."""
    directory = tmp_path_factory.mktemp("seeds")
    arguments = ([f"{directory}/{side}", "exercise"] for side in ("passing", "failing"))
    changes = (("MALLOC_PERTURB_", "165"),)
    return Seeds(open_shared(SOURCE, *arguments, environment=(changes, changes)), directory)


@pytest.fixture(scope="module")
def showing(open_shared, tmp_path_factory) -> Seeds:
    directory = tmp_path_factory.mktemp("seeds")
    return Seeds(open_shared(SOURCE, [f"{directory}/passing"], [f"{directory}/failing"]), directory)


def blocks_in_use(graph: MemoryGraph) -> dict[int, int]:
    return {start: size for start, size in graph.memory.blocks.items() if start not in graph.memory.freed}


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(20, seed=1))
def test_all_deltas_make_the_one_the_other(releasing, passing, failing):
    """And leave a heap behind in which everything can be given back."""
    check_all_deltas(releasing.plant(passing, failing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(5, seed=2))
def test_some_deltas_never_crash(showing, passing, failing):
    check_ends(showing.plant(passing, failing), random.Random(passing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(4, seed=3))
def test_nothing_is_left_when_all_was_written(showing, passing, failing):
    check_nothing_is_left(showing.plant(passing, failing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(3, seed=4))
def test_some_deltas_leave_a_state_whose_pointers_all_lead_somewhere(showing, passing, failing):
    check_pointers(showing.plant(passing, failing), random.Random(failing))


def test_the_same_deltas_make_the_same_transfer(showing):
    runs = showing.plant(11, 12)
    again = runs.compare()
    some = runs.deltas[::2], again.deltas[::2]
    assert transfer_to_passing_run(runs.comparison, some[0]) == transfer_to_passing_run(again, some[1])


class TestHeap:
    """Checked by glibc's own allocator and by its blocks."""

    @pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(4, seed=5))
    def test_some_deltas_leave_it_sound(self, exercising, passing, failing):
        runs = exercising.plant(passing, failing)
        for chosen in choose_deltas(runs, random.Random(passing)):
            for altered in (runs.alter_passing(chosen), runs.alter_failing(chosen)):
                assert altered.stdout.endswith(b"sound\n"), [delta.name for delta in chosen]

    @pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(4, seed=6))
    def test_some_deltas_leave_its_blocks_as_they_were(self, exercising, passing, failing):
        runs = exercising.plant(passing, failing)
        before = blocks_in_use(runs.comparison.matching.passing)
        for chosen in choose_deltas(runs, random.Random(failing)):
            after = state_with(runs, chosen).memory.blocks
            assert before.items() <= after.items(), [delta.name for delta in chosen]

    def test_is_found_broken_when_it_is(self, exercising):
        """The head of the unused rest of the heap, and that of a block."""
        runs = exercising.plant(1, 2)
        before = blocks_in_use(runs.comparison.matching.passing)
        rest, middle = (
            Transfer(writes=((start + size, b"\xff" * 8),))
            for start, size in (list(before.items())[number] for number in (-1, len(before) // 2))
        )
        assert not runs.lab.experiment("passing", runs.stops, rest).stdout.endswith(b"sound\n")
        visit = runs.lab.visit("passing", runs.stops, middle)
        assert visit is not None and not before.items() <= runs.make_graph(visit).memory.blocks.items()
