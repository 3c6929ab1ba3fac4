"""Makes an intervention in a process that stands at its spot, and reads what is there."""

from __future__ import annotations

import ctypes

from iced_x86 import Decoder, Instruction, MemorySizeExt, OpKind, Register, RegisterExt

from pytest_causechain.model.alteration import AHEAD, Anchor, Intervention, Part, Spot
from pytest_causechain.process.effects import NAMES, operand_address, other_way
from pytest_causechain.process.linux import Registers
from pytest_causechain.process.maps import heap_start, read_mappings, stack_start
from pytest_causechain.process.threads import ProcessGone
from pytest_causechain.process.tracee import Tracee

LONGEST_INSTRUCTION = 15
WORD_BYTES = 8
HIGH_BYTES = {Register.AH, Register.BH, Register.CH, Register.DH}


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
