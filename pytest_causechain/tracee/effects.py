"""What single instructions of a function do that could be done otherwise: branch, store, pass, return.

Variants are the small ways in which an instruction could be another one, as if a character of the source were. Meant
for unoptimised code, where each assignment is a store, each condition a jump, and each return a jump to the end.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from iced_x86 import (
    Code,
    ConditionCode,
    Decoder,
    FlowControl,
    Instruction,
    InstructionInfoFactory,
    MemorySizeExt,
    Mnemonic,
    OpAccess,
    OpKind,
    Register,
    RegisterExt,
)

from pytest_causechain.kernel.linux import REGISTERS, Registers
from pytest_causechain.model.alteration import Kind
from pytest_causechain.tracee.stubs import ENDS, branch_targets, overwritten
from pytest_causechain.tracee.tracee import CALL_ARGUMENTS

if TYPE_CHECKING:  # where it is an enumeration; it is a module of integers
    from iced_x86._iced_x86_py import ConditionCode as Condition
    from iced_x86._iced_x86_py import Register as RegisterName

# The condition that differs only in where equal values go.
EQUAL_OTHERWISE = {
    ConditionCode.L: ConditionCode.LE, ConditionCode.LE: ConditionCode.L,
    ConditionCode.G: ConditionCode.GE, ConditionCode.GE: ConditionCode.G,
    ConditionCode.B: ConditionCode.BE, ConditionCode.BE: ConditionCode.B,
    ConditionCode.A: ConditionCode.AE, ConditionCode.AE: ConditionCode.A,
}  # fmt: skip
SHORT_JUMP = 0x70  # the upper half of its opcode; those of all others with a condition follow a byte of their own
TWO_BYTES = 0x0F
WITH_CONSTANTS = {Mnemonic.MOV, Mnemonic.CMP, Mnemonic.ADD, Mnemonic.SUB, Mnemonic.IMUL, Mnemonic.AND, Mnemonic.OR}
IMMEDIATES = {
    OpKind.IMMEDIATE8, OpKind.IMMEDIATE16, OpKind.IMMEDIATE32,
    OpKind.IMMEDIATE8TO16, OpKind.IMMEDIATE8TO32, OpKind.IMMEDIATE8TO64, OpKind.IMMEDIATE32TO64,
}  # fmt: skip
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
    Mnemonic.ADDSD, Mnemonic.SUBSD, Mnemonic.MULSD, Mnemonic.DIVSD,
    Mnemonic.ADDSS, Mnemonic.SUBSS, Mnemonic.MULSS, Mnemonic.DIVSS,
}  # fmt: skip
NO_OPERATION = b"\x90"
# Jumps without a condition, for as many bytes as those with one have.
SHORT_ALWAYS, NEAR_ALWAYS = b"\xeb", NO_OPERATION + b"\xe9"
# Numbers that a run compared, each with those that it was compared with.
Compared = Mapping[int, Sequence[int]]
NOTHING_COMPARED: Compared = {}
# Of those, the nearest; and of the other constants of the code, on either side.
MOST_TURNED, MOST_CONSTANTS = 4, 2
WRITES = {OpAccess.WRITE, OpAccess.READ_WRITE}
CALLS = {FlowControl.CALL, FlowControl.INDIRECT_CALL}
BLOCK_ENDS = {*ENDS, FlowControl.CONDITIONAL_BRANCH}
EPILOGUE = {Mnemonic.LEAVE, Mnemonic.POP, Mnemonic.RET}
NAMES = {getattr(Register, name.upper()): name for name in REGISTERS.split() if hasattr(Register, name.upper())}
ARGUMENTS = {getattr(Register, name.upper()): name for name in CALL_ARGUMENTS}
SEGMENTS = (Register.FS, Register.GS)
SCALAR_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Variant:
    """Other code for an instruction, of the same length. `was` and `then` tell a constant or an operator (none: one
    operand alone), `target` where a forced branch always leads to; `watch` is an address executed as often, cheap to
    count; `own` is the code that is there. `surprise`: 0, as if the author had slipped; 1, it lets a comparison come
    out otherwise; 2, worth a try where nothing else helps."""

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
        yield Variant("operator", address, bytes([MOVES[code[0]]]) + code[1:], was)
        yield Variant("operator", address, NO_OPERATION * len(code), was)
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


def locate_constant(instruction: Instruction, code: bytes) -> tuple[int, int, int] | None:
    """What it computes with that is written in the source: where in its code, how many bytes, and the number."""
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


@dataclass(frozen=True, slots=True)
class Effect:
    """`address` is that of the instruction, `statement` one in the statement that it belongs to, `watch` an address
    executed as often whose executions are cheap to count (None: only its own, slowly).

    `size` in bytes is 0 where only the value itself can tell; `register` holds what is passed or returned, `callee`
    is the function it is passed to (0 where that is not known). `operand` tells gdb where a value is stored; `length`
    and `target` are those of a branch."""

    kind: Kind
    address: int
    statement: int
    watch: int | None = None
    size: int = 0
    register: str = ""
    callee: int = 0
    is_float: bool = False
    operand: str = ""
    length: int = 0
    target: int = 0


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions that are executed one after the other, always all of them."""

    start: int
    end: int
    watch: int | None


class Effects:
    """Of one function, whose code begins at `begin`; `rows` are the addresses at which its lines begin."""

    def __init__(self, begin: int, code: bytes, rows: Collection[int]) -> None:
        self._begin, self._code = begin, code
        self._instructions = list(Decoder(64, code, ip=begin))
        self._info = InstructionInfoFactory()
        targets = branch_targets(begin, code)
        self.blocks = list(self._find_blocks(targets, rows))
        self._starts = [block.start for block in self.blocks]

    def _find_blocks(self, targets: set[int], rows: Collection[int]) -> Iterator[BasicBlock]:
        leaders = {self._begin} | targets
        leaders |= {i.next_ip for i in self._instructions if i.flow_control in BLOCK_ENDS}
        if any(i.flow_control == FlowControl.INDIRECT_BRANCH for i in self._instructions):
            leaders |= set(rows)  # a jump table may lead to any of them
        inside = [i.ip for i in self._instructions]
        firsts = [number for number, ip in enumerate(inside) if ip in leaders]
        ends = [*(inside[number] for number in firsts[1:]), self._begin + len(self._code)]

        def has_room(address: int) -> bool:
            """Whether a jump of ours fits there."""
            code = self._code[address - self._begin :]
            return overwritten(address, code, lambda at: at in targets or at in rows) is not None

        for first, behind, end in zip(firsts, [*firsts[1:], len(inside)], ends, strict=True):
            yield BasicBlock(inside[first], end, next(filter(has_room, inside[first:behind]), None))

    def comparisons(self) -> list[int]:
        """The addresses of instructions that compare integers."""
        return [i.ip for i in self._instructions if i.mnemonic == Mnemonic.CMP]

    def constants(self) -> set[int]:
        """The numbers that the code computes with."""
        places = (locate_constant(instruction, self._code_of(instruction)) for instruction in self._instructions)
        return {place[2] for place in places if place is not None}

    def variants(self, compared: Compared, constants: Sequence[int]) -> list[Variant]:
        """Of all instructions."""
        found: list[Variant] = []
        for instruction in self._instructions:
            watch = self._block(instruction.ip).watch
            found += find_variants(instruction, self._code_of(instruction), watch, compared, constants)
        return found

    def _code_of(self, instruction: Instruction) -> bytes:
        at = instruction.ip - self._begin
        return self._code[at : at + instruction.len]

    def _block(self, address: int) -> BasicBlock:
        return self.blocks[bisect_right(self._starts, address) - 1]

    def find(self) -> list[Effect]:
        found: list[Effect] = []
        for number, instruction in enumerate(self._instructions):
            found += self._branch(instruction)
            found += self._store(instruction)
            if instruction.flow_control in CALLS:
                found += self._arguments(number)
        return found + list(self._returns())

    def _watch(self, address: int) -> int | None:
        """Only where it comes first: from there the way leads on to the address."""
        watch = self._block(address).watch
        return watch if watch is not None and watch <= address else None

    def _branch(self, instruction: Instruction) -> Iterator[Effect]:
        if instruction.flow_control == FlowControl.CONDITIONAL_BRANCH:
            ip, target = instruction.ip, instruction.near_branch_target
            yield Effect("branch", ip, ip, self._watch(ip), length=instruction.len, target=target)

    def _store(self, instruction: Instruction) -> Iterator[Effect]:
        if not is_store(instruction, self._info):
            return
        size = MemorySizeExt.size(instruction.memory_size)
        is_float = instruction.op_count > 1 and RegisterExt.is_vector_register(instruction.op1_register)
        ip, operand = instruction.ip, write_operand(instruction)
        yield Effect("value", ip, ip, self._watch(ip), size, is_float=is_float, operand=operand)

    def _arguments(self, number: int) -> Iterator[Effect]:
        """The registers set since the call before, as far as the code leads straight to this one."""
        call = self._instructions[number]
        callee = call.near_branch_target if call.flow_control == FlowControl.CALL else 0
        sizes: dict[RegisterName, int] = {}
        for instruction in reversed(self._instructions[:number]):
            if instruction.flow_control != FlowControl.NEXT:
                break
            register = self._written(instruction)
            whole = RegisterExt.full_register(register)
            if whole in ARGUMENTS:
                sizes.setdefault(whole, RegisterExt.size(register))
        for whole, name in ARGUMENTS.items():
            if whole in sizes:
                yield Effect("argument", call.ip, call.ip, self._watch(call.ip), sizes[whole], name, callee)

    def _returns(self) -> Iterator[Effect]:
        """A jump to the function's end, and the way that leads there without one."""
        end = self._find_epilogue()
        if end is None:
            return
        epilogue = self._instructions[end].ip
        before = self._instructions[end - 1]
        if before.mnemonic == Mnemonic.NOP:
            return  # which ends a function that returns nothing
        for number, instruction in enumerate(self._instructions):
            jumps = instruction.code in (Code.JMP_REL8_64, Code.JMP_REL32_64)
            if jumps and instruction.near_branch_target == epilogue:
                yield from self._return(instruction.ip, instruction.ip, self._instructions[:number])
        if before.flow_control not in BLOCK_ENDS:
            yield from self._return(epilogue, before.ip, self._instructions[:end])

    def _find_epilogue(self) -> int | None:
        """The number of the instruction that begins the function's only end."""
        ends = [n for n, i in enumerate(self._instructions) if i.flow_control == FlowControl.RETURN]
        if len(ends) != 1:
            return None
        first = ends[0]
        while first > 0 and self._instructions[first - 1].mnemonic in EPILOGUE:
            first -= 1
        return first if first > 0 else None

    def _return(self, address: int, statement: int, before: Sequence[Instruction]) -> Iterator[Effect]:
        """What was written into rax last tells its size; a call may have returned anything."""
        for instruction in reversed(before):
            is_call = instruction.flow_control in CALLS
            register = self._written(instruction)
            if is_call or RegisterExt.full_register(register) == Register.RAX:
                size = 0 if is_call else RegisterExt.size(register)
                yield Effect("return", address, statement, self._watch(address), size, "rax")
                return
            if RegisterExt.is_vector_register(register):
                return  # a floating-point value

    def _written(self, instruction: Instruction) -> RegisterName:
        """The register that an instruction's first operand is and that it writes to."""
        if instruction.op_count == 0:
            return Register.RAX if instruction.mnemonic in (Mnemonic.CDQE, Mnemonic.CWDE) else Register.NONE
        if instruction.op0_kind != OpKind.REGISTER:
            return Register.NONE
        return instruction.op0_register if self._info.info(instruction).op_access(0) in WRITES else Register.NONE


def is_store(instruction: Instruction, info: InstructionInfoFactory) -> bool:
    """Whether it writes one scalar to memory, by an address that its registers tell."""
    return (
        instruction.op_count > 0
        and instruction.op0_kind == OpKind.MEMORY
        and info.info(instruction).op_access(0) in WRITES
        and MemorySizeExt.size(instruction.memory_size) in SCALAR_SIZES
        and instruction.memory_segment not in SEGMENTS
        and instruction.flow_control == FlowControl.NEXT
    )


def operand_address(instruction: Instruction, registers: Registers) -> int:
    """Where the instruction, decoded at its real address, accesses memory."""
    if instruction.is_ip_rel_memory_operand:
        return int(instruction.ip_rel_memory_address)
    address = instruction.memory_displacement
    address += sum(getattr(registers, name) * scale for name, scale in _scaled_registers(instruction))
    return int(address) & (1 << 64) - 1


def _scaled_registers(instruction: Instruction) -> list[tuple[str, int]]:
    """What its operand in memory adds up besides the displacement."""
    terms = ((instruction.memory_base, 1), (instruction.memory_index, instruction.memory_index_scale))
    return [(NAMES[RegisterExt.full_register(term)], scale) for term, scale in terms if term != Register.NONE]


def write_operand(instruction: Instruction) -> str:
    """The same as an expression of gdb, before the instruction is executed."""
    if instruction.is_ip_rel_memory_operand:
        return f"$rip + {instruction.ip_rel_memory_address - instruction.ip}"
    displacement = ctypes.c_int64(instruction.memory_displacement).value
    # To gdb some registers are pointers.
    terms = [f"(long) ${name} * {scale}" for name, scale in _scaled_registers(instruction)]
    return " + ".join([str(displacement), *terms])


def other_way(instruction: Instruction, flags: int) -> int:
    """Where a conditional jump would not go."""
    taken = is_taken(instruction.condition_code, flags)
    return int(instruction.next_ip if taken else instruction.near_branch_target)


def is_taken(condition: Condition, flags: int) -> bool:
    carry, parity, zero, sign, overflow = (bool(flags >> bit & 1) for bit in (0, 2, 6, 7, 11))
    # In the order of the processor's condition codes; each odd one is the negation of the one before.
    positive = (overflow, carry, zero, carry or zero, sign, parity, sign != overflow, zero or sign != overflow)
    number = condition - ConditionCode.O
    return positive[number // 2] != bool(number % 2)
