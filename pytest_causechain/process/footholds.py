"""Where jumps of ours fit into the code of a program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from iced_x86 import Instruction

from pytest_causechain.process.stubs import branch_targets, overwritten
from pytest_causechain.process.tracee import Tracee


@dataclass(frozen=True, slots=True)
class Watched:
    """An instruction to record, and what must be known to put a jump there: the code of its function from there
    on, and where jumps may lead in it. Addresses of the file, as LoadMap tells them."""

    address: int
    is_entry: bool
    function: int
    end: int


@dataclass(frozen=True, slots=True)
class Foothold:
    """A watched instruction, by its `number`, in a run. `code` is its function's from there on, `instructions` are
    those that a jump would take the place of: None where it does not fit."""

    number: int
    watched: Watched
    address: int
    code: bytes
    instructions: list[Instruction] | None


def find_footholds(
    process: Tracee, module: int, group: Sequence[tuple[int, Watched]], rows: Collection[int]
) -> Iterator[Foothold]:
    """Of instructions of one module, in the order of their addresses. A function is read when its first one is asked
    for, before which it must not be patched. `rows` are all addresses at which a line begins: a jump table may lead to
    any of them."""
    shift = process.landmarks.load_map.shift(module)
    starts = {shift + watched.address for _, watched in group}
    # Nor must another thread, wherever it stands, come into the middle of a jump.
    starts |= {process.registers_of(thread).rip for thread in process.threads.standing}
    codes: dict[int, bytes] = {}
    targets: dict[int, set[int]] = {}
    for number, watched in group:
        address, begin = shift + watched.address, shift + watched.function
        if begin not in codes:
            codes[begin] = process.read(begin, watched.end - watched.function)
            targets[begin] = branch_targets(begin, codes[begin])
        code = codes[begin][address - begin :]
        # A jump table never leads to where a function's body begins.
        barriers = partial(is_barrier, targets[begin], starts, () if watched.is_entry else rows, shift)
        yield Foothold(number, watched, address, code, overwritten(address, code, barriers))


def is_barrier(targets: set[int], starts: set[int], rows: Collection[int], shift: int, address: int) -> bool:
    return address in targets or address in starts or address - shift in rows
