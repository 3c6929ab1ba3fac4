"""Has a stopped process do something: a system call, or a call of one of its own functions."""

from __future__ import annotations

import copy
import ctypes
import os
import time
from collections.abc import Iterable

from pytest_causechain.process.linux import (
    EVENT_EXIT,
    GETREGSET,
    NT_X86_XSTATE,
    SETREGSET,
    SYSCALLS,
    IoVector,
    Registers,
    ptrace,
)
from pytest_causechain.process.threads import ProcessGone
from pytest_causechain.process.tracee import CRASHES, SCRATCH, SCRATCH_DATA, WORD, Tracee

ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
CALL_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
RED_ZONE = 128
NO_SYSCALL = (1 << 64) - 1
# An injected call that takes longer may need what another thread holds, such as a lock.
ALONE_SECONDS = 0.05


def inject(process: Tracee, name: str, *arguments: int | str | bytes) -> int:
    """The result of a system call; an OSError when it fails. What is not a number is passed by its address."""
    home = process.registers()
    registers = copy.copy(home)
    # Else the kernel may restart the system call it was stopped in, and move rip.
    registers.orig_rax = NO_SYSCALL
    registers.rax, registers.rip = SYSCALLS[name], process.landmarks.syscall_at
    for register, value in zip(ARGUMENTS, place(process, arguments), strict=False):
        setattr(registers, register, value)
    process.set_registers(registers)
    process.step()
    result = ctypes.c_int64(process.registers().rax).value
    process.set_registers(home)
    if -4096 < result < 0:
        raise OSError(-result, os.strerror(-result), f"injected {name}")
    return result


def place(process: Tracee, arguments: Iterable[int | str | bytes]) -> list[int]:
    at, values = SCRATCH_DATA, []
    for argument in arguments:
        if isinstance(argument, int):
            values.append(argument)
            continue
        data = argument if isinstance(argument, bytes) else os.fsencode(argument) + b"\0"
        process.write(at, data)
        values.append(at)
        at += -(-len(data) // 8) * 8
    return values


def call_function(process: Tracee, function: int, arguments: Iterable[int], timeout_seconds: float = 1.0) -> int:
    """Call a function of the program, such as malloc; it returns to our breakpoint."""
    home = process.registers()
    state = ctypes.create_string_buffer(1 << 14)
    # Vector registers may hold arguments of the interrupted code, and callees clobber them.
    vector = IoVector(ctypes.addressof(state), len(state))
    ptrace(GETREGSET, process.thread, NT_X86_XSTATE, ctypes.addressof(vector))
    registers = copy.copy(home)
    registers.orig_rax, registers.rax, registers.rip = NO_SYSCALL, 0, function
    registers.rsp = ((home.rsp - RED_ZONE) & -16) - 8  # aligned as just after a call
    for register, value in zip(CALL_ARGUMENTS, arguments, strict=False):
        setattr(registers, register, value)
    process.write(registers.rsp, WORD.pack(SCRATCH))
    process.set_registers(registers)
    after = _run_call(process, time.monotonic() + timeout_seconds)
    ptrace(SETREGSET, process.thread, NT_X86_XSTATE, ctypes.addressof(vector))
    process.set_registers(home)
    return after.rax


def _run_call(process: Tracee, deadline: float) -> Registers:
    """Up to our breakpoint, without the other threads if possible; signals that arrive meanwhile are kept, as in
    `step`."""
    process.threads.go(process.thread)
    while True:
        status = process.wait(min(deadline, time.monotonic() + ALONE_SECONDS))
        if status is None and time.monotonic() < deadline:
            process.threads.resume()
            continue
        if status is None or not os.WIFSTOPPED(status):
            raise ProcessGone(process.pid)
        registers = process.registers()
        if registers.rip == SCRATCH + 1:
            return registers
        sign = 0 if status >> 16 else os.WSTOPSIG(status)
        if sign in CRASHES or status >> 16 == EVENT_EXIT:
            raise ProcessGone(process.pid)
        if sign:
            process.deferred.append(sign)
        process.threads.go(process.thread)
