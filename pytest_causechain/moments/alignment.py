"""Pairs what two runs have in common: the longest common subsequence of two traces, call by call."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_causechain.moments.tree import Invocation, Line

# Myers' algorithm takes time and memory in proportion to the square of the number of differences.
DIFFERENCES_LIMIT = 1_000
# Beyond that: how far ahead the next common element is looked for.
LOOK_AHEAD = 50


def align_trees(
    passing: Sequence[Invocation], failing: Sequence[Invocation]
) -> list[tuple[Invocation | Line, Invocation | Line]]:
    """Pairs of calls and statements with equal calling contexts, in the order of both runs.

    Two calls match when they call one function from one place within matching calls."""
    pairs: list[tuple[Invocation | Line, Invocation | Line]] = []
    pending: list[tuple[Sequence[Invocation | Line], Sequence[Invocation | Line]]] = [(passing, failing)]
    while pending:
        ours, theirs = pending.pop()
        for i, j in common_subsequence([x.token for x in ours], [x.token for x in theirs]):
            left, right = ours[i], theirs[j]
            pairs.append((left, right))
            if isinstance(left, Invocation) and isinstance(right, Invocation):
                pending.append((left.children, right.children))
    return sorted(pairs, key=lambda pair: pair[1].event)


def common_subsequence(a: Sequence[object], b: Sequence[object]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence (of a long one where the sequences differ a lot)."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    inner_a, inner_b = a[start : len(a) - end], b[start : len(b) - end]
    inner = shortest_edit(inner_a, inner_b)
    if inner is None:
        inner = look_ahead(inner_a, inner_b)
    return [
        *((i, i) for i in range(start)),
        *((start + i, start + j) for i, j in inner),
        *((len(a) - k, len(b) - k) for k in range(end, 0, -1)),
    ]


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
    """Linear time: each element with its next equal within sight."""
    pairs: list[tuple[int, int]] = []
    at = 0
    for i, element in enumerate(a):
        for j in range(at, min(at + LOOK_AHEAD, len(b))):
            if b[j] == element:
                pairs.append((i, j))
                at = j + 1
                break
    return pairs
