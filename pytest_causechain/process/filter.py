"""Filters for system calls: a run that loses its way must not send a signal to everybody."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence

from pytest_causechain.process.linux import AUDIT_ARCH_X86_64, KILL, install_filter, install_listener

# Of struct seccomp_data: the number of the call, the processor's kind, the low half of the first argument.
NUMBER, ARCH, FIRST = 0, 4, 16
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.EPERM
EVERYBODY = -1
# What begins a filter: those of another kind of processor have other numbers.
Instruction = tuple[int, int, int, int]
BEGIN: list[Instruction] = [
    (LOAD, 0, 0, ARCH), (JUMP_IF_EQUAL, 1, 0, AUDIT_ARCH_X86_64), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, NUMBER),
]  # fmt: skip


def spare_others(pids: Sequence[int]) -> None:
    """In a child, before exec: neither all processes nor these get a signal from it, or from what it starts."""
    spared = [EVERYBODY, *pids]
    program = [*BEGIN, (JUMP_IF_EQUAL, 1, 0, KILL), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST)]
    # How far it is to the end, where it is refused.
    program += [(JUMP_IF_EQUAL, len(spared) - n, 0, pid & 0xFFFFFFFF) for n, pid in enumerate(spared)]
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    install_filter(assemble(program), len(program))


def listen_to(call: int) -> int:
    """In a child, before exec: it and what it starts wait with this call until it is decided upon where the descriptor
    is read."""
    program = [*BEGIN, (JUMP_IF_EQUAL, 1, 0, call), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    return install_listener(assemble(program), len(program))


def assemble(program: Sequence[Instruction]) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *instruction) for instruction in program))
