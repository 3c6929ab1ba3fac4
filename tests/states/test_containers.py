"""Containers of the C++ library: what differs in them is told as a C++ programmer writes it."""

from __future__ import annotations

import pytest
from two_runs import TwoRuns

from pytest_causechain.states.graph import MemoryGraph

SOURCE = r"""
#include <array>
#include <cstdlib>
#include <deque>
#include <forward_list>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <sstream>
#include <stack>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

enum class Color { red, green };
struct Article { int count = 0; int cents = 0; };
struct Base { int below = 1; virtual ~Base() {} };
struct Left : virtual Base { int left = 2; };
struct Right : virtual Base { int right = 3; };
struct Both : Left, Right { int both = 4; };
struct Shape { int id = 3; virtual ~Shape() {} virtual int area() { return id; } };
struct Named { std::string name; virtual ~Named() {} };
struct Square : Shape, Named { int side = 2; int area() override { return side * side; } };
struct Circle : Shape { int radius = 5; };

struct All {
    std::string shortish = "hello", longish = "a text that does not fit inside the string";
    std::vector<Article> items;
    std::vector<bool> bits;
    std::map<std::string, Article> stock;
    std::map<Color, std::vector<int>> by_color;
    std::multimap<int, int> pairs;
    std::set<int> numbers;
    std::unordered_map<std::string, int> index;
    std::list<int> list;
    std::forward_list<int> forward;
    std::deque<int> queue;
    std::stack<int> stack;
    std::priority_queue<int> urgent;
    std::unique_ptr<Shape> owner;
    std::vector<std::unique_ptr<Shape>> shapes;
    std::shared_ptr<Square> shared;
    std::weak_ptr<Square> weak;
    std::optional<std::string> note;
    std::optional<Article> maybe;
    std::variant<int, std::string> any;
    std::function<int(int)> add;
    std::array<int, 3> three{};
    std::tuple<int, Article> both;
    std::string_view view;
    std::unique_ptr<Both> diamond;
    Named *named = nullptr;
    Color color = Color::red;
};

namespace {
int hidden = 1;
}

struct Counter {
    int count = 0;
    std::vector<std::string> names;
    static int total;

    int step(const Article &article, int by)
    {
        auto twice = [this, by](int x) { return count + by + x; };
        count += by;
        names.push_back(std::to_string(article.count));
        total += twice(by);
        return count; /* in step */
    }
};
int Counter::total = 0;

static void fill(All &all, int n, bool is_other)
{
    for (int i = 0; i < 4; i++) {
        all.items.push_back({i, i});
        all.stock["k" + std::to_string(i)] = {i, i};
        all.index["i" + std::to_string(i)] = i;
        all.by_color[i % 2 ? Color::red : Color::green].push_back(i);
        all.list.push_back(i);
        all.queue.push_back(i);
        all.bits.push_back(i % 2);
        all.numbers.insert(i);
    }
    all.owner = std::make_unique<Square>();
    all.shared = std::make_shared<Square>();
    all.weak = all.shared;
    all.shapes.push_back(std::make_unique<Circle>());
    all.diamond = std::make_unique<Both>();
    all.named = all.shared.get();
    all.note = "noted";
    all.maybe = Article{1, 2};
    all.any = std::string("text");
    if (!is_other)
        return;
    switch (n) {
    case 0: all.shortish = "world"; all.longish = "another text that does not fit inside either"; break;
    case 1: all.shortish = "now this one does not fit any more"; all.longish = "short"; break;
    case 2: all.items[2].cents = 9; all.stock["k2"].count = 7; all.index["i1"] = 8; all.queue[1] = 6; break;
    case 3: all.items.push_back({9, 9}); all.queue.push_front(7); all.list.push_back(8); all.bits.push_back(1); break;
    case 4: all.stock["k1x"]; all.numbers.erase(1); all.index.erase("i2"); all.stock.erase("k3"); break;
    case 5: all.by_color[Color::red][1] = 5; all.by_color[Color::green].pop_back(); break;
    case 6: all.owner->id = 8; all.shared->side = 9; all.shared->name = "square"; all.diamond->below = 7; break;
    case 7: all.shapes[0] = std::make_unique<Square>(); all.owner = nullptr; break;
    case 8: all.note = std::nullopt; all.maybe->cents = 3; all.any = 4; break;
    case 9: all.both = {3, {0, 4}}; all.three[1] = 5; all.color = Color::green; break;
    case 10: all.shared = std::make_shared<Square>(); all.stack.push(3); all.urgent.push(4); break;
    case 11: all.pairs.emplace(1, 2); all.forward.push_front(3); all.view = "seen"; break;
    case 12: all.add = [n](int x) { return x + n; }; break;
    }
}

static void print(All &all)
{
    std::cout << all.shortish << all.longish << all.view << all.bits.size() << '\n';
    for (auto &item : all.items) std::cout << item.count << item.cents << ' ';
    for (auto &[key, article] : all.stock) std::cout << key << article.count << article.cents << ' ';
    for (auto &[color, list] : all.by_color) { for (int i : list) std::cout << i; std::cout << ';'; }
    for (auto &[key, value] : all.pairs) std::cout << key << value << ' ';
    for (auto &[key, value] : all.index) std::cout << key << value << ' ';
    for (int i : all.numbers) std::cout << i;
    for (int i : all.list) std::cout << i;
    for (int i : all.forward) std::cout << i;
    for (int i : all.queue) std::cout << i;
    for (int i : all.three) std::cout << i;
    std::cout << '\n' << all.stack.size() << all.urgent.size() << (all.owner ? all.owner->area() : -1);
    std::cout << all.shapes[0]->area() << all.shared->side << all.shared->name << all.shared.use_count();
    std::cout << all.weak.use_count() << all.note.value_or("-") << all.maybe->cents << all.any.index();
    std::cout << std::get<0>(all.both) << std::get<1>(all.both).cents << all.diamond->below << int(all.color);
    std::cout << (all.add ? all.add(1) : 0) << all.named->name << '\n';
}

int main(int argc, char **argv)
{
    int n = atoi(argv[1]);
    bool is_other = argv[2][0] == 'y';
    All all;
    fill(all, n, is_other);
    std::istringstream words(is_other ? "one two" : "six ten");
    std::string word;
    words >> word;
    auto place = all.stock.find(is_other ? "k2" : "k1");
    Counter counter;
    counter.step(all.items[0], n + is_other);
    hidden = is_other;
    print(all); /* here */
    words >> word;
    std::cout << word << hidden << counter.count << place->second.cents << '\n';
    std::vector<std::string> later(2, word);
    return later.size() - 2;
}
"""


class Cases:
    """One program; each number makes another difference."""

    def __init__(self, open_shared) -> None:
        self._open = open_shared
        self._runs: dict[int, TwoRuns] = {}

    def __call__(self, number: int) -> TwoRuns:
        if number not in self._runs:
            self._runs[number] = self._open(SOURCE, [str(number), "n"], [str(number), "y"])
        return self._runs[number]

    def told(self, number: int) -> dict[str, tuple[str, str]]:
        """What differs in `all`, by name without it."""
        return {d.name[4:]: (d.passing, d.failing) for d in self(number).deltas if d.name.startswith(("all.", "*all."))}


@pytest.fixture(scope="module")
def cases(open_shared) -> Cases:
    return Cases(open_shared)


@pytest.mark.parametrize("number", range(13))
def test_all_deltas_make_the_one_the_other(cases, number):
    runs = cases(number)
    assert runs.alter_passing(runs.deltas) == runs.original("failing")
    assert runs.alter_failing(runs.deltas) == runs.original("passing")


@pytest.mark.parametrize("number", range(13))
def test_each_delta_alone_does_no_harm(cases, number):
    runs = cases(number)
    for delta in runs.deltas:
        if delta.name.startswith("argv"):
            continue
        for altered in (runs.alter_passing([delta]), runs.alter_failing([delta])):
            assert (altered.ending, altered.code) == ("exit", 0), delta.name


class TestTold:
    def test_string_is_one_value_wherever_it_lies(self, cases):
        longs = '"a text that does not fit inside the string"', '"another text that does not fit inside either"'
        assert cases.told(0) == {"shortish": ('"hello"', '"world"'), "longish": longs}
        assert cases.told(1) == {
            "shortish": ('"hello"', '"now this one does not fit any more"'),
            "longish": (longs[0], '"short"'),
        }

    def test_elements_by_number_or_key(self, cases):
        assert cases.told(2) == {
            "items[2].cents": ("2", "9"),
            'stock["k2"].count': ("2", "7"),
            'index["i1"]': ("1", "8"),
            "queue[1]": ("1", "6"),
        }

    def test_new_elements_make_one_difference(self, cases):
        assert cases.told(3) == {
            "items": ("{{0, 0}, {1, 1}, {2, 2}, {3, 3}}", "{{0, 0}, {1, 1}, {2, 2}, {3, 3}, ...}"),
            "queue": ("{0, 1, 2, 3}", "{7, 0, 1, 2, ...}"),
            "list": ("{0, 1, 2, 3}", "{0, 1, 2, 3, ...}"),
            "bits": ("0101", "01011"),
        }

    def test_elements_are_matched_by_key(self, cases):
        told = cases.told(4)
        assert set(told) == {"stock", "numbers", "index"}
        assert told["stock"] == ('{"k0", "k1", "k2", "k3"}', '{"k0", "k1", "k1x", "k2"}')
        assert told["numbers"] == ("{0, 1, 2, 3}", "{0, 2, 3}")

    def test_containers_in_containers(self, cases):
        assert cases.told(5) == {
            "by_color[Color::red][1]": ("3", "5"),
            "by_color[Color::green]": ("{0, 2}", "{0}"),
        }

    def test_objects_behind_pointers_by_their_own_class(self, cases):
        assert cases.told(6) == {
            "owner->id": ("3", "8"),
            "shared->side": ("2", "9"),
            "shared->name": ('""', '"square"'),
            "diamond->below": ("1", "7"),
        }

    def test_another_class_is_another_object(self, cases):
        told = cases.told(7)
        assert told["shapes[0]"] == ("Circle{3, 5}", 'Square{3, "", 2}')
        assert told["owner"][1] == "NULL"
        assert not [name for name in told if "_vptr" in name]

    def test_optional_and_variant(self, cases):
        assert cases.told(8) == {
            "note": ('"noted"', "nullopt"),
            "maybe->cents": ("2", "3"),
            "any": ('"text"', "4"),
        }

    def test_tuple_array_and_enumeration(self, cases):
        told = {d.name: (d.passing, d.failing) for d in cases(9).deltas}
        assert told["std::get<0>(all.both)"] == ("0", "3")
        assert told["std::get<1>(all.both).cents"] == ("0", "4")
        assert told["all.three[1]"] == ("0", "5")
        assert told["all.color"] == ("Color::red", "Color::green")

    def test_counts_go_with_the_pointer(self, cases):
        told = cases.told(10)
        assert {"weak", "stack", "urgent"} <= set(told)  # which of two objects is the new one, nobody can tell
        assert told["stack"] == ("{}", "{3}")
        assert not [name for name in told if "count()" in name]

    def test_adaptors_views_and_multimaps(self, cases):
        told = cases.told(11)
        assert told["pairs"] == ("{}", "{1}")
        assert told["forward"] == ("{}", "{3}")
        assert told["view"] == ('""', '"seen"')

    def test_function(self, cases):
        assert cases.told(12) == {"add": ("{}", "{...}")}

    def test_types_are_short(self, cases):
        types = {delta.name: delta.type for delta in cases(4).deltas}
        assert types["all.stock"] == "std::map<std::string, Article>"
        assert types["all.index"] == "std::unordered_map<std::string, int>"
        assert types["all.numbers"] == "std::set<int>"


def test_stream_that_only_the_library_knows_is_part_of_the_state(cases):
    assert cases(2).delta("words").spots[0].is_whole


def test_iterator_leads_to_an_element(cases):
    place = cases(0).delta("place")
    assert (place.passing, place.failing) == ('&all.stock["k1"]', '&all.stock["k2"]')


def test_variable_of_an_unnamed_namespace(cases):
    assert cases(2).delta("hidden").failing == "1"


class TestMemberFunction:
    @pytest.fixture
    def graph(self, cases) -> MemoryGraph:
        return cases(2).graph("failing", cases(2).at("/* in step */"))

    def test_members_are_told_without_this(self, cases):
        names = {delta.name for delta in cases(2).compare(cases(2).at("/* in step */")).deltas}
        assert {"count", "total"} <= {name.removeprefix("Counter::") for name in names}
        assert not [name for name in names if name.startswith("this")]

    def test_reference_stands_for_what_it_refers_to(self, graph):
        variable = next(o for o in graph.variables if o.name == "&article")
        target = graph.target(graph.words(variable)[0])
        assert target.object is not None
        assert graph.naming.name(target.object) == "&all.items[0]"

    def test_container_that_is_not_constructed_yet_is_left_alone(self, graph):
        later = next(o for o in graph.variables if o.name == "later")
        assert later.is_unset
        assert not [key for key in graph.containers.found if key[0] is later]
