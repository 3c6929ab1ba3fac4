"""Containers of the C++ library filled by chance, in pairs: the one state must become the other."""

from __future__ import annotations

import random

import pytest
from seeds import Seeds, check_all_deltas, check_ends, check_nothing_is_left, check_pointers, pairs_of_seeds

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <stack>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

static unsigned long state;

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (state >> 33) % below;
}

static std::string word()
{
    std::string text;
    for (unsigned n = draw(24); n > 0; n--) text += 'a' + draw(26);
    return text;
}

struct Shape {
    int id = draw(100);
    virtual ~Shape() {}
    virtual int area() const { return id; }
};
struct Named {
    std::string name = word();
    virtual ~Named() {}
};
struct Square : Shape {
    int side = draw(9);
    int area() const override { return side * side; }
};
struct Label : Shape, Named {
    std::vector<int> sizes = std::vector<int>(draw(4), id);
    int area() const override { return name.size() + sizes.size(); }
};
struct Article {
    int count = draw(50);
    std::string maker = word();
    std::optional<std::string> note;
};

struct World {
    std::string title;
    std::vector<Article> articles;
    std::vector<bool> flags;
    std::map<std::string, Article> stock;
    std::multimap<int, std::string> by_count;
    std::set<std::string> names;
    std::unordered_map<std::string, std::vector<int>> index;
    std::unordered_set<int> seen;
    std::list<std::string> jobs;
    std::forward_list<int> trail;
    std::deque<std::string> line;
    std::stack<int> undo;
    std::priority_queue<int> urgent;
    std::vector<std::unique_ptr<Shape>> shapes;
    std::vector<std::shared_ptr<Article>> shared;
    std::weak_ptr<Article> last;
    std::optional<int> limit;
    std::variant<int, std::string, double> any;
    std::tuple<int, std::string> both;
    std::function<int(int)> add;
};

static World *world;

static void build()
{
    World &w = *world;
    unsigned n;
    w.title = word();
    for (n = draw(6); n > 0; n--) {
        w.articles.emplace_back();
        if (draw(2)) w.articles.back().note = word();
    }
    for (n = draw(100); n > 0; n--) w.flags.push_back(draw(2));
    for (n = draw(9); n > 0; n--) w.stock["a" + std::to_string(draw(12))];
    for (n = draw(6); n > 0; n--) w.by_count.emplace(draw(4), word());
    for (n = draw(6); n > 0; n--) w.names.insert(word());
    for (n = draw(20); n > 0; n--) w.index["k" + std::to_string(draw(15))].push_back(draw(10));
    for (n = draw(10); n > 0; n--) w.seen.insert(draw(30));
    for (n = draw(6); n > 0; n--) w.jobs.push_back(word());
    for (n = draw(6); n > 0; n--) w.trail.push_front(draw(10));
    for (n = draw(40); n > 0; n--) w.line.push_back(word());
    for (n = draw(30); n > 0 && !w.line.empty(); n--) w.line.pop_front();
    for (n = draw(6); n > 0; n--) w.undo.push(draw(10));
    for (n = draw(6); n > 0; n--) w.urgent.push(draw(10));
    for (n = draw(5); n > 0; n--)
        w.shapes.push_back(draw(2) ? std::unique_ptr<Shape>(new Square) : std::unique_ptr<Shape>(new Label));
    for (n = draw(5); n > 0; n--)
        w.shared.push_back(!w.shared.empty() && draw(2)  ? w.shared[draw(w.shared.size())]
                           : draw(2) ? std::make_shared<Article>() : std::shared_ptr<Article>(new Article));
    if (!w.shared.empty()) w.last = w.shared[draw(w.shared.size())];
    if (draw(2)) w.limit = draw(100);
    if (draw(3)) w.any = word();
    if (!draw(3)) w.any = 2.5;
    w.both = {draw(10), word()};
    int by = draw(100);
    std::string text = word();
    if (draw(2)) w.add = [by](int x) { return x + by; };
    else w.add = [text](int x) { return x + (int) text.size(); };
}

static void show(const Article &a) { printf("%d %s %s\n", a.count, a.maker.c_str(), a.note ? a.note->c_str() : "-"); }

static void show()
{
    World &w = *world;
    printf("%s\n", w.title.c_str());
    for (auto &a : w.articles) show(a);
    for (bool b : w.flags) printf("%d", b);
    for (auto &[k, a] : w.stock) { printf("%s ", k.c_str()); show(a); }
    for (auto &[k, s] : w.by_count) printf("%d:%s ", k, s.c_str());
    for (auto &s : w.names) printf("%s ", s.c_str());
    for (auto &[k, v] : w.index) { printf("%s", k.c_str()); for (int i : v) printf(" %d", i); }
    for (int i : w.seen) printf(" %d", i);
    for (auto &s : w.jobs) printf(" %s", s.c_str());
    for (int i : w.trail) printf(" %d", i);
    for (auto &s : w.line) printf(" %s", s.c_str());
    for (auto &s : w.shapes) printf(" %d", s->area());
    for (auto &s : w.shared) { printf(" %ld ", s.use_count()); show(*s); }
    printf("%ld %d %s %d\n", w.last.use_count(), w.limit ? *w.limit : -1,
           w.any.index() == 1 ? std::get<1>(w.any).c_str() : "-", w.any.index() ? 0 : std::get<0>(w.any));
    printf("%d %s %d\n", std::get<0>(w.both), std::get<1>(w.both).c_str(), w.add(1));
    printf("%zu %zu\n", w.undo.size(), w.urgent.size());
}

static void change()
{
    World &w = *world;
    for (int n = 0; n < 5; n++) {
        w.stock["a" + std::to_string(n * 3)].count++;
        w.index["k" + std::to_string(n * 3)].push_back(n);
        w.names.insert("n" + std::to_string(n));
        w.seen.insert(n * 7);
        w.articles.emplace_back();
        w.line.push_back("line" + std::to_string(n));
        w.jobs.push_front("job");
        w.urgent.push(n);
        w.undo.push(n);
        w.flags.push_back(true);
        w.title += "more";
    }
    if (!w.stock.empty()) w.stock.erase(w.stock.begin());
    if (!w.index.empty()) w.index.erase(w.index.begin());
    if (!w.line.empty()) w.line.pop_front();
    if (!w.shared.empty()) w.shared.pop_back();
    if (!w.shapes.empty()) w.shapes.pop_back();
    w.any = 3;
    show();
    delete world;
    puts("released");
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "r");
    if (fscanf(file, "%lu", &state) != 1) return 1;
    fclose(file);
    file = NULL;
    world = new World;
    build();
    show(); /* here */
    if (argc > 2)
        change();
    return 0;
}
"""


@pytest.fixture(scope="module")
def releasing(open_shared, tmp_path_factory) -> Seeds:
    directory = tmp_path_factory.mktemp("seeds")
    return Seeds(open_shared(SOURCE, [f"{directory}/passing", "x"], [f"{directory}/failing", "x"]), directory)


@pytest.fixture(scope="module")
def showing(open_shared, tmp_path_factory) -> Seeds:
    directory = tmp_path_factory.mktemp("seeds")
    return Seeds(open_shared(SOURCE, [f"{directory}/passing"], [f"{directory}/failing"]), directory)


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(12, seed=5))
def test_all_deltas_make_the_one_the_other(releasing, passing, failing):
    """And leave containers behind that can be added to, taken from and destroyed."""
    check_all_deltas(releasing.plant(passing, failing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(5, seed=6))
def test_some_deltas_never_crash(showing, passing, failing):
    check_ends(showing.plant(passing, failing), random.Random(passing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(4, seed=7))
def test_nothing_is_left_when_all_was_written(showing, passing, failing):
    check_nothing_is_left(showing.plant(passing, failing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(3, seed=8))
def test_some_deltas_leave_a_state_whose_pointers_all_lead_somewhere(showing, passing, failing):
    check_pointers(showing.plant(passing, failing), random.Random(failing))


@pytest.mark.parametrize(("passing", "failing"), pairs_of_seeds(3, seed=9))
def test_no_name_tells_of_the_library(showing, passing, failing):
    runs = showing.plant(passing, failing)
    assert [delta.name for delta in runs.deltas if "_M_" in delta.name] == []
