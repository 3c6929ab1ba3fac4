"""One stopped process: nothing we do in it may be seen by the program."""

from __future__ import annotations

import errno
import os
import signal
import struct

import pytest

from pytest_causechain.kernel.linux import REGISTERS
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import End, NotReached, call_function, inject

PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

long counter = 0x1122334455667788;
const char fixed[] = "read-only";
static volatile int caught;
static void note(int sign) { caught++; }

/* Faults unless the stack is aligned as after a call, and leaves nothing in the vector registers. */
__attribute__((noinline)) long clobber(long a, long b, long c, long d, long e, long f)
{
    float room[4] __attribute__((aligned(16)));
    __asm__ volatile("movaps %%xmm0, %0" : "=m"(room));
    __asm__ volatile("pcmpeqb %%xmm0, %%xmm0; pcmpeqb %%xmm7, %%xmm7; pcmpeqb %%xmm15, %%xmm15; fldpi"
                     ::: "xmm0", "xmm7", "xmm15");
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;
}
long crash(void) { return *(volatile int *)8; }
long linger(void) { for (;;) pause(); }

__attribute__((noinline)) static int vectors(void)
{
    unsigned char before[48], after[48];
    for (int i = 0; i < 48; i++)
        before[i] = i + 1;
    __asm__ volatile("movdqu (%0), %%xmm0; movdqu 16(%0), %%xmm7; movdqu 32(%0), %%xmm15\n"
                     ".globl amid\namid: nop\n"
                     "movdqu %%xmm0, (%1); movdqu %%xmm7, 16(%1); movdqu %%xmm15, 32(%1)"
                     :: "r"(before), "r"(after) : "xmm0", "xmm7", "xmm15", "memory");
    return memcmp(before, after, sizeof before) == 0;
}

/* Its variable lies below the stack pointer. */
__attribute__((noinline)) static int leaf(int a)
{
    volatile int doubled = 2 * a;
    __asm__ volatile(".globl below\nbelow: nop");
    return doubled + 1;
}

int main(int argc, char **argv)
{
    signal(SIGUSR1, note);
    signal(SIGUSR2, note);
    printf("vectors %d\n", vectors());
    printf("leaf %d\n", leaf(20));
    printf("caught %d\n", caught);
    return 5;
}
"""
WHOLE = b"vectors 1\nleaf 41\ncaught 0\n"


@pytest.fixture(scope="session")
def program(build):
    return build(PROGRAM)


@pytest.fixture
def at(start, program, symbol, deadline):
    """at(name) is the program, stopped at a symbol."""

    def stopped_at(name: str):
        subject = start(program)
        subject.run_to([Stop(symbol(program, name), 1)], deadline)
        return subject

    return stopped_at


def registers_of(process):
    registers = process.registers()
    return {name: getattr(registers, name) for name in REGISTERS.split()}


def test_registers_are_read_and_written(at, program, symbol):
    process = at("leaf")
    assert process.registers().rip == process.base + symbol(program, "leaf")
    registers = process.registers()
    registers.rdi = 30
    process.set_registers(registers)
    assert registers_of(process)["rdi"] == 30


def test_an_argument_set_in_a_register_counts(at, deadline):
    process = at("leaf")
    registers = process.registers()
    registers.rdi = 30
    process.set_registers(registers)
    assert process.finish(deadline) == End("exit", 5)
    assert process.outputs()[0] == b"vectors 1\nleaf 61\ncaught 0\n"


class TestMemory:
    def test_data(self, at, program, symbol):
        process = at("main")
        address = process.base + symbol(program, "counter")
        assert process.read(address, 8) == struct.pack("<Q", 0x1122334455667788)
        process.write(address, b"\0")
        assert process.read(address, 8) == struct.pack("<Q", 0x1122334455667700)

    def test_what_the_program_may_not_write(self, at, program, symbol):
        process = at("main")
        address = process.base + symbol(program, "fixed")
        process.write(address, b"R")
        assert process.read(address, 9) == b"Read-only"

    @pytest.mark.parametrize("address", [0, 8, 1 << 46, (1 << 64) - 8, 1 << 64])
    def test_nothing_there(self, at, address):
        process = at("main")
        with pytest.raises(OSError) as raised:
            process.write(address, b"x")
        assert raised.value.errno == errno.EFAULT
        assert f"{address:#x}" in str(raised.value)


class TestSystemCall:
    def test_the_program_does_not_notice(self, at, deadline):
        process = at("amid")
        before = registers_of(process)
        for _ in range(20):
            assert inject(process, "lseek", 0, 0, os.SEEK_CUR) == 0
        assert registers_of(process) == before
        assert process.finish(deadline) == End("exit", 5)
        assert process.outputs() == (WHOLE, b"")

    @pytest.mark.parametrize(
        ("name", "arguments", "expected"),
        [
            ("close", (99,), errno.EBADF),
            ("open", (8, 0, 0), errno.EFAULT),
            ("munmap", (1, 4096), errno.EINVAL),
            ("dup3", (0, 0, 0), errno.EINVAL),
        ],
    )
    def test_its_error_is_told(self, at, name, arguments, expected):
        process = at("leaf")
        before = registers_of(process)
        with pytest.raises(OSError, match=f"injected {name}") as raised:
            inject(process, name, *arguments)
        assert raised.value.errno == expected
        assert registers_of(process) == before

    def test_a_large_address_is_no_error(self, at):
        process = at("leaf")
        address = inject(process, "mmap", 0, 4096, 3, 0x22, (1 << 64) - 1, 0)
        process.write(address, b"ours")
        assert process.read(address, 5) == b"ours\0"


class TestCall:
    def test_six_arguments(self, at, program, symbol):
        process = at("below")
        result = call_function(process, process.base + symbol(program, "clobber"), [1, 2, 3, 4, 5, 6])
        assert result == 1 + 4 + 9 + 16 + 25 + 36

    @pytest.mark.parametrize("place", ["main", "leaf", "amid", "below"])
    def test_registers_and_red_zone_are_kept(self, at, program, symbol, deadline, place):
        process = at(place)
        before = registers_of(process)
        call_function(process, process.base + symbol(program, "clobber"), [1])
        assert registers_of(process) == before
        assert process.finish(deadline) == End("exit", 5)
        assert process.outputs()[0] == WHOLE

    def test_malloc(self, at, deadline):
        process = at("leaf")
        blocks = [call_function(process, process.landmarks.symbols["malloc"], [size]) for size in (1, 100, 1 << 20)]
        assert len(set(blocks)) == 3
        assert all(block % 16 == 0 for block in blocks)
        for block in blocks:
            process.write(block, b"x")
        assert process.finish(deadline) == End("exit", 5)
        assert process.outputs()[0] == WHOLE

    def test_a_crash_in_it(self, at, program, symbol):
        process = at("leaf")
        with pytest.raises(ProcessGone):
            call_function(process, process.base + symbol(program, "crash"), [])

    def test_without_end(self, at, program, symbol):
        process = at("leaf")
        with pytest.raises(ProcessGone):
            call_function(process, process.base + symbol(program, "linger"), [], timeout_seconds=0.05)

    def test_a_signal_meanwhile_comes_later(self, at, program, symbol, deadline):
        process = at("leaf")
        os.kill(process.pid, signal.SIGUSR1)
        assert call_function(process, process.base + symbol(program, "clobber"), [7, 0, 0, 0, 0, 0]) == 7
        assert process.deferred == [signal.SIGUSR1]
        assert process.finish(deadline) == End("exit", 5)
        assert process.outputs()[0] == WHOLE.replace(b"caught 0", b"caught 1")


class TestDeferredSignals:
    def test_delivered_at_the_end(self, at, deadline):
        process = at("leaf")
        for sign in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(process.pid, sign)
        process.step()
        assert set(process.deferred) == {signal.SIGUSR1, signal.SIGUSR2}
        assert process.finish(deadline) == End("exit", 5)
        assert process.outputs()[0] == WHOLE.replace(b"caught 0", b"caught 2")

    def test_during_a_system_call(self, at, deadline):
        process = at("leaf")
        os.kill(process.pid, signal.SIGUSR1)
        assert inject(process, "lseek", 0, 0, os.SEEK_CUR) == 0
        assert process.deferred == [signal.SIGUSR1]
        assert process.finish(deadline) == End("exit", 5)
        assert process.outputs()[0] == WHOLE.replace(b"caught 0", b"caught 1")


class TestRunTo:
    def test_the_code_is_as_it_was(self, start, program, symbol, deadline):
        subject = start(program)
        address = subject.base + symbol(program, "leaf")
        before = subject.read(address, 16)
        subject.run_to([Stop(symbol(program, "leaf"), 1)], deadline)
        assert subject.read(address, 16) == before

    def test_an_execution_that_never_comes(self, start, program, symbol, deadline):
        subject = start(program)
        with pytest.raises(NotReached) as raised:
            subject.run_to([Stop(symbol(program, "leaf"), 2)], deadline)
        assert os.waitstatus_to_exitcode(raised.value.status) == 5

    def test_no_time(self, build, start, symbol):
        program = build("void never(void) {}\nint main(void) { for (;;) ; }")
        subject = start(program)
        with pytest.raises(NotReached) as raised:
            subject.run_to([Stop(symbol(program, "never"), 1)], 0.0)
        assert raised.value.status is None
