"""What about a program makes its diagnosis poorer than it could be: a sentence on each."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.process.dwarf import list_producers

# How gcc notes the options it was called with; an -O0 behind another one would win, but who does that.
OPTIMISED = re.compile(rb"GNU .* -O(?:[123sgz]|fast)?(?: |$)")


def find_weaknesses(program: ProgramMap) -> tuple[str, ...]:
    name, path = Path(program.path).name, Path(program.path)
    sentences = []
    if is_optimised(path):
        sentences.append(f"{name} is optimised, so that only some of its variables are seen: build it with -O0.")
    built = path.stat().st_mtime
    for file in sorted({Path(function.file) for function in program.functions if function.file}):
        if not file.is_file():
            sentences.append(f"{file} is not there, so that its lines cannot be shown: test where {name} was built.")
        elif file.stat().st_mtime > built:
            sentences.append(f"{file.name} is newer than {name}: build it again, or lines are shown that never ran.")
    return tuple(sentences)


def is_optimised(path: Path) -> bool:
    return any(OPTIMISED.match(producer) for producer in list_producers(path))
