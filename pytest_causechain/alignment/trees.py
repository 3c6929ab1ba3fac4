"""Turns a trace into a call tree, and pairs what the trees of two runs have in common, call by call.

The stack pointer tells which calls are over: a call lives as long as the stack pointer is not above the one it was
entered with. That alone mistakes a call with arguments on the stack for a child of its elder sibling; the return
address, which lies in the caller, sets it right. Where that lies in foreign code (a comparison function called by
qsort) somebody who can look at the stack is asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.lab.laboratory import Events

# The function and the place it was called from; of a statement its address and 0.
Token = tuple[int, int]
# All places in foreign code are one: where libraries lie may change from run to run.
FOREIGN = -1
# Of the n-th event of a trace, a call made by foreign code, and the calls that may enclose it, outermost first: how
# many of them do? None when that cannot be told.
CountCallers = Callable[[int, Sequence[Token]], int | None]
# Myers' algorithm takes time and memory in proportion to the square of the number of differences.
DIFFERENCES_LIMIT = 1_000
# Beyond that: how far ahead the next common element is looked for.
LOOK_AHEAD = 50


@dataclass(slots=True)
class Tree:
    """Calls and statements, numbered in the order of their beginning, so that all within a call follow it. There may be
    millions: they are columns of numbers.

    `ends` is the number behind the last one within, `shapes` a hash of the token and all within. The first `above`
    are calls that were entered before the trace began; then come the events of the trace."""

    above: int = 0
    tokens: list[Token] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    shapes: list[int] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: Token, sp: int, parent: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.ends.append(len(self))
        self.shapes.append(hash(token))
        self.pointers.append(sp)
        return len(self) - 1

    def children(self, item: int) -> Iterator[int]:
        """Of a call; of -1 those that have no parent."""
        child, end = item + 1, self.ends[item] if item >= 0 else len(self)
        while child < end:
            yield child
            child = self.ends[child]

    def path(self, item: int) -> list[int]:
        """From the outermost call down to this one."""
        result = []
        while item >= 0:
            result.append(item)
            item = self.parents[item]
        return result[::-1]


def build_tree(
    events: Events,
    program: ProgramMap,
    above: Sequence[tuple[Token, int]] = (),
    count_callers: CountCallers = lambda number, stack: None,
) -> Tree:
    """`above` are the calls that were on the stack when the trace began, with their stack pointers."""
    tree = Tree(len(above))
    stack = _Stack(tree, program, count_callers)
    for token, sp in above:
        stack.items.append(tree.add(token, sp, len(tree) - 1))
    # What is done for each of millions of events is written out here: a call of a function takes as long as all of it.
    tokens, parents, ends = tree.tokens, tree.parents, tree.ends
    shapes, pointers, items, owner = tree.shapes, tree.pointers, stack.items, stack.owner
    known: dict[tuple[int, int], tuple[Token, int, int | None]] = {}
    for address, sp, back in zip(events.addresses, events.sps, events.returns, strict=True):
        try:
            token, shape, caller = known[address, back]
        except KeyError:
            caller = owner(back or address)
            token = (address, FOREIGN if back and caller is None else back)
            shape = hash(token)
            known[address, back] = token, shape, caller
        if not back:
            stack.leave_for_statement(caller, sp)
        elif caller is None:
            stack.leave_for_foreign_call(address, sp)
        else:
            while items and (pointers[items[-1]] <= sp or tokens[items[-1]][0] != caller):
                over = items.pop()
                ends[over] = len(tokens)
                if items:
                    shapes[items[-1]] = hash((shapes[items[-1]], shapes[over]))
        tokens.append(token)
        parents.append(items[-1] if items else -1)
        ends.append(len(tokens))
        shapes.append(shape)
        pointers.append(sp)
        if back:
            items.append(len(tokens) - 1)
        elif items:
            shapes[items[-1]] = hash((shapes[items[-1]], shape))
    stack.cut(0)
    return tree


class _Stack:
    """The calls that are not over, outermost first."""

    def __init__(self, tree: Tree, program: ProgramMap, count_callers: CountCallers) -> None:
        self._tree = tree
        self._program = program
        self._count_callers = count_callers
        self._known: dict[int, int | None] = {}
        self.items: list[int] = []

    def owner(self, address: int) -> int | None:
        """The address of the program's own function that an address lies in."""
        if address not in self._known:
            function = self._program.function_at(address)
            self._known[address] = function.address if function is not None else None
        return self._known[address]

    def cut(self, depth: int) -> None:
        tree, items = self._tree, self.items
        while len(items) > depth:
            over = items.pop()
            tree.ends[over] = len(tree)
            if items:
                tree.shapes[items[-1]] = hash((tree.shapes[items[-1]], tree.shapes[over]))

    def leave_for_statement(self, function: int | None, sp: int) -> None:
        """Drop the calls that are over when a statement of a function is executed."""
        tree, items = self._tree, self.items
        depth = len(items)
        while depth and tree.pointers[items[depth - 1]] < sp:
            depth -= 1
        # Below the stack pointer of an elder call, when arguments of the next one have been pushed already.
        self.cut(next((n for n in range(depth, 0, -1) if tree.tokens[items[n - 1]][0] == function), depth))

    def leave_for_foreign_call(self, address: int, sp: int) -> None:
        """Drop the calls that are over when foreign code calls a function of the program."""
        tree, items = self._tree, self.items
        depth = len(items)
        while depth and tree.pointers[items[depth - 1]] <= sp:
            depth -= 1
        function = self._program.function_at(address)
        if function is not None and function.name == "main":
            depth = 0  # whatever ran before it
        self.cut(depth)
        if items:
            tokens = [tree.tokens[item] for item in items]
            enclosing = self._count_callers(len(tree) - tree.above, tokens)
            self.cut(enclosing if enclosing is not None else self._without_same_function(address, tokens))

    def _without_same_function(self, address: int, tokens: Sequence[Token]) -> int:
        """A library often calls one function again and again, at different depths of its own (qsort does): more likely
        than that the function called the library again."""
        for n in range(len(tokens) - 1, -1, -1):
            if tokens[n] == (address, FOREIGN):
                return n
        return len(tokens)


class Stretch(NamedTuple):
    """As many successive elements of both sequences, from these on, that match one by one."""

    passing: int
    failing: int
    length: int


class CommonPairs(Sequence[tuple[int, int]]):
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


def align_trees(passing: Tree, failing: Tree) -> CommonPairs:
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
    return CommonPairs(stretches)


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
