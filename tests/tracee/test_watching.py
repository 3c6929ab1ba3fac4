"""Breakpoints that vanish: each place is seen as often as wanted, and the program notices nothing."""

from __future__ import annotations

import pytest

from pytest_causechain.tracee.alteration import watch

LOOPS = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int once(int n) { return n + 1; }
int often(int n) { return n + 2; }
int never(int n) { return n + 3; }

int main(int argc, char **argv)
{
    int sum = once(argc);
    for (int i = 0; i < 1000; i++)
        sum += often(i);
    if (argc > 1) {
        if (fork() == 0)
            _exit(often(5));
        int status;
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    printf("%d\n", argc > 5 ? never(sum) : sum);
    return 0;
}
"""
NAMES = ("once", "often", "never")


@pytest.fixture
def program(build):
    return build(LOOPS)


@pytest.mark.parametrize("most", [1, 3, 2000])
def test_counts_up_to_the_limit(program, start, deadline, symbol, most):
    subject = start(program)
    places = {symbol(program, name): name for name in NAMES}
    hits = watch(subject, list(places), most, deadline)
    assert {places[address]: count for address, count in hits.items()} == {"once": 1, "often": min(most, 1000)}
    assert subject.outputs()[0] == b"501502\n"


def test_looks_while_the_process_stands_there(program, start, deadline, symbol):
    subject, seen = start(program), []
    place = symbol(program, "often")
    watch(subject, [place], 4, deadline, lambda address: seen.append((address, subject.registers().rdi)))
    assert seen == [(place, n) for n in range(4)]


def test_children_are_left_alone(program, start, deadline, symbol):
    subject = start(program, "fork")
    watch(subject, [symbol(program, name) for name in NAMES], 2000, deadline)
    assert subject.outputs()[0] == b"501510\n"
