"""Deltas written into real runs: all, none, each alone, some, and back again."""

from __future__ import annotations

import random

import pytest
from two_runs import TwoRuns

# Prints nothing before all is built, and then everything; whatever the structure looks like, it comes to an end.
WORDS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { EMPTY, TEXT, NUMBER, PAIR };
struct value { enum kind kind; union { char *text; long number; struct value *pair[2]; } as; };
struct node { char *word; int length; struct node *next, *prev; struct value *value; };
struct tree { struct node *node; struct tree *child[2]; };
struct record { char name[12]; unsigned vowels : 4; signed rest : 4; unsigned odd : 1; double ratio; };

static struct node *first, *last;
static struct tree *root;
static struct record *records;
static char grid[3][8];
static int *sums, *end;
static void *any;
static const char *mood = "calm";

static struct value *make_value(const char *word)
{
    struct value *value = calloc(1, sizeof *value);
    if (strlen(word) % 3 == 0) {
        value->kind = NUMBER;
        value->as.number = strlen(word);
    } else if (strlen(word) % 3 == 1) {
        value->kind = TEXT;
        value->as.text = strdup(word);
    } else {
        value->kind = PAIR;
        value->as.pair[0] = make_value(word + 1);
        value->as.pair[1] = make_value("x");
    }
    return value;
}

static void append(const char *word)
{
    struct node *node = calloc(1, sizeof *node);
    node->word = strdup(word);
    node->length = strlen(word);
    node->value = make_value(word);
    node->prev = last;
    if (last) last->next = node; else first = node;
    last = node; /* appended */
}

static struct tree *insert(struct tree *tree, struct node *node)
{
    int side;
    if (!tree) {
        tree = calloc(1, sizeof *tree);
        tree->node = node;
        return tree;
    }
    side = strcmp(node->word, tree->node->word) > 0;
    tree->child[side] = insert(tree->child[side], node);
    return tree;
}

static void show_value(struct value *value, int depth)
{
    if (!value || depth > 5) return;
    if (value->kind == NUMBER) printf(" %ld", value->as.number);
    if (value->as.number < 4096) return;
    if (value->kind == TEXT) printf(" '%s'", value->as.text);
    if (value->kind == PAIR) {
        show_value(value->as.pair[0], depth + 1);
        show_value(value->as.pair[1], depth + 1);
    }
}

static void show_tree(struct tree *tree, int depth)
{
    if (!tree || depth > 20) return;
    show_tree(tree->child[0], depth + 1);
    printf("%*s%s\n", depth, "", tree->node ? tree->node->word : "-");
    show_tree(tree->child[1], depth + 1);
}

static void show(void)
{
    struct node *node;
    struct record *record;
    int n = 0;
    printf("%s %d %d %s\n", mood, sums[0], end ? end[-1] : -1, any ? *(char **) any : "nothing"); /* here */
    for (node = first; node && n < 50; node = node->next, n++) {
        printf("%s %d", node->word, node->length);
        show_value(node->value, 0);
        puts("");
    }
    for (n = 0, node = last; node && n < 50; node = node->prev, n++) printf("%s ", node->word);
    show_tree(root, 0);
    for (record = records; record->name[0]; record++)
        printf("%s %d %d %d %g\n", record->name, record->vowels, record->rest, record->odd, record->ratio);
    for (n = 0; n < 3; n++) printf("%.8s|", grid[n]);
    puts("");
}

int main(int argc, char **argv)
{
    int n;
    struct node *node;
    sums = calloc(argc, sizeof *sums); /* start */
    for (n = 1; n < argc; n++)
        append(argv[n]);
    records = calloc(argc, sizeof *records);
    for (n = 0, node = first; node; node = node->next, n++) {
        root = insert(root, node);
        strncpy(records[n].name, node->word, 11);
        records[n].vowels = strcspn(node->word, "aeiou") % 16;
        records[n].rest = -(node->length % 8);
        records[n].odd = node->length % 2;
        records[n].ratio = node->length / 7.0;
        strncpy(grid[n % 3], node->word, 8); /* filled */
        sums[0] += node->length;
        end = sums + 1;
    }
    if (argc % 2) {
        any = malloc(2 * sizeof(char *));
        *(char **) any = strdup(argv[1]);
        mood = "upset";
    }
    show();
    return 0;
}
"""

FEW, MANY = ["pear", "fig"], ["apricot", "cherry", "quince", "blackcurrant", "kiwi", "a"]
SHORT, LONG = ["a", "b", "c"], ["an unusually long word that needs memory of its own", "b", "d"]


@pytest.fixture(scope="module")
def grown(open_shared) -> TwoRuns:
    return open_shared(WORDS, FEW, MANY)


@pytest.fixture(scope="module")
def shrunk(open_shared) -> TwoRuns:
    return open_shared(WORDS, MANY, FEW)


@pytest.fixture(scope="module")
def lengthened(open_shared) -> TwoRuns:
    return open_shared(WORDS, SHORT, LONG)


@pytest.fixture(params=["grown", "shrunk", "lengthened"])
def runs(request) -> TwoRuns:
    return request.getfixturevalue(request.param)


class TestStructures:
    def test_all_deltas_make_the_passing_run_the_failing_one(self, runs):
        altered, wanted = runs.alter_passing(runs.deltas), runs.original("failing")
        assert altered.stdout == wanted.stdout
        assert (altered.ending, altered.code) == ("exit", 0)

    def test_no_delta_changes_nothing(self, runs):
        assert runs.alter_passing([]) == runs.original("passing")

    def test_each_delta_alone_leaves_a_sane_state(self, runs):
        for delta in runs.deltas:
            altered = runs.alter_passing([delta])
            assert (altered.ending, altered.code) == ("exit", 0), delta

    def test_any_subset_leaves_a_sane_state(self, runs):
        choose = random.Random(7)
        for _ in range(15):
            chosen = choose.sample(runs.deltas, choose.randrange(1, len(runs.deltas)))
            altered = runs.alter_passing(chosen)
            assert (altered.ending, altered.code) == ("exit", 0), [delta.name for delta in chosen]

    def test_all_deltas_undone_make_the_failing_run_the_passing_one(self, runs):
        altered, wanted = runs.alter_failing(runs.deltas), runs.original("passing")
        assert altered.stdout == wanted.stdout
        assert (altered.ending, altered.code) == ("exit", 0)

    def test_each_delta_undone_alone_leaves_a_sane_state(self, runs):
        for delta in runs.deltas:
            altered = runs.alter_failing([delta])
            assert (altered.ending, altered.code) == ("exit", 0), delta

    @pytest.mark.parametrize(("mark", "visit"), [("/* start */", 1), ("/* appended */", 2), ("/* filled */", 2)])
    def test_at_other_moments(self, runs, mark, visit):
        stops = runs.at(mark, visit)
        comparison = runs.compare(stops)
        for side, other in (("passing", "failing"), ("failing", "passing")):
            move = runs.alter_passing if side == "passing" else runs.alter_failing
            altered = move(comparison.deltas, comparison, stops)
            assert altered.stdout == runs.original(other).stdout, f"{side} run at {mark}"


class TestSingleChanges:
    def test_of_a_bit_field_leave_its_neighbours_alone(self, open_runs):
        source = r"""
            #include <stdio.h>
            struct { unsigned a : 3; signed b : 4; unsigned c : 1; unsigned d : 13; unsigned long e : 35; } bits;
            int main(int argc, char **argv)
            {
                if (argc > 1) { bits.a = 5; bits.b = -8; bits.c = 1; bits.d = 0x1555; bits.e = 1ul << 34 | 1; }
                else { bits.a = 2; bits.b = 7; bits.d = 0xAAA; bits.e = 6; }
                printf("%d %d %d %d %ld\n", bits.a, bits.b, bits.c, bits.d, (long) bits.e); /* here */
                return 0;
            }
        """
        runs = open_runs(source, [], ["x"])
        passing, failing = (runs.original(side).stdout.split() for side in ("passing", "failing"))
        names = ["bits.a", "bits.b", "bits.c", "bits.d", "bits.e"]
        for n, name in enumerate(names):
            forth = runs.alter_passing([runs.delta(name)]).stdout.split()
            assert forth == [*passing[:n], failing[n], *passing[n + 1 :]]
            back = runs.alter_failing([runs.delta(name)]).stdout.split()
            assert back == [*failing[:n], passing[n], *failing[n + 1 :]]
        some = [runs.delta(name) for name in names[1::2]]
        assert runs.alter_passing(some).stdout.split() == [
            failing[n] if n % 2 else passing[n] for n in range(len(names))
        ]

    def test_of_one_element_or_member(self, lengthened):
        altered = lengthened.alter_passing([lengthened.delta("first->length")])
        lines, before = altered.stdout.splitlines(), lengthened.original("passing").stdout.splitlines()
        assert lines[1] == b"a %d 'a'" % len(LONG[0])
        assert [*lines[:1], *lines[2:]] == [*before[:1], *before[2:]]

    def test_longer_text_gets_memory_of_its_own(self, lengthened):
        delta = lengthened.delta("first->word")
        assert delta.kind == "create"
        lines = lengthened.alter_passing([delta]).stdout.splitlines()
        assert lines[1] == LONG[0].encode() + b" 1 'a'"

    def test_text_undone_alone_may_be_longer(self, open_runs):
        """All that leads to the text follows it to its new place."""
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            char *text, *same, *middle; struct { char *hidden; } *box;
            int main(int argc, char **argv)
            {
                text = same = strdup(argv[1]);
                middle = text + 1;
                box = malloc(sizeof *box); box->hidden = text;
                printf("%s %s %s %s\n", text, same, middle, box->hidden); /* here */
                text[0] = '!';
                printf("%s\n", same);
                free(box->hidden);
                return 0;
            }
        """
        long = "a text of more than twenty-four bytes"
        runs = open_runs(source, [long], ["short"])
        altered = runs.alter_failing([runs.delta("text")])
        assert altered.stdout.decode() == f"{long} {long} {long[1:]} {long}\n!{long[1:]}\n"
        assert altered.ending == "exit"
