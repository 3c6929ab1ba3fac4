"""What a state of a C program may consist of: each kind moved into the other run, and back."""

from __future__ import annotations

from two_runs import HEADERS, find_target, find_variable


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
