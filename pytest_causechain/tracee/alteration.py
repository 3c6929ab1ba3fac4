"""Watches, reads and alters a process at chosen instructions.

Breakpoints are taken away when they have been hit often enough: so the whole costs as much as there are places, however
often the program passes them. What writes to a place in memory is found by the processor's debug registers.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from iced_x86 import Decoder, Instruction, MemorySizeExt, OpKind, Register, RegisterExt

from pytest_causechain.kernel import linux
from pytest_causechain.kernel.linux import Registers, ptrace, read_user
from pytest_causechain.kernel.processes import heap_start, read_mappings, stack_start
from pytest_causechain.model.alteration import AHEAD, Anchor, Intervention, Part, Spot
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee.effects import NAMES, operand_address, other_way
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import NotReached, Tracee

# Of struct user, in bytes.
FIRST_REGISTER, STATUS_REGISTER, CONTROL_REGISTER = 848, 848 + 6 * 8, 848 + 7 * 8
HIT = 1
# For the first of four places: in use, writes only, and how its length is written.
IN_USE, WRITES, LENGTHS = 1, 1 << 16, {1: 0 << 18, 2: 1 << 18, 4: 3 << 18, 8: 2 << 18}
LONGEST_INSTRUCTION = 15
WORD_BYTES = 8
HIGH_BYTES = {Register.AH, Register.BH, Register.CH, Register.DH}


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
    places = {process.landmarks.load_map.to_run(address): address for address in addresses}
    hits: Counter[int] = Counter()
    with contextlib.suppress(NotReached, ProcessGone):
        for place in process.hits(places, deadline):
            address = places[place]
            hits[address] += 1
            look(address)
            if hits[address] >= most:
                del process.originals[place], process.patches[place]
    return hits


class TooOften(Exception):
    """There are more writes than anybody wants to see."""


class _Seen(Exception):
    """The wanted write has just happened."""


def watch_writes(
    process: Tracee, address: int, size: int, stops: Sequence[Stop], deadline: float, most: int, until: int = 0
) -> list[int]:
    """Run to the stops; behind which instructions the first thread wrote to the place meanwhile. With an `until` the
    process stays behind the write of that number."""
    writes: list[int] = []

    def note() -> None:
        if not read_user(process.pid, STATUS_REGISTER) & HIT:
            return
        ptrace(linux.POKEUSER, process.pid, STATUS_REGISTER, 0)
        writes.append(process.registers().rip)
        if len(writes) == until:
            raise _Seen
        if len(writes) >= most:
            raise TooOften

    length = watched_length(address, size)
    ptrace(linux.POKEUSER, process.pid, FIRST_REGISTER, address)
    ptrace(linux.POKEUSER, process.pid, CONTROL_REGISTER, IN_USE | WRITES | LENGTHS[length])
    process.on_trap = note
    try:
        with contextlib.suppress(_Seen):
            process.run_to(stops, deadline)
    finally:
        process.on_trap = None
    return writes


def watched_length(address: int, size: int) -> int:
    """The most that can be watched of the place's beginning."""
    return next(length for length in (8, 4, 2, 1) if length <= size and address % length == 0)


def alter(process: Tracee, intervention: Intervention) -> None:
    spot = intervention.spot
    if spot.kind == "branch":
        registers = process.registers()
        instruction = decode(process, registers.rip)
        ways = {b"": other_way(instruction, registers.eflags), AHEAD: instruction.next_ip}
        process.jump(ways.get(intervention.data, instruction.near_branch_target))
    elif spot.kind == "value":
        address = step_store(process)
        if address is not None:
            process.write(address, data_for(process, intervention, process.read(address, len(intervention.data))))
    else:
        registers = process.registers()
        old = getattr(registers, spot.register).to_bytes(WORD_BYTES, "little")
        data = data_for(process, intervention, old[: len(intervention.data)])
        # Writing the lower half of a register clears the upper one, as the program's own instruction did.
        keep = old[len(data) :] if len(data) < 4 else b""
        setattr(registers, spot.register, int.from_bytes(data + keep, "little"))
        process.set_registers(registers)


def data_for(process: Tracee, intervention: Intervention, was: bytes) -> bytes:
    anchor = intervention.anchor
    if intervention.shift:
        shifted = int.from_bytes(was, "little") + intervention.shift
        return (shifted % (1 << 8 * len(was))).to_bytes(len(was), "little")
    if anchor is None:
        return intervention.data
    return (part_start(process, anchor.part) + anchor.offset).to_bytes(WORD_BYTES, "little")


def find_anchor(process: Tracee, address: int) -> Anchor:
    within = [mapping.name for mapping in read_mappings(process.pid) if mapping.start <= address < mapping.end]
    part: Part = "library"
    # Variables of the program may lie behind what is mapped from its file, but before the heap.
    if process.landmarks.load_map.modules[0].start <= address < heap_start(process.pid):
        part = "program"
    elif within == ["[heap]"]:
        part = "heap"
    elif within == ["[stack]"]:
        part = "stack"
    return Anchor(part, address - part_start(process, part))


def part_start(process: Tracee, part: Part) -> int:
    """Libraries, and all that was mapped since, keep their distances from one another."""
    match part:
        case "program":
            return process.landmarks.load_map.base
        case "heap":
            return heap_start(process.pid)
        case "stack":
            return stack_start(process.pid)
    return process.landmarks.symbols.get("malloc", 0)


def pass_by(process: Tracee, spot: Spot) -> None:
    """To where the process stands after an intervention, without any."""
    if spot.kind == "value":
        step_store(process)


def step_store(process: Tracee) -> int | None:
    """Let the store happen; where it wrote to. None where the run ends by it."""
    registers = process.registers()
    address = operand_address(decode(process, registers.rip), registers)
    process.step()
    return address if process.registers().rip != registers.rip else None


def read_value(process: Tracee, spot: Spot) -> tuple[bytes, int]:
    """The value, and the address it was stored at: 0 for one in a register."""
    if spot.kind == "value":
        address = step_store(process)
        if address is None:
            raise ProcessGone(process.pid)
        return process.read(address, spot.size), address
    data = getattr(process.registers(), spot.register).to_bytes(WORD_BYTES, "little")
    size = spot.size or (WORD_BYTES if any(data[4:]) else 4)
    return data[:size], 0


def read_comparison(process: Tracee) -> tuple[int, int]:
    """The two numbers that the instruction there compares."""
    registers = process.registers()
    instruction = decode(process, registers.rip)
    one, other = (read_operand(process, instruction, number, registers) for number in (0, 1))
    return one, other


def read_operand(process: Tracee, instruction: Instruction, number: int, registers: Registers) -> int:
    match instruction.op_kind(number):
        case OpKind.REGISTER:
            register = instruction.op_register(number)
            size = RegisterExt.size(register)
            data = getattr(registers, NAMES[RegisterExt.full_register(register)]).to_bytes(WORD_BYTES, "little")
            if register in HIGH_BYTES:
                data = data[1:]
        case OpKind.MEMORY:
            size = MemorySizeExt.size(instruction.memory_size)
            data = process.read(operand_address(instruction, registers), size)
        case _:
            return ctypes.c_int64(instruction.immediate(number)).value
    return int.from_bytes(data[:size], "little", signed=True)


def decode(process: Tracee, address: int) -> Instruction:
    return Decoder(64, process.read(address, LONGEST_INSTRUCTION), ip=address).decode()
