"""Pairs what two runs have in common: the longest common subsequence of two traces, call by call."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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


def common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Index pairs of a longest common subsequence (of a long one where the sequences differ a lot)."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    # What only one of them has is in no common subsequence: without it there are fewer differences.
    elements_a, elements_b = set(a[start : len(a) - end]), set(b[start : len(b) - end])
    kept_a = [i for i in range(start, len(a) - end) if a[i] in elements_b]
    kept_b = [j for j in range(start, len(b) - end) if b[j] in elements_a]
    inner_a, inner_b = [a[i] for i in kept_a], [b[j] for j in kept_b]
    inner = shortest_edit(inner_a, inner_b)
    if inner is None:
        inner = look_ahead(inner_a, inner_b)
    return [
        *((i, i) for i in range(start)),
        *((kept_a[i], kept_b[j]) for i, j in inner),
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
