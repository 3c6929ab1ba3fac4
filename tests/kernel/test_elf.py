"""Symbols of ELF files."""

from __future__ import annotations

import subprocess

import pytest

from pytest_causechain.kernel.elf import find_symbols
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee.tracee import call_function

SOURCE = r"""
#include <stdlib.h>
int shown = 1;
static int hidden = 2;
static void inner(void) { hidden++; }
int main(void) { inner(); free(malloc(shown)); return hidden; }
"""


def listed(path: str) -> dict[str, int]:
    """What nm says."""
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


@pytest.mark.parametrize("flags", [(), ("-no-pie",), ("-static",), ("-static-pie",)], ids=" ".join)
def test_as_nm_tells(build, flags):
    path = build(SOURCE, *flags).path
    names = ("shown", "hidden", "inner", "main")
    assert find_symbols(path, names) == {name: listed(path)[name] for name in names}


def test_only_what_is_defined_there(build):
    assert find_symbols(build(SOURCE).path, ("malloc", "nowhere")) == {}
    static = build(SOURCE, "-static").path
    assert find_symbols(static, ("malloc", "nowhere")) == {"malloc": listed(static)["malloc"]}


def test_a_stripped_program(compiled):
    assert find_symbols(str(compiled(SOURCE, "-s")), ("main", "shown")) == {}


def test_a_library_without_a_symbol_table(build, start, symbol, deadline):
    program = build(SOURCE)
    subject = start(program)
    subject.run_to([Stop(symbol(program, "main"), 1)], deadline)
    assert set(subject.landmarks.symbols) == {"malloc", "_IO_list_all", "__environ"}
    block = call_function(subject, subject.landmarks.symbols["malloc"], [100])
    subject.write(block, b"x" * 100)
    assert subject.read(block, 100) == b"x" * 100


def test_in_a_static_program(build, start, symbol, deadline):
    program = build(SOURCE, "-static-pie")
    subject = start(program)
    subject.run_to([Stop(symbol(program, "main"), 1)], deadline)
    assert subject.landmarks.symbols["malloc"] == subject.base + symbol(program, "malloc")
    assert call_function(subject, subject.landmarks.symbols["malloc"], [100])
