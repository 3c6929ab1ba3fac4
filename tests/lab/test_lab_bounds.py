"""An altered run that gets out of hand is stopped within its limits, and nothing of it is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from places import PLENTY_SECONDS, find_function, find_global, find_processes

from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.isolation import Bounds, Precautions
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Observation

WILD = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int mode;
volatile long wheel;

static int dig(int depth) { char room[1000]; room[depth % 1000] = 1; return dig(depth + 1) + room[depth % 1000]; }
static void choose(void) { wheel++; }

static const char *connect_out(void)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(53)};
    inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);
    int number = socket(AF_INET, SOCK_DGRAM, 0);
    return connect(number, (void *)&there, sizeof there) == 0 ? "connected" : strerror(errno);
}

int main(void)
{
    puts("as ever");
    fflush(stdout);
    choose();
    switch (mode) {
    case 1:
        for (;;) {
            char *block = malloc(1 << 20);
            if (block != NULL)
                memset(block, 1, 1 << 20);
        }
    case 2:
        for (;;) {
            void *block = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (block != MAP_FAILED)
                memset(block, 1, 1 << 20);
        }
    case 3:
        for (;;)
            wheel++;
    case 4:
        for (;;)
            puts("and on and on");
    case 5: /* would go on for ever, were it not for the sake of the machine that tests it */
        for (int generation = 0; generation < 8; generation++)
            fork();
        for (;;)
            pause();
    case 6:
        return dig(0);
    case 7:
        printf("%d", kill(-1, 0));
        break;
    case 8:
        printf("%d", kill(getppid(), 0));
        break;
    case 9:
        printf("%s", connect_out());
        break;
    case 10:
        fork();
        for (;;)
            wheel++;
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(build):
    return build(WILD)


@pytest.fixture(scope="module")
def lab(program):
    command = Command(program, (program.path,), str(Path(program.path).parent))
    with RemoteLab(Open(command, command, kind="fork"), Budget(PLENTY_SECONDS)) as opened:
        assert opened.experiment("passing").stdout == b"as ever\n"
        opened.allow(0.01)
        yield opened


def run_wild(lab: RemoteLab, mode: int) -> Observation:
    stops = (Stop(find_function(lab, "choose"), 1),)
    visit = lab.visit("failing", stops)
    address = visit.load_map.to_run(find_global(lab, "mode"))
    return lab.experiment("failing", stops, Transfer(writes=((address, mode.to_bytes(4, "little")),)))


@pytest.mark.parametrize(
    ("mode", "ending"),
    [
        pytest.param(1, "timeout", id="memory"),
        pytest.param(2, "timeout", id="shared memory"),
        pytest.param(3, "timeout", id="loop"),
        pytest.param(4, "timeout", id="output"),
        pytest.param(5, "timeout", id="processes"),
        pytest.param(6, "signal", id="stack"),
        pytest.param(10, "timeout", id="child"),
    ],
)
def test_a_wild_run_is_stopped(lab, program, mode, ending):
    seen = run_wild(lab, mode)
    assert seen.ending == ending
    assert seen.stdout.startswith(b"as ever\n")
    assert len(seen.stdout) <= 4 << 20
    if mode == 6:
        assert seen.code == signal.SIGSEGV
    assert find_processes(program) == []
    assert run_wild(lab, 0).stdout == b"as ever\n"


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        pytest.param(7, b"-1", id="to all"),
        pytest.param(8, b"-1", id="to the engine"),
        pytest.param(9, b"Network is unreachable", id="network"),
    ],
)
def test_others_are_out_of_reach(lab, mode, text):
    assert run_wild(lab, mode).stdout == b"as ever\n" + text
    assert (lab.isolation.network, lab.isolation.signals) == ("none", "single")


def test_the_user_sets_bounds(program):
    command = Command(program, (program.path,), str(Path(program.path).parent))
    precautions = Precautions("off", Bounds(output=1000, processes=3, cpu=0.2, seconds=5.0))
    with RemoteLab(Open(command, command, precautions=precautions), Budget(PLENTY_SECONDS)) as lab:
        seen = [run_wild(lab, mode) for mode in (3, 4, 5, 7)]
        assert [run.ending for run in seen] == ["timeout"] * 3 + ["exit"]
        assert len(seen[1].stdout) == 1000
        assert seen[3].stdout.startswith(b"as ever\n0")
        assert lab.isolation.elsewhere == "writable"
