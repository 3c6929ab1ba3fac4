"""Call trees from stack pointers and return addresses."""

from __future__ import annotations

import pytest

from pytest_causechain.debugger.program import Function, ProgramMap, Statement
from pytest_causechain.lab.laboratory import Event
from pytest_causechain.moments.tree import Invocation, Line, build_tree

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


def show(item: Invocation | Line) -> str:
    """main(f g(h)) with statements as numbers."""
    if isinstance(item, Line):
        return str(item.address)
    inner = " ".join(show(child) for child in item.children)
    return f"{NAMES[item.function]}({inner})" if inner else NAMES[item.function]


def show_tree(*events: Event) -> str:
    return " ".join(show(root) for root in build_tree(events, PROGRAM)[0])


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

    def test_events_and_places(self):
        roots, entered = build_tree([START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F)], PROGRAM)
        assert [i.event for i in entered] == [0, 1, 2]
        assert [i.call_site for i in entered] == [LIBRARY, MAIN + 500, F + 500]
        assert entered[2].path() == entered
        assert roots == entered[:1]
        assert entered[1].token == (F, MAIN + 500)


class TestLookingAtTheStack:
    EVENTS = (START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F), Event(H, TOP - 500, LIBRARY))

    @pytest.mark.parametrize(
        ("enclosing", "tree"),
        [(0, "main(f(g)) h"), (1, "main(f(g) h)"), (2, "main(f(g h))"), (3, "main(f(g(h)))"), (None, "main(f(g(h)))")],
    )
    def test_who_is_told_the_number_of_callers_needs_no_guess(self, enclosing, tree):
        asked = []

        def count_callers(number, stack):
            asked.append((number, [NAMES[invocation.function] for invocation in stack]))
            return enclosing

        roots, _ = build_tree(self.EVENTS, PROGRAM, (), count_callers)
        assert " ".join(map(show, roots)) == tree
        assert asked == [(3, ["main", "f", "g"])]

    def test_calls_are_counted_without_statements(self):
        events = (START, line(1001, TOP - 50), line(1002, TOP - 50), Event(F, TOP - 300, LIBRARY))
        numbers = []
        build_tree(events, PROGRAM, (), lambda number, stack: numbers.append(number))
        assert numbers == [1]


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
        whole = build_tree([START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F)], PROGRAM)[1]
        events = [line(3001, TOP - 250), line(2001, TOP - 150), enter(H, TOP - 100, MAIN), line(1001, TOP - 50)]
        roots, entered = build_tree(events, PROGRAM, whole[2].path())
        assert " ".join(map(show, roots)) == "main(f(g(3001) 2001) h 1001)"
        assert [i.event for i in entered] == [2]
        copies = [roots[0], roots[0].children[0], roots[0].children[0].children[0]]
        assert [copy.event for copy in copies] == [-1, -1, -1]
        assert [copy.token for copy in copies] == [i.token for i in whole]

    @pytest.mark.parametrize("above", [0, 1, 2, 3])
    def test_the_calls_themselves_are_left_alone(self, above):
        whole = build_tree([START, enter(F, TOP - 100, MAIN), enter(G, TOP - 200, F)], PROGRAM)[1][:above]
        before = [list(i.children) for i in whole]
        build_tree([line(1001, TOP - 50), enter(F, TOP - 100, MAIN)], PROGRAM, whole)
        assert [list(i.children) for i in whole] == before
