"""Turns a trace into a call tree.

The stack pointer tells which calls are over: a call lives as long as the stack pointer is not above the one it was
entered with. That alone mistakes a call with arguments on the stack for a child of its elder sibling; the return
address, which lies in the caller, sets it right. Where that lies in foreign code (a comparison function called by
qsort) somebody who can look at the stack is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.lab.laboratory import Events

# The function and the place it was called from; of a statement its address and 0.
Token = tuple[int, int]
# All places in foreign code are one: where libraries lie may change from run to run.
FOREIGN = -1
# Of the n-th event of a trace, a call made by foreign code, and the calls that may enclose it, outermost first: how
# many of them do? None when that cannot be told.
CountCallers = Callable[[int, Sequence[Token]], int | None]


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
