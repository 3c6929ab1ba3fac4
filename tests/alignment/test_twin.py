"""Moments of a run and its twin, which begin in the middle of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reaching import check_order, check_reached, check_route, find_line

from pytest_causechain.alignment.timeline import Timeline
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Intervention, Patch, Spot
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Program

SOURCE = r"""
#include <stdio.h>

static int scale(int n)
{
    int result = n * 3;
    return result;
}

static int add(int a, int b)
{
    int sum = a;
    sum += b;
    if (sum > 100)
        sum = scale(sum);
    sum++;
    return sum;
}

int main(void)
{
    int total = 0;
    for (int i = 0; i < 4; i++)
        total += add(total, i);
    printf("%d\n", total);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(build: Callable[..., Program]) -> Program:
    return build(SOURCE)


def open_lab(program: Program, repair: Intervention | Patch | None) -> RemoteLab:
    command = Command(program, (program.path,), str(Path(program.path).parent))
    return RemoteLab(Open(command, command, repair=repair), Budget(300))


def find_spot(program: Program, kind: str, text: str, visit: int, register: str = "") -> Spot:
    with open_lab(program, None) as lab:
        for effect in lab.effects([f.address for f in lab.program.functions])[0]:
            statements = lab.program.function_at(effect.statement).statements
            before = [s for s in statements if s.address <= effect.statement]
            is_there = before and before[-1].line == find_line(SOURCE, text)
            if is_there and effect.kind == kind and register in ("", effect.register):
                return Spot(kind, (Stop(effect.address, visit),), effect.register, effect.size)
    raise LookupError(text)


@pytest.fixture(scope="module")
def lab(program: Program) -> Iterator[RemoteLab]:
    """In the third call of add, sum becomes 200 instead of 6."""
    spot = find_spot(program, "value", "sum += b", 3)
    with open_lab(program, Intervention(spot, (200).to_bytes(4, "little"))) as lab:
        yield lab


@pytest.fixture(scope="module")
def timeline(lab: RemoteLab) -> Timeline:
    return Timeline(lab)


def test_runs_differ_by_the_repair_alone(lab):
    assert lab.experiment("failing").stdout == b"26\n"
    assert lab.experiment("passing").stdout != b"26\n"


def test_first_moment_is_where_both_begin(lab, timeline):
    first = timeline.calls()[0]
    assert (first.passing, first.failing, first.is_entry) == ((), (), False)
    # Behind the store, which ends its statement.
    assert (first.position.function, first.position.line) == ("add", find_line(SOURCE, "if (sum > 100)"))
    assert first.backtrace == ("add", "main")
    values = []
    for side in ("passing", "failing"):
        visit = lab.visit(side, ())
        variable = next(v for v in visit.frames[0].variables if v.name == "sum")
        region = next(r for r in visit.regions if r.start <= variable.address < r.end)
        offset = variable.address - region.start
        values.append(int.from_bytes(region.data[offset : offset + 4], "little"))
    assert values == [200, 6]


def test_calls_lie_behind_it(lab, timeline):
    assert [m.position.function for m in timeline.calls()[1:]] == ["add"]
    check_reached(lab, timeline.calls()[1])


def test_statements_from_the_beginning_on(lab, timeline):
    first, second = timeline.calls()
    moments = timeline.statements(first, second)
    lines = [m.position.line for m in moments]
    # What only the twin does, scaling, is not among them.
    wanted = [find_line(SOURCE, text) for text in ("sum++", "return sum", "i++", "total += add")]
    assert [line for line in lines if line in wanted] == wanted
    assert find_line(SOURCE, "result;") not in lines
    check_order([first, *moments, second])
    for moment in moments:
        check_reached(lab, moment)


def test_ways_from_the_beginning(lab, timeline):
    first, second = timeline.calls()
    moments = timeline.statements(first)
    for later in (moments[0], moments[2], second):
        check_route(lab, timeline, first, later)


def test_other_branch(program):
    spot = find_spot(program, "branch", "if (sum > 100)", 2)
    with open_lab(program, Intervention(spot)) as lab:
        timeline = Timeline(lab)
        assert [m.position.function for m in timeline.calls()] == ["add", "add", "add"]
        assert lab.experiment("passing").stdout != lab.experiment("failing").stdout == b"26\n"


def test_argument_differs_in_the_called_function(program):
    spot = find_spot(program, "argument", "total += add", 2, "rsi")
    with open_lab(program, Intervention(spot, (50).to_bytes(4, "little"))) as lab:
        timeline = Timeline(lab)
        assert timeline.calls()[0].backtrace == ("main",)
        check_reached(lab, timeline.calls()[1])
        assert timeline.calls()[1].backtrace == ("add", "main")


def test_variant_of_an_instruction_begins_with_the_program(program):
    with open_lab(program, None) as lab:
        variants = lab.effects([f.address for f in lab.program.functions])[1]
        names = {f.address: f.name for f in lab.program.functions}
        inverted = next(
            v for v in variants if v.kind == "inverted" and names[lab.program.function_at(v.address).address] == "add"
        )
    with open_lab(program, Patch(inverted.address, inverted.code, inverted.own)) as lab:
        timeline = Timeline(lab)
        assert timeline.calls()[0].position.function == "main"
        assert timeline.calls()[0].is_entry
        assert lab.experiment("passing").stdout != lab.experiment("failing").stdout == b"26\n"
