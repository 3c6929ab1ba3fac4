"""Where things lie differs from run to run: a state moved to other addresses is the same state."""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import replace

import pytest
from two_runs import TwoRuns

from pytest_causechain.debugger.visit import LoadedFile, Region, Visit, find_modules
from pytest_causechain.model import load_map as loading
from pytest_causechain.model.load_map import LoadMap
from pytest_causechain.states.deltas import StateComparison, compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Layouts
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.shapes import IMAGE
from pytest_causechain.states.transfer import transfer_to_failing_run, transfer_to_passing_run

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { int value; char *label; struct node *next; };
union any { struct node *node; char *text; long number; };
static int ascend(const void *left, const void *right) { return *(int *) left - *(int *) right; }
static int descend(const void *left, const void *right) { return *(int *) right - *(int *) left; }
struct node *list;
union any any;
void *raw;
FILE *stream, *same;
int (*order)(const void *, const void *), (*compare)(const char *, const char *);
int *inside, *stale;
static void leave(int n) { int local[100]; stale = local + n; }
int main(int argc, char **argv)
{
    int numbers[4] = { argc, 2, 3, 4 }, n;
    for (n = 0; n < argc; n++) {
        struct node *node = calloc(1, sizeof *node);
        node->value = n; node->label = strdup(argv[n] + (n == 0) * strlen(argv[n])); node->next = list; list = node;
    }
    any.node = list; raw = malloc(32); memcpy(raw, &list, 8);
    stream = argc > 2 ? stderr : stdout; same = stdin;
    order = argc > 2 ? descend : ascend; compare = argc > 2 ? strcmp : strcoll;
    inside = numbers + argc; leave(argc);
    printf("%d\n", n); /* here */
    return 0;
}
"""
# The libraries' data is anonymous memory, too: it moves with them.
SHIFTS = {"image": 0x1000_0000, "heap": 0x2345_0000, "stack": -0x2_3450_0000, "anonymous": 0x333_0000}


def move(visit: Visit) -> Visit:
    """The same state with everything elsewhere, and all pointers to it changed."""
    regions = [(r.start, r.end, SHIFTS[r.kind]) for r in visit.regions if r.kind != "registers"]
    own = [m for m in visit.modules if m.start <= visit.load_map.base < m.end]
    libraries = [(m.start, m.end, SHIFTS["anonymous"]) for m in visit.modules if m not in own]
    ranges = sorted([*regions, *libraries])
    starts = [start for start, _, _ in ranges]

    def moved(address: int) -> int:
        index = bisect_right(starts, address) - 1
        return address + ranges[index][2] if index >= 0 and address <= ranges[index][1] else address

    def rewrite(data: bytes) -> bytes:
        whole = len(data) // 8 * 8
        words = (struct.pack("<Q", moved(word)) for (word,) in struct.iter_unpack("<Q", data[:whole]))
        return b"".join(words) + data[whole:]

    frames = tuple(
        replace(f, sp=moved(f.sp), variables=tuple(replace(v, address=moved(v.address)) for v in f.variables))
        for f in visit.frames
    )
    return replace(
        visit,
        load_map=LoadMap(
            tuple(loading.Module(moved(m.base), moved(m.start), moved(m.end - 1) + 1) for m in visit.load_map.modules)
        ),
        thread_pointer=moved(visit.thread_pointer),
        frames=frames,
        regions=tuple(Region(moved(r.start), rewrite(r.data), r.kind) for r in visit.regions),
        arguments_start=moved(visit.arguments_start),
        modules=tuple(LoadedFile(m.name, moved(m.start), moved(m.end - 1) + 1) for m in visit.modules),
        environment=visit.environment and (moved(visit.environment[0]), moved(visit.environment[1])),
    )


class Moved:
    def __init__(self, runs: TwoRuns) -> None:
        self.passing, self.failing = (runs.lab.visit(side, runs.stops) for side in ("passing", "failing"))
        self._program, self._layouts = runs.lab.program, Layouts(runs.lab.program.types)

    def compare(self, failing: Visit) -> StateComparison:
        graphs = [MemoryGraph(visit, self._program, self._layouts) for visit in (self.passing, failing)]
        return compare_states(match_states(*graphs))


@pytest.fixture
def states(open_runs) -> Moved:
    return Moved(open_runs(SOURCE, ["one"], ["other", "words"]))


def told(comparison: StateComparison) -> list[tuple[str, ...]]:
    return [
        (d.name, d.key, d.kind, *(("", "") if "0x" in d.failing else (d.passing, d.failing))) for d in comparison.deltas
    ]


def test_same_deltas_wherever_the_failing_run_lies(states):
    here, there = states.compare(states.failing), states.compare(move(states.failing))
    assert told(here) == told(there)
    names = {delta.name for delta in here.deltas}
    assert {"stream", "order", "compare", "inside", "list->value"} <= names
    assert names.isdisjoint({"same", "stale", "any.node", "raw"})


def test_same_transfer_into_the_passing_run(states):
    here, there = states.compare(states.failing), states.compare(move(states.failing))
    assert transfer_to_passing_run(here, here.deltas) == transfer_to_passing_run(there, there.deltas)


def test_transfer_into_a_run_that_lies_elsewhere_is_moved_with_it(states):
    there = states.compare(move(states.failing))
    stream = next(delta for delta in there.deltas if delta.name == "stream")
    transfer = transfer_to_failing_run(there, [stream])
    [(address, data)] = transfer.writes
    matching = there.matching
    assert matching.failing.target(address).object is stream.spots[0].theirs
    value = int.from_bytes(data, "little")
    wanted = matching.passing.words(stream.spots[0].ours)[0]
    assert matching.failing.target(value) == matching.passing.target(wanted)
    assert value != wanted


def test_no_delta_between_a_state_and_itself_elsewhere(states):
    states.passing = states.failing
    assert states.compare(move(states.failing)).deltas == ()


def test_targets_in_modules(states):
    graph = states.compare(states.failing).matching.failing
    stream = next(v for v in graph.variables if v.name == "stream")
    target = graph.target(graph.words(stream)[0])
    assert target.object is None
    assert "libc" in target.module
    order = next(v for v in graph.variables if v.name == "order")
    assert graph.target(graph.words(order)[0]).module == IMAGE
    assert graph.address(target) == graph.words(stream)[0]
    assert graph.address(replace(target, module="not loaded here")) is None


def test_modules_from_mappings():
    rows = [
        (0x1000, 0x2000, "/bin/a"),
        (0x2000, 0x3000, "/bin/a"),
        (0x3000, 0x4000, ""),
        (0x9000, 0xA000, "[heap]"),
        (0xB000, 0xC000, ""),
        (0xD000, 0xE000, "/lib/b"),
        (0xE000, 0xF000, ""),
        (0xF000, 0x10000, "[vdso]"),
    ]
    assert find_modules(rows) == (
        LoadedFile("/bin/a", 0x1000, 0x4000),
        LoadedFile("/lib/b", 0xD000, 0xF000),
        LoadedFile("[vdso]", 0xF000, 0x10000),
    )
