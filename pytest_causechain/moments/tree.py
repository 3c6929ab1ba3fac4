"""Turns a trace into a call tree.

The stack pointer tells which invocations are over: an invocation lives as long as the stack pointer is not above
the one it was entered with. That alone mistakes a call with arguments on the stack for a child of its elder
sibling; the return address, which lies in the caller, sets it right. Where that lies in foreign code (a comparison
function called by qsort) somebody who can look at the stack is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.lab.laboratory import Event


@dataclass(slots=True)
class Invocation:
    """One call. `event` is its number in the trace, -1 for one that was entered before the trace began."""

    function: int
    call_site: int
    sp: int
    event: int
    parent: Invocation | None
    children: list[Invocation | Line] = field(default_factory=list)

    @property
    def token(self) -> tuple[int, int]:
        return (self.function, self.call_site)

    def path(self) -> list[Invocation]:
        """From the outermost call down to this one."""
        result: list[Invocation] = []
        invocation: Invocation | None = self
        while invocation is not None:
            result.append(invocation)
            invocation = invocation.parent
        return result[::-1]


@dataclass(frozen=True, slots=True)
class Line:
    """An executed statement."""

    address: int
    event: int

    @property
    def token(self) -> tuple[int, int]:
        return (self.address, 0)


# Of the n-th call of a trace, made by foreign code, and the calls that may enclose it, outermost first: how many of
# them do? None when that cannot be told.
CountCallers = Callable[[int, Sequence[Invocation]], int | None]


def build_tree(
    events: Sequence[Event],
    program: ProgramMap,
    above: Sequence[Invocation] = (),
    count_callers: CountCallers = lambda number, stack: None,
) -> tuple[list[Invocation], list[Invocation]]:
    """The invocations without a parent, and all invocations in the order of their entries.

    `above` is the path of calls that were on the stack when the trace began; copies of them open the tree.
    """
    roots: list[Invocation] = []
    entered: list[Invocation] = []
    stack: list[Invocation] = []
    for old in above:
        copy = Invocation(old.function, old.call_site, old.sp, -1, stack[-1] if stack else None)
        if stack:
            stack[-1].children.append(copy)
        stack.append(copy)
    roots += stack[:1]
    for number, event in zip(count(), events):
        if not event.return_address:
            return_to_statement(stack, event, program)
            if stack:
                stack[-1].children.append(Line(event.address, number))
            continue
        if program.function_at(event.return_address) is None:
            return_to_foreign_code(stack, event, program)
            if stack and (enclosing := count_callers(len(entered), stack)) is not None:
                del stack[enclosing:]
            else:
                drop_same_function(stack, event, program)
        else:
            while stack and (stack[-1].sp <= event.sp or not encloses(program, stack[-1], event.return_address)):
                stack.pop()
        parent = stack[-1] if stack else None
        invocation = Invocation(event.address, event.return_address, event.sp, number, parent)
        if parent is None:
            roots.append(invocation)
        else:
            parent.children.append(invocation)
        entered.append(invocation)
        stack.append(invocation)
    return roots, entered


def return_to_statement(stack: list[Invocation], event: Event, program: ProgramMap) -> None:
    """Drop the calls that are over when a statement is executed."""
    while stack and stack[-1].sp < event.sp:
        stack.pop()
    # Below the stack pointer of an elder call, when arguments of the next one have been pushed already.
    owner = next((n for n in range(len(stack) - 1, -1, -1) if encloses(program, stack[n], event.address)), None)
    if owner is not None:
        del stack[owner + 1 :]


def return_to_foreign_code(stack: list[Invocation], event: Event, program: ProgramMap) -> None:
    """Drop the calls that are surely over when foreign code calls a function of the program."""
    while stack and stack[-1].sp <= event.sp:
        stack.pop()
    function = program.function_at(event.address)
    if function is not None and function.name == "main":
        stack.clear()  # whatever ran before it


def drop_same_function(stack: list[Invocation], event: Event, program: ProgramMap) -> None:
    """A library often calls one function again and again, at different depths of its own (qsort does): more likely
    than that the function called the library again."""
    for n in range(len(stack) - 1, -1, -1):
        if stack[n].function == event.address and program.function_at(stack[n].call_site) is None:
            del stack[n:]
            break


def encloses(program: ProgramMap, invocation: Invocation, address: int) -> bool:
    function = program.function_at(address)
    return function is not None and function.address == invocation.function
