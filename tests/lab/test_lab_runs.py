"""Whole runs in the laboratory end as they do outside it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from pytest_causechain.model.runs import Frame

BEHAVIOURS = r"""
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int zero;
static int *nowhere;
static sigjmp_buf back;
static volatile int caught;

static void note(int sign) { caught = sign; }
static void leap(int sign) { siglongjmp(back, sign); }
static int divide(int by) { return 10 / by; }
static int follow(int *pointer) { return *pointer; }
static int endless(int depth) { char room[100000]; room[depth % 100] = depth; return endless(depth + 1) + room[0]; }

static void *add(void *to)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        ++*(long *)to;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static int is(char **argv, const char *name) { return strcmp(argv[1], name) == 0; }

int main(int argc, char **argv)
{
    if (is(argv, "exit"))
        return atoi(argv[2]);
    if (is(argv, "output")) {
        for (int i = 0; i < 600000; i++)
            printf("%07d ", i);
        fprintf(stderr, "%s", "no newline, \xff \x01 and a NUL follow");
        fwrite("\0", 1, 1, stderr);
        return 3;
    }
    if (is(argv, "echo")) {
        int c;
        long count = 0;
        for (; (c = getchar()) != EOF; count++)
            putchar(c);
        fprintf(stderr, "%ld", count);
    }
    if (is(argv, "segv"))
        return follow(nowhere);
    if (is(argv, "assert"))
        assert(argc == 17);
    if (is(argv, "divide"))
        return divide(zero);
    if (is(argv, "recursion"))
        return endless(1);
    if (is(argv, "raise")) {
        printf("unflushed");
        raise(atoi(argv[2]));
        printf(" and on");
    }
    if (is(argv, "trap"))
        __asm__ volatile("int3");
    if (is(argv, "handle")) {
        int signals[] = {SIGUSR1, SIGINT, SIGTERM, SIGTRAP, SIGCHLD, SIGABRT, SIGSEGV};
        for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
            signal(signals[i], note);
            raise(signals[i]);
            printf("caught %d\n", caught == signals[i]);
        }
        signal(SIGSEGV, leap);
        signal(SIGFPE, leap);
        if (sigsetjmp(back, 1) == 0)
            follow(nowhere);
        else
            printf("out of a fault\n");
        if (sigsetjmp(back, 1) == 0)
            divide(zero);
        else
            printf("out of a division\n");
        /* Blocked until it is waited for: on a busy machine it would come before. */
        sigset_t alarm_only, before;
        sigemptyset(&alarm_only);
        sigaddset(&alarm_only, SIGALRM);
        sigprocmask(SIG_BLOCK, &alarm_only, &before);
        signal(SIGALRM, note);
        ualarm(20000, 0);
        sigsuspend(&before);
        printf("alarm %d\n", caught == SIGALRM);
        return 7;
    }
    if (is(argv, "fork")) {
        printf("before;");
        fflush(stdout);
        for (int i = 0; i < 5; i++)
            if (fork() == 0) {
                printf("child %d;", i);
                fflush(stdout);
                _exit(i);
            } else {
                int status;
                wait(&status);
                printf("status %d;", WEXITSTATUS(status));
                fflush(stdout);
            }
        printf("system %d;", system("exit 4") >> 8);
        FILE *pipe = popen("echo from a pipe", "r");
        char line[100];
        printf("%s", fgets(line, sizeof line, pipe));
        pclose(pipe);
    }
    if (is(argv, "orphan")) {
        pid_t parent = getpid();
        if (fork() == 0) {
            while (getppid() == parent)
                usleep(1000);
            printf("late");
        } else
            printf("early ");
    }
    if (is(argv, "exec"))
        execl("/bin/echo", "echo", "another", "program", NULL);
    if (is(argv, "again") && argc == 3)
        execl(argv[0], argv[0], "exit", argv[2], NULL);
    if (is(argv, "threads")) {
        pthread_t threads[4];
        long sum = 0;
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, add, &sum);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        printf("%ld\n", sum);
    }
    if (is(argv, "processors")) {
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        printf("%d\n", CPU_COUNT(&set));
        fflush(stdout);
        system("nproc");
    }
    if (is(argv, "limits")) {
        struct rlimit limit;
        int kinds[] = {RLIMIT_CORE, RLIMIT_STACK};
        for (int i = 0; i < 2; i++) {
            getrlimit(kinds[i], &limit);
            printf("%ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
        }
    }
    return 0;
}
"""
LINES = {text.strip(): number for number, text in enumerate(BEHAVIOURS.splitlines(), 1)}


@pytest.fixture
def program(build):
    return build(BEHAVIOURS, "-pthread")


def run_natively(program, *arguments, stdin=b""):
    return subprocess.run([program.path, *arguments], input=stdin, capture_output=True, cwd=Path(program.path).parent)


# Two in one laboratory, one on each side.
@pytest.mark.parametrize(
    ("passing", "failing"),
    [
        (("exit", "0"), ("exit", "255")),
        (("output",), ("threads",)),
        (("segv",), ("divide",)),
        (("recursion",), ("handle",)),
        (("trap",), ("raise", str(int(signal.SIGTRAP)))),
        (("raise", str(int(signal.SIGINT))), ("raise", str(int(signal.SIGKILL)))),
        (("raise", str(int(signal.SIGWINCH))), ("raise", str(signal.SIGRTMIN + 3))),  # the first is ignored by default
        (("fork",), ("orphan",)),
        (("exec",), ("again", "9")),
        (("processors",), ("processors",)),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_run_is_as_outside(program, open_lab, passing, failing):
    lab = open_lab(program, *passing, failing=failing)
    for side, arguments in (("passing", passing), ("failing", failing)):
        native = run_natively(program, *arguments)
        observation = lab.experiment(side)
        assert observation.stdout == native.stdout
        assert observation.stderr == native.stderr
        assert observation.returncode == native.returncode
        assert observation.ending == ("signal" if native.returncode < 0 else "exit")


@pytest.mark.parametrize("flags", [("-no-pie",), ("-static",), ("-static-pie",), ("-O2",)], ids=lambda f: f[0])
def test_kinds_of_programs(build, open_lab, flags):
    program = build(BEHAVIOURS, "-pthread", *flags)
    lab = open_lab(program, "fork")
    native = run_natively(program, "fork")
    assert lab.experiment("passing").stdout == native.stdout
    assert lab.experiment("passing").returncode == native.returncode


def test_large_input_and_output(program, open_lab):
    stdin = bytes(range(256)) * 20_000
    observation = open_lab(program, "echo", stdin=stdin).experiment("passing")
    assert observation.stdout == stdin
    assert observation.stderr == b"%d" % len(stdin)


def test_input_is_whole_in_every_run(program, open_lab):
    lab = open_lab(program, "echo", stdin=b"abc\0\n")
    assert [lab.experiment("passing").stdout for _ in range(3)] == [b"abc\0\n"] * 3


class TestBacktraces:
    def test_fault(self, program, compiled, open_lab):
        observation = open_lab(program, "segv").experiment("passing")
        assert (observation.ending, observation.code) == ("signal", signal.SIGSEGV)
        source = str(compiled(BEHAVIOURS, "-pthread").with_suffix(".c"))
        assert observation.backtrace == (
            Frame("follow", source, LINES["static int follow(int *pointer) { return *pointer; }"]),
            Frame("main", source, LINES["return follow(nowhere);"]),
        )

    def test_division(self, program, open_lab):
        observation = open_lab(program, "divide").experiment("passing")
        assert observation.code == signal.SIGFPE
        assert [frame.function for frame in observation.backtrace] == ["divide", "main"]

    def test_assertion(self, program, open_lab):
        native = run_natively(program, "assert")
        observation = open_lab(program, "assert").experiment("passing")
        assert (observation.ending, observation.code) == ("signal", signal.SIGABRT)
        assert observation.stderr == native.stderr
        functions = [frame.function for frame in observation.backtrace]
        assert functions[-3:] == ["abort", "__assert_fail", "main"] or functions[-2:] == ["__assert_fail", "main"]
        assert observation.backtrace[-1].line == LINES["assert(argc == 17);"]
        assert observation.backtrace[0].file is None

    def test_endless_recursion_is_cut(self, program, open_lab):
        observation = open_lab(program, "recursion").experiment("passing")
        assert observation.code == signal.SIGSEGV
        assert {frame.function for frame in observation.backtrace} == {"endless"}
        assert 10 <= len(observation.backtrace) <= 100

    def test_a_handled_fault_leaves_none(self, program, open_lab):
        assert open_lab(program, "handle").experiment("passing").backtrace == ()

    def test_a_trap(self, program, open_lab):
        observation = open_lab(program, "trap").experiment("passing")
        assert observation.code == signal.SIGTRAP
        assert observation.backtrace[-1].function == "main"


def test_thirty_runs_are_identical(program, open_lab):
    lab = open_lab(program, "segv")
    assert len({lab.experiment("passing") for _ in range(30)}) == 1


def test_a_program_that_becomes_another_spoils_no_later_run(program, open_lab):
    lab = open_lab(program, "exec", failing=["segv"])
    expected = lab.experiment("failing")
    assert lab.experiment("passing").stdout == b"another program\n"
    assert lab.experiment("failing") == expected
    assert [frame.function for frame in expected.backtrace] == ["follow", "main"]


def test_limits(program, open_lab):
    """No core files, and a stack that an endless recursion fills soon, whatever the machine allows."""
    core, stack = open_lab(program, "limits").experiment("passing").stdout.split(b"\n")[:2]
    assert core == b"0 0"
    soft, hard = map(int, stack.split())
    assert soft == hard
    assert 0 < hard <= 8 << 20


def test_blocked_signals_do_no_harm(program, open_lab):
    blocked = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        native = run_natively(program, "fork")
        assert open_lab(program, "fork").experiment("passing").stdout == native.stdout
        assert blocked <= signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_environment_of_the_tests_python_does_no_harm(program, open_lab, monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise ImportError('not for gdb')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    assert open_lab(program, "exit", "5").experiment("passing").code == 5
