"""Shared libraries that count as the program's own code: their functions, variables and statements are its own."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from building import run_compiler

from pytest_causechain.alignment.trees import Tree, build_tree
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.lab.starts import choose_libraries
from pytest_causechain.model.alteration import Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.load_map import number_of
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Program
from pytest_causechain.sandbox import subject

PLENTY_SECONDS = 300.0
MAIN = """
#include <stdio.h>
#include <stdlib.h>

extern int limit;
int weigh(int number, int (*scale)(int));
int keep(int number);

static int twice(int number)
{
    return 2 * number;
}

int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 0; i < atoi(argv[1]); i++)
        sum += weigh(i, twice);
    printf("%d %d %d\\n", sum, limit, keep(0));
    return 0;
}
"""
# `limit` is used by the program too: the linker makes the program's copy of it the one that counts.
WEIGH = """
int limit = 1000;
static int calls;
int keep(int number);

int weigh(int number, int (*scale)(int))
{
    int scaled = scale(number);
    calls++;
    if (scaled > limit)
        scaled = limit;
    keep(scaled);
    return scaled + 100 * (calls > 5);
}
"""
KEEP = """
struct box { int last; const char *label; };
static struct box kept = {0, "nothing yet"};

int keep(int number)
{
    static int highest;
    if (number > highest)
        highest = number;
    kept.last = number;
    kept.label = number ? "something" : "nothing";
    return highest;
}
"""
CPP_MAIN = """
#include <cstdio>
#include "shelf.h"

int main()
{
    shelf::Shelf shelf;
    for (int i = 1; i < 5; i++)
        shelf.put(i);
    std::printf("%d\\n", shelf.total());
    return 0;
}
"""
CPP_HEADER = """
namespace shelf {
class Shelf {
    int items[8];
    int count = 0;
  public:
    void put(int item);
    int total() const { int sum = 0; for (int i = 0; i < count; i++) sum += items[i]; return sum; }
};
}
"""
CPP_LIBRARY = """
#include "shelf.h"
namespace shelf {
static int bonus = 1;
void Shelf::put(int item)
{
    items[count] = item + bonus;
    count++;
}
}
"""

MakeProgram = Callable[..., Program]


@pytest.fixture(scope="session")
def make_program(tmp_path_factory) -> MakeProgram:
    """make_program(main, {"weigh": source, ...}) builds libweigh.so.1.2 and so on; the last one may need the others."""
    built: dict[object, Program] = {}

    def make_one(
        main: str,
        libraries: dict[str, str],
        *flags: str,
        headers: dict[str, str] | None = None,
        library_flags: tuple[str, ...] = (),
        compiler: str = "cc",
    ) -> Program:
        key = (main, tuple(libraries.items()), flags, library_flags)
        if key not in built:
            directory = tmp_path_factory.mktemp("program")
            suffix = ".c" if compiler == "cc" else ".cpp"
            for name, text in (headers or {}).items():
                (directory / name).write_text(text)
            links: list[str] = []
            for name, text in libraries.items():
                (directory / f"{name}{suffix}").write_text(text)
                file = f"lib{name}.so.1.2"
                shared = ["-shared", "-fPIC", f"-Wl,-soname,lib{name}.so.1", "-o", file, f"{name}{suffix}", *links]
                run_compiler(directory, *shared, *library_flags, compiler=compiler)
                for link in (f"lib{name}.so.1", f"lib{name}.so"):
                    (directory / link).symlink_to(file)
                links.append(f"./lib{name}.so")
            (directory / f"main{suffix}").write_text(main)
            own = [f"main{suffix}", *links, "-Wl,-rpath,$ORIGIN", "-o", "program", *flags]
            run_compiler(directory, *own, compiler=compiler)
            built[key] = Program(str(directory / "program"), "")
        return built[key]

    return make_one


def open_on(program: Program, kind: str, *patterns: str, word: str = "8") -> RemoteLab:
    command = Command(program, (program.path, word), str(Path(program.path).parent))
    return RemoteLab(Open(command, command, kind=kind, libraries=patterns), Budget(PLENTY_SECONDS))


@pytest.fixture(scope="module", params=[(), ("-no-pie",)], ids=["pie", "no-pie"])
def program(request, make_program) -> Program:
    return make_program(MAIN, {"keep": KEEP, "weigh": WEIGH}, *request.param)


@pytest.fixture(scope="module")
def lab(program, kind) -> Iterator[RemoteLab]:
    with open_on(program, kind, "libweigh.so*", "libkeep.so*") as lab:
        yield lab


def find_function(lab: RemoteLab, name: str):
    return next(f for f in lab.program.functions if f.name == name)


def find_statement(lab: RemoteLab, name: str, source: str, text: str) -> int:
    line = next(number for number, line in enumerate(source.splitlines(), 1) if text in line)
    return next(s.address for s in find_function(lab, name).statements if s.line == line)


def find_global(lab: RemoteLab, visit, name: str) -> int:
    address = next(row.address for row in lab.program.globals if row.name == name)
    return visit.load_map.to_run(address)


def read_int(visit, address: int) -> int:
    region = next(r for r in visit.regions if r.start <= address < r.end)
    return struct.unpack_from("<i", region.data, address - region.start)[0]


def show(tree: Tree, names: dict[int, str], item: int = -1) -> str:
    inner = " ".join(show(tree, names, child) for child in tree.children(item))
    if item < 0:
        return inner
    name = names[tree.tokens[item][0]]
    return f"{name}({inner})" if inner else name


class TestDescription:
    def test_functions_of_all_modules(self, lab):
        modules = {f.name: number_of(f.address) for f in lab.program.functions}
        assert modules.keys() == {"main", "twice", "weigh", "keep"}
        assert modules["main"] == modules["twice"] == 0
        assert {modules["weigh"], modules["keep"]} == {1, 2}

    def test_paths_are_those_of_the_files_behind_the_links(self, lab, program):
        directory = Path(program.path).parent
        expected = {str(directory / "libweigh.so.1.2"), str(directory / "libkeep.so.1.2")}
        assert set(lab.program.libraries) == expected
        assert lab.notes == ()

    def test_variables_of_all_modules(self, lab):
        modules = {row.name: number_of(row.address) for row in lab.program.globals}
        assert modules.keys() == {"limit", "calls", "kept", "highest"}
        assert modules["calls"] == number_of(find_function(lab, "weigh").address)
        # Where it really is, not where its library would have it.
        assert modules["limit"] == 0


class TestTraces:
    def test_calls_between_modules(self, lab):
        addresses = [f.address for f in lab.program.functions]
        trace = lab.trace("passing", (), addresses)
        assert trace.complete
        names = {f.address: f.name for f in lab.program.functions}
        assert show(build_tree(trace.events, lab.program), names) == f"main({'weigh(twice keep) ' * 8}keep)"

    def test_return_addresses_lie_in_the_callers(self, lab):
        trace = lab.trace("passing", (), [find_function(lab, "keep").address])
        callers = [lab.program.function_at(event.return_address - 1).name for event in trace.events]
        assert callers == ["weigh"] * 8 + ["main"]

    def test_statements(self, lab):
        weigh = find_function(lab, "weigh")
        clipped = find_statement(lab, "weigh", WEIGH, "scaled = limit;")
        trace = lab.trace("passing", (Stop(weigh.address, 3),), [s.address for s in weigh.statements])
        executed = Counter(event.address for event in trace.events)
        assert executed[clipped] == 0
        assert executed[weigh.body] == 6

    def test_up_to_a_stop_in_a_library(self, lab):
        main, weigh = find_function(lab, "main"), find_function(lab, "weigh")
        trace = lab.trace("passing", (Stop(main.address, 1),), [weigh.address], Stop(weigh.address, 4))
        assert (trace.complete, len(trace.events)) == (True, 3)


class TestVisits:
    def test_frames_and_variables(self, lab):
        visit = lab.visit("passing", (Stop(find_statement(lab, "keep", KEEP, "kept.last ="), 4),))
        assert [frame.function for frame in visit.frames] == ["keep", "weigh", "main"]
        assert Path(visit.frames[0].file).name == "keep.c"
        values = {
            (frame.function, v.name): read_int(visit, v.address) for frame in visit.frames for v in frame.variables
        }
        assert values["keep", "number"] == values["weigh", "scaled"] == 6
        assert values["main", "i"] == 3
        assert [lab.program.function_at(f.pc - (n > 0)).name for n, f in enumerate(visit.frames)] == [
            "keep",
            "weigh",
            "main",
        ]

    def test_a_second_visit_tells_the_same(self, lab):
        """Without gdb, which was needed for the first one."""
        stops = (Stop(find_statement(lab, "keep", KEEP, "kept.last ="), 2),)
        assert lab.visit("passing", stops).frames == lab.visit("passing", stops).frames

    def test_static_variables(self, lab):
        visit = lab.visit("passing", (Stop(find_function(lab, "keep").address, 7),))
        values = {name: read_int(visit, find_global(lab, visit, name)) for name in ("calls", "highest", "limit")}
        assert values == {"calls": 7, "highest": 10, "limit": 1000}

    @pytest.mark.parametrize("visit", [1, 60, 200])
    def test_late_stops(self, program, kind, visit):
        """Those are reached by other means than early ones."""
        with open_on(program, kind, "libweigh.so", "libkeep.so", word="200") as lab:
            state = lab.visit("passing", (Stop(find_function(lab, "weigh").body, visit),))
            assert read_int(state, find_global(lab, state, "calls")) == visit - 1


def test_where_addresses_vary(program, monkeypatch):
    """As in a container that forbids personality(): each side has places of its own."""
    monkeypatch.setattr(subject, "fix_addresses", lambda: None)
    command = Command(program, (program.path, "8"), str(Path(program.path).parent))
    patterns = ("libweigh.so", "libkeep.so")
    with LocalLab(Open(command, command, deadline=time.monotonic() + PLENTY_SECONDS, libraries=patterns)) as lab:
        for side in ("passing", "failing", "passing"):
            visit = lab.visit(side, (Stop(find_function(lab, "keep").body, 3),))
            assert [frame.function for frame in visit.frames] == ["keep", "weigh", "main"]
            assert read_int(visit, find_global(lab, visit, "calls")) == 3
        traces = [lab.trace(side, (), [f.address for f in lab.program.functions]) for side in ("passing", "failing")]
        callers = [[(event.address, event.return_address) for event in trace.events[1:]] for trace in traces]
        assert callers[0] == callers[1]


class TestTransfers:
    def test_static_variable_of_a_library(self, lab):
        stop = Stop(find_function(lab, "weigh").body, 3)
        visit = lab.visit("passing", (stop,))
        natural = lab.experiment("passing")
        assert natural.stdout == b"356 1000 14\n"
        write = (find_global(lab, visit, "calls"), struct.pack("<i", 50))
        altered = lab.experiment("passing", (stop,), Transfer(writes=(write,)))
        assert altered.stdout == b"656 1000 14\n"

    def test_variable_that_program_and_library_share(self, lab):
        stop = Stop(find_function(lab, "main").body, 1)
        visit = lab.visit("passing", (stop,))
        write = (find_global(lab, visit, "limit"), struct.pack("<i", 3))
        altered = lab.experiment("passing", (stop,), Transfer(writes=(write,)))
        assert altered.stdout == b"320 3 3\n"


class TestWhichCount:
    def test_only_the_listed_one(self, program, kind):
        with open_on(program, kind, "libkeep.so*") as lab:
            assert {f.name for f in lab.program.functions} == {"main", "twice", "keep"}
            visit = lab.visit("passing", (Stop(find_function(lab, "keep").body, 2),))
            assert read_int(visit, find_global(lab, visit, "highest")) == 0
            assert lab.notes == ()

    def test_none_that_the_program_does_not_use(self, program, kind):
        with open_on(program, kind, "libother.so", "lib/libweigh.so") as lab:
            assert lab.program.libraries == lab.notes == ()
            assert {f.name for f in lab.program.functions} == {"main", "twice"}

    def test_one_without_debug_information_is_told(self, make_program, kind):
        program = make_program(MAIN, {"keep": KEEP, "weigh": WEIGH}, library_flags=("-g0",))
        with open_on(program, kind, "libkeep.so") as lab:
            assert lab.program.libraries == ()
            (note,) = lab.notes
            assert note.startswith("libkeep.so.1.2 is named in cause_chain_libraries but has no debug information")
            assert "build it with -g" in note
            assert lab.experiment("passing").stdout == b"356 1000 14\n"

    def test_one_that_only_one_run_uses(self, make_program, program, kind, tmp_path):
        other = Path(program.path).parent
        environment = (("LD_PRELOAD", str(other / "libkeep.so")),)
        plain = make_program(MAIN, {"keep": KEEP, "weigh": WEIGH}, "-DOTHER")
        passing = Command(plain, (plain.path, "8"), str(tmp_path))
        failing = Command(plain, (plain.path, "8"), str(tmp_path), environment)
        patterns = (str(other / "libkeep.so"),)
        with (
            pytest.raises(Refusal, match=r"only one of the two runs uses .*libkeep\.so\.1\.2"),
            RemoteLab(Open(passing, failing, kind=kind, libraries=patterns), Budget(PLENTY_SECONDS)) as lab,
        ):
            lab.visit("passing", (Stop(find_function(lab, "main").body, 1),))


class TestCpp:
    def test_methods_and_variables(self, make_program, kind):
        libraries = {"shelf": CPP_LIBRARY}
        program = make_program(CPP_MAIN, libraries, headers={"shelf.h": CPP_HEADER}, compiler="c++")
        with open_on(program, kind, "libshelf.so") as lab:
            put = find_function(lab, "shelf::Shelf::put")
            visit = lab.visit("passing", (Stop(put.body, 2),))
            assert [frame.function for frame in visit.frames] == ["shelf::Shelf::put", "main"]
            bonus = find_global(lab, visit, "shelf::bonus")
            assert read_int(visit, bonus) == 1
            write = (bonus, struct.pack("<i", 10))
            assert lab.experiment("passing").stdout == b"14\n"
            assert lab.experiment("passing", (Stop(put.body, 2),), Transfer(writes=(write,))).stdout == b"41\n"
            trace = lab.trace("passing", (), [f.address for f in lab.program.functions])
            names = [lab.program.function_at(event.address).name for event in trace.events]
            assert Counter(names)["shelf::Shelf::put"] == 4


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("libfoo.so*", True),
            ("libfoo.so", True),
            ("libfoo.so.1.2", True),
            ("lib*.so", True),
            ("libfo", False),
            ("foo.so", False),
            ("{directory}/libfoo.so", True),
            ("{directory}/libfoo.so.1", True),
            ("{directory}/lib*", True),
            ("{directory}/../libfoo.so", False),
            ("/elsewhere/libfoo.so", False),
        ],
    )
    def test_file_names_and_paths(self, tmp_path, pattern, found):
        path = tmp_path / "libfoo.so.1.2"
        path.write_bytes(b"no library")
        (tmp_path / "libfoo.so.1").symlink_to(path)
        chosen = choose_libraries([str(path), "[heap]", ""], "/program", [pattern.format(directory=tmp_path)])
        assert chosen.paths == ()
        assert len(chosen.notes) == found

    def test_the_program_is_no_library(self, tmp_path):
        program = tmp_path / "program"
        program.write_bytes(b"")
        assert choose_libraries([str(program)], str(program), ["*"]).notes == ()
