"""Straight-line machine code that makes several system calls in one go, ending at a breakpoint.

A single injected system call costs five ptrace requests; a copy needs a dozen of them."""

from __future__ import annotations

import struct

from pytest_causechain.process.linux import INT3, SYSCALL_INSTRUCTION, SYSCALLS

QUAD = struct.Struct("<Q")
# mov REGISTER, imm64
LOAD = {"rax": b"\x48\xb8", "rdi": b"\x48\xbf", "rsi": b"\x48\xbe", "rdx": b"\x48\xba", "r10": b"\x49\xba"}
STORE_RAX = b"\x48\xa3"  # mov [imm64], rax
FETCH_RAX = b"\x48\xa1"  # mov rax, [imm64]
RAX_TO_RDI = b"\x48\x89\xc7"  # mov rdi, rax
TEST_EAX = b"\x85\xc0"  # test eax, eax
JUMP_IF_ZERO, JUMP_SHORT = b"\x74", b"\xeb"  # with a distance of one byte


class SystemCalls:
    """Collects calls; `results` is where the process keeps what they return, one word each."""

    def __init__(self, results: int) -> None:
        self._code = bytearray()
        self._results = results
        self.count = 0

    def call(self, name: str, *arguments: int) -> int:
        """Add a call; the number of its result."""
        for register, value in zip(("rdi", "rsi", "rdx"), arguments, strict=False):
            self._code += LOAD[register] + QUAD.pack(value)
        return self._finish(name)

    def call_on(self, result: int, name: str, *arguments: int) -> int:
        """The same with an earlier result, a descriptor, as the first argument."""
        self._code += FETCH_RAX + QUAD.pack(self._results + 8 * result) + RAX_TO_RDI
        for register, value in zip(("rsi", "rdx"), arguments, strict=False):
            self._code += LOAD[register] + QUAD.pack(value)
        return self._finish(name)

    def _finish(self, name: str) -> int:
        self._code += LOAD["rax"] + QUAD.pack(SYSCALLS[name]) + SYSCALL_INSTRUCTION
        self._code += STORE_RAX + QUAD.pack(self._results + 8 * self.count)
        self.count += 1
        return self.count - 1

    def assemble(self) -> bytes:
        return bytes(self._code) + INT3


def assemble_fork(flags: int, number_at: int) -> bytes:
    """clone(2), after which the new process goes on behind this code; the old one stops at a breakpoint, and when it
    is resumed does the same again. `number_at` is where the C library keeps the number of the thread, if the flags
    ask for it."""
    code = LOAD["rdi"] + QUAD.pack(flags) + LOAD["rsi"] + QUAD.pack(0)  # on the same stack
    code += LOAD["r10"] + QUAD.pack(number_at)
    code += LOAD["rax"] + QUAD.pack(SYSCALLS["clone"]) + SYSCALL_INSTRUCTION + TEST_EAX
    back = INT3 + JUMP_SHORT
    code += JUMP_IF_ZERO + bytes([len(back) + 1]) + back
    return code + (-len(code) - 1).to_bytes(1, "little", signed=True)
