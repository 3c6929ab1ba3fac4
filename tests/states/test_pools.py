"""Programs with allocators of their own: many objects in one block, arrays whose length nobody tells."""

from __future__ import annotations

import pytest
from two_runs import HEADERS, find_target

OBSTACK = r"""
#include <obstack.h>
#define obstack_chunk_alloc malloc
#define obstack_chunk_free free
struct rtx { enum { REG = 1, PLUS, SET } code; int mode; union { struct rtx *rtx; long number; char *text; } fld[1]; };
struct vector { int count; struct rtx *element[1]; };
static struct obstack pool;
static struct rtx *insns;
static struct vector *all;
static struct rtx *make(int code, int fields)
{
    struct rtx *new = obstack_alloc(&pool, offsetof(struct rtx, fld) + fields * sizeof new->fld[0]);
    memset(new, 0, offsetof(struct rtx, fld) + fields * sizeof new->fld[0]);
    new->code = code;
    return new;
}
static struct rtx *make_reg(long number) { struct rtx *reg = make(REG, 1); reg->fld[0].number = number; return reg; }
static void show(struct rtx *x)
{
    if (x->code == REG) printf("r%ld", x->fld[0].number);
    else if (x->code == PLUS) { printf("("); show(x->fld[0].rtx); printf("+"); show(x->fld[1].rtx); printf(")"); }
    else { show(x->fld[0].rtx); printf("="); show(x->fld[1].rtx); printf("; "); }
    if (x->code == SET && x->fld[2].rtx) show(x->fld[2].rtx);
}
int main(int argc, char **argv)
{
    int n;
    obstack_init(&pool);
    all = obstack_alloc(&pool, offsetof(struct vector, element) + argc * sizeof all->element[0]);
    all->count = argc - 1;
    for (n = 1; n < argc; n++) {
        struct rtx *set = make(SET, 3), *sum = make(PLUS, 2);
        sum->fld[0].rtx = make_reg(atoi(argv[n])); sum->fld[1].rtx = make_reg(n);
        set->fld[0].rtx = make_reg(100 + n); set->fld[1].rtx = sum; set->fld[2].rtx = insns; insns = set;
        all->element[n - 1] = sum;
    }
    argc = n = 0; argv = NULL;
    show(insns); /* here */
    for (n = 0; n < all->count; n++) show(all->element[n]);
    show(make_reg(7));
    return 0;
}
"""


class TestCustomAllocators:
    NODES = r"""
        struct node { int value; struct node *next; char *label; };
        struct leaf { double weight; struct leaf *left, *right; short tag; };
        static void *take(size_t size);
        static struct node *list;
        static struct leaf *tree;
        static char *copy(const char *text) { return strcpy(take(strlen(text) + 1), text); }
        static void add(const char *word)
        {
            struct node *node = take(sizeof *node);
            struct leaf *leaf = take(sizeof *leaf);
            node->label = copy(word); node->value = strlen(word); node->next = list; list = node;
            leaf->weight = node->value / 2.0; leaf->left = tree; leaf->right = NULL; leaf->tag = node->value;
            tree = leaf;
        }
        static void show(void)
        {
            struct node *node; struct leaf *leaf;
            add("last");
            for (node = list; node; node = node->next) printf("%d %s\n", node->value, node->label);
            for (leaf = tree; leaf; leaf = leaf->left) printf("%g %d\n", leaf->weight, leaf->tag);
        }
        int main(int argc, char **argv)
        {
            int n;
            for (n = 1; n < argc; n++) add(argv[n]);
            argc = n = 0; argv = NULL;
            show(); /* here */
            return 0;
        }
    """
    POOLS = {  # noqa: RUF012
        "a large block": r"""
            static char *pool, *free_place; static size_t left;
            static void *take(size_t size)
            {
                if (!pool) { pool = free_place = malloc(4000); left = 4000; }
                size = (size + 7) & ~7; left -= size; free_place += size;
                return free_place - size;
            }""",
        "a static array": r"""
            static char pool[4000] __attribute__((aligned(8))); static size_t used;
            static void *take(size_t size)
            {
                void *taken = pool + used;
                used += (size + 7) & ~7;
                return taken;
            }""",
        "chunks in a list": r"""
            struct chunk { struct chunk *before; size_t used; char contents[4]; };
            static struct chunk *chunks;
            static void *take(size_t size)
            {
                size = (size + 7) & ~7;
                if (!chunks || chunks->used + size > 100) {
                    struct chunk *chunk = malloc(sizeof *chunk + 200);
                    chunk->before = chunks; chunk->used = 0; chunks = chunk;
                }
                chunks->used += size;
                return chunks->contents + chunks->used - size;
            }""",
        "a list of free cells": r"""
            struct cell { struct cell *link; };
            static struct cell *free_cells[8]; static char *rest; static size_t left;
            static void *take(size_t size)
            {
                size_t kind = (size + 7) / 8; struct cell *cell;
                if (kind < 8 && free_cells[kind]) {
                    cell = free_cells[kind]; free_cells[kind] = cell->link; return cell;
                }
                if (left < kind * 8) { left = 1000; rest = malloc(left); }
                cell = (struct cell *) rest; rest += kind * 8; left -= kind * 8;
                if (kind == 3 && !free_cells[3]) {
                    ((struct cell *) rest)->link = NULL; free_cells[3] = (void *) rest; rest += 24; left -= 24;
                }
                return cell;
            }""",
    }

    @pytest.mark.parametrize("pool", POOLS)
    def test_carve_objects_out_of(self, check, pool):
        source = self.NODES.replace("int main", self.POOLS[pool] + "\nint main")
        check(source, ["one", "three"], ["four", "fifteen", "a word that is rather long", "x"])
        check(source, ["four", "fifteen", "a word that is rather long", "x"], ["one", "three"])

    def test_objects_in_a_pool_have_their_types_and_names(self, open_runs):
        source = HEADERS + self.NODES.replace("int main", self.POOLS["a large block"] + "\nint main")
        runs = open_runs(source, ["one", "three"], ["one", "four!"])
        told = [(delta.name, delta.passing, delta.failing) for delta in runs.deltas]
        assert told == [("list->label", '"three"', '"four!"')] or told == [("*list->label", '"three"', '"four!"')]


class TestLargeCompiler:
    """What the states of a large C program, the GNU C compiler, consist of."""

    def test_structs_of_varying_length_in_an_obstack(self, check):
        """Arrays of one element at their ends go on as far as the next object."""
        check(OBSTACK, ["1", "2"], ["3", "4"])
        check(OBSTACK, ["1", "2"], ["3", "4", "5"])

    def test_arrays_among_objects_of_a_pool(self, check):
        check(
            r"""
            struct item { int value; struct item *next; };
            static char *pool, *place; static struct item **table, *list; static int *counts;
            static void *take(size_t size)
            {
                if (!pool) place = pool = calloc(1, 4000);
                place += (size + 7) & ~7;
                return place - ((size + 7) & ~7);
            }
            int main(int argc, char **argv)
            {
                int n;
                table = take(3 * sizeof *table); counts = take(3 * sizeof *counts);
                for (n = 0; n < 3; n++) {
                    table[n] = take(sizeof **table); table[n]->value = atoi(argv[1]) + n; table[n]->next = list;
                    list = table[n]; counts[n] = table[n]->value * 2;
                }
                argc = n = 0; argv = NULL;
                for (n = 0; n < 3; n++) printf("%d %d ", table[n]->value, counts[n]); /* here */
                for (; list; list = list->next) printf("%d ", list->value);
                return 0;
            }
            """,
            ["3"],
            ["30"],
        )

    def test_union_at_the_end_of_a_struct_that_is_cut_short(self, check):
        """Only the member that is used has memory."""
        check(
            r"""
            struct value { enum { SMALL, LARGE } kind; union { char letter; long numbers[20]; } as; } *values[2];
            int main(int argc, char **argv)
            {
                values[0] = malloc(offsetof(struct value, as) + 1); values[0]->kind = SMALL;
                values[0]->as.letter = argv[1][0];
                values[1] = calloc(1, sizeof **values); values[1]->kind = LARGE;
                values[1]->as.numbers[19] = atoi(argv[2]);
                argc = 0; argv = NULL;
                printf("%c %ld\n", values[0]->as.letter, values[1]->as.numbers[19]); /* here */
                return 0;
            }
            """,
            ["a", "5"],
            ["b", "6"],
        )

    def test_pointer_that_does_not_fit_does_not_change_what_an_object_is(self, open_runs):
        """Left over in a local variable: the enumeration there would have a value that it cannot have."""
        source = r"""
            enum kind { ONE = 1, TWO };
            struct tagged { enum kind kind; struct tagged *next; long more[2]; };
            static char *text;
            int main(int argc, char **argv)
            {
                struct tagged *left_over;
                text = strcpy(malloc(40), "not a struct at all, but a text");
                left_over = (struct tagged *) (text + 8);
                return 0; /* here */
            }
        """
        graph = open_runs(HEADERS + source).graph("passing")
        assert find_target(graph, "text").shape.is_text

    def test_two_guesses_at_one_place_do_not_replace_each_other_for_ever(self, open_runs):
        """A union may hold anything where it has a character: the smaller struct there was kept beside it, and then the
        union was news again each time the block was looked through."""
        source = r"""
            struct small { int kind; struct small *next; };
            union big { unsigned char code; long words[12]; };
            struct holder { union big *big; struct small *small; struct holder *next; };
            static struct holder *pool;
            int main(int argc, char **argv)
            {
                char *block = calloc(1, 400);
                pool = (struct holder *) block;
                pool->small = (struct small *) (block + 64);
                pool->next = (struct holder *) (block + 200);
                pool->next->big = (union big *) (block + 64);
                pool->small->kind = argc;
                block = NULL;
                return 0; /* here */
            }
        """
        graph = open_runs(HEADERS + source).graph("passing")
        block = find_target(graph, "pool")
        assert [offset for offset, _ in block.parts] == [0, 64, 200]
        assert graph.layouts.name(dict(block.parts)[64]) == "union big"

    def test_saved_registers_are_no_values(self, check):
        runs = check(
            r"""
            #include <setjmp.h>
            static jmp_buf back; static int count; static struct { jmp_buf inner; int depth; } saved;
            int main(int argc, char **argv)
            {
                char *pad = alloca(argc * 100);
                count = atoi(argv[1]); saved.depth = count * 2;
                setjmp(saved.inner);
                if (setjmp(back) == 0) {
                    argc = 0; argv = NULL; pad = NULL;
                    printf("%d %d ", count, saved.depth); /* here */
                    longjmp(back, 1);
                }
                printf("back\n");
                return 0;
            }
            """,
            ["3"],
            ["4"],
        )
        assert sorted(delta.name for delta in runs.deltas) == ["count", "saved.depth"]

    def test_names_do_not_lead_through_the_allocators_lists(self, open_runs):
        """The freed block's links would lead to the other one."""
        source = r"""
            struct node { struct node *next; int value; } *freed, *wanted;
            int main(int argc, char **argv)
            {
                struct node *first = calloc(1, 40), *second = calloc(1, 40);
                second->value = 5; freed = second;
                free(first); free(second);
                wanted = calloc(1, sizeof *wanted); wanted->value = argc;
                first = second = NULL;
                return 0; /* here */
            }
        """
        graph = open_runs(HEADERS + source).graph("passing")
        names = {graph.naming.name(o) for o in graph.objects if o.kind == "heap"}
        assert {"freed", "wanted"} <= names
        assert not [name for name in names if name.startswith("freed->")]
