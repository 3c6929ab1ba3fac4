"""Programs and systems that make a diagnosis hard: one clear sentence, or a chain that says what it lacks."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from building import compile_program
from suites import (
    COUNT,
    SUITE_INI,
    TEST_COUNT,
    find_alternative,
    read_chain,
    read_sentence,
    run_session,
)

# A filter as a container has it: ptrace(2) is not permitted.
FORBID_PTRACE = """
import ctypes, errno, struct

code = b"".join(
    struct.pack("<HBBI", *instruction)
    for instruction in (
        (0x20, 0, 0, 0), (0x15, 0, 1, 101), (0x06, 0, 0, 0x50000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)
    )
)

class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code) // 8, code)), 0, 0) == 0
"""
BUILD_AGAIN = """
import subprocess

def pytest_runtest_logfinish(nodeid):
    if nodeid.endswith("[2]"):
        with open("count.c", "a") as file:
            file.write("int more;\\n")
        subprocess.run(["cc", "-g", "-O0", "-o", "count", "count.c"], check=True)
"""
SELF_TRACING = COUNT.replace("return", "if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) return 9;\n    return")


@pytest.fixture
def directory(tmp_path: Path, count_program: Path) -> Path:
    (tmp_path / "test_count.py").write_text(TEST_COUNT)
    (tmp_path / "pytest.ini").write_text(SUITE_INI)
    shutil.copy2(count_program, tmp_path)
    return tmp_path


def diagnose(directory: Path, *arguments: str, **environment: str) -> str:
    session = run_session(directory, "-p", "no:cacheprovider", *arguments, **environment)
    assert session.returncode == 1
    assert "1 failed, 2 passed" in session.output
    return session.output


def test_ptrace_is_refused(directory):
    (directory / "forbid.py").write_text(FORBID_PTRACE)
    sentence = read_sentence(diagnose(directory, "-p", "forbid"))
    assert sentence.startswith("this system does not let programs be traced (Operation not permitted from ptrace)")
    assert "SYS_PTRACE" in sentence and "yama" in sentence


@pytest.mark.parametrize(
    ("script", "why"),
    [
        pytest.param("kill -SEGV $$", "gdb has ended with status -11", id="crashes"),
        pytest.param("echo '1^done,a=[{b=\"'; read line", "gdb says what cannot be understood .*", id="never closes"),
    ],
)
def test_gdb_cannot_be_used(directory, script, why):
    (directory / "bin").mkdir()
    gdb = directory / "bin/gdb"
    gdb.write_text(f'#!/bin/sh\ncase "$*" in *version*) echo "GNU gdb 13.1"; exit;; esac\nread line\n{script}\n')
    gdb.chmod(0o755)
    told = read_sentence(diagnose(directory, PATH=f"{directory}/bin:{os.environ['PATH']}"))
    assert re.fullmatch(rf"gdb cannot be used \({why}\): install gdb 12 or newer .* with Python support\.", told)


def test_the_program_is_replaced(directory):
    (directory / "count.c").write_text(COUNT)
    (directory / "conftest.py").write_text(BUILD_AGAIN)
    assert read_sentence(diagnose(directory)) == (
        "count was replaced by another build after its test had run: leave it alone until the session ends."
    )


def test_setuid(directory):
    (directory / "count").chmod(0o4755)
    assert read_sentence(diagnose(directory)) == (
        "count runs with the rights of its owner, which it has not when traced: test a copy without."
    )


def test_the_program_traces_itself(directory):
    compile_program(directory / "count", f"#include <sys/ptrace.h>\n{SELF_TRACING}")
    assert read_sentence(diagnose(directory)) == (
        "count traces itself by ptrace(2), so that experiments cannot: switch that off where it is tested."
    )


def test_the_source_is_newer(directory):
    compile_program(directory / "count", COUNT)
    os.utime(directory / "count.c", (2e9, 2e9))
    output = diagnose(directory)
    chain = read_chain(directory)
    assert chain["reason"] == "count.c is newer than count: build it again, or lines are shown that never ran."
    assert (chain["status"], len(chain["chain"])) == ("partial", 1)
    assert "newer than count" in " ".join(output.split())
    assert chain["statistics"]["isolation"] == {
        "files": "view", "elsewhere": "read-only", "network": "none", "signals": "single",
    }  # fmt: skip


def test_huge_output(directory):
    noisy = COUNT.replace("return", 'printf("%200000d", argc);\n    return')
    compile_program(directory / "count", f"#include <stdio.h>\n{noisy}")
    (directory / "pytest.ini").write_text(f"{SUITE_INI}cause_chain_limits = output=100K\n")
    assert read_sentence(diagnose(directory)).endswith(
        "count writes more than an experiment may: raise output in cause_chain_limits, or give the test a smaller "
        "input."
    )


# The number in a file becomes twice that number: wrong above 2.
IN_PLACE = """
#include <stdio.h>

static int twice(int number)
{
    if (number > 2)
        number++;
    return 2 * number;
}

int main(int argc, char **argv)
{
    int number = 0;
    FILE *file = fopen(argv[argc - 1], "r+");
    fscanf(file, "%d", &number);
    rewind(file);
    fprintf(file, "%d", twice(number));
    return fclose(file);
}
"""
TEST_IN_PLACE = """
import subprocess

import pytest


@pytest.mark.parametrize("number", [1, 2, 3])
def test_count(number, tmp_path):
    file = tmp_path / "number"
    file.write_text(str(number))
    subprocess.run(["./count", file], check=True)
    assert int(file.read_text()) == 2 * number
"""


def test_input_edited_in_place(directory):
    """Each run gets it as it was, though the tests have left the results there."""
    compile_program(directory / "count", IN_PLACE)
    (directory / "test_count.py").write_text(TEST_IN_PLACE)
    diagnose(directory)
    chain = read_chain(directory)
    assert (chain["status"], chain["peer"]["kind"]) == ("complete", "twin")
    lines = IN_PLACE.splitlines()
    assert lines[chain["suspects"][0]["line"] - 1].strip() in ("if (number > 2)", "number++;")
    told = [cause["variable"] for link in chain["chain"] for cause in link["causes"]]
    assert told[:2] == ["the constant in count.c:7", "number"]
    assert find_alternative(chain)["chain"]
