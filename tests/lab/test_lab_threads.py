"""Programs with threads in the laboratory: whole runs, stops while threads live, and what they leave."""

from __future__ import annotations

import signal
import struct
import subprocess
from pathlib import Path

import pytest
from places import find_function, find_global, find_line, find_local, find_statement, read_int, read_memory

from pytest_causechain.model.moment import Stop
from pytest_causechain.model.transfer import Allocation, Reference, Transfer

THREADED = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job { int from, to; long sum; char *note; struct job *next; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct job *waiting, *extra;
static int is_closed, finished, numbers[1000];

static long twice(long n) { return 2 * n; }
static void amid(int count) { numbers[0] += count * 0; }

static void carry_out(struct job *job)
{
    char text[100];
    for (int i = job->from; i < job->to; i++)
        job->sum += twice(numbers[i]);
    snprintf(text, sizeof text, "%d to %d", job->from, job->to);
    job->note = strdup(text);
}
static void *work(void *job)
{
    carry_out(job);
    return NULL;
}
static void *serve(void *nothing)
{
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!waiting && !is_closed)
            pthread_cond_wait(&changed, &mutex);
        struct job *job = waiting;
        if (!job)
            break;
        waiting = job->next;
        pthread_mutex_unlock(&mutex);
        carry_out(job);
        pthread_mutex_lock(&mutex);
        finished++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return nothing;
}
static pthread_t first;
static void *signal_first(void *sign)
{
    printf("sent %d\n", pthread_kill(first, *(int *)sign));
    return NULL;
}
static void *outlive_first(void *nothing)
{
    printf("joined %d\n", pthread_join(first, NULL));
    exit(7);
}
static void *allocate(void *nothing) { return malloc(1000); }
static void run_crowd(int count)
{
    pthread_t threads[count];
    void *blocks[count];
    int made = 0;
    while (made < count && pthread_create(&threads[made], NULL, allocate, NULL) == 0)
        made++;
    for (int i = 0; i < made; i++)
        pthread_join(threads[i], &blocks[i]);
    printf("%d made\n", made);
}
static void *follow(void *pointer) { return *(void **)pointer; }

static long report(struct job *jobs, int count)
{
    long total = twice(0);
    for (int i = 0; i < count; i++) {
        printf("%s: %ld\n", jobs[i].note, jobs[i].sum);
        total += jobs[i].sum;
    }
    for (struct job *job = extra; job; job = job->next)
        printf("extra %ld\n", job->sum);
    return total;
}

int main(int argc, char **argv)
{
    int count = atoi(argv[2]), is_queue = strcmp(argv[1], "queue") == 0;
    pthread_t threads[count];
    struct job jobs[count];
    for (int i = 0; i < 1000; i++)
        numbers[i] = i % 10;
    if (strcmp(argv[1], "crash") == 0) {
        pthread_create(&threads[0], NULL, follow, NULL);
        pthread_join(threads[0], NULL);
    }
    if (strcmp(argv[1], "signal") == 0) {
        sigset_t set;
        int sign = SIGUSR1;
        sigemptyset(&set);
        sigaddset(&set, sign);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        first = pthread_self();
        pthread_create(&threads[0], NULL, signal_first, &sign);
        sigwait(&set, &sign);
        pthread_join(threads[0], NULL);
        return 5;
    }
    if (strcmp(argv[1], "outlive") == 0) {
        first = pthread_self();
        pthread_create(&threads[0], NULL, outlive_first, NULL);
        pthread_exit(NULL);
    }
    if (strcmp(argv[1], "crowd") == 0) {
        amid(count);
        run_crowd(count);
        return 6;
    }
    for (int i = 0; i < count; i++) {
        jobs[i] = (struct job){i * (1000 / count), (i + 1) * (1000 / count), 0, NULL, NULL};
        pthread_create(&threads[i], NULL, is_queue ? serve : work, &jobs[i]);
    }
    for (int i = 0; is_queue && i < count; i++) {
        pthread_mutex_lock(&mutex);
        jobs[i].next = waiting;
        waiting = &jobs[i];
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    amid(count);
    if (is_queue) {
        pthread_mutex_lock(&mutex);
        while (finished < count)
            pthread_cond_wait(&changed, &mutex);
        is_closed = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
        amid(2);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", report(jobs, count));
    return count;
}
"""
RUNS = [("join", "2"), ("join", "10"), ("queue", "3")]


@pytest.fixture
def program(build):
    return build(THREADED, "-pthread")


@pytest.fixture(params=RUNS, ids=" ".join)
def words(request):
    return request.param


def run_natively(program, *words):
    return subprocess.run([program.path, *words], capture_output=True, cwd=Path(program.path).parent)


def stops_of(lab, name, visit=1):
    function = next(f for f in lab.program.functions if f.name == name)
    return Stop(function.address, visit), Stop(function.body, 1)


class TestRuns:
    def test_as_outside(self, program, open_lab, words):
        native = run_natively(program, *words)
        seen = {open_lab(program, *words).experiment("passing") for _ in range(3)}
        assert {(o.stdout, o.returncode) for o in seen} == {(native.stdout, native.returncode)}

    @pytest.mark.parametrize("words", [("signal", "1"), ("outlive", "1")], ids=" ".join)
    def test_threads_that_know_the_first_one(self, program, open_lab, words):
        """By the number that the C library keeps of it: copies have others."""
        native = run_natively(program, *words)
        observation = open_lab(program, *words).experiment("passing")
        assert (observation.stdout, observation.returncode) == (native.stdout, native.returncode)
        assert b" 0" in native.stdout

    def test_many_are_made_behind_a_stop(self, program, open_lab):
        """Each reserves more memory than it will ever use."""
        lab = open_lab(program, "crowd", "60")
        assert lab.experiment("passing", stops_of(lab, "amid")).stdout == b"60 made\n"

    @pytest.mark.parametrize("name", ["amid", "report"])
    def test_from_a_stop_on(self, program, open_lab, words, name):
        lab, native = open_lab(program, *words), run_natively(program, *words)
        seen = lab.experiments("passing", stops_of(lab, name), [Transfer()] * 20)
        assert {(o.stdout, o.returncode) for o in seen} == {(native.stdout, native.returncode)}

    def test_a_crash_of_another_thread(self, program, open_lab):
        observation = open_lab(program, "crash", "1").experiment("passing")
        assert (observation.ending, observation.code) == ("signal", signal.SIGSEGV)
        assert observation.backtrace[0].function == "follow"
        assert observation.backtrace[0].line == find_line(THREADED, "static void *follow")

    def test_which_laboratory(self, program, open_lab, kind):
        lab = open_lab(program, "join", "2")
        lab.experiment("passing", stops_of(lab, "report"))
        assert lab.name == kind
        lab.experiment("passing", stops_of(lab, "amid"))
        assert lab.name == "rerun"


class TestStops:
    def test_visits_are_those_of_the_first_thread(self, program, open_lab):
        lab = open_lab(program, "join", "2")
        state = lab.visit("passing", stops_of(lab, "twice"))
        assert [frame.function for frame in state.frames][:3] == ["twice", "report", "main"]
        assert lab.visit("passing", stops_of(lab, "twice", 2)) is None

    def test_calls_recorded_are_those_of_the_first_thread(self, program, open_lab, words):
        lab = open_lab(program, *words)
        trace = lab.trace("passing", (), [f.address for f in lab.program.functions])
        assert trace.complete
        names = [lab.program.function_at(event.address).name for event in trace.events]
        amid = ["amid"] * (1 + (words[0] == "queue"))
        assert names == ["main", *amid, "report", "twice"]

    def test_state_is_the_same_each_time(self, program, open_lab, words):
        """Also where the threads' own objects lie, which depends on who comes first."""
        lab = open_lab(program, *words)
        for name in ("amid", "report"):
            seen = set()
            for _ in range(5):
                state = lab.visit("passing", stops_of(lab, name))
                jobs, size = find_local(state, "jobs", frame=1), struct.calcsize("<iiqQQ")
                seen.add(read_memory(state, jobs, int(words[1]) * size))
            assert len(seen) == 1

    @pytest.mark.parametrize("name", ["amid", "report"])
    def test_unused_stacks_are_no_part_of_it(self, program, open_lab, name):
        """Those of ten threads are 80 MiB, also when they have ended."""
        lab = open_lab(program, "join", "10")
        state = lab.visit("passing", stops_of(lab, name))
        assert sum(len(region.data) for region in state.regions) < 8 << 20

    def test_frames_while_threads_live(self, program, open_lab, words):
        lab = open_lab(program, *words)
        state = lab.visit("passing", stops_of(lab, "amid"))
        assert [frame.function for frame in state.frames][:2] == ["amid", "main"]
        assert read_int(state, find_local(state, "count")) == int(words[1])

    def test_memory_of_another_thread(self, program, open_lab):
        lab = open_lab(program, "join", "3")
        state = lab.visit("passing", stops_of(lab, "report"))
        jobs = find_local(state, "jobs", frame=1)
        (note,) = struct.unpack("<Q", read_memory(state, jobs + 16, 8))
        assert read_memory(state, note, 9) == b"0 to 333\0"


class TestTransfers:
    def test_while_threads_live(self, program, open_lab):
        lab = open_lab(program, "queue", "3")
        stops = (Stop(find_function(lab, "amid"), 2), Stop(find_statement(lab, THREADED, "numbers[0] += count"), 1))
        state = lab.visit("passing", stops)
        jobs = find_local(state, "jobs", frame=1)
        transfer = Transfer(
            writes=((jobs + 8, struct.pack("<q", 77)),),
            allocations=(Allocation(32, struct.pack("<iiqQ", 0, 0, 5, 0)),),
            references=(Reference(None, find_global(lab, "extra") + state.load_map.base, 0, 0),),
        )
        seen = {lab.experiment("passing", stops, transfer) for _ in range(10)}
        lines = run_natively(program, "queue", "3").stdout.splitlines()
        total = 77 + sum(int(line.split()[-1]) for line in lines[1:3])
        assert [o.stdout.splitlines() for o in seen] == [[b"0 to 333: 77", *lines[1:3], b"extra 5", b"%d" % total]]
