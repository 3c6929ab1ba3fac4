"""Copies of a stopped program share nothing with it, nor with each other."""

from __future__ import annotations

import os
import signal
import struct

import pytest

from pytest_causechain.kernel.linux import REGISTERS
from pytest_causechain.kernel.processes import PROCESSORS, find_members, read_mappings, staying
from pytest_causechain.model.moment import Stop
from pytest_causechain.sandbox.copies import CannotCopy, Template
from pytest_causechain.tracee.tracee import End

PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

long counter = 7;
static volatile int caught;
static void note(int sign) { caught++; }
static void *wait_for_ever(void *x) { pause(); return x; }
__attribute__((noinline)) void here(void) { counter++; }

int main(int argc, char **argv)
{
    const char *what = argv[1];
    char first[4] = "", rest[100] = "", line[100] = "";
    int ends[2], input = -1, again = -1, twin = -1;
    signal(SIGUSR1, note);
    signal(SIGALRM, note);
    printf("written before;");
    fflush(stdout);
    fprintf(stderr, "warned before;");
    if (strcmp(what, "input") == 0) {
        input = open("input", O_RDONLY);
        read(input, first, 3);
        again = dup(input);
        fcntl(again, F_SETFD, FD_CLOEXEC);
        twin = open("input", O_RDONLY);
        lseek(twin, 3, SEEK_SET);
        read(0, line, 3);
    }
    if (strcmp(what, "unflushed") == 0)
        printf("kept in the buffer;");
    if (strcmp(what, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_ever, NULL);
    }
    if (strcmp(what, "pipe") == 0)
        pipe(ends);
    if (strcmp(what, "socket") == 0)
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    if (strcmp(what, "writing") == 0)
        open("output", O_WRONLY | O_CREAT, 0600);
    if (strcmp(what, "child") == 0 && fork() == 0)
        pause();
    if (strcmp(what, "zombie") == 0 && fork() == 0)
        _exit(0);
    if (strcmp(what, "shared") == 0)
        *(int *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) = 1;
    if (strcmp(what, "alarm") == 0)
        alarm(1000);
    if (strcmp(what, "timer") == 0) {
        timer_t timer;
        timer_create(CLOCK_MONOTONIC, NULL, &timer);
    }
    if (strcmp(what, "harmless") == 0) {
        open("/dev/null", O_RDWR);
        open(".", O_RDONLY);
    }
    here();
    if (input >= 0) {
        read(again, rest, 2);
        read(input, rest + 2, 50);
        printf("%s|%s|", first, rest);
        memset(rest, 0, sizeof rest);
        read(twin, rest, 50);
        printf("%s|", rest);
        printf("%d|", fcntl(again, F_GETFD));
        printf("%s|", line);
        memset(line, 0, sizeof line);
        read(0, line, 50);
        printf("%s", line);
    } else
        printf("%ld %d", counter, caught);
    fprintf(stderr, "warned after");
    if (strcmp(what, "group") == 0 && fork() == 0)
        pause();
    return 3;
}
"""


@pytest.fixture(scope="session")
def program(build):
    return build(PROGRAM, "-pthread")


@pytest.fixture
def make_subject(start, program, symbol, deadline, tmp_path):
    (tmp_path / "input").write_text("ABCDEFGH")

    def stopped(*words: str, stdin: bytes = b""):
        subject = start(program, *words, stdin=stdin, cwd=str(tmp_path))
        subject.run_to([Stop(symbol(program, "here"), 1)], deadline)
        return subject

    return stopped


@pytest.fixture
def make_template(make_subject):
    made = []

    def make(*words: str, stdin: bytes = b""):
        made.append(Template(make_subject(*words, stdin=stdin)))
        return made[-1]

    yield make
    for template in made:
        template.close()


def finish(copy, deadline):
    try:
        return (copy.finish(deadline), *copy.outputs())
    finally:
        copy.kill()


def finish_resumed(copy, deadline):
    try:
        assert os.WEXITSTATUS(copy.wait(deadline)) == 3
        return copy.outputs()[0]
    finally:
        copy.kill()


BEFORE, ERRORS = b"written before;", b"warned before;warned after"


def test_outputs_are_private_and_begin_with_what_was_written(make_template, deadline):
    template = make_template("plain")
    for _ in range(3):
        assert finish(template.copy(), deadline) == (End("exit", 3), BEFORE + b"8 0", ERRORS)
    assert template.subject.outputs() == (BEFORE, b"warned before;")


def test_what_waits_in_buffers_is_written_by_each(make_template, deadline):
    template = make_template("unflushed")
    for _ in range(3):
        assert finish(template.copy(), deadline)[1] == BEFORE + b"kept in the buffer;8 0"


def test_each_reads_the_same_rest(make_template, deadline):
    template = make_template("input", stdin=b"0123456789")
    seen = {finish(template.copy(), deadline)[1] for _ in range(50)}
    assert seen == {BEFORE + b"ABC|DEFGH|DEFGH|1|012|3456789"}


def test_several_at_a_time(make_template, program, symbol, deadline):
    template = make_template("input", stdin=b"0123456789")
    copies = [template.copy() for _ in range(5)]
    for copy in copies:
        copy.resume()
    assert {finish_resumed(copy, deadline) for copy in copies} == {BEFORE + b"ABC|DEFGH|DEFGH|1|012|3456789"}


def test_a_copy_of_a_copy(make_template, deadline):
    middle = make_template("input", stdin=b"0123456789").copy()
    template = Template(middle)
    try:
        assert finish(template.copy(), deadline)[1] == BEFORE + b"ABC|DEFGH|DEFGH|1|012|3456789"
    finally:
        template.close()


def test_a_copy_equals_the_original(make_subject):
    subject = make_subject("input", stdin=b"0123456789")
    registers = subject.registers()
    template = Template(subject)
    copy = template.copy()
    try:
        for name in REGISTERS.split():
            assert getattr(copy.registers(), name) == getattr(registers, name), name
        mappings = read_mappings(copy.pid)
        assert mappings == read_mappings(template.subject.pid)
        compared = 0
        for mapping in mappings:
            # In one without a name the C library keeps what the kernel tells it: on which processor it runs.
            if "w" in mapping.permissions and mapping.name:
                size = mapping.end - mapping.start
                assert copy.read(mapping.start, size) == template.subject.read(mapping.start, size), mapping
                compared += size
        assert compared > 100_000  # heap, stack and data
    finally:
        copy.kill()


def test_one_that_does_not_roam_stays_where_we_are(make_subject):
    template = Template(make_subject("plain"), roams=False)
    try:
        with staying() as here:
            copy = template.copy()
            assert os.sched_getaffinity(copy.pid) == here
            copy.kill()
        assert os.sched_getaffinity(0) == PROCESSORS
    finally:
        template.close()


def test_what_is_written_into_one_stays_there(make_template, program, symbol, deadline):
    template = make_template("plain")
    address = template.subject.base + symbol(program, "counter")
    copy = template.copy()
    copy.write(address, struct.pack("<q", 40))
    assert finish(copy, deadline)[1] == BEFORE + b"41 0"
    assert finish(template.copy(), deadline)[1] == BEFORE + b"8 0"


def test_children_of_a_copy_end_with_it(make_template, deadline):
    template = make_template("group")
    copy = template.copy()
    assert copy.finish(deadline) == End("exit", 3)
    os.killpg(copy.pid, 0)
    copy.kill()
    assert find_members(copy.pid) == []
    assert finish(template.copy(), deadline)[0] == End("exit", 3)


def test_a_signal_on_its_way_reaches_each(make_subject, deadline):
    subject = make_subject("plain")
    os.kill(subject.pid, signal.SIGUSR1)
    template = Template(subject)
    try:
        for _ in range(2):
            assert finish(template.copy(), deadline)[1] == BEFORE + b"8 1"
    finally:
        template.close()


def test_a_signal_held_back_reaches_each(make_subject, deadline):
    subject = make_subject("plain")
    os.kill(subject.pid, signal.SIGUSR1)
    subject.step()
    assert subject.deferred == [signal.SIGUSR1]
    template = Template(subject)
    try:
        for _ in range(2):
            assert finish(template.copy(), deadline)[1] == BEFORE + b"8 1"
    finally:
        template.close()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("thread", "threads"),
        ("pipe", "sockets or pipes"),
        ("socket", "sockets or pipes"),
        ("writing", "files open for writing"),
        ("child", "children"),
        ("zombie", "children"),
        ("shared", "shared memory"),
        ("alarm", "timers"),
        ("timer", "timers"),
    ],
)
def test_what_copies_would_share_or_lack(make_subject, open_descriptors, what, why):
    subject = make_subject(what)
    before = open_descriptors()
    with pytest.raises(CannotCopy, match=why):
        Template(subject)
    assert open_descriptors() == before


def test_devices_and_directories_do_no_harm(make_template, deadline):
    template = make_template("harmless")
    assert finish(template.copy(), deadline)[1] == BEFORE + b"8 0"


def test_a_refused_copy_can_still_run(make_subject, deadline):
    subject = make_subject("writing")
    with pytest.raises(CannotCopy):
        Template(subject)
    assert subject.finish(deadline) == End("exit", 3)
    assert subject.outputs() == (BEFORE + b"8 0", ERRORS)


def test_nothing_is_left(leaves_nothing, build, symbol, deadline, start, program, tmp_path):
    subject = start(program, "plain", cwd=str(tmp_path))
    subject.run_to([Stop(symbol(program, "here"), 1)], deadline)
    template = Template(subject)
    for number in range(20):
        copy = template.copy()
        if number % 2:
            copy.finish(deadline)
        copy.kill()
    template.close()
