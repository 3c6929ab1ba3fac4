"""Aligns two sequences."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

# Longer ones differ as a whole: comparing them piece by piece takes the square of their length.
LENGTH_LIMIT = 2_000


def find_edits(passing: Sequence[T], failing: Sequence[T]) -> Iterator[tuple[int, int, int, int]]:
    """Where they differ: begin and end in the one, begin and end in the other, in order. Each element is told by
    itself: as one in the place of another as far as these go together, then as one that the other has not."""
    if max(len(passing), len(failing)) > LENGTH_LIMIT:
        if passing != failing:
            yield 0, len(passing), 0, len(failing)
        return
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, passing, failing, autojunk=False).get_opcodes():
        if tag != "equal":
            for k in range(max(i2 - i1, j2 - j1)):
                yield min(i1 + k, i2), min(i1 + k + 1, i2), min(j1 + k, j2), min(j1 + k + 1, j2)
