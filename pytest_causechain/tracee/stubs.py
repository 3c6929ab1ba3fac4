"""Machine code that records an execution and goes on: what a jump put into the program leads to; and where jumps fit.

A record is two words: the low half of the return address (0 inside a function) and the number of the watched
address, then the stack pointer. The buffer ends at a page that is not mapped, so that the program faults exactly
when it is full. Each thread has a buffer of its own, and before it two words which the stub finds through the gs
register, of which programs make no use: where the next record goes, and what r11 was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from iced_x86 import BlockEncoder, Code, Decoder, FlowControl, Instruction, MemoryOperand, Register

from pytest_causechain.model.refusal import BudgetUsedUp
from pytest_causechain.tracee.tracee import Tracee

if TYPE_CHECKING:  # where it is an enumeration; it is a module of integers
    from iced_x86._iced_x86_py import Register as RegisterName

RECORD_SIZE = 16
CURSOR, SAVED_R11 = 0, 8
# The last instruction of a record, which is complete before it.
RESTORE_SIZE = 9
JUMP_SIZE = 5  # jmp rel32
JUMP = b"\xe9"
SET_BYTE, SET_BYTE_SIZE = b"\xc6\x05", 7  # mov byte ptr [rip + rel32], imm8
STRAIGHT = {FlowControl.NEXT, FlowControl.CONDITIONAL_BRANCH}
ENDS = {FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH, FlowControl.RETURN}
BRANCHES = {FlowControl.UNCONDITIONAL_BRANCH, FlowControl.CONDITIONAL_BRANCH}


def branch_targets(address: int, code: bytes) -> set[int]:
    """All addresses that a direct jump in this code leads to."""
    return {
        instruction.near_branch_target
        for instruction in Decoder(64, code, ip=address)
        if instruction.flow_control in BRANCHES
    }


def overwritten(address: int, code: bytes, is_barrier: Callable[[int], bool]) -> list[Instruction] | None:
    """The instructions that a jump at this address would destroy; None when it must not be put there.

    Barriers are addresses that may be jumped to: none may lie inside the jump."""
    result: list[Instruction] = []
    size = 0
    for instruction in Decoder(64, code, ip=address):
        if size and is_barrier(instruction.ip):
            return None
        result.append(instruction)
        size += instruction.len
        if size >= JUMP_SIZE:
            break
        if instruction.flow_control not in STRAIGHT:
            # A call would return into our jump; what follows a jump or ret may be another function.
            return None
    if size < JUMP_SIZE:
        return None
    last = result[-1]
    # A jump, ret or direct call may come last. Not an indirect call: it may use rsp, which is moved then.
    if last.flow_control in STRAIGHT | ENDS or last.is_call_near:
        return result
    return None


def make_stub(number: int, is_entry: bool, instructions: list[Instruction], at: int) -> tuple[bytes, int]:
    """The stub's code, to be placed at an address within 2 GiB of the instructions, and how much of it only records."""
    head = encode(record(number, is_entry), at)
    return head + move(instructions, at + len(head)), len(head)


def make_marking_stub(mark: int, instructions: list[Instruction], at: int) -> bytes:
    """The code of one that only sets the byte `mark`, and leaves flags and registers alone."""
    head = SET_BYTE + (mark - at - SET_BYTE_SIZE).to_bytes(4, "little", signed=True) + b"\1"
    return head + move(instructions, at + SET_BYTE_SIZE)


def move(instructions: list[Instruction], at: int) -> bytes:
    """Code that does at another place what the instructions do, and then goes on behind them."""
    block: list[Instruction] = []
    for instruction in instructions:
        block += relocated_call(instruction) if instruction.is_call_near else [instruction]
    last = instructions[-1]
    if last.flow_control not in ENDS and not last.is_call_near:
        block.append(Instruction.create_branch(Code.JMP_REL32_64, last.next_ip))
    return encode(block, at)


def encode(block: list[Instruction], at: int) -> bytes:
    encoder = BlockEncoder(64)
    encoder.add_many(block)
    return bytes(encoder.encode(at))


def record(number: int, is_entry: bool) -> list[Instruction]:
    """Only moves, which leave the flags alone. r11 is saved: a compiler that sees both sides may rely on it.

    At a function's entry nothing lives below the stack pointer, so the return address can be pushed and popped."""
    r11 = Register.R11
    create = Instruction
    if is_entry:
        back = [
            create.create_mem(Code.PUSH_RM64, MemoryOperand(Register.RSP)),
            create.create_mem(Code.POP_RM64, at_register(r11, 0)),
        ]
    else:
        back = [create.create_mem_u32(Code.MOV_RM32_IMM32, at_register(r11, 0), 0)]
    return [
        create.create_mem_reg(Code.MOV_RM64_R64, in_slot(SAVED_R11), r11),
        create.create_reg_mem(Code.MOV_R64_RM64, r11, in_slot(CURSOR)),
        create.create_mem_reg(Code.MOV_RM64_R64, at_register(r11, 8), Register.RSP),  # faults at the guard page
        *back,
        create.create_mem_u32(Code.MOV_RM32_IMM32, at_register(r11, 4), number),
        create.create_reg_mem(Code.LEA_R64_M, r11, at_register(r11, RECORD_SIZE)),
        create.create_mem_reg(Code.MOV_RM64_R64, in_slot(CURSOR), r11),
        create.create_reg_mem(Code.MOV_R64_RM64, r11, in_slot(SAVED_R11)),
    ]


def in_slot(displacement: int) -> MemoryOperand:
    return MemoryOperand(Register.NONE, displ=displacement, displ_size=8, seg=Register.GS)


def at_register(register: RegisterName, displacement: int) -> MemoryOperand:
    return MemoryOperand(register, displ=displacement, displ_size=1)


def relocated_call(call: Instruction) -> Iterable[Instruction]:
    """Push the original return address, then jump: unwinders and stack comparisons must not see the stub, and the
    program can be unpatched while the callee runs."""
    low, high = call.next_ip & 0xFFFFFFFF, call.next_ip >> 32
    signed = low - (1 << 32) if low >> 31 else low
    return [
        Instruction.create_i32(Code.PUSHQ_IMM32, signed),  # pushes 8 bytes
        Instruction.create_mem_u32(Code.MOV_RM32_IMM32, at_register(Register.RSP, 4), high),
        Instruction.create_branch(Code.JMP_REL32_64, call.near_branch_target),
    ]


def make_jump(source: int, target: int, size: int) -> bytes:
    """The patch: a jump to the stub; the rest of the overwritten instructions becomes breakpoints."""
    return (JUMP + (target - source - JUMP_SIZE).to_bytes(4, "little", signed=True)).ljust(size, b"\xcc")


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
    process: Tracee, module: int, group: Sequence[tuple[int, Watched]], rows: Collection[int], deadline: float
) -> Iterator[Foothold]:
    """Of instructions of one module, in the order of their addresses; BudgetUsedUp where that takes up to the deadline.
    A function is read when its first one is asked for, before which it must not be patched. `rows` are all addresses at
    which a line begins: a jump table may lead to any of them."""
    shift = process.landmarks.load_map.shift(module)
    starts = {shift + watched.address for _, watched in group}
    # Nor must another thread, wherever it stands, come into the middle of a jump.
    starts |= {process.registers_of(thread).rip for thread in process.threads.standing}
    codes: dict[int, bytes] = {}
    targets: dict[int, set[int]] = {}
    for number, watched in group:
        address, begin = shift + watched.address, shift + watched.function
        if begin not in codes:
            if time.monotonic() >= deadline:
                raise BudgetUsedUp
            codes[begin] = process.read(begin, watched.end - watched.function)
            targets[begin] = branch_targets(begin, codes[begin])
        code = codes[begin][address - begin :]
        # A jump table never leads to where a function's body begins.
        barriers = partial(is_barrier, targets[begin], starts, () if watched.is_entry else rows, shift)
        yield Foothold(number, watched, address, code, overwritten(address, code, barriers))


def is_barrier(targets: set[int], starts: set[int], rows: Collection[int], shift: int, address: int) -> bool:
    return address in targets or address in starts or address - shift in rows
