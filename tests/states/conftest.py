"""Compiles C and C++ text once a session, and opens pairs of runs on it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from two_runs import HEADERS, TwoRuns, check_both_ways

from pytest_causechain.model.runs import Program

# Before the tests import it: what they check is written there.
pytest.register_assert_rewrite("seeds")

Build = Callable[[str], Program]
Open = Callable[..., TwoRuns]

# A C++ program's part in C.
C_MAIN = """
extern void run(int, char **);
int main(int argc, char **argv)
{
    run(argc, argv);
    return 0;
}
"""


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build(source) compiles a program, the same one only once. C++ is told by `std::`, a part in C++ of a program in
    C by `extern "C"`."""
    built: dict[str, Program] = {}

    def compile_program(source: str) -> Program:
        if source not in built:
            directory = tmp_path_factory.mktemp("program")
            is_part = 'extern "C"' in source
            is_cxx = is_part or "std::" in source
            file = directory / ("program.cc" if is_cxx else "program.c")
            file.write_text(source)
            options = ["-g", "-O0", "-w", "-o", "program"]
            if is_cxx and not is_part:
                subprocess.run(["c++", "-std=c++17", *options, file.name], cwd=directory, check=True)
            elif is_cxx:
                (directory / "main.c").write_text(C_MAIN)
                subprocess.run(["cc", "-g", "-O0", "-c", "main.c"], cwd=directory, check=True)
                subprocess.run(["c++", *options, file.name, "main.o"], cwd=directory, check=True)
            else:
                subprocess.run(["cc", *options, file.name], cwd=directory, check=True)
            built[source] = Program(str(directory / "program"), f"build {len(built)}")
        return built[source]

    return compile_program


def opener(build: Build, stack: ExitStack) -> Open:
    def open_runs(source: str, *arguments: object, **options: object) -> TwoRuns:
        return stack.enter_context(TwoRuns(build(source), source, *arguments, **options))  # type: ignore[arg-type]

    return open_runs


@pytest.fixture
def open_runs(build: Build) -> Iterator[Open]:
    """open_runs(source, passing, failing, stdin=..., environment=...) is a pair of runs, arguments passing first."""
    with ExitStack() as stack:
        yield opener(build, stack)


@pytest.fixture(scope="module")
def open_shared(build: Build) -> Iterator[Open]:
    """The same for pairs that the tests of a module share."""
    with ExitStack() as stack:
        yield opener(build, stack)


@pytest.fixture
def check(open_runs: Open) -> Callable[[str, list[str], list[str]], TwoRuns]:
    """check(source, passing, failing): the one run becomes the other, and back."""

    def run(source: str, passing: list[str], failing: list[str]) -> TwoRuns:
        runs = open_runs(HEADERS + source, passing, failing)
        check_both_ways(runs)
        return runs

    return run
