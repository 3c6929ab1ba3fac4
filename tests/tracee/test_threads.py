"""Programs with threads: stopped as a whole, and unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tracing import Clock

from pytest_causechain.kernel.linux import event_message
from pytest_causechain.kernel.processes import cpu_seconds, has_ended, list_threads, waiting_call
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command
from pytest_causechain.sandbox.subject import launch
from pytest_causechain.tracee import threads, tracee
from pytest_causechain.tracee.tracee import End, Finish, NotReached, call_function, inject, is_crash

# Many times what a few instructions take.
LONG_CPU_SECONDS = 0.3

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
volatile long turns;
static volatile long total, stop, caught;
static pthread_t first;

__attribute__((noinline)) void add(long n)
{
    total += n;
}
__attribute__((noinline)) void mark(int n) { (void)n; }

static void *work(void *count)
{
    for (long i = 0; i < (long)count; i++) {
        pthread_mutex_lock(&mutex);
        add(1);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
void *turn(void *nothing)
{
    pthread_barrier_wait(&barrier);
    while (!stop)
        turns++;
    return nothing;
}
static void *quick(void *nothing) { return nothing; }
static void *outlive(void *nothing)
{
    pthread_join(first, NULL);
    printf("outlived\n");
    exit(9);
}
void *crash(void *nothing) { *(volatile int *)8 = 1; return nothing; }
static void *become(void *nothing)
{
    execl("/bin/echo", "echo", "another", "program", NULL);
    return nothing;
}
static void *make_children(void *nothing)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        add(5);
        _exit(total == 5 ? 6 : 7);
    }
    waitpid(child, &status, 0);
    printf("fork %d;", WEXITSTATUS(status));
    printf("system %d;", WEXITSTATUS(system("exit 3")));
    child = vfork();
    if (child == 0) {
        add(1);
        _exit(total);
    }
    waitpid(child, &status, 0);
    printf("vfork %d %ld;", WEXITSTATUS(status), total);
    return nothing;
}
static void note(int sign) { __sync_fetch_and_add(&caught, 1); }
static void *raise_many(void *nothing)
{
    for (int i = 0; i < 50; i++) {
        raise(SIGUSR1);
        pthread_kill(first, SIGUSR2);
        add(0);
    }
    return nothing;
}
static void *wait_for_signal(void *set)
{
    int sign;
    sigwait(set, &sign);
    printf("sign %d;", sign == SIGUSR1);
    return NULL;
}
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int whose, ends[2];
static void play(int me)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        while (whose != me)
            pthread_cond_wait(&changed, &mutex);
        whose = !me;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
}
static void *play_second(void *nothing) { play(1); return nothing; }
static void *read_pipe(void *nothing)
{
    char c;
    while (read(ends[0], &c, 1) == 1)
        putchar(c);
    return nothing;
}
static int in_clone(void *nothing) { return 4; }

static void run(int count, void *(*function)(void *), void *argument)
{
    pthread_t threads[count];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, function, argument);
    mark(1);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    mark(2);
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    int count = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t threads[100];
    first = pthread_self();
    if (strcmp(what, "work") == 0) {
        run(count, work, (void *)100L);
        add(1000);
        printf("%ld\n", total);
    } else if (strcmp(what, "turn") == 0) {
        pthread_barrier_init(&barrier, NULL, count + 1);
        for (int i = 0; i < count; i++)
            pthread_create(&threads[i], NULL, turn, NULL);
        pthread_barrier_wait(&barrier);
        mark(1);
        stop = 1;
        for (int i = 0; i < count; i++)
            pthread_join(threads[i], NULL);
        printf("stopped\n");
    } else if (strcmp(what, "endless") == 0) {
        pthread_barrier_init(&barrier, NULL, count + 1);
        for (int i = 0; i < count; i++)
            pthread_create(&threads[i], NULL, turn, NULL);
        pthread_barrier_wait(&barrier);
        mark(1);
        if (argc > 3)
            pthread_exit(NULL);
        pthread_join(threads[0], NULL);
    } else if (strcmp(what, "many") == 0) {
        for (int i = 0; i < count; i++)
            run(1, quick, NULL);
        printf("%d\n", count);
    } else if (strcmp(what, "outlive") == 0) {
        pthread_create(&threads[0], NULL, outlive, NULL);
        mark(1);
        pthread_exit(NULL);
    } else if (strcmp(what, "crash") == 0)
        run(1, crash, NULL);
    else if (strcmp(what, "exec") == 0)
        run(1, become, NULL);
    else if (strcmp(what, "children") == 0)
        run(1, make_children, NULL);
    else if (strcmp(what, "signals") == 0) {
        signal(SIGUSR1, note);
        signal(SIGUSR2, note);
        run(count, raise_many, NULL);
        printf("%s\n", caught >= 50 * count ? "caught" : "lost");
    } else if (strcmp(what, "sigwait") == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        pthread_create(&threads[0], NULL, wait_for_signal, &set);
        mark(1);
        kill(getpid(), SIGUSR1);
        pthread_join(threads[0], NULL);
    } else if (strcmp(what, "play") == 0) {
        pthread_create(&threads[0], NULL, play_second, NULL);
        play(0);
        pthread_join(threads[0], NULL);
        mark(1);
        printf("played\n");
    } else if (strcmp(what, "pipe") == 0) {
        pipe(ends);
        pthread_create(&threads[0], NULL, read_pipe, NULL);
        for (int i = 0; i < 5; i++) {
            usleep(10000);
            write(ends[1], "abcde" + i, 1);
        }
        close(ends[1]);
        pthread_join(threads[0], NULL);
        mark(1);
        printf("\n");
    } else if (strcmp(what, "clone") == 0) {
        /* A process, but not made as fork does. */
        static char stack[65536];
        int status = 0;
        pid_t child = clone(in_clone, stack + sizeof stack, 0, NULL);
        waitpid(child, &status, __WALL);
        printf("child %d\n", WEXITSTATUS(status));
        mark(1);
    }
    return 3;
}
"""


@pytest.fixture(scope="session")
def program(build):
    return build(PROGRAM, "-pthread")


@pytest.fixture
def stop(program, symbol):
    """stop(name, visit)"""
    return lambda name, visit=1: Stop(symbol(program, name), visit)


@pytest.fixture
def start_closed(program, tmp_path, deadline):
    """start_closed(*words) is a run that the test itself ends."""
    return lambda *words: launch(Command(program, (program.path, *words), str(tmp_path)), True, deadline)


def run_natively(program, *words):
    return subprocess.run([program.path, *words], capture_output=True)


BEHAVIOURS = [
    ("work", "2"),
    ("work", "10"),
    ("turn", "3"),
    ("many", "30"),
    ("outlive",),
    ("crash",),
    ("exec",),
    ("children",),
    ("signals", "3"),
    ("sigwait",),
    ("clone",),
    ("play",),
    ("pipe",),
]


@pytest.mark.parametrize("words", BEHAVIOURS, ids=" ".join)
class TestWholeRuns:
    def test_as_outside(self, start, program, deadline, words):
        subject, native = start(program, *words), run_natively(program, *words)
        assert status_of(subject.finish(deadline)) == native.returncode
        assert subject.outputs()[0] == native.stdout

    def test_past_a_breakpoint_that_all_threads_hit(self, start, program, stop, deadline, words):
        """It is never reached by the first thread as often as that."""
        subject, native = start(program, *words), run_natively(program, *words)
        with pytest.raises(NotReached) as raised:
            subject.run_to([stop("add", 3)], deadline)
        status = raised.value.status
        # One that has become another program has not ended yet.
        ended = status_of(subject.finish(deadline)) if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        assert ended == native.returncode
        assert subject.outputs()[0] == native.stdout

    def test_from_a_stop_on(self, start, program, stop, deadline, words):
        subject, native = start(program, *words), run_natively(program, *words)
        try:
            subject.run_to([stop("mark")], deadline)
        except NotReached as ended:
            assert words in (("exec",), ("crash",))  # which a thread may do before it
            assert os.waitstatus_to_exitcode(ended.status) == native.returncode
        else:
            assert status_of(subject.finish(deadline)) == native.returncode
        assert subject.outputs()[0] == native.stdout


def status_of(end: End) -> int:
    return end.code if end.kind == "exit" else -end.code


class TestStops:
    def test_only_the_first_thread_counts(self, start, program, stop, deadline):
        subject = start(program, "work", "4")
        subject.run_to([stop("add")], deadline)
        assert subject.registers().rdi == 1000
        assert len(list_threads(subject.pid)) == 1

    @pytest.mark.parametrize("count", [1, 9])
    def test_all_threads_stand(self, start, program, stop, symbol, deadline, count):
        subject = start(program, "turn", str(count))
        subject.run_to([stop("mark")], deadline)
        threads = list_threads(subject.pid)
        assert len(threads) == count + 1
        assert {state_of(thread) for thread in threads} == {"t"}
        turns = subject.base + symbol(program, "turns")
        assert subject.read(turns, 8) == subject.read(turns, 8)
        assert subject.finish(deadline) == End("exit", 3)

    def test_system_calls_and_calls_while_others_stand(self, start, program, stop, deadline):
        subject = start(program, "turn", "3")
        subject.run_to([stop("mark")], deadline)
        assert inject(subject, "lseek", 0, 0, os.SEEK_CUR) == 0
        assert call_function(subject, subject.landmarks.symbols["malloc"], [100]) % 16 == 0
        assert {state_of(thread) for thread in list_threads(subject.pid)} == {"t"}
        assert subject.finish(deadline) == End("exit", 3)
        assert subject.outputs()[0] == b"stopped\n"

    def test_the_same_moment_a_hundred_times(self, start, program, stop, deadline):
        for _ in range(100):
            subject = start(program, "work", "3")
            subject.run_to([stop("mark", 2)], deadline)
            assert subject.registers().rdi == 2
            assert subject.finish(deadline) == End("exit", 3)
            assert subject.outputs()[0] == b"1300\n"
            subject.kill()


class TestEnds:
    def test_a_crash_of_another_thread_tells_where(self, start, program, symbol, deadline):
        subject = start(program, "crash")
        seen = []
        finish, end = Finish(subject), None
        while end is None:
            status = subject.wait(deadline)
            if is_crash(status):
                seen.append((subject.thread, subject.backtrace()))
            end = finish.take(status)
        assert (end.kind, end.code) == ("signal", signal.SIGSEGV)
        ((thread, frames),) = seen
        assert thread != subject.pid
        assert end.frames == frames
        assert 0 <= frames[0] - subject.base - symbol(program, "crash") < 100

    @pytest.mark.parametrize("words", [(), ("alone",)], ids=["joining", "ended"])
    def test_time_is_over(self, start, program, stop, symbol, deadline, monkeypatch, words):
        """A first thread that has ended cannot tell where it is: another one does."""
        subject = start(program, "endless", "3", *words)
        subject.run_to([stop("mark")], deadline)

        def is_endless() -> bool:
            """The first thread has ended or waits for the others, which turn."""
            is_first_done = has_ended(subject.pid) if words else waiting_call(subject.pid) is not None
            return is_first_done and cpu_seconds(subject.pid) > LONG_CPU_SECONDS

        monkeypatch.setattr(tracee, "time", Clock(is_endless))
        end = subject.finish(deadline)
        assert (end.kind, end.code) == ("timeout", signal.SIGKILL)
        assert end.frames
        is_in_turn = 0 <= end.frames[0] - subject.base - symbol(program, "turn") < 100
        assert is_in_turn == bool(words)
        threads = list_threads(subject.pid)
        assert {state_of(thread) for thread in threads} <= {"t", "Z"}

    def test_nothing_is_left(self, stop, leaves_nothing, deadline, start_closed):
        for words in (("turn", "5"), ("endless", "5"), ("endless", "2", "alone")):
            subject = start_closed(*words)
            subject.run_to([stop("mark")], deadline)
            subject.kill()
            assert list_threads(subject.pid) == []

    def test_killed_from_outside_while_it_stands(self, start, program, stop, deadline):
        subject = start(program, "turn", "5")
        subject.run_to([stop("mark")], deadline)
        os.kill(subject.pid, signal.SIGKILL)
        assert subject.finish(deadline) == End("signal", signal.SIGKILL)

    @pytest.mark.parametrize(("module", "words"), [(threads, ("turn", "3")), (tracee, ("children",))])
    def test_killed_from_outside_while_it_makes_another(
        self, leaves_nothing, start_closed, stop, deadline, monkeypatch, module, words
    ):
        def ask_too_late(thread):
            os.kill(subject.pid, signal.SIGKILL)
            while True:
                event_message(thread)

        subject = start_closed(*words)
        monkeypatch.setattr(module, "event_message", ask_too_late)
        with pytest.raises(NotReached) as raised:
            subject.run_to([stop("mark", 1000)], deadline)
        assert raised.value.status == signal.SIGKILL
        subject.kill()


def state_of(thread: int) -> str:
    return Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[0]
