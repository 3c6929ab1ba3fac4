"""Programs that trace themselves are told from those that trace others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytest_causechain.kernel.elf import names_symbol
from pytest_causechain.model.command import Command
from pytest_causechain.sandbox.subject import traces_itself

SOURCE = r"""
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    pid_t own = getpid();
    if (strcmp(argv[1], "itself") == 0)
        return ptrace(PTRACE_TRACEME, 0, 0, 0) != 0;
    if (strcmp(argv[1], "nobody") == 0)
        return 0;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t child = fork();
    if (child == 0 && strcmp(argv[1], "by a child") == 0) {
        if (ptrace(PTRACE_ATTACH, own, 0, 0) == 0)
            waitpid(own, NULL, 0);
        _exit(0);
    }
    if (child == 0 && strcmp(argv[1], "its child") == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        _exit(0);
    }
    if (child == 0)
        pause();
    if (strcmp(argv[1], "another") == 0 && ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_EXITKILL) != 0)
        return 1;
    if (argc > 2)
        kill(child, SIGKILL);
    return waitpid(child, NULL, 0) < 0;
}
"""


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["itself"], True),
        (["by a child"], True),
        (["nobody"], False),
        (["its child"], False),
        (["another", "killed"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_who_is_traced(build, words, answer):
    program = build(SOURCE)
    directory = str(Path(program.path).parent)
    command = Command(program, (program.path, *words), directory)
    assert traces_itself(command, directory, time.monotonic() + 60) is answer


@pytest.mark.parametrize("flags", [(), ("-static",)], ids=["dynamic", "static"])
def test_only_those_are_asked_that_know_how(build, flags):
    assert names_symbol(build(SOURCE, *flags).path, ["ptrace"])
    assert not names_symbol(build("int main(void) { return 0; }", *flags).path, ["ptrace"])
