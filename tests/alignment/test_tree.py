"""Call trees from stack pointers and return addresses."""

from __future__ import annotations

import pytest

from pytest_causechain.alignment.trees import FOREIGN, Tree, build_tree
from pytest_causechain.debugger.program import Function, ProgramMap, Statement
from pytest_causechain.lab.laboratory import Event, Events

# Each function has the addresses from its own up to the next one.
MAIN, F, G, H = 1000, 2000, 3000, 4000
LIBRARY = 1_000_000
TOP = 10_000


def make_function(name: str, start: int) -> Function:
    body = Statement(start + 1, "program.c", start)
    return Function(name, start, start + 1000, "program.c", start, body.address, (body,))


PROGRAM = ProgramMap(
    "program",
    True,
    tuple(make_function(name, start) for name, start in (("main", MAIN), ("f", F), ("g", G), ("h", H))),
    (),
    [],
)
NAMES = {MAIN: "main", F: "f", G: "g", H: "h"}


def enter(function: int, sp: int, caller: int) -> Event:
    """A call from somewhere in the caller."""
    return Event(function, sp, caller + 500)


def line(address: int, sp: int) -> Event:
    return Event(address, sp)


def columns(events) -> Events:
    return Events(*(list(column) for column in zip(*events, strict=True)))


def show(tree: Tree, item: int = -1) -> str:
    """main(f g(h)) with statements as numbers."""
    inner = " ".join(show(tree, child) for child in tree.children(item))
    if item < 0:
        return inner
    address, call_site = tree.tokens[item]
    if not call_site:
        return str(address)
    return f"{NAMES[address]}({inner})" if inner else NAMES[address]


def show_tree(*events: Event) -> str:
    return show(build_tree(columns(events), PROGRAM))


START = Event(MAIN, TOP, LIBRARY)


class TestCalls:
    def test_siblings_and_children(self):
        events = (START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F), enter(H, TOP - 100, MAIN))
        assert show_tree(*events) == "main(f(g) h)"

    def test_recursion(self):
        depths = [TOP - 100 * n for n in range(1, 4)]
        down = [enter(F, depths[0], MAIN), *(enter(F, sp, F) for sp in depths[1:])]
        assert show_tree(START, *down, enter(F, depths[1], F), enter(G, depths[2], F)) == "main(f(f(f) f(g)))"

    def test_mutual_recursion(self):
        events = [enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F), enter(F, TOP - 300, G), enter(G, TOP - 400, F)]
        assert show_tree(START, *events, enter(H, TOP - 300, G)) == "main(f(g(f(g) h)))"

    def test_a_sibling_with_arguments_on_the_stack(self):
        """It is entered deeper than its elder sister, who is over nevertheless."""
        assert show_tree(START, enter(F, TOP - 100, MAIN), enter(G, TOP - 164, MAIN)) == "main(f g)"

    def test_a_sibling_with_fewer_arguments_on_the_stack(self):
        assert show_tree(START, enter(F, TOP - 164, MAIN), enter(G, TOP - 100, MAIN)) == "main(f g)"

    def test_out_of_a_library(self):
        """qsort calls f, which calls g; then f again; main calls h."""
        events = [
            START,
            Event(F, TOP - 300, LIBRARY),
            enter(G, TOP - 400, F),
            Event(F, TOP - 300, LIBRARY),
            enter(H, TOP - 100, MAIN),
        ]
        assert show_tree(*events) == "main(f(g) f h)"

    def test_out_of_a_library_that_was_called_out_of_a_library(self):
        events = [START, Event(F, TOP - 300, LIBRARY), Event(G, TOP - 600, LIBRARY), Event(G, TOP - 600, LIBRARY)]
        assert show_tree(*events, Event(F, TOP - 300, LIBRARY)) == "main(f(g g) f)"

    def test_a_jump_instead_of_a_last_call(self):
        """Optimised code: g is entered with the stack pointer and the return address of f."""
        assert show_tree(START, enter(F, TOP - 100, MAIN), enter(G, TOP - 100, MAIN)) == "main(f g)"

    def test_a_jump_out_of_many_calls(self):
        events = [enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F), enter(H, TOP - 300, G)]
        assert show_tree(START, *events, enter(F, TOP - 100, MAIN)) == "main(f(g(h)) f)"

    def test_out_of_a_library_at_different_depths(self):
        """As qsort does: the second f is called deeper than the first, whose g would lie between."""
        events = [START, Event(F, TOP - 300, LIBRARY), enter(G, TOP - 400, F), Event(F, TOP - 500, LIBRARY + 50)]
        assert show_tree(*events, enter(G, TOP - 600, F)) == "main(f(g) f(g))"

    def test_into_a_library_and_out_of_it(self):
        """f was called by main: that it is called again out of a library is recursion."""
        assert show_tree(START, enter(F, TOP - 100, MAIN), Event(F, TOP - 300, LIBRARY)) == "main(f(f))"

    def test_before_and_after_main(self):
        before, after = Event(F, TOP + 50, LIBRARY), Event(G, TOP + 50, LIBRARY)
        assert show_tree(before, START, enter(H, TOP - 100, MAIN), after) == "f main(h) g"

    def test_numbers_and_places(self):
        tree = build_tree(columns([START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F)]), PROGRAM)
        assert tree.tokens == [(MAIN, FOREIGN), (F, MAIN + 500), (G, F + 500)]
        assert tree.path(2) == [0, 1, 2]
        assert list(tree.children(-1)) == [0]

    def test_places_in_libraries_are_one(self):
        events = [START, Event(F, TOP - 300, LIBRARY + 10), Event(F, TOP - 300, LIBRARY + 20)]
        tree = build_tree(columns(events), PROGRAM)
        assert tree.tokens[1:] == [(F, FOREIGN), (F, FOREIGN)]

    def test_shapes(self):
        """Calls with the same within are alike, whatever their place."""
        twice = [enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F)] * 2
        tree = build_tree(columns([START, *twice, enter(F, TOP - 100, MAIN), enter(H, TOP - 200, F)]), PROGRAM)
        assert tree.shapes[1] == tree.shapes[3]
        assert tree.shapes[3] != tree.shapes[5]
        assert len(set(tree.shapes)) == 5


class TestLookingAtTheStack:
    EVENTS = (START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F), Event(H, TOP - 500, LIBRARY))

    @pytest.mark.parametrize(
        ("enclosing", "tree"),
        [(0, "main(f(g)) h"), (1, "main(f(g) h)"), (2, "main(f(g h))"), (3, "main(f(g(h)))"), (None, "main(f(g(h)))")],
    )
    def test_who_is_told_the_number_of_callers_needs_no_guess(self, enclosing, tree):
        asked = []

        def count_callers(number, stack):
            asked.append((number, [NAMES[function] for function, _ in stack]))
            return enclosing

        assert show(build_tree(columns(self.EVENTS), PROGRAM, (), count_callers)) == tree
        assert asked == [(3, ["main", "f", "g"])]

    def test_it_is_asked_for_by_the_number_of_its_event(self):
        events = (line(1001, TOP - 50), line(1002, TOP - 50), Event(F, TOP - 300, LIBRARY))
        numbers = []
        above = [((MAIN, FOREIGN), TOP)]
        build_tree(columns(events), PROGRAM, above, lambda number, stack: numbers.append(number))
        assert numbers == [2]


class TestStatements:
    def test_they_belong_to_the_call_that_is_executed(self):
        events = [START, line(1001, TOP - 50), enter(F, TOP - 100, MAIN), line(2001, TOP - 150)]
        assert show_tree(*events, line(2002, TOP - 150), line(1002, TOP - 50)) == "main(1001 f(2001 2002) 1002)"

    def test_between_arguments_on_the_stack(self):
        """main pushes arguments for its next call and goes on to another line: f is over although the stack pointer
        is below its own."""
        events = [START, enter(F, TOP - 100, MAIN), line(2001, TOP - 150), line(1002, TOP - 116)]
        assert show_tree(*events, enter(G, TOP - 132, MAIN)) == "main(f(2001) 1002 g)"

    def test_in_recursion(self):
        events = [START, enter(F, TOP - 100, MAIN), line(2001, TOP - 150), enter(F, TOP - 200, F)]
        events += [line(2001, TOP - 250), line(2002, TOP - 150), line(1001, TOP - 50)]
        assert show_tree(*events) == "main(f(2001 f(2001) 2002) 1001)"

    def test_of_functions_that_were_not_seen_to_be_entered(self):
        assert show_tree(START, line(4001, TOP - 50)) == "main(4001)"


class TestTheMiddleOfARun:
    def test_calls_above_open_the_tree(self):
        above = [((MAIN, FOREIGN), TOP), ((F, MAIN + 500), TOP - 100), ((G, F + 500), TOP - 200)]
        events = [line(3001, TOP - 250), line(2001, TOP - 150), enter(H, TOP - 100, MAIN), line(1001, TOP - 50)]
        tree = build_tree(columns(events), PROGRAM, above)
        assert show(tree) == "main(f(g(3001) 2001) h 1001)"
        assert tree.above == 3
        assert tree.tokens[:3] == [token for token, _ in above]
        assert tree.tokens[3:] == [(3001, 0), (2001, 0), (H, MAIN + 500), (1001, 0)]

    def test_no_event_at_all(self):
        above = [((MAIN, FOREIGN), TOP), ((F, MAIN + 500), TOP - 100)]
        assert show(build_tree(Events([], [], []), PROGRAM, above)) == "main(f)"
