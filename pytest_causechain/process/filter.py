"""A filter for system calls: a run that loses its way must not send a signal to everybody."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence

from pytest_causechain.process.linux import AUDIT_ARCH_X86_64, KILL, install_filter

# Of struct seccomp_data: the number of the call, the processor's kind, the low half of the first argument.
NUMBER, ARCH, FIRST = 0, 4, 16
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
EVERYBODY = -1


def spare_others(pids: Sequence[int]) -> None:
    """In a child, before exec: neither all processes nor these get a signal from it, or from what it starts."""
    spared = [EVERYBODY, *pids]
    program = [(LOAD, 0, 0, ARCH), (JUMP_IF_EQUAL, 1, 0, AUDIT_ARCH_X86_64), (RETURN, 0, 0, ALLOW)]
    program += [(LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 1, 0, KILL), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST)]
    # How far it is to the end, where it is refused.
    program += [(JUMP_IF_EQUAL, len(spared) - n, 0, pid & 0xFFFFFFFF) for n, pid in enumerate(spared)]
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    install_filter(ctypes.create_string_buffer(code), len(program))
