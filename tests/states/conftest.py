"""Opens pairs of runs of compiled text."""

from __future__ import annotations

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
def build_by_language(build: Callable[..., Program]) -> Build:
    """C++ is told by `std::`, a part in C++ of a program in C by `extern "C"`."""

    def build_one(source: str) -> Program:
        if 'extern "C"' in source:
            return build({"program.cc": source, "main.c": C_MAIN}, "-w", "-lstdc++")
        return build(source, "-w", compiler="c++" if "std::" in source else "cc")

    return build_one


def opener(build: Build, stack: ExitStack) -> Open:
    def open_runs(source: str, *arguments: object, **options: object) -> TwoRuns:
        return stack.enter_context(TwoRuns(build(source), source, *arguments, **options))  # type: ignore[arg-type]

    return open_runs


@pytest.fixture
def open_runs(build_by_language: Build) -> Iterator[Open]:
    """open_runs(source, passing, failing, stdin=..., environment=...) is a pair of runs, arguments passing first."""
    with ExitStack() as stack:
        yield opener(build_by_language, stack)


@pytest.fixture(scope="module")
def open_shared(build_by_language: Build) -> Iterator[Open]:
    """The same for pairs that the tests of a module share."""
    with ExitStack() as stack:
        yield opener(build_by_language, stack)


@pytest.fixture
def check(open_runs: Open) -> Callable[[str, list[str], list[str]], TwoRuns]:
    """check(source, passing, failing): the one run becomes the other, and back."""

    def run(source: str, passing: list[str], failing: list[str]) -> TwoRuns:
        runs = open_runs(HEADERS + source, passing, failing)
        check_both_ways(runs)
        return runs

    return run
