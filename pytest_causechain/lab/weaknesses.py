"""What about a program makes its diagnosis poorer than it could be: a sentence on each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.kernel.elf import list_producers
from pytest_causechain.report.wording import count_of

# How gcc notes the options it was called with; an -O0 behind another one would win, but who does that.
OPTIMISED = re.compile(rb"GNU .* -O(?:[123sgz]|fast)?(?: |$)")


def find_weaknesses(program: ProgramMap) -> tuple[str, ...]:
    name, path = Path(program.path).name, Path(program.path)
    sentences = []
    if is_optimised(path):
        sentences.append(f"{name} is optimised, so that only some of its variables are seen: build it with -O0.")
    files = sorted({Path(function.file) for function in program.functions if function.file})
    there = [file for file in files if file.is_file()]
    sentences += tell_missing([str(file) for file in files if file not in there], name)
    built = path.stat().st_mtime
    newer = [file.name for file in there if file.stat().st_mtime > built]
    sentences += [f"{file} is newer than {name}: build it again, or lines are shown that never ran." for file in newer]
    return tuple(sentences)


def tell_missing(files: Sequence[str], name: str) -> list[str]:
    """In one sentence: all sources of a program may be elsewhere."""
    if not files:
        return []
    first, more = files[0], len(files) - 1
    told = f"{first} is not there" if not more else f"{first} and {count_of(more, 'more source file')} are not there"
    lines = "their lines" if more else "its lines"
    return [f"{told}, so that {lines} cannot be shown: test where {name} was built."]


def is_optimised(path: Path) -> bool:
    return any(OPTIMISED.match(producer) for producer in list_producers(path))
