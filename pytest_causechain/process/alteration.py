"""Makes an intervention in a process that stands at its spot, and reads what is there."""

from __future__ import annotations

from iced_x86 import Decoder, Instruction

from pytest_causechain.model.intervention import Intervention, Spot
from pytest_causechain.process.effects import operand_address, other_way
from pytest_causechain.process.tracee import Tracee

LONGEST_INSTRUCTION = 15
WORD_BYTES = 8


def alter(process: Tracee, intervention: Intervention) -> None:
    spot = intervention.spot
    if spot.kind == "branch":
        registers = process.registers()
        process.jump(other_way(decode(process, registers.rip), registers.eflags))
    elif spot.kind == "value":
        address = step_store(process)
        process.write(address, intervention.data)
    else:
        registers = process.registers()
        old = getattr(registers, spot.register).to_bytes(WORD_BYTES, "little")
        # Writing the lower half of a register clears the upper one, as the program's own instruction did.
        keep = old[len(intervention.data) :] if len(intervention.data) < 4 else b""
        setattr(registers, spot.register, int.from_bytes(intervention.data + keep, "little"))
        process.set_registers(registers)


def pass_by(process: Tracee, spot: Spot) -> None:
    """To where the process stands after an intervention, without any."""
    if spot.kind == "value":
        step_store(process)


def step_store(process: Tracee) -> int:
    """Let the store happen; where it wrote to."""
    registers = process.registers()
    address = operand_address(decode(process, registers.rip), registers)
    process.step()
    return address


def read_value(process: Tracee, spot: Spot) -> tuple[bytes, int]:
    """The value, and the address it was stored at: 0 for one in a register."""
    if spot.kind == "value":
        address = step_store(process)
        return process.read(address, spot.size), address
    data = getattr(process.registers(), spot.register).to_bytes(WORD_BYTES, "little")
    size = spot.size or (WORD_BYTES if any(data[4:]) else 4)
    return data[:size], 0


def decode(process: Tracee, address: int) -> Instruction:
    return Decoder(64, process.read(address, LONGEST_INSTRUCTION), ip=address).decode()
