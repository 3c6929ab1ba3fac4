"""Reads from the source text which variables the next statements are about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pytest_causechain.debugger.visit import VisitedFrame

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# A statement is seldom longer, and what comes later is not about this moment.
LINES_AHEAD = 3


def mentioned_names(frames: Sequence[VisitedFrame]) -> frozenset[str]:
    """Identifiers in the statement the innermost frame stands at and those that follow it."""
    if not frames or frames[0].file is None:
        return frozenset()
    lines = read_lines(frames[0].file)[frames[0].line - 1 :][:LINES_AHEAD]
    return frozenset(name for line in lines for name in IDENTIFIER.findall(line))


@lru_cache(maxsize=64)
def read_lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text("utf-8", "surrogateescape").splitlines())
    except OSError:
        return ()
