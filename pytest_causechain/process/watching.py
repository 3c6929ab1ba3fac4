"""Runs a process over many breakpoints, each of which is taken away when it has been hit often enough.

So the whole costs as much as there are places, however often the program passes them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from pytest_causechain.process.linux import EVENT_EXEC, INT3
from pytest_causechain.process.threads import ProcessGone
from pytest_causechain.process.tracee import OPTIONS, TRACE_CHILDREN, Tracee


def watch(
    process: Tracee,
    addresses: Collection[int],
    most: int,
    deadline: float,
    look: Callable[[int], None] = lambda address: None,
) -> Counter[int]:
    """How often the first thread executed each address, at most `most` times each, up to the end of the run or the
    deadline.

    `look` is called with the process standing before it, and may step it."""
    load_map = process.landmarks.load_map
    places = {load_map.to_run(address): address for address in addresses}
    hits: Counter[int] = Counter()
    process.originals.update((place, process.read(place, 1)) for place in places)
    process.patches.update(dict.fromkeys(places, INT3))
    for place in places:
        process.write(place, INT3)
    process.threads.set_options(OPTIONS | TRACE_CHILDREN)
    process.threads.take_turns()
    sign = 0
    while True:
        process.resume(sign)
        status = process.wait(deadline)
        if status is None:
            process.halt()
            return hits
        if not os.WIFSTOPPED(status) or status >> 16 == EVENT_EXEC:
            return hits
        sign = 0 if status >> 16 else os.WSTOPSIG(status)
        if sign != signal.SIGTRAP or process.thread != process.pid:
            continue
        place = process.registers().rip - 1
        if place not in process.patches:
            continue
        sign = 0
        address = places[place]
        hits[address] += 1
        try:
            _pass(process, place, hits[address] < most, partial(look, address))
        except ProcessGone:
            return hits


def _pass(process: Tracee, place: int, again: bool, look: Callable[[], None]) -> None:
    registers = process.registers()
    registers.rip = place
    process.set_registers(registers)
    process.write(place, process.originals[place])
    look()
    if not again:
        del process.originals[place], process.patches[place]
        return
    if process.registers().rip == place:
        process.step()
    process.write(place, INT3)
