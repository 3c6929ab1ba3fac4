"""What single instructions of a function do that could be done otherwise: branch, store, pass, return.

Meant for unoptimised code, where each assignment is a store, each condition a jump, and each return a jump to the end.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

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

from pytest_causechain.model.alteration import Kind
from pytest_causechain.process.linux import REGISTERS, Registers
from pytest_causechain.process.stubs import branch_targets, overwritten
from pytest_causechain.process.variants import Compared, Variant, find_constant, find_variants

WRITES = {OpAccess.WRITE, OpAccess.READ_WRITE}
CALLS = {FlowControl.CALL, FlowControl.INDIRECT_CALL}
BLOCK_ENDS = {
    FlowControl.CONDITIONAL_BRANCH,
    FlowControl.UNCONDITIONAL_BRANCH,
    FlowControl.INDIRECT_BRANCH,
    FlowControl.RETURN,
}
EPILOGUE = {Mnemonic.LEAVE, Mnemonic.POP, Mnemonic.RET}
ARGUMENTS = {
    Register.RDI: "rdi",
    Register.RSI: "rsi",
    Register.RDX: "rdx",
    Register.RCX: "rcx",
    Register.R8: "r8",
    Register.R9: "r9",
}
NAMES = {getattr(Register, name.upper()): name for name in REGISTERS.split() if hasattr(Register, name.upper())}
SEGMENTS = (Register.FS, Register.GS)
SCALAR_SIZES = (1, 2, 4, 8)


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
class Block:
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

    def _find_blocks(self, targets: set[int], rows: Collection[int]) -> Iterator[Block]:
        leaders = {self._begin} | targets
        leaders |= {i.next_ip for i in self._instructions if i.flow_control in BLOCK_ENDS}
        if any(i.flow_control == FlowControl.INDIRECT_BRANCH for i in self._instructions):
            leaders |= set(rows)  # a jump table may lead to any of them
        inside = [i.ip for i in self._instructions]
        starts = [ip for ip in inside if ip in leaders]
        end = self._begin + len(self._code)
        is_barrier = partial(_is_barrier, targets, rows)
        for start, following in zip(starts, [*starts[1:], end], strict=True):
            own = takewhile(lambda ip: ip < following, inside[inside.index(start) :])  # noqa: B023
            yield Block(start, following, self._find_watch(own, is_barrier))

    def _find_watch(self, addresses: Iterator[int], is_barrier: Callable[[int], bool]) -> int | None:
        """The first address in a block that a jump of ours fits at."""
        for address in addresses:
            if overwritten(address, self._code[address - self._begin :], is_barrier) is not None:
                return address
        return None

    def comparisons(self) -> list[int]:
        """The addresses of instructions that compare integers."""
        return [i.ip for i in self._instructions if i.mnemonic == Mnemonic.CMP]

    def constants(self) -> set[int]:
        """The numbers that the code computes with."""
        found = (find_constant(instruction, self._code_of(instruction)) for instruction in self._instructions)
        return {constant for constant in found if constant is not None}

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

    def _block(self, address: int) -> Block:
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
        is_float = is_vector(instruction.op1_register) if instruction.op_count > 1 else False
        ip, operand = instruction.ip, write_operand(instruction)
        yield Effect("value", ip, ip, self._watch(ip), size, is_float=is_float, operand=operand)

    def _arguments(self, number: int) -> Iterator[Effect]:
        """The registers set since the call before, as far as the code leads straight to this one."""
        call = self._instructions[number]
        callee = call.near_branch_target if call.flow_control == FlowControl.CALL else 0
        sizes: dict[Any, int] = {}
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
            if is_vector(register):
                return  # a floating-point value

    def _written(self, instruction: Instruction) -> Any:
        """The register that an instruction's first operand is and that it writes to."""
        if instruction.op_count == 0:
            return Register.RAX if instruction.mnemonic in (Mnemonic.CDQE, Mnemonic.CWDE) else Register.NONE
        if instruction.op0_kind != OpKind.REGISTER:
            return Register.NONE
        return instruction.op0_register if self._info.info(instruction).op_access(0) in WRITES else Register.NONE


def _is_barrier(targets: set[int], rows: Collection[int], address: int) -> bool:
    return address in targets or address in rows


def is_vector(register: Any) -> bool:
    return RegisterExt.is_vector_register(register)


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
    for register, scale in ((instruction.memory_base, 1), (instruction.memory_index, instruction.memory_index_scale)):
        if register != Register.NONE:
            address += getattr(registers, NAMES[RegisterExt.full_register(register)]) * scale
    return int(address) & (1 << 64) - 1


def write_operand(instruction: Instruction) -> str:
    """The same as an expression of gdb, before the instruction is executed."""
    if instruction.is_ip_rel_memory_operand:
        return f"$rip + {instruction.ip_rel_memory_address - instruction.ip}"
    displacement = ctypes.c_int64(instruction.memory_displacement).value
    terms = [str(displacement)]
    for register, scale in ((instruction.memory_base, 1), (instruction.memory_index, instruction.memory_index_scale)):
        if register != Register.NONE:
            # To gdb some registers are pointers.
            terms.append(f"(long) ${NAMES[RegisterExt.full_register(register)]} * {scale}")
    return " + ".join(terms)


def other_way(instruction: Instruction, flags: int) -> int:
    """Where a conditional jump would not go."""
    taken = is_taken(instruction.condition_code, flags)
    return int(instruction.next_ip if taken else instruction.near_branch_target)


def is_taken(condition: Any, flags: int) -> bool:
    carry, parity, zero, sign, overflow = (bool(flags >> bit & 1) for bit in (0, 2, 6, 7, 11))
    # In the order of the processor's condition codes; each odd one is the negation of the one before.
    positive = (overflow, carry, zero, carry or zero, sign, parity, sign != overflow, zero or sign != overflow)
    number = condition - ConditionCode.O
    return positive[number // 2] != bool(number % 2)
