"""Runs a process over many breakpoints, each of which is taken away when it has been hit often enough.

So the whole costs as much as there are places, however often the program passes them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Collection

from pytest_causechain.process.linux import EVENT_EXEC, INT3, SETOPTIONS, ptrace
from pytest_causechain.process.tracee import OPTIONS, TRACE_CHILDREN, ProcessGone, Tracee


def watch(
    process: Tracee,
    addresses: Collection[int],
    most: int,
    deadline: float,
    look: Callable[[int], None] = lambda address: None,
) -> Counter[int]:
    """How often each address was executed, at most `most` times each, up to the end of the run or the deadline.

    `look` is called with the process standing before it, and may step it."""
    originals = {process.base + address: process.read(process.base + address, 1) for address in addresses}
    hits: Counter[int] = Counter()
    for address in originals:
        process.write(address, INT3)
    ptrace(SETOPTIONS, process.pid, 0, OPTIONS | TRACE_CHILDREN)
    sign = 0
    while True:
        process.resume(sign)
        status = process.wait(deadline)
        if status is None:
            process.halt()
            return hits
        if not os.WIFSTOPPED(status) or status >> 16 == EVENT_EXEC:
            return hits
        process.care_for_children(status >> 16, originals, dict.fromkeys(originals, INT3))
        sign = 0 if status >> 16 else os.WSTOPSIG(status)
        if sign != signal.SIGTRAP:
            continue
        address = process.registers().rip - 1
        if address not in originals:
            continue
        sign = 0
        hits[address - process.base] += 1
        try:
            _pass(process, address, originals, hits[address - process.base] < most, look)
        except ProcessGone:
            return hits


def _pass(process: Tracee, address: int, originals: dict[int, bytes], again: bool, look: Callable[[int], None]) -> None:
    registers = process.registers()
    registers.rip = address
    process.set_registers(registers)
    process.write(address, originals[address])
    look(address - process.base)
    if not again:
        del originals[address]
        return
    if process.registers().rip == address:
        process.step()
    process.write(address, INT3)
