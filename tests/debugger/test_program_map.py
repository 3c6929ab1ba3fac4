"""What the debug information says of C and C++ programs."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from building import compile_program, run_compiler

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.program import Function, ProgramMap
from pytest_causechain.debugger.types import ArrayType, EnumType, IntType, PointerType, StructType, TreeType
from pytest_causechain.model.moment import Position
from pytest_causechain.model.refusal import Refusal

MAIN = """\
#include <stdio.h>
#include "shared.h"

enum colour { RED, GREEN = 5 };
struct point { int x, y; unsigned flag : 1; };

extern int table[4];
int other(int);

static int counter = 1;
struct point origin = {1, 2, 1};
enum colour colour = GREEN;

static int helper(int number)
{
    static int calls;
    calls += number;
    {
        static int calls = 7;
        calls++;
    }
    return calls;
}

int one_line(int x) { return x * 2; }

int main(int argc, char **argv)
{
    char room[100];
    snprintf(room, sizeof room, "%d", table[1]);
    if (argc > 1)
        counter = helper(argc) +
            square(2);
    printf("%s %d\\n", room, one_line(other(1)));
    return 0;
}
"""
OTHER = """\
#include "shared.h"

static double counter = 2.5;

static int helper(int number)
{
    return number + (int)counter;
}

int other(int number)
{
    return helper(square(number));
}
"""
HEADER = """\
static inline int square(int n)
{
    return n * n;
}
"""
DATA = """\
int table[4] = {1, 2, 3, 4};
static const char *names[] = {"a", "b"};
const char **all_names = names;
static long counter __attribute__((used)) = 3;
"""
SHOP = """\
#include <iostream>
#include <string>
#include <vector>

namespace shop {
int sold = 3;

struct Item {
    std::string name;
    int price;
    static int made;
    Item(const std::string &n, int p) : name(n), price(p)
    {
        made++;
    }
    virtual ~Item() {}
    virtual int cost() const
    {
        return price;
    }
};
int Item::made = 0;

struct Cheap : Item {
    using Item::Item;
    int cost() const override
    {
        return price / 2;
    }
};

template <typename T> T larger(T a, T b)
{
    return a < b ? b : a;
}
}

static int total(const std::vector<shop::Item *> &items)
{
    int sum = 0;
    for (auto *item : items)
        sum += item->cost();
    auto add = [&sum](int n) {
        sum += n;
        return sum;
    };
    add(1);
    return shop::larger(sum, 2);
}

static int total(int a, int b)
{
    return a + b;
}

int main(int argc, char **argv)
{
    std::vector<shop::Item *> items = {new shop::Item("tea", 4), new shop::Cheap("milk", 8)};
    std::cout << total(items) + total(1, 2) << std::endl;
    return 0;
}
"""
SOURCES = {"main.c": MAIN, "other.c": OTHER, "shared.h": HEADER, "data.c": DATA}


def describe(path: Path) -> ProgramMap:
    with Debugger(str(path)) as debugger:
        return debugger.program


def find_line(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def find_function(program: ProgramMap, name: str, file: str) -> Function:
    return next(f for f in program.functions if f.name == name and Path(f.file).name == file)


def symbols(path: Path) -> dict[str, int]:
    """Address by name, of symbols whose name is unique."""
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listing.splitlines()]
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


@pytest.fixture(scope="module")
def path(compiled) -> Path:
    return compiled(SOURCES)


@pytest.fixture(scope="module")
def program(path) -> ProgramMap:
    return describe(path)


class TestFunctions:
    def test_all_of_the_program_and_no_others(self, program):
        names = sorted((function.name, Path(function.file).name) for function in program.functions)
        assert names == [
            ("helper", "main.c"),
            ("helper", "other.c"),
            ("main", "main.c"),
            ("one_line", "main.c"),
            ("other", "other.c"),
            ("square", "shared.h"),
            ("square", "shared.h"),
        ]

    def test_addresses_are_those_of_the_file(self, program, path):
        addresses = symbols(path)
        for name in ("main", "one_line", "other"):
            assert next(f.address for f in program.functions if f.name == name) == addresses[name]
        assert [f.address for f in program.functions] == sorted(f.address for f in program.functions)
        assert all(f.address < f.body < f.end for f in program.functions)

    def test_lines(self, program, path):
        helper = find_function(program, "helper", "main.c")
        assert helper.file == str(path.parent / "main.c")
        assert helper.line == find_line(MAIN, "static int helper")
        begin = find_line(MAIN, "calls += number")
        assert [s.line for s in helper.statements] == [begin, begin + 3, begin + 5, begin + 6]
        assert helper.body == helper.statements[0].address

    def test_a_body_on_the_line_of_the_head(self, program):
        """Behind the prologue, though on the same line."""
        function = find_function(program, "one_line", "main.c")
        assert function.address < function.body
        assert {s.line for s in function.statements} == {function.line}
        assert len(function.statements) == 1

    def test_statements_have_no_rows_in_their_middle(self, program):
        for function in program.functions:
            lines = [s.line for s in function.statements]
            assert all(a != b for a, b in pairwise(lines)), function.name

    def test_the_body_begins_where_arguments_are_in_their_variables(self, program, path):
        """gdb's own idea of where a breakpoint at a function belongs."""
        for name in ("other", "one_line"):
            command = ["gdb", "-nx", "-batch", "-ex", f"info scope {name}", "-ex", f"break {name}", path]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            function = next(f for f in program.functions if f.name == name)
            assert f"at {function.body:#x}:" in text

    def test_lookup(self, program):
        main = find_function(program, "main", "main.c")
        assert program.is_entry(main.address)
        assert not program.is_entry(main.body)
        assert program.function_at(main.address) == main
        assert program.function_at(main.end - 1) == main
        assert program.function_at(main.end) != main
        assert program.function_at(0) is None
        assert program.function_at(1 << 60) is None

    def test_positions(self, program, path):
        main = find_function(program, "main", "main.c")
        file = str(path.parent / "main.c")
        first = Position("main", file, find_line(MAIN, "char **argv") + 1)
        assert program.position(main.address) == program.position(main.body)
        assert program.position(main.body).function == "main"
        assert program.position(main.body).line >= first.line
        assert program.position(main.statements[-1].address) == Position("main", file, main.statements[-1].line)
        with pytest.raises(KeyError):
            program.position(0)


class TestVariables:
    def rows(self, program, name):
        return [row for row in program.globals if row.name == name]

    def test_statics_of_one_name(self, program):
        kinds = {(Path(row.file).name, program.types[row.type].name) for row in self.rows(program, "counter")}
        assert kinds == {("main.c", "int"), ("other.c", "double"), ("data.c", "long")}
        assert len({row.address for row in self.rows(program, "counter")}) == 3

    def test_statics_of_functions(self, program):
        rows = self.rows(program, "calls")
        assert [row.function for row in rows] == ["helper", "helper"]
        assert len({row.address for row in rows}) == 2

    def test_of_files_without_code(self, program, path):
        (table,) = self.rows(program, "table")
        assert table.address == symbols(path)["table"]
        array = program.types[table.type]
        assert isinstance(array, ArrayType)
        assert (array.count, array.size) == (4, 16)
        assert program.types[array.target] == IntType("int", 4, True)
        assert len(self.rows(program, "names")) == len(self.rows(program, "all_names")) == 1

    def test_globals_belong_to_no_function(self, program):
        assert {row.name for row in program.globals if row.function is None} == {
            "counter",
            "origin",
            "colour",
            "table",
            "names",
            "all_names",
        }

    def test_types(self, program):
        (origin,) = self.rows(program, "origin")
        point = program.types[origin.type]
        assert isinstance(point, StructType)
        assert (point.name, point.size) == ("struct point", 12)
        assert [member[:3] for member in point.members] == [("x", 0, 0), ("y", 32, 0), ("flag", 64, 1)]
        (colour,) = self.rows(program, "colour")
        enumeration = program.types[colour.type]
        assert isinstance(enumeration, EnumType)
        assert enumeration.values == (("RED", 0), ("GREEN", 5))


class TestKindsOfPrograms:
    def test_relocation(self, compiled, program):
        assert program.relocated
        fixed = describe(compiled(SOURCES, "-no-pie"))
        assert not fixed.relocated
        assert fixed.functions[0].address > 0x400000
        assert [f.name for f in fixed.functions] == [f.name for f in program.functions]
        assert len(fixed.globals) == len(program.globals)

    @pytest.mark.parametrize("flag", ["-static", "-static-pie", "-gdwarf-4", "-gz", "-flto"])
    def test_flags(self, compiled, program, flag):
        other = describe(compiled(SOURCES, flag))
        assert {f.name for f in other.functions} == {f.name for f in program.functions}
        assert {row.name for row in other.globals} >= {"counter", "calls", "table"}

    def test_optimised(self, compiled):
        """Parts of a function that are hardly ever executed lie before its first instruction."""
        source = """\
#include <stdio.h>
#include <stdlib.h>

static int twice(int x)
{
    static int count;
    count += x;
    return count * 2;
}

int main(int argc, char **argv)
{
    if (argc > 3)
        abort();
    printf("%d\\n", twice(argc));
    return 0;
}
"""
        path = compiled({"main.c": source}, "-O2")
        program = describe(path)
        assert "main.cold" in symbols(path)
        (main,) = program.functions
        assert main.address == symbols(path)["main"]
        assert main.address < main.body < main.end
        assert {row.name for row in program.globals} == {"count"}

    def test_nested_functions(self, compiled):
        source = """\
int main(int argc, char **argv)
{
    static int own = 3;
    int add(int x)
    {
        static int inner = 4;
        return x + argc + inner;
    }
    return add(own);
}
"""
        program = describe(compiled({"main.c": source}))
        assert sorted(f.name for f in program.functions) == ["add", "main"]
        assert {row.name: row.function for row in program.globals} == {"own": "main", "inner": "add"}

    def test_files_with_strange_names(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LC_ALL", "C")
        directory = tmp_path / "grüße ((struct symtab"
        directory.mkdir()
        compile_program(directory / "program", {"ma in.c": "int main(void)\n{\n    return 0;\n}\n"})
        (main,) = describe(directory / "program").functions
        assert main.file == str(directory / "ma in.c")
        assert {s.file for s in main.statements} == {str(directory / "ma in.c")}

    def test_main_without_debug_information(self, compiled, tmp_path):
        (tmp_path / "main.c").write_text("int other(void);\nint main(void) { return other(); }\n")
        (tmp_path / "other.c").write_text("int other(void)\n{\n    return 1;\n}\n")
        for flags in (["-c", "-g0", "main.c"], ["-c", "other.c"], ["-o", "program", "main.o", "other.o"]):
            run_compiler(tmp_path, *flags)
        with pytest.raises(Refusal) as raised:
            describe(tmp_path / "program")
        sentence = f"{tmp_path / 'program'} has no debug information for main(): build all of it with -g."
        assert str(raised.value) == sentence

    def test_another_processor(self, path, tmp_path):
        content = bytearray(path.read_bytes())
        content[18:20] = (183).to_bytes(2, "little")  # aarch64
        (tmp_path / "program").write_bytes(content)
        with pytest.raises(Refusal, match="x86-64"):
            describe(tmp_path / "program")


@pytest.fixture(scope="module")
def shop(compiled) -> ProgramMap:
    return describe(compiled({"main.cpp": SHOP}, compiler="c++"))


class TestCPlusPlus:
    def test_functions(self, shop):
        names = [function.name for function in shop.functions]
        assert set(names) >= {
            "main",
            "total",
            "operator()",
            "shop::larger<int>",
            "shop::Item::Item",
            "shop::Item::cost",
            "shop::Cheap::cost",
        }
        assert names.count("total") == 2
        assert not any(name.startswith("std::") for name in names)

    def test_bodies(self, shop):
        lines = {f.name: f.statements[0].line for f in shop.functions}
        assert lines["shop::larger<int>"] == find_line(SHOP, "return a < b")
        assert lines["shop::Cheap::cost"] == find_line(SHOP, "return price / 2")
        assert lines["operator()"] in (find_line(SHOP, "auto add"), find_line(SHOP, "sum += n"))

    def test_variables(self, shop):
        rows = {row.name: row for row in shop.globals}
        assert set(rows) >= {"shop::sold", "shop::Item::made"}
        assert isinstance(shop.types[rows["shop::sold"].type], IntType)


OBJECTS = """
#include <map>
#include <string>
struct Shape { virtual ~Shape() {} virtual int area() { return 1; } };
struct Square : Shape { std::map<std::string, int> sides; int area() override { return 4; } };
static std::string title = "made before main";
static Square square;
int main()
{
    Shape *shape = &square;
    return shape->area() - 4;
}
"""


@pytest.fixture(scope="module")
def objects(compiled) -> ProgramMap:
    return describe(compiled({"main.cpp": OBJECTS}, compiler="c++"))


class TestObjects:
    def test_initialisation_of_global_objects_is_nobodys_code(self, objects):
        assert not [f.name for f in objects.functions if "_GLOBAL_" in f.name or "static_init" in f.name]

    def test_tables_of_virtual_functions_tell_classes(self, objects):
        assert {"Shape", "Square"} <= {objects.types[kind].name for _, kind in objects.vtables}

    def test_container_says_where_its_nodes_are(self, objects):
        row = next(row for row in objects.types if row.name == "std::map<std::string, int>")
        node, tree = objects.types[row.container.node], row.container
        assert isinstance(tree, TreeType)
        assert objects.types[tree.element].name == "std::pair<std::string const, int>"
        # Pointers between nodes lead to whole nodes, not to what all nodes have in common.
        base = objects.types[node.members[0].type]
        pointers = [objects.types[member.type] for member in base.members]
        assert {pointer.target for pointer in pointers if isinstance(pointer, PointerType)} == {tree.node}

    def test_types_have_the_names_that_are_written(self, objects):
        assert not [row.name for row in objects.types if "basic_string<char" in row.name]
