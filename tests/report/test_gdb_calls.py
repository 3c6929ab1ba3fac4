"""Functions that scripts call in plain gdb, of a program that has something in every register."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_causechain.model.runs import Program
from pytest_causechain.report.gdb import CALLING

MAIN_C = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int process, signals;
char heard[8000];

void note(int sign) { signals++; }

/* Leaves no register as it was that it need not leave so. */
int forget(int a, int b, int c)
{
    if (__builtin_cpu_supports("avx"))
        asm volatile("vzeroall");
    if (__builtin_cpu_supports("avx512f"))
        asm volatile("vpxorq %zmm20, %zmm20, %zmm20\n kxorw %k1, %k1, %k1");
    asm volatile("pxor %%xmm0, %%xmm0\n pxor %%xmm15, %%xmm15\n fldpi\n fldpi\n"
                 "xor %%esi, %%esi\n xor %%edi, %%edi\n xor %%r8d, %%r8d\n xor %%r9d, %%r9d\n xor %%r10d, %%r10d\n"
                 "xor %%r11d, %%r11d\n cmp $1, %%esi"
                 ::: "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
    return 100 * a + 10 * b + c;
}

/* Both are on the stack, and each where it was put. */
int hear(const char *one, const char *other) { return sprintf(heard, "<%s|%s>", one, other); }

/* It has a red zone, as it calls none. */
int stand(int open)
{
    long kept[] = {open, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    int sum = 0;
    for (int i = 0; i < 14; i++)
        sum += kept[i];
    return sum;
}

int main(void)
{
    double pi = 3.14;
    process = getpid();
    signal(SIGUSR1, note);
    if (__builtin_cpu_supports("avx"))
        asm volatile("vbroadcastsd %0, %%ymm9" :: "m"(pi));
    if (__builtin_cpu_supports("avx512f"))
        asm volatile("vbroadcastsd %0, %%zmm20\n kxnorw %%k1, %%k1, %%k1" :: "m"(pi));
    asm volatile("movq %0, %%xmm0\n movq %0, %%xmm15\n fld1" :: "m"(pi));
    asm volatile("mov $8, %%r8d\n mov $9, %%r9d\n mov $10, %%r10d\n mov $11, %%r11d" ::: "r8", "r9", "r10", "r11");
    int sum = stand(1);
    printf("%d signals %d heard %s\n", sum, signals, heard);
    return 0;
}
"""
SHOWN = r"^[a-z]\w* +(?:0x|\{|-?\d).*$"
# What even processors without AVX have.
FIRST_REGISTERS = ("info registers", "info float", "output/x $xmm0", "output/x $xmm15")


@pytest.fixture(scope="module")
def program(build: Callable[..., Program]) -> Path:
    return Path(build(MAIN_C).path)


def run(program: Path, *commands: str, calling: str = CALLING, environment: dict[str, str] | None = None) -> list[str]:
    """What gdb and the program show from the loop in `stand` on, cut at each `echo ---`."""
    script = program.with_suffix(".gdb")
    begin = ["set debuginfod enabled off", "starti", "tbreak stand", "continue", "next", "next", "echo ---\\n"]
    script.write_text("\n".join([calling, *begin, *commands, "continue"]))
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "unset environment LD_PRELOAD", "-x", str(script), str(program)],
        cwd=program.parent,
        env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.stdout.split("---\n")[1:]


def test_no_register_changes(program: Path) -> None:
    call = ("echo ---\\n", "causechain-call forget 1 2 3", "output $causechain_result", "echo \\n---\\n")
    before, called, after = run(program, "info all-registers", *call, "info all-registers")
    assert called.endswith("\n123\n")
    assert len(re.findall(SHOWN, before, re.M)) > 60
    assert re.findall(SHOWN, after, re.M) == re.findall(SHOWN, before, re.M)
    assert "105 signals 0 heard" in after


def test_no_register_changes_without_avx(program: Path) -> None:
    calling = CALLING.replace("$_isvoid($ymm0)", "1")
    assert calling != CALLING
    call = ("echo ---\\n", "causechain-call forget 1 2 3", "echo ---\\n")
    before, _, after = run(program, *FIRST_REGISTERS, *call, *FIRST_REGISTERS, "echo \\n---\\n", calling=calling)[:3]
    assert "0x40091eb851eb851f" in before
    assert after.strip() == before.strip()


def test_gdb_need_not_write_vector_registers(program: Path, amx: dict[str, str]) -> None:
    # This is how gdb's own call fails there.
    (denied,) = run(program, "call forget(1, 2, 3)", environment=amx)
    assert "Couldn't write " in denied
    (shown,) = run(program, "causechain-call forget 4 5 6", "output $causechain_result", environment=amx)
    assert "\n456" in shown
    assert "105 signals 0 heard" in shown


def test_texts_are_passed_by_their_addresses(program: Path) -> None:
    # Longer than all registers together.
    text = r"it\'s \042a b\134\042 $arg1" + "x" * 5000
    texts = (f'causechain-text $one "{text}"', 'causechain-text $other ""')
    (shown,) = run(program, *texts, "causechain-call hear $one $other", *texts, "causechain-call hear $other $one")
    assert f'105 signals 0 heard <|it\'s "a b\\" $arg1{"x" * 5000}>' in shown


def test_a_signal_that_arrives_meanwhile_is_delivered(program: Path) -> None:
    signal = 'eval "shell kill -USR1 %d", process'
    (shown,) = run(program, signal, "causechain-call forget 1 2 3", "output $causechain_result")
    assert "received signal SIGUSR1" in shown
    assert "\n123" in shown
    assert "105 signals 1 heard" in shown


def test_nothing_is_left_behind(program: Path) -> None:
    look = ("x/6xg &_start", "output $causechain_used", "info breakpoints", "show scheduler-locking", "backtrace")
    call = ("echo ---\\n", 'causechain-text $text ""', "causechain-call hear $text $text", "echo ---\\n")
    before, _, after = run(program, *look, *call, *look, "echo ---\\n")[:3]
    assert "No breakpoints" in before
    assert after == before
