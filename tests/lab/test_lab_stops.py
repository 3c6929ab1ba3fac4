"""Runs that are stopped on the way, looked at, altered and resumed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from building import compile_program
from places import find_function, find_global, find_line, find_local, find_statement, read_int, read_memory

from pytest_causechain.lab.laboratory import Event, Open
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Allocation, OpenFile, Reference, Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Program

COUNTER = r"""
#include <stdio.h>
#include <stdlib.h>

struct node { long value; struct node *next; };

int threshold = 3;
static struct node *list;
char label[8] = "start";

static int step(int number)
{
    static int calls = 0;
    int local = number * 2;
    calls++;
    if (number > threshold)
        printf("%d:", number);
    return local + calls * 0;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 0; i < 12; i++)
        total += step(i);
    printf("%s %d\n", label, total);
    for (struct node *n = list; n; n = n->next)
        printf("node %ld\n", n->value);
    return total % 100;
}
"""
READER = r"""
#include <stdio.h>
#include <unistd.h>

static void checkpoint(void)
{
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[100], rest[100];
    int number;
    if (argv[1][0] == 'l' && fgets(line, sizeof line, stdin))
        printf("<%s>", line);
    if (argv[1][0] == 'n' && scanf("%d", &number) == 1)
        printf("<%d>", number);
    if (argv[1][0] == 'r')
        printf("<%.*s>", (int)read(0, line, 4), line);
    if (argv[1][0] == 'f')
        printf("<%s>", freopen(argv[2], "r+", stdin) ? "other" : "none");
    if (argv[1][0] == 'c')
        close(0);
    checkpoint();
    long count;
    while ((count = argv[1][0] == 'r' ? read(0, rest, sizeof rest) : (long)fread(rest, 1, sizeof rest, stdin)) > 0)
        fwrite(rest, 1, count, stdout);
    return 0;
}
"""

# As a parser is, made from another file.
PARSER = r"""
static void act(void)
{
}

int main(void)
{
    int depth = 3;
    depth++;
#line 2 "parser.y"
    act();
    return depth;
}
"""

# Overwrites its own return address and its caller's frame pointer.
BROKEN = r"""
static volatile int ruined;

static void ruin(void)
{
    volatile int local = 5;
    void **frame = __builtin_frame_address(0);
    frame[0] = (void *)0x1234567890;
    frame[1] = (void *)0x1234567890;
    ruined = 1;
}

int main(void)
{
    ruin();
    return ruined;
}
"""


@pytest.fixture(scope="module")
def lab(build, make_lab) -> Iterator[RemoteLab]:
    with make_lab(build(COUNTER)) as lab:
        yield lab


class TestStops:
    def test_an_unaltered_run_ends_as_ever(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 5)
        assert lab.experiment("passing", (stop,)) == lab.experiment("passing")

    @pytest.mark.parametrize("visit", [1, 2, 10, 12])
    def test_the_wanted_visit(self, lab, visit):
        state = lab.visit("passing", (Stop(find_statement(lab, COUNTER, "calls++"), visit),))
        assert [frame.function for frame in state.frames] == ["step", "main"]
        assert state.frames[0].line == find_line(COUNTER, "calls++")
        assert read_int(state, find_local(state, "number")) == visit - 1
        assert read_int(state, find_local(state, "local")) == 2 * (visit - 1)
        assert read_int(state, find_global(lab, "calls") + state.load_map.base) == visit - 1

    def test_visits_of_a_later_stop_count_from_the_earlier_one(self, lab):
        entry, middle = find_function(lab, "step"), find_statement(lab, COUNTER, "number > threshold")
        state = lab.visit("passing", (Stop(entry, 4), Stop(middle, 3)))
        assert read_int(state, find_local(state, "number")) == 5

    def test_a_stop_where_the_run_stands_is_the_next_visit(self, lab):
        address = find_statement(lab, COUNTER, "calls++")
        state = lab.visit("passing", (Stop(address, 2), Stop(address, 3)))
        assert read_int(state, find_local(state, "number")) == 4

    def test_a_stop_where_memory_was_allocated_is_the_next_visit(self, lab):
        address = find_statement(lab, COUNTER, "calls++")
        transfer = Transfer(allocations=(Allocation(16, b"new"),))
        state = lab.visit("passing", (Stop(address, 2),), transfer, (Stop(address, 1),))
        assert read_int(state, find_local(state, "number")) == 2

    def test_a_stop_that_is_not_reached(self, lab):
        missed = Stop(find_statement(lab, COUNTER, "calls++"), 13)
        assert lab.visit("passing", (missed,)) is None
        assert lab.visit("passing", (), then=(missed,)) is None
        assert lab.experiment("passing", (missed,), Transfer(writes=((0, b"never written"),))) == lab.experiment(
            "passing"
        )
        assert not lab.trace("passing", (missed,), [missed.address]).events

    def test_the_program_is_killed_behind_a_visit(self, lab):
        assert lab.visit("passing", (Stop(find_function(lab, "step"), 1),)) is not None
        assert lab.experiment("passing").stdout.startswith(b"4:5:")


class TestVisits:
    def test_types_keep_their_numbers(self, lab):
        before = list(lab.program.types)
        state = lab.visit("passing", (Stop(find_statement(lab, COUNTER, 'printf("%s %d'), 1),))
        assert lab.program.types[: len(before)] == before
        assert state.types is lab.program.types
        variables = {v.name: state.types[v.type].name for v in state.frames[0].variables}
        assert variables == {"argc": "int", "argv": "char **", "total": "int"}

    def test_variables_not_initialised_yet(self, lab):
        state = lab.visit("passing", (Stop(find_statement(lab, COUNTER, "int local ="), 3),))
        assert {v.name: v.pending for v in state.frames[0].variables} == {"number": False, "local": True}
        assert {v.name: v.pending for v in state.frames[1].variables}["total"] is False

    def test_memory(self, lab):
        state = lab.visit("passing", (Stop(find_statement(lab, COUNTER, "calls++"), 1),))
        assert read_memory(state, find_global(lab, "label") + state.load_map.base, 8) == b"start\0\0\0"
        assert {r.kind for r in state.regions} >= {"image", "stack"}
        assert all(r.end > r.start for r in state.regions)
        assert state.frames[0].sp < find_local(state, "total", 1) < state.arguments_start
        assert read_memory(state, state.arguments_start, 1) == b"/"

    def test_before_the_first_instruction(self, build, open_lab):
        """The C library may not be there yet; later visits find it all the same."""
        lab = open_lab(build(READER), "line", stdin=b"one\ntwo\n")
        assert lab.visit("passing", ()).files[0].position == 0
        stop = Stop(find_function(lab, "checkpoint"), 1)
        assert lab.visit("passing", (stop,)).files[0].position == 4
        allocating = Transfer(allocations=(Allocation(8, b""),))
        assert lab.experiment("passing", (stop,), allocating).stdout == b"<one\n>two\n"

    def test_files_with_strange_names(self, kind, tmp_path, monkeypatch):
        """Whatever the locale: gdb's own takes part in reading names."""
        monkeypatch.setenv("LC_ALL", "C")
        directory = tmp_path / "grüße 'an' \"alle\""
        directory.mkdir()
        path = str(compile_program(directory / "pro gram", COUNTER))
        command = Command(Program(path, ""), (path,), str(directory))
        with RemoteLab(Open(command, command, kind=kind), Budget(60)) as lab:
            state = lab.visit("passing", (Stop(find_statement(lab, COUNTER, "calls++"), 2),))
            assert state.load_map.base
            assert state.frames[0].file == str(directory / "pro gram.c")
            assert read_int(state, find_global(lab, "calls") + state.load_map.base) == 1

    def test_a_broken_stack(self, build, open_lab):
        """Frames as far as they can be told."""
        lab = open_lab(build(BROKEN))
        state = lab.visit("passing", (Stop(find_statement(lab, BROKEN, "ruined = 1"), 1),))
        assert state.frames[0].function == "ruin"
        assert read_int(state, find_local(state, "local")) == 5

    @pytest.mark.parametrize("flag", ["-no-pie", "-static", "-static-pie"])
    def test_kinds_of_programs(self, build, open_lab, flag):
        lab = open_lab(build(COUNTER, flag))
        state = lab.visit("passing", (Stop(find_statement(lab, COUNTER, "calls++"), 7),))
        assert [frame.function for frame in state.frames] == ["step", "main"]
        assert read_int(state, find_local(state, "number")) == 6
        assert read_int(state, find_global(lab, "calls") + state.load_map.base) == 6
        assert state.files[0].position == 0
        transfer = Transfer(
            allocations=(Allocation(16, struct.pack("<qq", 5, 0)),),
            references=(Reference(None, find_global(lab, "list") + state.load_map.base, 0, 0),),
        )
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 7)
        assert lab.experiment("passing", (stop,), transfer).stdout.endswith(b"\nnode 5\n")


class TestTransfers:
    def test_global(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 7)
        base = lab.visit("passing", (stop,)).load_map.base
        transfer = Transfer(writes=((find_global(lab, "threshold") + base, struct.pack("<i", 10)),))
        assert lab.experiment("passing", (stop,), transfer).stdout == b"4:5:11:start 132\n"

    def test_local_of_a_caller(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 12)
        total = find_local(lab.visit("passing", (stop,)), "total", frame=1)
        # In `total += step(i)` gcc reads total behind the call.
        observation = lab.experiment("passing", (stop,), Transfer(writes=((total, struct.pack("<i", 1000)),)))
        assert observation.stdout.endswith(b"start 1022\n")
        assert observation.code == 22

    def test_the_next_run_is_unaltered(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 7)
        original = lab.experiment("passing")
        base = lab.visit("passing", (stop,)).load_map.base
        transfer = Transfer(writes=((find_global(lab, "label") + base, b"other\0"),))
        assert lab.experiment("passing", (stop,), transfer).stdout == original.stdout.replace(b"start", b"other")
        assert lab.experiment("passing") == original

    def test_new_objects_that_refer_to_each_other(self, lab):
        stop = Stop(find_statement(lab, COUNTER, 'printf("%s %d'), 1)
        base = lab.visit("passing", (stop,)).load_map.base
        node = struct.Struct("<qq")
        transfer = Transfer(
            allocations=tuple(Allocation(node.size, node.pack(value, 0)) for value in (3, 1, 2)),
            references=(
                Reference(None, find_global(lab, "list") + base, 1, 0),
                Reference(1, 8, 2, 0),
                Reference(2, 8, 0, 0),
            ),
        )
        assert lab.experiment("passing", (stop,), transfer).stdout.endswith(b"\nnode 1\nnode 2\nnode 3\n")

    def test_references_win_over_contents_and_writes(self, lab):
        """Where both are given, contents and writes are placeholders."""
        stop = Stop(find_statement(lab, COUNTER, 'printf("%s %d'), 1)
        base = lab.visit("passing", (stop,)).load_map.base
        place = find_global(lab, "list") + base
        transfer = Transfer(
            writes=((place, b"\xff" * 8),),
            allocations=(Allocation(32, bytes(16) + struct.pack("<qq", 8, 0)),),
            references=(Reference(None, place, 0, 16),),
        )
        assert lab.experiment("passing", (stop,), transfer).stdout.endswith(b"\nnode 8\n")

    def test_altered_visit(self, lab):
        address = find_statement(lab, COUNTER, "calls++")
        base = lab.visit("passing", (Stop(address, 1),)).load_map.base
        calls = find_global(lab, "calls") + base
        transfer = Transfer(writes=((calls, struct.pack("<i", 100)),))
        state = lab.visit("passing", (Stop(address, 1),), transfer, (Stop(address, 4),))
        assert read_int(state, calls) == 104

    def test_a_place_that_cannot_be_written(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 1)
        with pytest.raises(Refusal, match="0x10"):
            lab.experiment("passing", (stop,), Transfer(writes=((0x10, b"x"),)))
        assert lab.experiment("passing").ending == "exit"

    def test_several_in_one_go(self, lab):
        """Each is its own run, and they come back in the order in which they were given."""
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 2)
        address = find_global(lab, "label") + lab.visit("passing", (stop,)).load_map.base
        names = [b"n%d" % number for number in range(9)]
        seen = lab.experiments("passing", (stop,), [Transfer(writes=((address, name + b"\0"),)) for name in names])
        assert [o.stdout for o in seen] == [b"4:5:6:7:8:9:10:11:" + name + b" 132\n" for name in names]
        assert lab.experiments("passing", (stop,), []) == []

    def test_one_of_several_that_fails(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 1)
        with pytest.raises(Refusal, match="0x10"):
            lab.experiments("passing", (stop,), [Transfer(), Transfer(writes=((0x10, b"x"),)), Transfer()])
        assert lab.experiment("passing").ending == "exit"

    def test_thirty_altered_runs_are_identical(self, lab):
        stop = Stop(find_statement(lab, COUNTER, "calls++"), 3)
        base = lab.visit("passing", (stop,)).load_map.base
        transfer = Transfer(
            writes=((find_global(lab, "label") + base, b"again\0"),),
            allocations=(Allocation(16, struct.pack("<qq", 9, 0)),),
            references=(Reference(None, find_global(lab, "list") + base, 0, 0),),
        )
        observations = {lab.experiment("passing", (stop,), transfer) for _ in range(30)}
        assert {o.stdout for o in observations} == {b"4:5:6:7:8:9:10:11:again 132\nnode 9\n"}
        assert len(observations) == 1


class TestStandardInput:
    def stop(self, lab):
        return (Stop(find_function(lab, "checkpoint"), 1),)

    def inputs(self, lab):
        return [file for file in lab.visit("passing", self.stop(lab)).files if file.role == "input"]

    @pytest.mark.parametrize(
        ("mode", "stdin", "taken", "printed"),
        [
            ("line", b"first\nsecond\nthird\n", 6, b"<first\n>"),
            ("number", b"12 34\n", 2, b"<12>"),
            ("read", b"abcdefgh", 4, b"<abcd>"),
            ("line", b"only", 4, b"<only>"),
            ("number", b"12", 2, b"<12>"),
            ("line", b"", 0, b""),
        ],
    )
    def test_the_unread_rest_is_replaced(self, build, open_lab, mode, stdin, taken, printed):
        lab = open_lab(build(READER), mode, stdin=stdin)
        [seen] = self.inputs(lab)
        assert (seen.number, seen.name, seen.content, seen.position) == (0, "stdin", stdin, taken)
        unaltered = printed + stdin[taken:]
        assert lab.experiment("passing", self.stop(lab)).stdout == unaltered
        for rest in (b"new\0rest" * 3000, b"", b"x"):
            other = replace(seen, content=stdin[:taken] + rest, is_at_end=False)
            assert lab.experiment("passing", self.stop(lab), Transfer(files=(other,))).stdout == printed + rest
        assert lab.experiment("passing").stdout == unaltered

    def test_a_file_of_the_users_in_its_place_is_left_alone(self, build, open_lab, tmp_path):
        file = tmp_path / "data"
        file.write_bytes(b"the user's own")
        lab = open_lab(build(READER), "file", str(file), stdin=b"ours")
        assert self.inputs(lab) == []
        other = OpenFile(0, "stdin", "input", b"changed")
        observation = lab.experiment("passing", self.stop(lab), Transfer(files=(other,)))
        assert observation.stdout == b"<other>the user's own"
        assert file.read_bytes() == b"the user's own"

    def test_closed(self, build, open_lab):
        lab = open_lab(build(READER), "closed", stdin=b"never read")
        assert self.inputs(lab) == []
        other = OpenFile(0, "stdin", "input", b"changed")
        assert lab.experiment("passing", self.stop(lab), Transfer(files=(other,))).stdout == b""


def test_variables_are_set_in_lines_of_another_file(build, open_lab):
    lab = open_lab(build(PARSER))
    state = lab.visit("passing", (Stop(find_function(lab, "act"), 1),))
    assert {v.name: v.pending for v in state.frames[1].variables} == {"depth": False}


class TestTraces:
    def test_calls(self, lab):
        main, step = find_function(lab, "main"), find_function(lab, "step")
        trace = lab.trace("passing", (), [main, step])
        assert trace.complete
        assert [event.address for event in trace.events] == [main] + [step] * 12
        calling = {lab.program.position(e.return_address).line for e in trace.events[1:] if e.return_address}
        assert all(lab.program.function_at(e.return_address).name == "main" for e in trace.events[1:])
        assert len({event.sp for event in trace.events[1:]}) == 1
        assert trace.events[1].sp < trace.events[0].sp
        assert calling

    def test_statements_between_two_stops(self, lab):
        step, inner = find_function(lab, "step"), find_statement(lab, COUNTER, 'printf("%d:')
        trace = lab.trace("passing", (Stop(step, 3),), [step, inner], Stop(step, 5))
        assert trace.complete
        # From the third call to the eighth, both without: numbers 2 to 7, of which 4 and more are printed.
        assert [event.address for event in trace.events] == [step, step, inner, step, inner, step, inner]
        assert [bool(event.return_address) for event in trace.events] == [True, True, False, True, False, True, False]

    def test_up_to_a_stop_that_is_not_watched(self, lab):
        step, end = find_function(lab, "step"), find_statement(lab, COUNTER, 'printf("%s %d')
        trace = lab.trace("passing", (), [step, end], Stop(end, 1))
        assert trace.complete
        assert [event.address for event in trace.events] == [step] * 12

    def test_limit(self, lab):
        trace = lab.trace("passing", (), [find_function(lab, "step")], limit=5)
        assert not trace.complete
        assert len(trace.events) == 5
        assert all(isinstance(event, Event) for event in trace.events)
