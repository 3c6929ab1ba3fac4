"""The small ways in which an instruction could be another one: as if a character of the source were."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from iced_x86 import ConditionCode, Decoder, FlowControl, Instruction, Mnemonic, OpKind, Register, RegisterExt

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
# Of floating-point numbers; their second byte follows the one that begins such opcodes.
FLOAT_OPERATORS = {0x58: (0x5C, "+", "-"), 0x5C: (0x58, "-", "+"), 0x59: (0x5E, "*", "/"), 0x5E: (0x59, "/", "*")}
FLOAT_ARITHMETIC = {
    Mnemonic.ADDSD,
    Mnemonic.SUBSD,
    Mnemonic.MULSD,
    Mnemonic.DIVSD,
    Mnemonic.ADDSS,
    Mnemonic.SUBSS,
    Mnemonic.MULSS,
    Mnemonic.DIVSS,
}
NO_OPERATION = b"\x90"
# Jumps without a condition, for as many bytes as those with one have.
SHORT_ALWAYS, NEAR_ALWAYS = b"\xeb", NO_OPERATION + b"\xe9"
ONE_ALONE = "one operand alone"
# Numbers that a run compared, each with those that it was compared with.
Compared = Mapping[int, Sequence[int]]
NOTHING_COMPARED: Compared = {}
# Of those, the nearest; and of the other constants of the code, on either side.
MOST_TURNED, MOST_CONSTANTS = 4, 2


@dataclass(frozen=True, slots=True)
class Variant:
    """Other code for an instruction, of the same length. `was` and `then` tell a constant or an operator, `target`
    where a forced branch always leads to; `watch` is an address executed as often, cheap to count; `own` is the code
    that is there. `surprise`: 0, as if the author had slipped; 1, it lets a comparison come out otherwise; 2, worth a
    try where nothing else helps."""

    kind: Literal["equal", "inverted", "forced", "constant", "operator"]
    address: int
    code: bytes
    was: str = ""
    then: str = ""
    target: int = 0
    surprise: Literal[0, 1, 2] = 0
    watch: int | None = None
    own: bytes = b""


def find_variants(
    instruction: Instruction,
    code: bytes,
    watch: int | None,
    compared: Compared = NOTHING_COMPARED,
    constants: Sequence[int] = (),
) -> Iterator[Variant]:
    """`constants` are those of all code, in order: one of them may have been meant."""
    for variant in _find_variants(instruction, code, compared, constants):
        yield replace(variant, watch=watch, own=code)


def _find_variants(
    instruction: Instruction, code: bytes, compared: Compared, constants: Sequence[int]
) -> Iterator[Variant]:
    address = instruction.ip
    # Jumps, and what stores or takes over a truth value.
    if instruction.condition_code != ConditionCode.NONE and instruction.mnemonic not in LOOPS:
        other = EQUAL_OTHERWISE.get(instruction.condition_code)
        if other is not None:
            yield Variant("equal", address, with_condition(code, other - ConditionCode.O))
        yield Variant("inverted", address, with_condition(code, instruction.condition_code - ConditionCode.O ^ 1))
        if instruction.flow_control == FlowControl.CONDITIONAL_BRANCH:
            always = SHORT_ALWAYS if code[0] & 0xF0 == SHORT_JUMP else NEAR_ALWAYS
            jump, passing = always + code[len(always) :], NO_OPERATION * len(code)
            yield Variant("forced", address, jump, target=instruction.near_branch_target, surprise=2)
            yield Variant("forced", address, passing, target=instruction.next_ip, surprise=2)
    elif instruction.mnemonic in FLOAT_ARITHMETIC:
        at = code.index(TWO_BYTES) + 1
        opcode, was, then = FLOAT_OPERATORS[code[at]]
        yield Variant("operator", address, code[:at] + bytes([opcode]) + code[at + 1 :], was, then)
    elif code[0] in OPERATORS and not is_of_frame(instruction):
        opcode, was, then = OPERATORS[code[0]]
        yield Variant("operator", address, bytes([opcode]) + code[1:], was, then)
        yield Variant("operator", address, bytes([MOVES[code[0]]]) + code[1:], was, ONE_ALONE)
        yield Variant("operator", address, NO_OPERATION * len(code), was, ONE_ALONE)
    else:
        yield from _constants(instruction, code, compared, constants)


def is_of_frame(instruction: Instruction) -> bool:
    """Whether it keeps the stack in order."""
    is_register = instruction.op_count > 0 and instruction.op0_kind == OpKind.REGISTER
    return is_register and instruction.op0_register in FRAME


def with_condition(code: bytes, number: int) -> bytes:
    """The processor's number of the condition is the low half of the opcode."""
    at = 0 if code[0] & 0xF0 == SHORT_JUMP else code.index(TWO_BYTES) + 1
    return code[:at] + bytes([code[at] & 0xF0 | number]) + code[at + 1 :]


def _constants(
    instruction: Instruction, code: bytes, compared: Compared, constants: Sequence[int]
) -> Iterator[Variant]:
    """One more and one less, and what lets a comparison with it come out otherwise; then the nearest of others."""
    place = locate_constant(instruction, code)
    if place is None:
        return
    at, size, was = place
    slips: dict[int, Literal[0, 1, 2]] = {was + 1: 0, was - 1: 0}
    turning: dict[int, Literal[0, 1, 2]] = dict.fromkeys(turn_comparisons(was, compared), 1)
    likely = turning | slips
    here = bisect_left(constants, was)
    around = constants[max(0, here - MOST_CONSTANTS) : here + MOST_CONSTANTS + 1]
    unlikely = sorted((other for other in around if other not in likely), key=lambda other: abs(other - was))
    for then in (*slips, *(other for other in turning if other not in slips), *unlikely):
        if then != was and -(1 << 8 * size - 1) <= then < 1 << 8 * size - 1:
            changed = code[:at] + then.to_bytes(size, "little", signed=True) + code[at + size :]
            yield Variant("constant", instruction.ip, changed, str(was), str(then), surprise=likely.get(then, 2))


def find_constant(instruction: Instruction, code: bytes) -> int | None:
    """What an instruction computes with that is written in the source."""
    place = locate_constant(instruction, code)
    return place[2] if place is not None else None


def locate_constant(instruction: Instruction, code: bytes) -> tuple[int, int, int] | None:
    """Where in its code, how many bytes, and the number."""
    decoder = Decoder(64, code, ip=instruction.ip)
    offsets = decoder.get_constant_offsets(decoder.decode())
    if is_of_frame(instruction):
        return None
    if instruction.mnemonic == Mnemonic.LEA and instruction.memory_displacement:
        if RegisterExt.full_register(instruction.memory_base) in FRAME:
            return None
        at, size = offsets.displacement_offset, offsets.displacement_size
    elif instruction.mnemonic in WITH_CONSTANTS and instruction.op_kind(instruction.op_count - 1) in IMMEDIATES:
        at, size = offsets.immediate_offset, offsets.immediate_size
    else:
        return None
    return at, size, int.from_bytes(code[at : at + size], "little", signed=True)


def turn_comparisons(number: int, compared: Compared) -> Iterator[int]:
    """In its place they make the comparisons come out otherwise: the other number, and the next one beyond it."""
    for other in sorted(compared.get(number, ()), key=lambda other: abs(other - number))[:MOST_TURNED]:
        yield other
        yield other + 1 if other > number else other - 1
