"""The picture of both states around a cause."""

from __future__ import annotations

import pytest
from cases import Case

from pytest_causechain.causes.picturing import MOST_TRIALS, MOST_VERTICES, draw_picture, list_trials
from pytest_causechain.model.chain import Picture, Scene, Trial
from pytest_causechain.model.runs import Outcome
from pytest_causechain.states.deltas import Delta
from pytest_causechain.states.outside import OutsideDelta

LIST = r"""
#include <stdio.h>
#include <stdlib.h>
struct item { int before, count, after; struct item *next; };
static struct item *top;
static int show(struct item *at)
{
    printf("%d %d\n", at->count, at->next ? at->next->count : -1); /* show */
    return 0;
}
int main(int argc, char **argv)
{
    struct item second = { 4, 5, 6, NULL };
    int numbers[60] = { 0 };
    top = calloc(1, sizeof *top);
    top->count = atoi(argv[1]);
    if (top->count > 1)
        top->next = &second;
    for (int i = 0; i < 60; i++)
        numbers[i] = i * top->count;
    show(top);
    return numbers[0];
}
"""


@pytest.fixture(scope="module")
def case(open_case) -> Case:
    return open_case(LIST, ["1"], ["2"])


@pytest.fixture(scope="module")
def deltas(case: Case) -> dict[str, Delta]:
    case.isolate(case.call("show"))
    return {delta.name: delta for delta in case.inquiry._comparable[case.call("show")].deltas}


def draw(case: Case, *deltas: Delta) -> Picture:
    picture = draw_picture(case.inquiry._comparable[case.call("show")].comparison, deltas)
    assert picture is not None
    return picture


def values(scene: Scene) -> dict[str, tuple[str, bool]]:
    return {vertex.name: (vertex.value, vertex.differs) for vertex in scene.vertices}


def test_value_stands_between_its_neighbours(case, deltas):
    picture = draw(case, next(delta for name, delta in deltas.items() if name.endswith("->count")))
    for scene, value in ((picture.passing, "1"), (picture.failing, "2")):
        shown = values(scene)
        assert shown[".count"] == (value, True)
        assert shown[".before"] == shown[".after"] == ("0", False)
        operations = {scene.vertices[edge.target].name: edge.operation for edge in scene.edges}
        assert operations[".count"] == ".count"


def test_pointer_leads_to_its_object_in_the_run_that_has_one(case, deltas):
    picture = draw(case, next(delta for name, delta in deltas.items() if name.endswith("->next")))
    assert values(picture.passing)[".next"] == ("NULL", True)
    names = [vertex.name for vertex in picture.failing.vertices]
    (target,) = [e.target for e in picture.failing.edges if names[e.source] == ".next"]
    assert (names[target], picture.failing.vertices[target].value) == ("second", "{4, 5, 6, ...}")


def test_variable_of_one_value_is_one_vertex(open_case):
    source = 'int printf(const char *, ...);\nint main(int argc, char **argv) { printf("%d", argc); return 0; }\n'
    case = open_case(source, [], ["x"])
    moment = case.call("main")
    argc = next(delta for delta in case.isolate(moment).deltas if delta.name == "argc")
    picture = draw_picture(case.inquiry._comparable[moment].comparison, [argc])
    assert values(picture.passing) == {"argc": ("1", True)}
    assert values(picture.failing) == {"argc": ("2", True)}


def test_picture_is_small(case, deltas):
    elements = [delta for name, delta in deltas.items() if name.startswith("numbers[")]
    assert len(elements) > 50
    for scene in (lambda p: (p.passing, p.failing))(draw(case, *elements)):
        assert len(scene.vertices) <= MOST_VERTICES
        assert all(0 <= n < len(scene.vertices) for edge in scene.edges for n in (edge.source, edge.target))


def make_deltas(*names: str) -> list[Delta]:
    return [OutsideDelta(name, name, "", "", "") for name in names]


def test_input_has_no_picture(case):
    comparison = case.inquiry._comparable[case.call("show")].comparison
    assert draw_picture(comparison, make_deltas("stdin line 1")) is None


def test_trials_are_named_by_their_first_variables():
    known = {frozenset(): Outcome.PASS, frozenset({0, 1, 2, 3}): Outcome.FAIL, frozenset({3}): Outcome.UNRESOLVED}
    assert list_trials(make_deltas("a", "b", "c", "d"), known) == (
        Trial((), 0, "pass"),
        Trial(("a", "b", "c"), 4, "fail"),
        Trial(("d",), 1, "unresolved"),
    )


def test_many_trials_are_cut():
    known = {frozenset({n}): Outcome.PASS for n in range(100)}
    assert len(list_trials(make_deltas(*map(str, range(100))), known)) == MOST_TRIALS


def test_link_has_both(case):
    links = case.explain().links()
    assert any(link.picture is not None for link in links)
    assert all(link.trials for link in links)
