"""Records of executions in shared libraries and of the first of several threads."""

from __future__ import annotations

import subprocess
from collections import Counter
from contextlib import ExitStack

import pytest
from tracing import LIMIT, events, watch, watch_functions

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.kernel.processes import read_mappings
from pytest_causechain.model.command import Command
from pytest_causechain.sandbox.subject import launch
from pytest_causechain.tracee.tracee import End
from pytest_causechain.tracee.tracer import AREAS, Tracer

LIBRARY = """
static int weight;

int weigh(int number)
{
    weight += number;
    return weight;
}
"""
USER = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int weigh(int number);

static int twice(int number)
{
    return weigh(number) + weigh(number);
}

int main(void)
{
    int sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += twice(i);
    void *place = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d %p %p\\n", sum, malloc(1 << 20), place);
    return 0;
}
"""


class TestLibraries:
    @pytest.fixture(params=[(), ("-no-pie",)], ids=["pie", "no-pie"])
    def traced(self, request, build, deadline):
        """traced(use_stubs) is a Tracer of all functions of a program and its library, and its run is over."""
        library = build(LIBRARY, "-shared", "-fPIC").path
        program = build(USER, library, *request.param)
        with Debugger(program.path, [library]) as debugger:
            described = debugger.program
        command = Command(program, (program.path,), "/")
        with ExitStack() as stack:

            def trace_it(use_stubs):
                subject = launch(command, described.relocated, deadline, [library])
                stack.callback(subject.kill)
                tracer = Tracer(subject, watch_functions(described), frozenset(described.rows), use_stubs)
                assert tracer.run(None, LIMIT, deadline)
                return tracer, described

            yield trace_it

    def test_stubs_record_what_breakpoints_do(self, traced, deadline):
        (fast, described), (slow, _) = traced(True), traced(False)
        assert events(fast) == events(slow)
        names = [f.name for f in described.functions]
        assert Counter(names[number] for _, number, _ in events(fast)) == {"main": 1, "twice": 1000, "weigh": 2000}
        # No function of these needs a breakpoint.
        assert not fast._breakpoints and len(fast._moved) == 3

    def test_what_the_program_maps_lies_where_it_always_does(self, traced, deadline):
        tracer, _ = traced(True)
        tracer.subject.finish(deadline)
        plain, _ = traced(False)
        plain.subject.finish(deadline)
        assert tracer.subject.outputs() == plain.subject.outputs()
        command = tracer.subject.command
        natural = launch(command, False, deadline)
        try:
            natural.finish(deadline)
            assert natural.outputs() == plain.subject.outputs()
        finally:
            natural.kill()

    def test_all_places_near_the_library_are_taken(self, traced, monkeypatch, deadline):
        """Then breakpoints do it."""
        monkeypatch.setattr("pytest_causechain.tracee.tracer.PLACES_TRIED", 0)
        tracer, _ = traced(True)
        assert len(tracer._breakpoints) == 3
        assert len(events(tracer)) == 3001


class TestThreads:
    SOURCE = r"""
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    static volatile long caught;
    __attribute__((naked, noinline)) void tiny(void) { __asm__("ret"); }
    __attribute__((noinline)) long twice(long n) { return 2 * n; }
    static void note(int sign) { caught += twice(1); }
    static pthread_t *volatile awaited;
    static void *work(void *argument)
    {
        long *sum = argument, count = *sum;
        if (awaited && pthread_join(*awaited, NULL) == 0)
            printf("outlived\n");
        *sum = 0;
        for (long i = 0; i < count; i++) {
            *sum += twice(i) % 7;
            if (i % 1000 == 0) {
                tiny();
                raise(SIGUSR1);
            }
        }
        return NULL;
    }
    static long first(long n) { tiny(); return twice(n) + 1; }
    int main(int argc, char **argv)
    {
        int count = atoi(argv[1]);
        pthread_t threads[count];
        long sums[count], total = 0;
        pthread_t self = pthread_self();
        if (argc > 3)
            awaited = &self;
        signal(SIGUSR1, note);
        for (int i = 0; i < count; i++) {
            sums[i] = atol(argv[2]);
            pthread_create(&threads[i], NULL, work, &sums[i]);
        }
        for (int i = 0; i < 100; i++)
            total += first(i);
        if (argc > 3)
            pthread_exit(NULL);
        for (int i = 0; i < count; i++) {
            pthread_join(threads[i], NULL);
            total += sums[i];
        }
        printf("%ld\n", total);
        return 3;
    }
    """
    # Of the first thread.
    CALLS = ("main", *("first", "tiny", "twice") * 100)

    @pytest.fixture
    def program(self, build):
        return build(self.SOURCE, "-pthread")

    @pytest.fixture
    def names(self, program, describe):
        """Of the functions recorded."""
        functions = describe(program).functions
        return lambda tracer: tuple(functions[number].name for _, number, _ in events(tracer))

    @pytest.mark.parametrize(("count", "calls"), [("1", "300000"), ("2", "5000"), ("10", "20000"), ("3", "0")])
    def test_only_calls_of_the_first_are_recorded(self, program, trace, names, count, calls):
        tracer, ended = trace(program, count, calls)
        assert ended
        assert names(tracer) == self.CALLS
        assert tracer.subject.outputs()[0] == subprocess.run([program.path, count, calls], capture_output=True).stdout

    def test_by_breakpoints(self, program, trace, names):
        tracer, ended = trace(program, "2", "300", use_stubs=False)
        assert ended
        assert names(tracer) == self.CALLS

    def test_the_first_one_ends_before_the_others(self, program, trace, names):
        tracer, ended = trace(program, "1", "20000", "exit")
        assert ended
        assert names(tracer) == self.CALLS
        assert tracer.subject.outputs()[0] == b"outlived\n"

    def test_limit(self, program, trace, names):
        tracer, ended = trace(program, "3", "20000", limit=50)
        assert not ended
        assert names(tracer) == self.CALLS[:50]

    @pytest.mark.parametrize("visit", [60, 99])
    @pytest.mark.parametrize("name", ["first", "tiny", "twice"])
    def test_stops_before_a_visit_of_the_first(self, program, start, describe, symbol, deadline, name, visit):
        subject = start(program, "3", "30000")
        tracer = Tracer(subject, [watch(describe(program), name)], ())
        tracer.stop_before(visit, deadline)
        registers = subject.registers()
        assert registers.rip == subject.base + next(f.address for f in describe(program).functions if f.name == name)
        if name == "twice":
            assert registers.rdi == visit - 1
        assert not any(AREAS <= m.start < AREAS + (1 << 40) for m in read_mappings(subject.pid))
        assert {subject.registers_of(thread).gs_base for thread in subject.threads.standing} == {0}
        assert subject.finish(deadline) == End("exit", 3)
        native = subprocess.run([program.path, "3", "30000"], capture_output=True)
        assert subject.outputs()[0] == native.stdout
