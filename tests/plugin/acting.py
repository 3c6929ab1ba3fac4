"""A program that does what its arguments say, and one pytest case for each way of starting and of judging it.

Most test functions have a case `ok`, which passes, and a case `bad`.
"""

from __future__ import annotations

ACT = r"""
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void copy(FILE *file)
{
    int c;
    while (file != NULL && (c = getc(file)) != EOF)
        putchar(c);
}

static int grow(int number)
{
    return number + 2000000000;
}

int main(int argc, char **argv)
{
    int status = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        char *what = argv[i], *with = argv[i + 1];
        int number = atoi(with);
        if (strcmp(what, "out") == 0)
            printf("%s\n", with);
        else if (strcmp(what, "err") == 0)
            fprintf(stderr, "%s\n", with);
        else if (strcmp(what, "exit") == 0)
            status = number;
        else if (strcmp(what, "crash") == 0 && number)
            *(volatile int *)NULL = 0;
        else if (strcmp(what, "assert") == 0)
            assert(number < 5);
        else if (strcmp(what, "spin") == 0)
            while (number)
                pause();
        else if (strcmp(what, "env") == 0)
            printf("%s\n", getenv(with) ? getenv(with) : "unset");
        else if (strcmp(what, "copy") == 0)
            copy(strcmp(with, "-") == 0 ? stdin : fopen(with, "r"));
        else if (strcmp(what, "sleep") == 0)
            usleep(1000 * number);
        else if (strcmp(what, "grow") == 0)
            printf("grown by %d\n", grow(number) > number);
        else if (strcmp(what, "fill") == 0)
            free(memset(malloc(8), 0, number));
        else if (strcmp(what, "into") == 0)
            fclose(stdout), stdout = fopen(with, "w");
    }
    return status;
}
"""

PEXPECT = '''
"""Stands for the library of this name, which starts programs in the same way."""
import os
import pty


def run(path, *argv):
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execv(path, [path, *argv])
    output = os.read(descriptor, 1000)
    os.waitpid(pid, 0)
    os.close(descriptor)
    return output.decode()
'''

HELPING = """
def check_total(text, expected):
    assert text.startswith("total")
    assert text.split()[1:] == [expected]
"""

# "bad" prints 52 where 7 is expected.
SUITE = """
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from hypothesis import given, strategies

import helping
import pexpect

HERE = Path(__file__).parent
ACT = str(HERE / "act")


def act(*words, **options):
    return subprocess.run([ACT, *words], **{"capture_output": True, "text": True, **options})


both = pytest.mark.parametrize("n", [pytest.param("7", id="ok"), pytest.param("52", id="bad")])
# Two statuses, or whether something happens at all.
flag = pytest.mark.parametrize("n", [pytest.param("0", id="ok"), pytest.param("3", id="bad")])


# Ways of starting

@both
def test_check_output(n):
    assert subprocess.check_output([ACT, "out", n]) == b"7\\n"

@flag
def test_call(n):
    assert subprocess.call([ACT, "exit", n]) == 0

@both
def test_communicate(n):
    process = Popen([ACT, "out", n], stdout=PIPE)
    assert process.communicate()[0] == b"7\\n"

@both
def test_pipe_by_hand(n):
    with Popen([ACT, "copy", "-"], stdin=PIPE, stdout=PIPE, text=True) as process:
        process.stdin.write(f"{n}\\n")
        process.stdin.close()
        assert process.stdout.read() == "7\\n"

@both
def test_output_to_a_file(n, tmp_path):
    with (tmp_path / "log").open("w") as file:
        subprocess.run([ACT, "out", n], stdout=file)
    assert (tmp_path / "log").read_text() == "7\\n"

@both
def test_asyncio(n):
    async def start():
        process = await asyncio.create_subprocess_exec(ACT, "copy", "-", stdin=PIPE, stdout=PIPE)
        return (await process.communicate(f"{n}\\n".encode()))[0]
    assert asyncio.run(start()) == b"7\\n"

@flag
def test_asyncio_shell(n):
    async def start():
        return await (await asyncio.create_subprocess_shell(f"{ACT} exit {n}", stdin=DEVNULL)).wait()
    assert asyncio.run(start()) == 0

@flag
def test_os_system(n):
    assert os.system(f"{ACT} exit {n}") == 0

@flag
def test_posix_spawn(n):
    assert os.waitpid(os.posix_spawn(ACT, [ACT, "exit", n], os.environ), 0)[1] == 0

@flag
def test_os_spawn(n):
    assert os.spawnl(os.P_WAIT, ACT, ACT, "exit", n) == 0

@both
def test_pexpect(n):
    assert pexpect.run(ACT, "out", n) == "7\\r\\n"

@pytest.fixture
def function_run(n):
    return act("out", n)

@both
def test_function_fixture(function_run):
    assert function_run.stdout == "7\\n"

@pytest.fixture(scope="class")
def class_run():
    return act("out", "class 52")

@pytest.fixture(scope="module")
def module_run():
    return act("out", "module 52")

@pytest.fixture(scope="session")
def session_run():
    return act("out", "session 52")

class TestShared:
    def test_class_fixture(self, class_run):
        assert class_run.stdout == "class 7\\n"

def test_module_fixture(module_run):
    assert module_run.stdout == "module 7\\n"

def test_session_fixture(session_run):
    assert session_run.stdout == "session 7\\n"

@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_without_fixture(scope):
    assert act("out", f"{scope} 7").stdout == f"{scope} 7\\n"

@both
def test_guilty_first(n):
    first, second = act("out", n), act("out", "1")
    assert first.stdout == "7\\n"  # here
    assert second.stdout == "1\\n"

@both
def test_guilty_middle(n):
    numbers = [int(act("out", word).stdout) for word in ("1", n, "3")]
    assert numbers[0] == 1
    assert numbers[1] == 7  # here
    assert numbers[2] == 3

@both
def test_guilty_last(n):
    for word, expected in (("1", "1\\n"), (n, "7\\n"), ("3", "3\\n")):
        assert act("out", word).stdout == expected

@both
def test_not_guilty(n):
    act("out", n)
    act("out", "1")
    assert n == "7"

@both
@pytest.mark.parametrize("wrapper", ["sh -c", "env", "timeout 30", "nice -n 1", "stdbuf -oL", "libtool"])
def test_wrapper(wrapper, n):
    argv = [ACT, "out", n]
    if wrapper == "libtool":
        command = [HERE / "wrapped", *argv[1:]]
    else:
        command = [*wrapper.split(), *([" ".join(argv)] if wrapper == "sh -c" else argv)]
    assert subprocess.check_output(command, text=True) == "7\\n"

@flag
def test_wrapped_hang(n):
    assert subprocess.call(["timeout", "2", ACT, "spin", n]) == 0

@pytest.mark.parametrize("wrapper", ["valgrind", "qemu-x86_64", "gdb --args", "strace"])
def test_tool(wrapper):
    subprocess.check_output([*wrapper.split(), ACT, "out", "52"], env={"PATH": ""})

@both
def test_shell(n):
    assert subprocess.check_output(f"{ACT} out '{n}'", shell=True, text=True) == "7\\n"

@both
def test_shell_pipe(n):
    assert subprocess.check_output(f"./act out {n} | cat", shell=True, text=True, cwd=HERE) == "7\\n"

@both
def test_shell_redirection(n, tmp_path):
    subprocess.run(f"./act out {n} > {tmp_path}/log", shell=True, cwd=HERE)
    assert (tmp_path / "log").read_text() == "7\\n"

@both
def test_relative(n):
    assert act("out", n, executable="./act", cwd=HERE).stdout == "7\\n"

@both
def test_environment(n):
    assert act("env", "N", env={"N": n}).stdout == "7\\n"

@both
@pytest.mark.parametrize("way", ["file", "pipe", "bytes"])
def test_stdin(way, n, tmp_path):
    options = {"input": n} if way != "bytes" else {"input": n.encode(), "text": False}
    with contextlib.ExitStack() as stack:
        if way == "file":
            (tmp_path / "in").write_text(n)
            options = {"stdin": stack.enter_context((tmp_path / "in").open())}
        assert int(act("copy", "-", **options).stdout) == 7

@flag
def test_devnull(n):
    assert act("copy", "-", "exit", n, stdin=DEVNULL).returncode == 0

@both
def test_input_file(n, tmp_path):
    (tmp_path / "in").write_text(f"total {n}\\n")
    assert act("copy", str(tmp_path / "in")).stdout == "total 7\\n"

@both
@pytest.mark.parametrize("place", ["named", "here"])
def test_output_file(place, n, tmp_path):
    name = str(tmp_path / "log") if place == "named" else "log"
    act("into", name, "out", f"total {n}", cwd=tmp_path)
    assert (tmp_path / "log").read_text() == "total 7\\n"


# Ways of judging

@flag
def test_signal(n):
    assert act("crash", n).returncode == 0

@flag
def test_check(n):
    act("exit", n, check=True)

@flag
def test_timeout(n):
    act("spin", n, timeout=2)

@both
def test_stderr(n):
    assert act("err", f"found {n}").stderr == "found 7\\n"

@both
def test_in(n):
    assert "total 7" in act("out", f"total {n}", "out", "done").stdout

@both
def test_not_in(n):
    assert "52" not in act("out", f"total {n}", "out", "done").stdout

@both
def test_other_expectation(n):
    assert "total 77" in act("out", f"total {n}").stdout or n == "7"

@both
def test_search(n):
    assert re.search(r"total [0-9]$", act("out", f"total {n}").stdout)

@both
def test_fullmatch(n):
    assert re.fullmatch("7.", act("out", n).stdout, re.DOTALL) is not None

@both
def test_number(n):
    assert int(act("out", n).stdout) == 7

@both
def test_limit(n):
    assert int(act("out", n).stdout) < 10

@both
def test_approx(n):
    assert float(act("out", f"{n}.0000001").stdout) == pytest.approx(7)

@both
def test_list(n):
    assert act("out", f"1 {n} 3").stdout.split() == ["1", "7", "3"]

@both
def test_sorted(n):
    numbers = act("out", f"9 {n} 3").stdout.split() if n == "52" else act("out", "3 7 9").stdout.split()
    assert numbers == sorted(numbers, key=int)

@both
def test_dict(n):
    assert dict(pair.split("=") for pair in act("out", f"a=1 b={n}").stdout.split()) == {"a": "1", "b": "7"}

@both
def test_json(n):
    assert json.loads(act("out", f'{{"a": [1, {n}], "b": 2}}').stdout) == {"a": [1, 7], "b": 2}

@both
def test_several_assertions(n):
    run = act("out", f"total {n}", "err", "done")
    assert run.returncode == 0
    assert run.stderr == "done\\n"
    assert run.stdout == "total 7\\n"  # here
    assert "x" not in run.stdout

@both
def test_helper(n):
    helping.check_total(act("out", f"total {n}").stdout, "7")

@pytest.fixture
def checked(n):
    run = act("out", f"total {n}")
    assert run.stdout == "total 7\\n"
    return run

@both
def test_fixture_assertion(checked):
    assert checked.returncode == 0

@pytest.mark.parametrize("n", [pytest.param("3", id="ok"), pytest.param("0", id="bad")])
def test_raises(n):
    with pytest.raises(subprocess.CalledProcessError):
        act("exit", n, check=True)

@pytest.mark.parametrize("n", [pytest.param("4", id="ok"), pytest.param("5", id="bad")])
def test_assert_message(n):
    assert act("assert", n).stderr == ""

@pytest.mark.parametrize("n", [pytest.param("8", id="ok"), pytest.param("9", id="bad")])
def test_address_sanitizer(n):
    # The report takes many times as long as the rest; a run that takes longer is given more time.
    run = subprocess.run([HERE / "sanitized", "sleep", "300", "fill", n, "out", "done"], capture_output=True, text=True)
    assert run.stdout == "done\\n"

@pytest.mark.parametrize("n", [pytest.param("1", id="ok"), pytest.param("2000000000", id="bad")])
def test_undefined_behaviour(n):
    run = subprocess.run([HERE / "sanitized", "grow", n], capture_output=True, text=True)
    assert run.stderr == ""

@pytest.mark.xfail(strict=False)
def test_expected_failure():
    assert act("out", "52").stdout == "7\\n"

@pytest.mark.xfail(strict=True)
def test_unexpected_pass():
    assert act("out", "7").stdout == "7\\n"

def is_wrong(run):
    return run.stdout == "52\\n"

@both
@pytest.mark.cause_chain(fails_when=is_wrong)
def test_fails_when(n):
    assert act("out", n).stdout == "7\\n"


# What is not told

@both
def test_something_else(n):
    act("out", n)
    assert n == "7"

@both
def test_earlier_run(n):
    run = act("out", n)
    if n == "52" and (HERE / "seen").exists():
        assert run.stdout == "8\\n"  # later
    if n == "52":
        (HERE / "seen").touch()
    assert run.stdout == "7\\n"

class TestUnit(unittest.TestCase):
    def test_method(self):
        self.assertEqual(act("out", "52").stdout, "7\\n")

@given(strategies.just("52"))
def test_hypothesis(word):
    assert act("out", word).stdout == "7\\n"

def test_subtests(subtests):
    with subtests.test("one"):
        assert act("out", "52").stdout == "7\\n"
"""
