from __future__ import annotations

import itertools

import pytest

from benchmarks.evaluation.dependence import Graph, make_graph

SOURCE = """\
int limit;
int cut(int n)
{
    int top = limit;
    if (n > top)
        n = top;
    return n;
}
main(argc, argv)
int argc; char **argv;
{
    int other = 3;
    limit = argc;
    while (argc > 1) {
        other += cut(argc);
        argc--;
    }
    return other;
}
"""
WITH_CODE = (3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 18, 19)


@pytest.fixture
def graph(tmp_path):
    source = tmp_path / "cut.c"
    source.write_text(SOURCE)
    return make_graph([source], {(str(source), line) for line in WITH_CODE})


def neighbours(graph, line):
    ((file, _), *_) = graph._vertices
    return {number for _, number in graph._neighbours[file, line]}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(6, {4, 5, 7}, id="decided by the condition, uses top, defines n"),
        pytest.param(4, {3, 5, 6, 13}, id="uses a global variable that the other function defines"),
        pytest.param(15, {3, 7, 12, 14, 16, 18, 15, 11}, id="calls, in a loop, in a function without a type"),
        pytest.param(19, {11}, id="a function's end belongs to its beginning"),
    ],
)
def test_edges(graph, line, expected):
    assert neighbours(graph, line) == expected


def test_other_languages_have_no_graph(tmp_path):
    source = tmp_path / "a.cpp"
    source.write_text("")
    assert make_graph([source], ()) is None


def chain(*numbers):
    return [("a.c", number) for number in numbers]


def test_search_takes_in_all_neighbours_until_it_has_the_defect():
    vertices = chain(*range(10))
    graph = Graph(vertices, itertools.pairwise(vertices))
    assert graph.unexamined(chain(5), chain(5)) == 100.0
    assert graph.unexamined(chain(5), chain(7)) == 60.0
    assert graph.unexamined(chain(0), chain(2, 9)) == pytest.approx(80.0)
    assert graph.unexamined((), chain(2)) == 0.0
    assert Graph(vertices, ()).unexamined(chain(1), chain(2)) == 0.0
