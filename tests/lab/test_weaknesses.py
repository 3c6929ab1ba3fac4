"""What makes a diagnosis poorer than it could be is told."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_causechain.lab.local_lab import find_weaknesses

SOURCE = "int main(void) { return 0; }\n"


def look(program, *sources: str):
    files = sources or (str(Path(program.path).with_suffix(".c")),)
    functions = [SimpleNamespace(file=file) for file in files]
    return find_weaknesses(SimpleNamespace(path=program.path, functions=functions))


@pytest.mark.parametrize(
    ("flags", "is_told"),
    [
        ((), False),
        (("-O1",), True),
        (("-O2", "-gdwarf-4"), True),
        (("-Os",), True),
        (("-O",), True),
        (("-gz", "-O0"), False),
        # The linker adds a part of the compiler's own, which has been built with -O2.
        (("-fsanitize=address", "-O0"), False),
        (("-fsanitize=address,undefined", "-O2"), True),
    ],
)
def test_optimised(build, flags, is_told):
    told = look(build(SOURCE, *flags))
    assert told == (
        ("program is optimised, so that only some of its variables are seen: build it with -O0.",) * is_told
    )


def test_sources(build, tmp_path):
    program = build(SOURCE)
    (tmp_path / "new.c").write_text(SOURCE)
    os.utime(tmp_path / "new.c", (2e9, 2e9))
    assert look(program, str(tmp_path / "new.c")) == (
        "new.c is newer than program: build it again, or lines are shown that never ran.",
    )
    assert look(program, "/gone/old.c") == (
        "/gone/old.c is not there, so that its lines cannot be shown: test where program was built.",
    )
    assert look(program, "/gone/c.c", "/gone/a.c", "/gone/b.c") == (
        "/gone/a.c and 2 more source files are not there, so that their lines cannot be shown: test where program was "
        "built.",
    )
