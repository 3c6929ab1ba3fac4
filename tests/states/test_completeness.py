"""What a state of a C program may consist of: each kind moved into the other run, and back."""

from __future__ import annotations

import pytest
from two_runs import TwoRuns, check_both_ways, find_target, find_variable

HEADERS = r"""
#include <alloca.h>
#include <complex.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
"""


@pytest.fixture
def check(open_runs):
    def run(source: str, passing: list[str], failing: list[str]) -> TwoRuns:
        runs = open_runs(HEADERS + source, passing, failing)
        check_both_ways(runs)
        return runs

    return run


def test_scalars_of_all_types(check):
    runs = check(
        r"""
        enum color { RED, GREEN, BLUE };
        signed char a; unsigned short b; long long c; __int128 d; _Bool e; enum color f;
        float g; double h; long double i; double complex j; float complex k; wchar_t l; int (*m)(const char *);
        struct { unsigned low : 3; signed high : 13; _Bool on : 1; } bits;
        int main(int argc, char **argv)
        {
            int n = atoi(argv[1]);
            a = n; b = n; c = n; d = n; e = n > 3; f = n % 3; g = n / 8.0; h = n / 3.0; i = n / 3.0L;
            j = n + 2 * I; k = n - 1.5f * I; l = n; m = n > 3 ? puts : NULL;
            bits.low = n; bits.high = -n; bits.on = n > 3;
            n = argc = 0; argv = NULL;
            printf("%d %d %lld %d %d %d", a, b, c, (int) d, e, f); /* here */
            printf(" %g %g %Lg %g %g %d %d", g, h, i, cimag(j), crealf(k), (int) l, m == puts);
            printf(" %d %d %d\n", bits.low, bits.high, bits.on);
            return 0;
        }
        """,
        ["2"],
        ["7"],
    )
    told = {delta.name: (delta.passing, delta.failing) for delta in runs.deltas}
    assert told["i"] == ("0.66666666666666666668", "2.3333333333333333333")
    assert told["j"] == ("2 + 2i", "7 + 2i")
    assert told["k"] == ("2 - 1.5i", "7 - 1.5i")
    assert told["f"] == ("BLUE", "GREEN")


def test_padding_of_a_long_double_is_no_value(open_runs):
    source = r"""
        long double x;
        int main(int argc, char **argv)
        {
            memset(&x, argc, sizeof x); x = 1.5L; argc = 0; argv = NULL;
            return 0; /* here */
        }
    """
    assert open_runs(HEADERS + source, [], ["x"]).deltas == ()


def test_large_data_without_initial_values(check):
    """It lies behind the end of the file's part, on its own pages; one variable lies on the border."""
    check(
        r"""
        static char first[3000], second[100000]; static long third[50000], *last = third + 49999; static int fourth;
        int main(int argc, char **argv)
        {
            int n = atoi(argv[1]);
            first[2999] = second[99999] = third[49999] = fourth = n;
            printf("%d %d %ld %d\n", first[2999], second[99999], *last, fourth); /* here */
            return 0;
        }
        """,
        ["3"],
        ["4"],
    )


def test_static_variables_of_functions_and_blocks(check):
    check(
        r"""
        static int next(int by)
        {
            static int count = 100;
            if (by) {
                static struct { int times; char *text; } seen;
                seen.times++; seen.text = "set"; count += seen.times;
            }
            return count += by;
        }
        int main(int argc, char **argv)
        {
            int n;
            for (n = 0; n < argc; n++) next(n);
            argc = n = 0; argv = NULL;
            printf("%d\n", next(1)); /* here */
            return 0;
        }
        """,
        [],
        ["x", "y"],
    )


def test_variables_of_a_thread(check):
    check(
        r"""
        static __thread int number = 4; __thread char *text; __thread struct { long a, b; } pair;
        int main(int argc, char **argv)
        {
            number += argc; text = strdup(argv[argc - 1]); pair.b = argc;
            argc = 0; argv = NULL;
            printf("%d %s %ld\n", number, strrchr(text, '/') ? "path" : text, pair.b); /* here */
            return 0;
        }
        """,
        ["one"],
        ["three", "two"],
    )


def test_memory_of_alloca_and_arrays_of_a_computed_length(check):
    check(
        r"""
        static int sum(int *numbers, char *text, int count)
        {
            int n, total = 0;
            for (n = 0; n < count; n++) total += numbers[n]; /* here */
            printf("%d %s\n", total, text);
            return total;
        }
        static int work(int seed, const char *word)
        {
            int length = 5, n;
            int squares[length], *numbers = alloca(length * sizeof *numbers);
            char *text = alloca(20);
            for (n = 0; n < length; n++) { numbers[n] = n * seed; squares[n] = numbers[n] * seed; }
            strcpy(text, word);
            n = sum(numbers, text, length);
            printf("%d\n", n + squares[4] + numbers[3]);
            return 0;
        }
        int main(int argc, char **argv)
        {
            return work(atoi(argv[1]), argv[2]);
        }
        """,
        ["3", "few"],
        ["5", "more"],
    )


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


def test_integers_that_are_addresses(check):
    check(
        r"""
        struct item { int value; uintptr_t other; };
        static uintptr_t handle; static unsigned long table[3]; static char *pad; static struct item *known[2];
        int main(int argc, char **argv)
        {
            struct item *item = calloc(1, sizeof *item), *second;
            pad = malloc(atoi(argv[1]) * 50);
            second = calloc(1, sizeof *second);
            item->value = argc; second->value = atoi(argv[1]); item->other = (uintptr_t) second;
            handle = (uintptr_t) item; table[1] = (uintptr_t) second; table[2] = argc;
            known[0] = item; known[1] = second; item = second = NULL; argv = NULL; argc = 0;
            printf("%d %d", ((struct item *) handle)->value, ((struct item *) table[1])->value); /* here */
            printf(" %d %lu\n", ((struct item *) ((struct item *) handle)->other)->value, table[2]);
            return 0;
        }
        """,
        ["3"],
        ["7", "x"],
    )


def test_pointers_into_the_middle_and_past_the_end(check):
    check(
        r"""
        static int numbers[5], *first, *end, **at_end; static long *inner;
        static struct { char name[8]; long n; } *rows, *last;
        int main(int argc, char **argv)
        {
            int n = atoi(argv[1]);
            first = numbers + n; end = numbers + 5; at_end = &end;
            rows = calloc(4, sizeof *rows); last = rows + n; inner = &rows[n].n; *inner = n * 10;
            strcpy(last->name, argv[1]);
            printf("%d %d %s %ld", (int) (end - first), (int) (last - rows), last->name, *inner); /* here */
            printf(" %d\n", (int) (*at_end - first));
            return 0;
        }
        """,
        ["1"],
        ["3"],
    )


def test_cycles(check):
    runs = check(
        r"""
        struct tree { int key; struct tree *left, *right; } *tree;
        static struct tree *make(int key) { struct tree *new = calloc(1, sizeof *new); new->key = key; return new; }
        int main(int argc, char **argv)
        {
            struct tree *at; int n;
            tree = make(5); tree->left = make(3); tree->left->left = argc > 1 ? tree : make(1);
            argc = 0; argv = NULL;
            for (n = 0, at = tree; at && n < 6; at = at->left, n++) printf("%d ", at->key); /* here */
            return 0;
        }
        """,
        [],
        ["x"],
    )
    assert runs.told() == [("tree->left->left", "{1, NULL, NULL}", "tree itself", "repoint")]


def test_pointer_to_a_struct_that_has_less_memory_than_its_type(check):
    check(
        r"""
        struct node { int kind; char *name; long extra[8]; } *node;
        int main(int argc, char **argv)
        {
            node = malloc(offsetof(struct node, extra));
            node->kind = argc; node->name = strdup(argv[1]);
            argc = 0; argv = NULL;
            printf("%d %s\n", node->kind, node->name); /* here */
            return 0;
        }
        """,
        ["one"],
        ["something longer than the other", "x"],
    )


def test_memory_that_cannot_be_read_is_left_out(open_runs):
    source = r"""
        #include <sys/mman.h>
        int *guarded, *readable;
        int main(void)
        {
            guarded = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            readable = malloc(8); *readable = 5;
            return 0; /* here */
        }
    """
    graph = open_runs(HEADERS + source).graph("failing")
    assert graph.target(graph.words(find_variable(graph, "guarded"))[0]).object is None
    assert graph.contents(find_target(graph, "readable"))[0] == 5


class TestUnsetVariables:
    SOURCE = r"""
        static void leave(long number, char *address)
        {
            long left[6] = { number, (long) address, number, (long) address, number, (long) address };
            printf("%s", left[0] ? "" : "never");
        }
        static int use(int given)
        {
            given = given + 1; /* here */
            long number, *pointer, text[3];
            printf("%ld\n", number);
            return pointer == text;
        }
        int main(int argc, char **argv)
        {
            char *block = malloc(argc * 100);
            leave(argc, block);
            argv = NULL; block = NULL; argc = 0;
            use(1);
            return 0;
        }
    """

    def test_are_marked_and_written_but_never_followed(self, open_runs):
        runs = open_runs(HEADERS + self.SOURCE, [], ["x"])
        graph = runs.comparison.matching.failing
        names = {"number", "pointer", "text"}
        unset = [o for o in graph.variables if o.name in names]
        assert len(unset) == 3
        assert all(o.is_unset for o in unset)
        assert {delta.name for delta in runs.deltas} <= {
            *(f"{name} (not set yet)" for name in names),
            *(f"text[{n}] (not set yet)" for n in range(3)),
        }
        # What was left there by chance are both numbers and addresses: only numbers are told.
        assert {delta.failing for delta in runs.deltas} == {"2"}
        assert runs.alter_passing(runs.deltas).stdout == runs.original("failing").stdout


def test_mappings_that_no_program_fills_are_not_read(open_runs):
    source = r"""
        #include <sys/mman.h>
        char *reserved, *used;
        int main(void)
        {
            reserved = mmap(NULL, 65l << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            used = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            return 0; /* here */
        }
    """
    runs = open_runs(HEADERS + source)
    graph = runs.graph("failing")
    assert sum(len(region.data) for region in graph.visit.regions) < 30 << 20


def test_variables_without_debug_information(check):
    """`optind` and `stdout` are the C library's, but lie in the program's own data."""
    runs = check(
        r"""
        #include <unistd.h>
        int main(int argc, char **argv)
        {
            while (getopt(argc, argv, "ab") != -1)
                ;
            fprintf(stdout, "%d %s\n", optind, argv[optind]); /* here */
            return 0;
        }
        """,
        ["-a", "word"],
        ["-a", "-b", "other"],
    )
    assert ("optind", "2", "3", "value") in runs.told()
    assert "stdout" not in [delta.name for delta in runs.deltas]


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
        assert graph.is_raw(find_target(graph, "text"))

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
