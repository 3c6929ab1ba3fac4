"""The small ways in which an instruction could be another one: as if a character of the source were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from iced_x86 import ConditionCode, Decoder, Instruction, Mnemonic, OpKind, Register, RegisterExt

# The condition that differs only in where equal values go.
EQUAL_OTHERWISE = {
    ConditionCode.L: ConditionCode.LE,
    ConditionCode.LE: ConditionCode.L,
    ConditionCode.G: ConditionCode.GE,
    ConditionCode.GE: ConditionCode.G,
    ConditionCode.B: ConditionCode.BE,
    ConditionCode.BE: ConditionCode.B,
    ConditionCode.A: ConditionCode.AE,
    ConditionCode.AE: ConditionCode.A,
}
SHORT_JUMP = 0x70  # the upper half of its opcode; those of all others with a condition follow a byte of their own
TWO_BYTES = 0x0F
WITH_CONSTANTS = {Mnemonic.MOV, Mnemonic.CMP, Mnemonic.ADD, Mnemonic.SUB, Mnemonic.IMUL, Mnemonic.AND, Mnemonic.OR}
IMMEDIATES = {
    OpKind.IMMEDIATE8,
    OpKind.IMMEDIATE16,
    OpKind.IMMEDIATE32,
    OpKind.IMMEDIATE8TO16,
    OpKind.IMMEDIATE8TO32,
    OpKind.IMMEDIATE8TO64,
    OpKind.IMMEDIATE32TO64,
}
LOOPS = {Mnemonic.LOOPE, Mnemonic.LOOPNE}
FRAME = {Register.RSP, Register.RBP, Register.RIP, Register.NONE}
# Of two registers of 32 bits, in both directions: those of 64 compute addresses.
OPERATORS = {0x01: (0x29, "+", "-"), 0x29: (0x01, "-", "+"), 0x03: (0x2B, "+", "-"), 0x2B: (0x03, "-", "+")}
OPERATORS |= {0x21: (0x09, "&", "|"), 0x09: (0x21, "|", "&")}
# In the same directions.
MOVES = dict.fromkeys((0x01, 0x29, 0x21, 0x09), 0x89) | dict.fromkeys((0x03, 0x2B), 0x8B)
NO_OPERATION = b"\x90"
ONE_ALONE = "one operand alone"
# Numbers that a run compared, each with those that it was compared with.
Compared = Mapping[int, Sequence[int]]
NOTHING_COMPARED: Compared = {}
# Of those, the nearest.
MOST_TURNED = 4


@dataclass(frozen=True, slots=True)
class Variant:
    """Other code for an instruction, of the same length. `was` and `then` tell a constant or an operator; `watch` is
    an address executed as often, cheap to count."""

    kind: Literal["equal", "inverted", "constant", "operator"]
    address: int
    code: bytes
    was: str = ""
    then: str = ""
    watch: int | None = None


def find_variants(
    instruction: Instruction, code: bytes, watch: int | None, compared: Compared = NOTHING_COMPARED
) -> Iterator[Variant]:
    for variant in _find_variants(instruction, code, compared):
        yield replace(variant, watch=watch)


def _find_variants(instruction: Instruction, code: bytes, compared: Compared) -> Iterator[Variant]:
    address = instruction.ip
    # Jumps, and what stores or takes over a truth value.
    if instruction.condition_code != ConditionCode.NONE and instruction.mnemonic not in LOOPS:
        other = EQUAL_OTHERWISE.get(instruction.condition_code)
        if other is not None:
            yield Variant("equal", address, with_condition(code, other - ConditionCode.O))
        yield Variant("inverted", address, with_condition(code, instruction.condition_code - ConditionCode.O ^ 1))
    elif instruction.op_count and instruction.op0_kind == OpKind.REGISTER and instruction.op0_register in FRAME:
        return  # keeps the stack in order
    elif code[0] in OPERATORS:
        opcode, was, then = OPERATORS[code[0]]
        yield Variant("operator", address, bytes([opcode]) + code[1:], was, then)
        yield Variant("operator", address, bytes([MOVES[code[0]]]) + code[1:], was, ONE_ALONE)
        yield Variant("operator", address, NO_OPERATION * len(code), was, ONE_ALONE)
    else:
        yield from _constants(instruction, code, compared)


def with_condition(code: bytes, number: int) -> bytes:
    """The processor's number of the condition is the low half of the opcode."""
    at = 0 if code[0] & 0xF0 == SHORT_JUMP else code.index(TWO_BYTES) + 1
    return code[:at] + bytes([code[at] & 0xF0 | number]) + code[at + 1 :]


def _constants(instruction: Instruction, code: bytes, compared: Compared) -> Iterator[Variant]:
    """One more and one less, and what lets a comparison with it come out otherwise."""
    decoder = Decoder(64, code, ip=instruction.ip)
    offsets = decoder.get_constant_offsets(decoder.decode())
    if instruction.mnemonic == Mnemonic.LEA and instruction.memory_displacement:
        if RegisterExt.full_register(instruction.memory_base) in FRAME:
            return
        at, size = offsets.displacement_offset, offsets.displacement_size
    elif instruction.mnemonic in WITH_CONSTANTS and instruction.op_kind(instruction.op_count - 1) in IMMEDIATES:
        at, size = offsets.immediate_offset, offsets.immediate_size
    else:
        return
    was = int.from_bytes(code[at : at + size], "little", signed=True)
    for then in dict.fromkeys((was + 1, was - 1, *turn_comparisons(was, compared))):
        if then != was and -(1 << 8 * size - 1) <= then < 1 << 8 * size - 1:
            changed = code[:at] + then.to_bytes(size, "little", signed=True) + code[at + size :]
            yield Variant("constant", instruction.ip, changed, str(was), str(then))


def turn_comparisons(number: int, compared: Compared) -> Iterator[int]:
    """In its place they make the comparisons come out otherwise: the other number, and the next one beyond it."""
    for other in sorted(compared.get(number, ()), key=lambda other: abs(other - number))[:MOST_TURNED]:
        yield other
        yield other + 1 if other > number else other - 1
