"""Which instructions a run executes, told by stubs that each set a byte."""

from __future__ import annotations

import pytest
from tracing import Clock

from pytest_causechain.kernel.processes import cpu_seconds
from pytest_causechain.tracee import tracee
from pytest_causechain.tracee.alteration import watch
from pytest_causechain.tracee.stubs import Watched
from pytest_causechain.tracee.tracer import Marks

# Many times what a run needs to come to its loop.
LONG_CPU_SECONDS = 0.3

WAYS = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int once(int n) { return n + 1; }
int often(int n) { return n + 2; }
int never(int n) { return n + 3; }

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    int sum = once(argc);
    for (int i = 0; i < 1000; i++)
        sum += often(i);
    if (!strcmp(way, "fork")) {
        if (fork() == 0)
            _exit(never(5));
        int status;
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    if (!strcmp(way, "vfork")) {
        if (vfork() == 0)
            _exit(5);
        sum++;
    }
    if (!strcmp(way, "crash"))
        raise(SIGSEGV);
    if (!strcmp(way, "kill"))
        raise(SIGKILL);
    if (!strcmp(way, "exec"))
        execl(argv[0], argv[0], (char *)0);
    while (!strcmp(way, "hang"))
        sum++;
    printf("%d\n", sum);
    return 0;
}
"""


@pytest.fixture
def program(build):
    return build(WAYS)


@pytest.fixture
def watched(describe, program):
    return [Watched(s.address, False, f.address, f.end) for f in describe(program).functions for s in f.statements]


@pytest.fixture
def marks(start, program, watched, describe):
    made = Marks(start(program), watched, frozenset(describe(program).rows))
    yield made
    made.close()


@pytest.mark.parametrize("way", ["", "fork", "vfork", "crash", "kill", "exec", "other"])
def test_the_same_as_by_breakpoints(program, start, deadline, watched, marks, way):
    slow, fast = start(program, way), start(program, way)
    executed = frozenset(watch(slow, [w.address for w in watched], 1, deadline))
    assert marks.cover(fast, deadline) == executed
    assert fast.outputs() == slow.outputs()


def test_each_run_for_itself(program, start, deadline, marks):
    plain = marks.cover(start(program), deadline)
    assert marks.cover(start(program, "fork"), deadline) > plain
    assert marks.cover(start(program), deadline) == plain


def test_most_are_no_breakpoints(program, start, deadline, watched, marks, monkeypatch):
    left = []
    monkeypatch.setattr("pytest_causechain.tracee.tracer.watch", lambda process, others, *_: left.extend(others) or ())
    marks.cover(start(program), deadline)
    assert len(left) < len(watched) / 2


def test_a_run_that_does_not_end(program, start, deadline, marks, monkeypatch):
    plain = marks.cover(start(program), deadline)
    hanging = start(program, "hang")
    monkeypatch.setattr(tracee, "time", Clock(lambda: cpu_seconds(hanging.pid) > LONG_CPU_SECONDS))
    executed = marks.cover(hanging, deadline)
    assert executed - plain and plain - executed  # the loop; what comes behind it


def test_what_cannot_be_mapped_is_watched(program, start, deadline, watched, describe, monkeypatch):
    monkeypatch.setattr("pytest_causechain.tracee.tracer.FAR_PLACE", 1 << 62)
    marks = Marks(start(program), watched, frozenset(describe(program).rows))
    executed = frozenset(watch(start(program), [w.address for w in watched], 1, deadline))
    assert marks.cover(start(program), deadline) == executed
    marks.close()
