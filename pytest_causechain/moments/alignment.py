"""Pairs what two runs have in common: the longest common subsequence of two traces, call by call."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from pytest_causechain.moments.tree import Tree

# Myers' algorithm takes time and memory in proportion to the square of the number of differences.
DIFFERENCES_LIMIT = 1_000
# Beyond that: how far ahead the next common element is looked for.
LOOK_AHEAD = 50


class Stretch(NamedTuple):
    """As many successive elements of both sequences, from these on, that match one by one."""

    passing: int
    failing: int
    length: int


class Common(Sequence[tuple[int, int]]):
    """Pairs of numbers that match, in the order of both runs; there may be millions in few stretches."""

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self._stretches = sorted(stretches, key=lambda stretch: stretch.failing)
        self._failing = [stretch.failing for stretch in self._stretches]
        self._ends = list(accumulate(stretch.length for stretch in self._stretches))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> tuple[int, int]:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._ends, index)
        stretch = self._stretches[number]
        offset = index - (self._ends[number] - stretch.length)
        return stretch.passing + offset, stretch.failing + offset

    def first_from(self, failing: int) -> int:
        """The index of the first pair whose number in the failing run is not below this one."""
        number = bisect_right(self._failing, failing) - 1
        if number < 0:
            return 0
        stretch = self._stretches[number]
        return self._ends[number] - stretch.length + min(failing - stretch.failing, stretch.length)


def align_trees(passing: Tree, failing: Tree) -> Common:
    """Calls and statements with equal calling contexts.

    Two calls match when they call one function from one place within matching calls."""
    stretches: list[Stretch] = []
    pending = [(-1, -1)]
    while pending:
        ours, theirs = (list(tree.children(item)) for tree, item in zip((passing, failing), pending.pop(), strict=True))
        tokens = ([passing.tokens[i] for i in ours], [failing.tokens[j] for j in theirs])
        for stretch in common_subsequence(*tokens):
            for n in range(stretch.length):
                i, j = ours[stretch.passing + n], theirs[stretch.failing + n]
                size = passing.ends[i] - i
                if size == failing.ends[j] - j and passing.shapes[i] == failing.shapes[j]:
                    append_stretch(stretches, Stretch(i, j, size))  # with all within
                else:
                    append_stretch(stretches, Stretch(i, j, 1))
                    pending.append((i, j))
    return Common(stretches)


def append_stretch(stretches: list[Stretch], new: Stretch) -> None:
    """Those that continue each other become one."""
    if stretches:
        last = stretches[-1]
        if (last.passing + last.length, last.failing + last.length) == (new.passing, new.failing):
            stretches[-1] = Stretch(last.passing, last.failing, last.length + new.length)
            return
    stretches.append(new)


def common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Stretch]:
    """A longest common subsequence (a long one where the sequences differ a lot)."""
    shorter = min(len(a), len(b))
    start = next((n for n in range(shorter) if a[n] != b[n]), shorter)
    end = next((n for n in range(shorter - start) if a[-1 - n] != b[-1 - n]), shorter - start)
    found: list[Stretch] = [Stretch(0, 0, start)] if start else []
    for i, j in common_inside(a, b, start, end):
        append_stretch(found, Stretch(i, j, 1))
    if end:
        append_stretch(found, Stretch(len(a) - end, len(b) - end, end))
    return found


def common_inside(a: Sequence[Hashable], b: Sequence[Hashable], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Without the beginnings and ends that are alike."""
    # What only one of them has is in no common subsequence: without it there are fewer differences.
    elements_a, elements_b = set(a[start : len(a) - end]), set(b[start : len(b) - end])
    kept_a = [i for i in range(start, len(a) - end) if a[i] in elements_b]
    kept_b = [j for j in range(start, len(b) - end) if b[j] in elements_a]
    inner_a, inner_b = [a[i] for i in kept_a], [b[j] for j in kept_b]
    inner = shortest_edit(inner_a, inner_b)
    if inner is None:
        inner = look_ahead(inner_a, inner_b)
    return ((kept_a[i], kept_b[j]) for i, j in inner)


def shortest_edit(a: Sequence[object], b: Sequence[object]) -> list[tuple[int, int]] | None:
    """Myers' O(ND) algorithm; None when there are too many differences.

    After round d, furthest[k] is the largest index into `a` that d edits reach on diagonal k (index into a minus
    index into b); the rounds are kept to walk back."""
    if not a or not b:
        return []
    furthest = {1: 0}
    rounds: list[dict[int, int]] = []
    for d in range(min(len(a) + len(b), DIFFERENCES_LIMIT) + 1):
        rounds.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = x - k
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            furthest[k] = x
            if x >= len(a) and y >= len(b):
                return walk_back(rounds, len(a), len(b))
    return None


def walk_back(rounds: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for d in range(len(rounds) - 1, -1, -1):
        furthest, k = rounds[d], x - y
        down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
        previous = k + 1 if down else k - 1
        from_x = furthest[previous]
        from_y = from_x - previous
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]


def look_ahead(a: Sequence[object], b: Sequence[object]) -> list[tuple[int, int]]:
    """Linear time: again and again the next pair for which the least is left out; what has none in sight is left out
    itself."""
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        left_out = next(
            (
                (n, total - n)
                for total in range(LOOK_AHEAD)
                for n in range(total + 1)
                if i + n < len(a) and j + total - n < len(b) and a[i + n] == b[j + total - n]
            ),
            None,
        )
        if left_out is None:
            i, j = i + LOOK_AHEAD // 2, j + LOOK_AHEAD // 2
            continue
        i, j = i + left_out[0], j + left_out[1]
        pairs.append((i, j))
        i, j = i + 1, j + 1
    return pairs
