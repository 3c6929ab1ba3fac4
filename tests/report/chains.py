"""Chains made by hand, one for each thing a report must be able to say."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pytest_causechain.model.budget import Shortfall
from pytest_causechain.model.chain import (
    Alternative,
    Cause,
    Chain,
    Edge,
    Failure,
    Link,
    Moments,
    Party,
    Peer,
    Picture,
    Repair,
    Rule,
    Scene,
    Script,
    Seconds,
    Statistics,
    Suspect,
    Tally,
    Transition,
    Trial,
    Vertex,
    When,
)
from pytest_causechain.model.moment import Breakpoint, Place
from pytest_causechain.model.runs import Frame, Program
from pytest_causechain.report.story import Story, make_story

SAMPLE_C = """\
int main(int argc, char *argv[])
{
    int *a;

    a = read_numbers(argc, argv);
    shell_sort(a, argc);
    print_numbers(a, argc - 1);
    free(a);
    return 0;
}
"""

# Where each file's text begins, so that the chains can use the line numbers of a larger program.
SOURCES = {"src/sample.c": "\n" * 42 + SAMPLE_C, "list.c": "\n" * 29 + "while (node)\n\tsum += node->value;\n"}


def tell(chain: Chain, **more: object) -> Story:
    """Its story, with these sources."""
    return make_story(chain, **({"read_source": read_sources} | more))


def read_sources(file: str) -> list[str]:
    for name, text in SOURCES.items():
        if file.endswith(name):
            return text.splitlines()
    raise FileNotFoundError(file)


def party(test: str, argv: str, outcome: str, **more: object) -> Party:
    words = tuple(argv.split())
    return replace(Party(test, (f"/home/me/project/{words[0]}", *words[1:]), "/home/me/project", "", outcome), **more)


def when(function: str, file: str, line: int, *callers: str, is_entry: bool = False) -> When:
    stops = (Breakpoint(function, file, 16, 1),)
    return When(function, file, line, 1, 7, (function, *callers), is_entry, stops=stops, failing_stops=stops)


def value(variable: str, passing: str, failing: str, frame: int | None = 0) -> Cause:
    return Cause(
        variable, "int", passing, failing, "value", frame, f"{variable} = {failing}", f"{variable} = {passing}"
    )


def link(
    moment: When,
    *causes: Cause,
    made_by: Place | None = None,
    confirmed: Literal["both", "passing", "context"] = "both",
) -> Link:
    return Link(moment, causes, 12, Tally(3, 2, 1), confirmed, made_by)


def arriving(chain: Chain, *numbers: int) -> Chain:
    """With the transitions, in their order, leading to these links, and to no others."""
    arrivals = dict(zip(numbers, chain.transitions, strict=True))
    links = (replace(link, arrived_by=arrivals.get(number)) for number, link in enumerate(chain.chain))
    return replace(chain, chain=tuple(links))


def array(*values: str) -> Scene:
    """A pointer to an array of which the third element differs."""
    elements = tuple(Vertex(f"[{n}]", "int", value, differs=n == 2) for n, value in enumerate(values))
    edges = tuple(Edge(1, n + 2, element.name) for n, element in enumerate(elements))
    return Scene((Vertex("a", "int *", ""), Vertex("*a", "int [4]", ""), *elements), (Edge(0, 1, "*"), *edges))


TRIALS = (
    Trial((), 0, "pass"),
    Trial(("a[0]", "a[1]", "a[2]"), 12, "fail"),
    Trial(("a[0]", "a[1]"), 2, "unresolved"),
    Trial(("a[2]",), 1, "fail"),
)

STATISTICS = Statistics(
    Tally(19, 14, 4, 6), Moments(120, 9, 8), 230, 41, Seconds(0.05, 0.1, 0.2, 0.41), workers=1, lab="fork"
)

SORTS = "tests/test_sample.py::test_sorts"
SAMPLE = "/home/me/project/src/sample.c"

wrong_output = arriving(
    Chain(
        test=f"{SORTS}[two]",
        status="complete",
        program=Program("/home/me/project/sample", "0123abcd"),
        failing=party(f"{SORTS}[two]", "sample 11 14", 'printed "0 11"'),
        passing=party(
            f"{SORTS}[four]",
            "sample 9 8 7 6",
            'printed "6 7 8 9"',
            distance=7.0,
            why="same test function, 7 edits away",
        ),
        oracle=Rule("symptom", "the list compared at test_sample.py:14 contains '0'"),
        chain=(
            link(when("main", SAMPLE, 43, is_entry=True), value("argc", "5", "3")),
            replace(
                link(when("shell_sort", SAMPLE, 20, "main", is_entry=True), value("a[2]", "7", "0")),
                picture=Picture(array("9", "8", "7", "6"), array("11", "14", "0", "0")),
                trials=TRIALS,
            ),
            link(when("shell_sort", SAMPLE, 30, "main"), value("v", "7", "0"), made_by=Place(SAMPLE, 29, "shell_sort")),
            link(
                when("shell_sort", SAMPLE, 36, "main"), value("a[0]", "6", "0"), made_by=Place(SAMPLE, 33, "shell_sort")
            ),
        ),
        transitions=(
            Transition(("argc",), ("a[2]",), SAMPLE, 48, "main", Place(SAMPLE, 48, "main")),
            Transition(("a[2]",), ("v",), SAMPLE, 29, "shell_sort", Place(SAMPLE, 29, "shell_sort")),
            Transition(("v",), ("a[0]",), SAMPLE, 33, "shell_sort", Place(SAMPLE, 33, "shell_sort")),
        ),
        peer=Peer("neighbour", f"{SORTS}[four]"),
        suspects=(
            Suspect(1, SAMPLE, 48, "main", "the cause moves from argc to a[2] here"),
            Suspect(2, SAMPLE, 29, "shell_sort", "the cause moves from a[2] to v here"),
        ),
        failure=Failure("output", 'the program printed "0 11"'),
        statistics=STATISTICS,
    ),
    1,
    2,
    3,
)

size = Repair(
    "argument",
    SAMPLE,
    48,
    "main",
    1,
    "size",
    "3",
    "2",
    "shell_sort",
    (Breakpoint("main", SAMPLE, 160, 1),),
    ("set $rsi = 0x2",),
)
loop = Repair("branch", SAMPLE, 27, "shell_sort", 3, None, change="other way")

# The cause moves from x to y, back to x, and to y again.
swing = arriving(
    replace(
        wrong_output,
        chain=tuple(
            link(when("shell_sort", SAMPLE, line, "main"), value(variable, "1", "2"))
            for variable, line in (("x", 10), ("y", 20), ("x", 30), ("y", 40))
        ),
        transitions=tuple(
            Transition((old,), (new,), SAMPLE, line, "shell_sort", Place(SAMPLE, line - 5, "shell_sort"))
            for old, new, line in (("x", "y", 20), ("y", "x", 30), ("x", "y", 40))
        ),
        suspects=(Suspect(1, SAMPLE, 35, "shell_sort", "the cause moves from x to y here"),),
    ),
    *(1, 2, 3),
)

unmoved = arriving(replace(wrong_output, transitions=()))

twin = arriving(
    replace(
        wrong_output,
        passing=party(
            f"{SORTS}[two]", "sample 11 14", 'printed "11 14"', distance=0.0, why="the same run with size = 2"
        ),
        oracle=Rule("output", "it prints exactly what the failing run printed"),
        chain=(
            link(when("shell_sort", SAMPLE, 20, "main", is_entry=True), value("size", "2", "3")),
            *wrong_output.chain[2:],
        ),
        transitions=wrong_output.transitions[2:],
        peer=Peer("twin", f"{SORTS}[two]", size),
        repairs=(size, loop),
        suspects=(
            Suspect(1, SAMPLE, 48, "main", "with size = 2 instead of 3 passed to shell_sort here the test passes"),
        ),
        alternatives=(
            Alternative(
                wrong_output.peer,
                wrong_output.passing,
                wrong_output.oracle,
                arriving(replace(wrong_output, transitions=())).chain,
            ),
        ),
        statistics=replace(STATISTICS, interventions=447),
    ),
    2,
)

repaired_without_chain = replace(
    twin, status="partial", reason="the time budget is used up", chain=(), transitions=(), alternatives=(), failure=None
)

crash = Chain(
    test="test_list.py::test_sums[removed]",
    status="complete",
    program=Program("/home/me/project/list", "0123abcd"),
    failing=party("test_list.py::test_sums[removed]", "list", "crashed with SIGSEGV in sum_list", stdin="+1\n+2\n-1\n"),
    passing=party("test_list.py::test_sums[kept]", "list", 'printed "sum 3"', stdin="+1\n+2\n"),
    oracle=Rule("crash", "it crashes with SIGSEGV in sum_list, called by main"),
    chain=(
        replace(
            link(
                when("main", "list.c", 60),
                Cause("stdin line 3", "", "", '"-1"', "input", lines=(3, 3)),
                confirmed="passing",
            ),
            replay=Script(("frame 0",), "+1\n+2\n-1\n", 3),
        ),
        link(
            when("remove_item", "list.c", 51, "main"),
            Cause("list->head->next", "struct node *", "&pool[1]", "NULL", "repoint", 0, "list->head->next = 0"),
            made_by=Place("list.c", 50, "remove_item"),
        ),
        link(
            when("sum_list", "list.c", 31, "main"),
            Cause("node", "struct node *", "&pool[1]", "&pool[7]", "repoint", 0),
        ),
        link(when("sum_list", "list.c", 31, "main"), Cause("*node", "struct node", "{7, NULL}", "", "delete", 0)),
    ),
    suspects=(Suspect(1, "list.c", 50, "remove_item", "it writes list->head->next"),),
    failure=Failure(
        "crash",
        "the program crashed with SIGSEGV",
        (Frame("__memcpy"), Frame("sum_list", "list.c", 31), Frame("main", "list.c", 70)),
    ),
    statistics=replace(STATISTICS, seconds=Seconds(total=12.6)),
)

exit_code = Chain(
    test="test_config.py::TestStrict::test_accepts",
    status="complete",
    program=Program("/home/me/project/check", "0123abcd"),
    failing=party("test_config.py::TestStrict::test_accepts", "check --strict a.conf", "exited with status 2"),
    passing=party("other/test_lax.py::test_accepts", "check a.conf", "exited with status 0"),
    oracle=Rule("exit", "it exits with status 2"),
    chain=(
        link(
            when("main", "check.c", 12, is_entry=True),
            Cause("argv[1]", "char *", '"a.conf"', '"--strict"', "input"),
            confirmed="context",
        ),
        link(when("load", "check.c", 30, "main", is_entry=True), value("config.level", "1", "3", frame=None)),
    ),
    suspects=(Suspect(1, "options.c", 77, "parse", "it wrote config.level last"),),
    failure=Failure("exit", "the program exited with status 2"),
    statistics=Statistics(Tally(1, 0, 0), seconds=Seconds(total=0.2)),
)

hang = replace(
    exit_code,
    test="test_loop.py::test_ends",
    failing=party("test_loop.py::test_ends", "loop 0", "did not end within 2 s"),
    passing=party("test_loop.py::test_ends_too", "loop 1", 'printed "done"'),
    oracle=Rule("hang", "it has not ended after 2 s (20 times as long as the passing run)"),
    chain=(
        link(
            when("count_down", "loop.c", 9, "main", is_entry=True),
            value("step", "1", "0"),
            confirmed="passing",
        ),
    ),
    suspects=(),
    failure=Failure("hang", "the program does not end", (Frame("count_down", "loop.c", 10),)),
)

one_name_twice = replace(
    exit_code,
    chain=(
        link(
            when("load", "check.c", 30, "main"),
            *(value("level", "1", "3", frame) for frame in (0, 1)),
            value("depth", "4", "5"),
            value("depth", "6", "7", 1),
        ),
    ),
    # A closing brace, then the line before it.
    suspects=(
        Suspect(1, SAMPLE, 52, "main", "the function ends here"),
        Suspect(2, SAMPLE, 51, "main", "it returns here"),
    ),
)

null_pointer = replace(
    crash,
    chain=(
        link(
            when("sum_list", "list.c", 30, "main"),
            Cause("list->node", "struct node *", "&pool[1]", "NULL", "repoint", 0, "list->node = 0"),
        ),
    ),
)

two_variables = replace(
    wrong_output,
    chain=(
        wrong_output.chain[0],
        replace(
            link(when("shell_sort", SAMPLE, 31, "main"), value("i", "1", "0"), value("j", "4", "-1")),
            replay=Script(
                ("frame 0", "set {unsigned int} ($sp + 12) = 0x0", "set {unsigned int} ($sp + 8) = 0xffffffff")
            ),
            undo=Script(("frame 0", "set {unsigned int} ($sp + 12) = 0x1", "set {unsigned int} ($sp + 8) = 0x4")),
        ),
        link(
            when("shell_sort", SAMPLE, 33, "main"),
            *(value(f"a[{n}]", str(n), str(n + 10)) for n in range(7)),
            made_by=Place(SAMPLE, 32),
        ),
    ),
    transitions=(),
    suspects=(Suspect(1, SAMPLE, 31, "shell_sort", "i and j change here"),),
)

gap = arriving(
    replace(
        wrong_output,
        chain=wrong_output.chain[:2],
        transitions=(
            Transition(
                ("argc",),
                ("a[2]",),
                SAMPLE,
                48,
                "main",
                Place(SAMPLE, 44, "main"),
                tuple(f"{SAMPLE}:{line}" for line in (10, 11, 12, 14, 45)),
            ),
        ),
        suspects=(Suspect(1, SAMPLE, 45, "main", "only the failing run executes it"),),
    ),
    1,
)

# The passing run is made from the neighbour's; what wrote to the variable is known, though not all that happened.
written = arriving(
    replace(
        gap,
        passing=party(
            "tests/test_sample.py::test_sorts[four]",
            "sample 11 14 6",
            'printed "6 11 14"',
            why="its input made nearer to the failing run's: 1 edit",
            is_made=True,
        ),
        chain=(
            gap.chain[0],
            replace(
                link(when("main", SAMPLE, 48), value("a[2]", "6", "0")),
                written_by=Place(SAMPLE, 46, "main"),
            ),
        ),
        transitions=(replace(gap.transitions[0], line=46),),
    ),
    1,
)

created = replace(
    exit_code,
    chain=(
        exit_code.chain[0],
        replace(
            link(
                when("load", "check.c", 33, "main"),
                Cause("config.rules->next", "struct rule", "", "{level = 3}", "create", None),
                made_by=Place("check.c", 32, "load"),
            ),
            replay=Script(("frame 0", "causechain-call malloc 16", "set $block0 = $causechain_result")),
            undo=Script(obstacle="gdb cannot change what was written to stdout"),
        ),
    ),
    suspects=(),
)

partial = replace(
    wrong_output,
    status="partial",
    reason="the 60 s for this test are used up: give more by --cause-chain-timeout",
    chain=wrong_output.chain[:1],
    transitions=(),
    suspects=(),
    cut_short=(Shortfall("repairs", 212, 900), Shortfall("neighbour", 31)),
)

partial_without_links = replace(partial, chain=(), failure=None)

none = Chain(
    test=f"{SORTS}[two]",
    status="none",
    reason="sample has no debug information: build it with -g (and -O0 for exact variables).",
    cut_short=(Shortfall("repairs", 0), Shortfall("neighbours", 1, 20)),
)

long_chain = replace(
    wrong_output,
    chain=tuple(
        link(when("step", SAMPLE, 100 + n, "main"), value(f"x{n}", "1", "2"), made_by=Place(SAMPLE, 99 + n, "step"))
        for n in range(30)
    ),
    transitions=(),
    suspects=(Suspect(1, SAMPLE, 110, "step", "it is in the middle"),),
)

# What terminals, browsers, XML parsers, GitHub, Jenkins, viewers of SARIF and gdb obey, and what is no text at all.
HOSTILE = (
    "\x1b[31mred\x1b[0m\r\n\x07 \x9b31m \u202e caf\xe9 \udcff \U0001f600 \x00 \u2028"
    "\n::error file=a.c::owned\n##[error]owned\n::add-mask::e ]]> --> <script>alert(1)</script> &lt; "
    "\n[[ATTACHMENT|/etc/passwd]]\n [click](https://example.org) {0} | `x` ' \" $(id) \\\nshell true\n"
) + "long  " * 100

hostile = arriving(
    Chain(
        test=f"test_{HOSTILE}.py::test[{HOSTILE}]",
        status="partial",
        reason=HOSTILE,
        program=Program("/bin/\x1b[0m\nx", "00"),
        failing=Party("t::t", ("/x/pro\ngram", "it's", "\x1b[2J", "a\\b\n", HOSTILE), "/", HOSTILE, HOSTILE),
        passing=Party(f"{HOSTILE}::{HOSTILE}", ("/x/pro\ngram",), "/\n", HOSTILE, HOSTILE, 1.0, HOSTILE),
        oracle=Rule("output", HOSTILE),
        chain=(
            link(when(HOSTILE, f"/{HOSTILE}", 1, HOSTILE, is_entry=True), value(HOSTILE, HOSTILE + "a", HOSTILE + "b")),
            link(
                when(HOSTILE, f"/{HOSTILE}", 2, HOSTILE, is_entry=True),
                *(
                    Cause(f"{HOSTILE}{n}", HOSTILE, HOSTILE, "x" * 5000, "repoint", 1, "x = 1\nshell true")
                    for n in range(9)
                ),
                confirmed="context",
            ),
            link(when("f", "/other/name", 2), value("x", "1", "2"), made_by=Place(f"/{HOSTILE}", 10**9, HOSTILE)),
        ),
        transitions=(
            Transition(
                tuple(f"{HOSTILE}{n}" for n in range(9)),
                ("x",),
                f"/{HOSTILE}",
                5,
                HOSTILE,
                Place(HOSTILE, 6),
                tuple(f"{HOSTILE}:{n}" for n in range(0, 99, 2)),
            ),
        ),
        suspects=(Suspect(1, f"/{HOSTILE}", 77, HOSTILE, HOSTILE),),
        failure=Failure("output", HOSTILE, (Frame(HOSTILE, HOSTILE, 3),)),
        statistics=Statistics(Tally(10**9, 10**9, 10**9), seconds=Seconds(total=123456.7)),
    ),
    2,
)

ALL = {
    "wrong_output": wrong_output,
    "twin": twin,
    "repaired_without_chain": repaired_without_chain,
    "crash": crash,
    "exit_code": exit_code,
    "hang": hang,
    "two_variables": two_variables,
    "one_name_twice": one_name_twice,
    "null_pointer": null_pointer,
    "gap": gap,
    "written": written,
    "created": created,
    "partial": partial,
    "partial_without_links": partial_without_links,
    "none": none,
    "long_chain": long_chain,
    "hostile": hostile,
}
