"""The exact differences between two states, with the names a C developer writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from two_runs import TwoRuns, hear_of_children

from pytest_causechain.states.outside import InputEdit, input_edits, word_edits

NAMES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point { int x, y; };
struct item { char name[8]; struct point at; struct item *next; };

struct { int max; } config;
struct item table[5];
struct item *index_of[3];

static void touch(struct item *list, int *p, struct item **pp, struct point (*grid)[2], void *any, char *text)
{
    printf("%d %d\n", list->next->at.x, *p); /* inside */
}

int main(int argc, char **argv)
{
    struct item *list = calloc(1, sizeof *list), **pp = malloc(sizeof *pp);
    struct point (*grid)[2] = calloc(3, sizeof *grid);
    int n = atoi(argv[1]), *p = malloc(sizeof *p), *a = malloc(2 * sizeof *a);
    char *text = calloc(1, 10);
    void *any = calloc(1, 4);

    list->next = calloc(1, sizeof *list);
    *pp = calloc(1, sizeof **pp);
    index_of[2] = calloc(1, sizeof **index_of);
    *p = a[1] = n;
    a[2] = -n;
    list->next->at.x = (*pp)->at.y = config.max = grid[1][0].x = *(int *) any = n;
    table[3].at.y = index_of[2]->at.x = n;
    text[0] = table[3].name[0] = 'a' + n;
    touch(list, p, pp, grid, any, text); /* here */
    return 0;
}
"""

CHANGES = [
    ("config.max", "1", "2", "value"),
    ("table[3].name", '"b"', '"c"', "value"),
    ("table[3].at.y", "1", "2", "value"),
    ("index_of[2]->at.x", "1", "2", "value"),
    ("list->next->at.x", "1", "2", "value"),
    ("(*pp)->at.y", "1", "2", "value"),
    ("grid[1][0].x", "1", "2", "value"),
    ("*p", "1", "2", "value"),
    ("any", "{1, 0, 0}", "{2, 0, 0}", "value"),
    ("text", '"b"', '"c"', "value"),
    ("a[1]", "1", "2", "value"),
    # Behind the two elements that were asked for, in the slack of the block.
    ("a[2]", "-1", "-2", "value"),
    ("argv[1]", '"1"', '"2"', "value"),
    ("n", "1", "2", "value"),
]


@pytest.fixture(scope="module")
def names(open_shared) -> TwoRuns:
    return open_shared(NAMES, ["1"], ["2"])


class TestNames:
    def test_exact_differences(self, names):
        assert sorted(names.told()) == sorted(CHANGES)

    def test_inside_a_function_by_its_parameters(self, names):
        inside = names.compare(names.at("/* inside */"))
        assert sorted((d.name, d.passing, d.failing, d.kind) for d in inside.deltas) == sorted(CHANGES)
        frames = {delta.name: delta.frame for delta in inside.deltas}
        parameters = ["list->next->at.x", "*p", "(*pp)->at.y", "grid[1][0].x", "any", "text"]
        assert {frames[name] for name in parameters} == {0}
        assert {frames[name] for name in ("n", "a[1]", "argv[1]")} == {1}
        assert {frames[name] for name in ("config.max", "table[3].at.y")} == {None}

    def test_keys_stay_when_a_function_is_entered(self, names):
        inside = names.compare(names.at("/* inside */"))
        assert {delta.key for delta in inside.deltas} == {delta.key for delta in names.deltas}
        assert len({delta.key for delta in names.deltas}) == len(names.deltas)

    def test_innermost_variables_first(self, names):
        inside = names.compare(names.at("/* inside */"))
        order = [delta.name for delta in inside.deltas]
        assert order.index("n") < order.index("config.max") < order.index("*p") < order.index("argv[1]")

    def test_types(self, names):
        types = {delta.name: delta.type for delta in names.deltas}
        assert types["config.max"] == types["a[2]"] == "int"
        assert types["table[3].name"] == "char [8]"
        assert types["text"] == "char"


def run_script(program: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    command = ["gdb", "-nx", "-batch", "-x", "script", str(program)]
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(command, cwd=directory, check=True, timeout=60, preexec_fn=hear_of_children, **streams)


class TestAssignments:
    SOURCE = r"""
        #include <stdbool.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        enum color { RED, GREEN };
        struct node { int value; struct node *next; };
        typedef int (*operation)(int);
        static int twice(int x) { return 2 * x; }
        static int thrice(int x) { return 3 * x; }
        bool flag; enum color color; float ratio; char letter, word[10], full[2]; double none;
        struct { unsigned a : 3; unsigned b : 5; } bits;
        operation apply = twice;
        struct node *here, *gone, *list;
        static void look(struct node *at, int *out, struct node *inner)
        {
            static int calls;
            calls = at->value;
            printf("%d %d %g %d %s %c%c\n", flag, color, ratio, letter, word, full[0], full[1]); /* here */
            printf("%d %d %d\n", bits.a, bits.b, apply(5));
            printf("%d %d %d %d\n", at->value, *out, here ? here->value : -1, gone ? gone->value : -1);
            printf("%d %d\n", inner->value, calls);
        }
        int main(int argc, char **argv)
        {
            struct node last = { 5 }, first = { 4, &last };
            int result = 1, other = 2;
            list = calloc(1, sizeof *list);
            here = gone = &first;
            look(&last, &result, list); /* first */
            if (argc > 1) {
                flag = true; color = GREEN; ratio = 0.1f; letter = '\''; strcpy(word, "a\"b\\\n\xff" "1");
                bits.a = 5; bits.b = 17; apply = thrice; here = &last; gone = NULL; list->value = 7;
                memcpy(full, "xy", 2); none = 1 / (double) 0;
            }
            look(argc > 1 ? &first : &last, argc > 1 ? &other : &result, list);
            return 0;
        }
    """

    def test_gdb_makes_each_change_with_one_statement(self, open_runs, tmp_path):
        """Where a delta has an assignment, plain gdb does with it what the transfer does."""
        runs = open_runs(self.SOURCE, [], ["x"])
        stops = runs.at("/* here */", 2)
        comparison = runs.compare(stops)
        assigned = [delta for delta in comparison.deltas if delta.assignment is not None]
        assert {delta.name for delta in comparison.deltas} - {delta.name for delta in assigned} == {
            "argv",
            "full",
            "none",
        }
        program = Path(runs.lab.program.path)
        line = runs.lab.program.position(stops[0].address).line
        commands = ["set debuginfod enabled off", f"tbreak program.c:{line}", "ignore $bpnum 1", "run > out.txt"]
        commands += [c for d in assigned for c in (f"frame {d.frame or 0}", f"set variable {d.assignment}")]
        (tmp_path / "script").write_text("\n".join([*commands, "continue", ""]))
        done = run_script(program, tmp_path)
        wanted = runs.original("failing").stdout.replace(b"xy", b"\0\0")
        assert (tmp_path / "out.txt").read_bytes() == wanted, done.stdout + done.stderr

    def test_gdb_takes_each_change_back_with_one_statement(self, open_runs, tmp_path):
        runs = open_runs(self.SOURCE, [], ["x"])
        stops = runs.at("/* here */", 2)
        undone = [delta for delta in runs.compare(stops).deltas if delta.undo is not None]
        line = runs.lab.program.position(stops[0].address).line
        commands = ["set debuginfod enabled off", f"tbreak program.c:{line}", "ignore $bpnum 1", "run x > out.txt"]
        commands += [c for d in undone for c in (f"frame {d.frame or 0}", f"set variable {d.undo}")]
        (tmp_path / "script").write_text("\n".join([*commands, "continue", ""]))
        program = Path(runs.lab.program.path)
        done = run_script(program, tmp_path)
        # Of an array that held no text, all there was is given back up to the first NUL.
        got = (tmp_path / "out.txt").read_bytes().replace(b"\0y", b"\0\0")
        assert got == runs.original("passing").stdout, done.stdout + done.stderr

    def test_statements(self, open_runs):
        runs = open_runs(self.SOURCE, [], ["x"])
        comparison = runs.compare(runs.at("/* here */", 2))
        statements = {delta.name: delta.assignment for delta in comparison.deltas}
        assert statements["flag"] == "flag = 1"
        assert statements["color"] == "color = GREEN"
        assert statements["letter"] == "letter = 39"
        assert statements["bits.b"] == "bits.b = 17"
        assert statements["apply"] == "apply = thrice"
        assert statements["gone"] == "gone = 0"
        assert statements["at"] == "at = &main::first"
        assert statements["word"] == r'*(char (*)[8]) &word = "a\"b\\\n\3771"'
        undos = {delta.name: delta.undo for delta in comparison.deltas}
        assert undos["flag"] == "flag = 0"
        assert undos["gone"] == "gone = &main::first"
        assert undos["at"] == "at = &main::last"


class TestPointers:
    SOURCE = r"""
        #include <stdio.h>
        #include <stdlib.h>
        struct node { int value; struct node *next; };
        struct node *list, *last, *shared; int numbers[4]; int *cursor, *heap, *heap_cursor, *end; const char *word;
        int main(int argc, char **argv)
        {
            int n, many = argc > 1;
            heap = malloc(6 * sizeof *heap);
            for (n = 0; n < 6; n++) heap[n] = n;
            for (n = 0; n < (many ? 3 : 2); n++) {
                struct node *node = calloc(1, sizeof *node);
                node->value = n;
                node->next = list;
                list = node;
            }
            last = list->next->next ? list->next->next : list->next;
            shared = many ? list : list->next;
            cursor = numbers + (many ? 3 : 1); heap_cursor = heap + (many ? 2 : 0); end = heap + (many ? 6 : 5);
            word = many ? "many" : "few";
            argv = NULL; argc = 0;
            puts(word); /* here */
            return 0;
        }
    """

    def test_shown_by_what_they_lead_to(self, open_runs):
        # The first node of the failing run has no partner.
        assert sorted(open_runs(self.SOURCE, [], ["x"]).told()) == sorted([
            ("many", "0", "1", "value"),
            ("n", "2", "3", "value"),
            ("word", '"few"', '"many"', "repoint"),
            ("cursor", "&numbers[1]", "&numbers[3]", "repoint"),
            ("heap_cursor", "{0, 1, 2, ...}", "&heap[2]", "repoint"),
            ("end", "&heap[5]", "&heap[6]", "repoint"),
            ("shared", "{0, NULL}", "{2, ...}", "create"),
            ("list", "{1, ...}", "{2, ...}", "create"),
        ])  # fmt: skip

    def test_object_that_is_gone(self, open_runs):
        told = open_runs(self.SOURCE, ["x"], []).told()
        assert ("list", "{2, ...}", "{1, ...}", "repoint") in told

    def test_pointers_that_mean_nothing_in_another_run_are_no_differences(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            FILE *file, *none, *standard; char *stale, *wild, *freed; void (*handler)(int);
            static void leave(int n) { char local[4000]; stale = local + n; }
            int main(int argc, char **argv)
            {
                char *pad = malloc(argc * 1000);
                leave(argc);
                freed = malloc(100);
                free(freed);
                file = fopen("/dev/null", "r");
                if (argc > 1) none = fopen("/dev/null", "r");
                standard = argc > 1 ? stderr : stdout;
                wild = (char *) (argc * 0x10000ul);
                free(pad); pad = NULL; argv = NULL; argc = 0;
                return 0; /* here */
            }
        """
        names = [delta.name for delta in open_runs(source, [], ["x"]).deltas]
        assert sorted(names) == ["standard", "wild"]

    def test_values_that_begin_alike_are_told_apart(self, open_runs):
        source = r"""
            #include <stdlib.h>
            struct node { int a, b, c, number; struct node *next; } *list, *chosen, *same; char *buffer;
            int main(int argc, char **argv)
            {
                list = calloc(1, sizeof *list);
                list->next = calloc(1, sizeof *list);
                list->next->number = 1;
                list->next->next = calloc(1, sizeof *list);
                list->next->next->next = list;
                chosen = argc > 1 ? list->next : list->next->next;
                same = argc > 1 ? list : list->next->next;
                buffer = calloc(1, argc * 100);
                argv = NULL; argc = 0;
                return 0; /* here */
            }
        """
        told = {name: (passing, failing) for name, passing, failing, _ in open_runs(source, [], ["x"]).told()}
        assert told["chosen"] == ("{..., number = 0, ...}", "{..., number = 1, ...}")
        assert told["same"] == ("chosen->next", "list")
        assert [text.partition(" at ")[0] for text in told["buffer"]] == ["104 bytes", "200 bytes"]


class TestValues:
    def test_of_texts(self, open_runs):
        source = r"""
            #include <stdlib.h>
            #include <string.h>
            char array[16], *grown, *shrunk, *behind; unsigned char bytes[4];
            int main(int argc, char **argv)
            {
                strcpy(array, argv[1]);
                grown = strdup(argc > 2 ? "much longer than the other one was" : "short");
                shrunk = strdup(argc > 2 ? "short" : "much longer than the other one was");
                behind = calloc(1, 20); strcpy(behind, "same"); behind[8] = 'a' + argc;
                memcpy(bytes, argc > 2 ? "\1\2\3\4" : "\1\2\3\5", 4);
                argv = NULL; argc = 0;
                return 0; /* here */
            }
        """
        assert sorted(open_runs(source, ["caf\u00e9"], ["t\ta\u007f", "x"]).told()) == sorted([
            ("array", '"caf\\303\\251"', '"t\\ta\\177"', "value"),
            ("behind from [8] on", "{'c', 0, 0, 0, 0, 0, 0, 0, ...}", "{'d', 0, 0, 0, 0, 0, 0, 0, ...}", "value"),
            ("bytes", '"\\001\\002\\003\\005"', '"\\001\\002\\003\\004"', "value"),
            ("grown", '"short"', '"much longer than the other one was"', "create"),
            ("shrunk", '"much longer than the other one was"', '"short"', "value"),
        ])  # fmt: skip

    def test_of_unions_and_bit_fields(self, open_runs):
        source = r"""
            union { int whole; float real; } number; struct { unsigned a : 3, b : 3; signed c : 2; } bits;
            struct { int tag; union { char *text; long count; }; } value;
            int main(int argc, char **argv)
            {
                if (argc > 1) { number.real = 1; bits.a = 7; bits.c = -1; value.text = "text"; }
                argv = 0; argc = 0;
                return 0; /* here */
            }
        """
        told = {name: (passing, failing) for name, passing, failing, _ in open_runs(source, [], ["x"]).told()}
        assert told["number"] == ("{whole = 0, real = 0}", "{whole = 1065353216, real = 1}")
        assert (told["bits.a"], told["bits.c"]) == (("0", "7"), ("0", "-1"))
        assert told["value.text"][0] == "{text = NULL, count = 0}"
        assert told["value.text"][1].startswith('{text = "text", count = ')
        assert len(told) == 4


class TestInput:
    def test_edits_line_by_line(self):
        assert input_edits(b"a\nb\nc\n", b"a\nx\nc\nd\n") == (
            InputEdit((b"a\n",), (b"a\n",), False),
            InputEdit((b"b\n",), (b"x\n",), True),
            InputEdit((b"c\n",), (b"c\n",), False),
            InputEdit((), (b"d\n",), True),
        )

    def test_lines_end_only_with_line_feeds(self):
        [edit] = input_edits(b"a\rb\x0cc\n", b"a\rb\x0cd\n")
        assert edit == InputEdit((b"a\rb\x0cc\n",), (b"a\rb\x0cd\n",), True)

    def test_long_input_is_one_edit(self):
        many = (b"x\n",) * 3000
        assert input_edits(b"".join(many), b"".join(many) + b"y") == (InputEdit(many, (*many, b"y"), True),)
        assert input_edits(b"".join(many), b"".join(many)) == (InputEdit(many, many, False),)

    def test_names_count_the_failing_runs_lines(self):
        edits = input_edits(b"b\nc\nd\ne\n", b"x\nc\ny\nz\ne\n")
        told = [(d.key, d.name, d.passing, d.failing) for d in word_edits(edits, lines_read=1)]
        assert told == [
            ("stdin", "stdin line 2", '"b"', '"x"'),
            ("stdin", "stdin line 4", '"d"', '"y"'),
            ("stdin", "stdin line 5", "", '"z"'),
        ]

    def test_several_lines_only_one_run_has(self):
        told = list(word_edits(input_edits(b"", b"a\n\0b\nc"), lines_read=0))
        assert [(d.name, d.passing, d.failing) for d in told] == [
            ("stdin line 1", "", '"a"'),
            ("stdin line 2", "", r'"\\0b"'),
            ("stdin line 3", "", '"c"'),
        ]
        assert len({d.group[:3] for d in told}) == 1


class TestAliases:
    SOURCE = r"""
        #include <stdio.h>
        #include <stdlib.h>
        struct leaf { int value; } ;
        struct pair { struct leaf *left, *right; } pair;
        static struct leaf *make(int value)
        {
            struct leaf *leaf = malloc(sizeof *leaf);
            leaf->value = value;
            return leaf;
        }
        int main(int argc, char **argv)
        {
            pair.left = make(5);
            pair.right = argc > 1 ? pair.left : make(5);
            argc = 0; argv = NULL;
            pair.left->value++; /* here */
            printf("%d %d\n", pair.left->value, pair.right->value);
            return 0;
        }
    """

    def test_shared_in_the_failing_run(self, open_runs):
        runs = open_runs(self.SOURCE, [], ["x"])
        assert runs.told() == [("pair.right", "{5} of its own", "pair.left", "alias")]
        assert runs.alter_passing(runs.deltas).stdout == runs.original("failing").stdout == b"6 6\n"
        # Undone: the one parent gets a copy of its own.
        assert runs.alter_failing(runs.deltas).stdout == runs.original("passing").stdout == b"6 5\n"

    def test_shared_in_the_passing_run(self, open_runs):
        runs = open_runs(self.SOURCE, ["x"], [])
        assert runs.told() == [("pair.right", "pair.left", "{5} of its own", "alias")]
        assert runs.alter_passing(runs.deltas).stdout == b"6 5\n"
        assert runs.alter_failing(runs.deltas).stdout == b"6 6\n"


class TestGroups:
    def test_follow_the_structure_of_the_state(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            struct point { int x, y; };
            struct node { struct point at[2]; struct node *next; } *list;
            static int look(int depth)
            {
                return depth + list->at[1].y; /* here */
            }
            int main(int argc, char **argv)
            {
                int grid[2][3] = { { 0 } };
                list = calloc(1, sizeof *list); list->next = calloc(1, sizeof *list);
                list->next->at[1].y = grid[1][2] = argc;
                return look(argc);
            }
        """
        runs = open_runs(source, [], ["x"])
        groups = {delta.name: delta.group for delta in runs.deltas}
        assert groups["depth"] == ("2:look:0", "2:look:0:depth", "2:look:0:depth")
        assert groups["grid[1][2]"][:2] == ("1:main:0", "1:main:0:grid")
        assert groups["grid[1][2]"][3:] == ("[1]", "[2]")
        scope, variable, node, *rest = groups["list->next->at[1].y"]
        assert (scope, variable.endswith(":list"), node) == ("global", True, f"{variable}->next")
        assert rest == ["[]", ".at", "[1]", ".y"]
        assert all(len(delta.group) > 1 for delta in runs.deltas)


class TestRequirements:
    def test_pointer_into_a_pool_brings_what_it_leads_to(self, open_runs):
        """The passing run's pool has nothing at the place of the failing run's second node."""
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            struct node { long value; struct node *next; }; struct head { int count; struct node *first; };
            struct head *head; char *pool; size_t used;
            static void *take(size_t size) { used += size; return pool + used - size; }
            static void add(long value)
            {
                struct node *node = take(sizeof *node);
                node->value = value; node->next = head->first; head->first = node; head->count++;
            }
            int main(int argc, char **argv)
            {
                int n;
                pool = calloc(1, 1000); head = take(24);
                for (n = 0; n < argc; n++) add(n + 5);
                n = argc = 0; argv = NULL;
                printf("%ld %d\n", head->first->value, head->count); /* here */
                return 0;
            }
        """
        runs = open_runs(source, [], ["x"])
        pointer = runs.delta("head->first")
        assert {delta.name for delta in pointer.requires} == {"head->first->value", "head->first->next"}
        assert runs.alter_passing([pointer]).stdout == b"6 1\n"


def test_names_prefer_what_the_next_statements_mention(open_runs):
    source = r"""
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv)
        {
            int *unused = malloc(4), *wanted = unused;
            *wanted = argc;
            argc = 0; argv = NULL;
            printf("%d\n", *wanted); /* here */
            return 0;
        }
    """
    assert open_runs(source, [], ["x"]).told() == [("*wanted", "1", "2", "value")]
