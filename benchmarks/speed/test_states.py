"""How fast a state is captured, matched and compared, against the ways that gdb itself offers.

All ways are measured in one run, on the same state. Only what cannot depend on the machine is asserted."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from pytest_causechain.debugger.gdb import Gdb
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Program
from pytest_causechain.states.deltas import compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Layouts
from pytest_causechain.states.matching import match_states

# About a million values: numbers, a list, a tree, a hash table with texts, an array of structs.
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { int value; double weight; struct node *next, *prev; };
struct tree { int key; double weight; struct tree *left, *right; };
struct entry { char *key; int count; struct entry *next; };
struct record { int id; short kind, flags; double x, y, z; char name[16]; struct node *owner; };
enum { NUMBERS = 200000, NODES = 60000, TREES = 45000, ENTRIES = 45000, BUCKETS = 16384, RECORDS = 25000 };
static int numbers[NUMBERS];
static struct node *head, *tail;
static struct tree *root;
static struct entry *buckets[BUCKETS];
static struct record *records;
static unsigned long state = 1;
static unsigned draw(void)
{
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return state >> 33;
}
static void insert(int key)
{
    struct tree **at = &root;
    while (*at)
        at = key < (*at)->key ? &(*at)->left : &(*at)->right;
    *at = calloc(1, sizeof **at);
    (*at)->key = key;
    (*at)->weight = key / 3.0;
}
static void add(int n)
{
    char text[20];
    struct entry *entry = calloc(1, sizeof *entry), **bucket = &buckets[draw() % BUCKETS];
    sprintf(text, "key%d", n);
    entry->key = strdup(text);
    entry->count = n;
    entry->next = *bucket;
    *bucket = entry;
}
int main(int argc, char **argv)
{
    int n, by = atoi(argv[1]);
    for (n = 0; n < NUMBERS; n++)
        numbers[n] = n * 7;
    for (n = 0; n < NODES; n++) {
        struct node *node = calloc(1, sizeof *node);
        node->value = n;
        node->weight = n / 2.0;
        node->prev = tail;
        if (tail) tail->next = node; else head = node;
        tail = node;
    }
    for (n = 0; n < TREES; n++)
        insert(draw());
    for (n = 0; n < ENTRIES; n++)
        add(n);
    records = calloc(RECORDS, sizeof *records);
    for (n = 0; n < RECORDS; n++) {
        records[n].id = n;
        records[n].kind = n % 7;
        records[n].owner = n % 3 ? head : tail;
        sprintf(records[n].name, "r%d", n);
    }
    numbers[1000] += by;
    records[77].id += by;
    head->next->next->value += by;
    printf("%d %d\n", numbers[1000], records[77].id); /* here */
    return 0;
}
"""
# What one writes first: each value through gdb.Value, each object once.
WALK = r"""
import time
import gdb
SIMPLE = (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_FLT, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_CHAR, gdb.TYPE_CODE_BOOL)
seen, count, pending = set(), 0, []
def walk(value):
    global count
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_STRUCT:
        for field in kind.fields():
            walk(value[field])
    elif kind.code == gdb.TYPE_CODE_ARRAY and kind.target().sizeof > 1:
        for n in range(kind.range()[1] + 1):
            walk(value[n])
    elif kind.code == gdb.TYPE_CODE_PTR:
        count += 1
        address = int(value)
        if address and address not in seen:
            seen.add(address)
            pending.append(value)
    else:
        count += 1
        str(value) if kind.code not in SIMPLE else int(value) if kind.code != gdb.TYPE_CODE_FLT else float(value)
begin = time.perf_counter()
for name in ("head", "root"):
    walk(gdb.parse_and_eval(name))
while pending and time.perf_counter() - begin < 20:
    pointer = pending.pop()
    if pointer.type.target().sizeof > 1:
        walk(pointer.dereference())
print("WALKED", count, time.perf_counter() - begin)
"""
GDB = ("gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off")
EXPRESSIONS = 3_000


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, Command]:
    directory = tmp_path_factory.mktemp("states")
    (directory / "program.c").write_text(SOURCE)
    (directory / "walk.py").write_text(WALK)
    subprocess.run(["cc", "-g", "-O0", "-o", "program", "program.c"], cwd=directory, check=True)
    program = Program(str(directory / "program"), "states")
    passing, failing = (Command(program, (program.path, n), str(directory), (), b"") for n in ("1", "2"))
    return passing, failing


def line_of(mark: str) -> int:
    return next(n for n, text in enumerate(SOURCE.splitlines(), 1) if mark in text)


def walk_by_values(command: Command) -> float:
    """Vertices a second."""
    steps = [f"break {line_of('/* here */')}", "run 1", f"source {Path(command.cwd) / 'walk.py'}"]
    arguments = [argument for step in steps for argument in ("-ex", step)]
    done = subprocess.run([*GDB, *arguments, command.program.path], capture_output=True, text=True, check=True)
    _, count, seconds = next(line for line in done.stdout.splitlines() if line.startswith("WALKED")).split()
    return int(count) / float(seconds)


def walk_by_expressions(command: Command) -> float:
    with Gdb(command.program.path) as gdb:
        begin = time.perf_counter()
        for n in range(EXPRESSIONS):
            gdb.command(f'-data-evaluate-expression "numbers[{n}]"')
        return EXPRESSIONS / (time.perf_counter() - begin)


def test_states(commands):
    with LocalLab(Open(*commands, deadline=time.monotonic() + 600)) as lab:
        statements = (s for function in lab.program.functions for s in function.statements)
        stop = next(s.address for s in statements if s.line == line_of("/* here */"))
        visits = [lab.visit(side, (Stop(stop, 1),)) for side in ("passing", "failing")]
        layouts = Layouts(lab.program.types)
    best: dict[str, float] = {}

    def measure(name: str, begin: float) -> None:
        best[name] = min(time.perf_counter() - begin, best.get(name, 1e9))

    for _ in range(3):
        begin = time.perf_counter()
        graphs = [MemoryGraph(visit, lab.program, layouts) for visit in visits]
        vertices = [len(graph.objects) and graph.vertices for graph in graphs]
        measure("capture", begin)
        begin = time.perf_counter()
        matching = match_states(*graphs)
        measure("match", begin)
        begin = time.perf_counter()
        comparison = compare_states(matching)
        measure("compare", begin)
        begin = time.perf_counter()
        told = [(delta.name, delta.passing, delta.failing) for delta in comparison.deltas]
        measure("tell", begin)
    assert vertices[0] == vertices[1] > 950_000
    changed = {"by", "numbers[1000]", "records[77].id", "head->next->next->value", "argv[1]"}
    assert {name for name, _, _ in told} == changed
    speed = sum(vertices) / best["capture"]
    others = {"gdb.Value": walk_by_values(commands[0]), "MI expressions": walk_by_expressions(commands[0])}
    print(f"\n| a state of {vertices[0]:,} values | values a second | capture is faster by |\n| --- | --- | --- |")
    print(f"| capture | {speed:,.0f} | |")
    for name, other in others.items():
        print(f"| {name} | {other:,.0f} | {speed / other:.1f} |")
    for name in ("match", "compare", "tell"):
        print(f"| {name} | {sum(vertices) / 2 / best[name]:,.0f} | {best[name]:.2f} s |")
