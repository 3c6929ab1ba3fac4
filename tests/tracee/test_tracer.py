"""Records of executions: by stubs as by breakpoints, and unseen by the program."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from tracing import LIMIT, Clock, events, native, watch, watch_functions

from pytest_causechain.kernel.processes import cpu_seconds, read_mappings
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee import tracee
from pytest_causechain.tracee.tracee import End, NotReached
from pytest_causechain.tracee.tracer import BUFFER, CAPACITY, GUARD, Tracer

MANY_WAYS = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long ticks;
__attribute__((naked, noinline)) void tiny(void) { __asm__("ret"); }
static int recurse(int n) { return n < 2 ? 1 : recurse(n - 1) + recurse(n - 2); }
static int choose(int n)
{
    switch (n) {
    case 0: return 10;
    case 1: tiny(); return 11;
    case 2: n += 5; break;
    case 3: return 13;
    case 4: n *= 2; /* fall through */
    case 5: return n + 15;
    case 6: return 16;
    }
    return n;
}
static int add(int a, int b) { return a + b; }
static int subtract(int a, int b) { return a - b; }
static int (*const operations[])(int, int) = {add, subtract, add};
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static double mean(const int *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i];
    return sum / count;
}
static int loops(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int j = i;
        while (j > 0) {
            sum += j & 1;
            j >>= 1;
        }
        do sum++; while (sum % 3);
    }
    return sum;
}
int main(void)
{
    int values[20], sum = 0;
    for (int i = 0; i < 20; i++)
        values[i] = (i * 7919) % 23;
    qsort(values, 20, sizeof *values, compare);
    for (int i = 0; i < 9; i++) {
        sum += choose(i);
        sum = operations[i % 3](sum, i);
    }
    printf("%d %d %d %.3f\n", recurse(9), sum, loops(12), mean(values, 20));
    return sum & 63;
}
"""
CPP = r"""
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
struct Shape { virtual ~Shape() {} virtual int area() const = 0; };
struct Square : Shape { int a; explicit Square(int a) : a(a) {} int area() const override { return a * a; } };
struct Line : Shape { int area() const override { throw std::runtime_error("flat"); } };
template <class T> T twice(T x) { return x + x; }
static int measure(const Shape &shape) { try { return shape.area(); } catch (const std::exception &e) { return -1; } }
int main()
{
    std::map<std::string, int> found;
    std::vector<Shape *> shapes{new Square(3), new Line, new Square(4)};
    for (auto *shape : shapes) found[std::to_string(measure(*shape))]++;
    for (auto &entry : found) std::printf("%s %d\n", entry.first.c_str(), twice(entry.second));
    for (auto *shape : shapes) delete shape;
    return twice(2);
}
"""
COUNTING = r"""
#include <stdio.h>
long counter;
__attribute__((noinline)) static void count(void) { counter++; }
__attribute__((naked, noinline)) void tiny(void) { __asm__("ret"); }
int main(void)
{
    for (int i = 0; i < 200000; i++) {
        count();
        if (i < 1200) tiny();
    }
    printf("%ld\n", counter);
    return 0;
}
"""
CHILDREN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((naked, noinline)) void tiny(void) { __asm__("ret"); }
static int work(int n) { int sum = 0; for (int i = 0; i < n; i++) { tiny(); sum += i; } return sum & 127; }
static void become(void) { execl("/bin/echo", "echo", "from the shell", NULL); }
int main(int argc, char **argv)
{
    int status, sum = 0;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(work(100 + i));
        waitpid(child, &status, 0);
        sum = sum * 200 + (WIFEXITED(status) ? WEXITSTATUS(status) : 199);
        work(5);
    }
    pid_t child = vfork();
    if (child == 0) { tiny(); become(); _exit(1); }
    waitpid(child, &status, 0);
    printf("%d %d %d\n", sum, status, system("exit 3") >> 8);
    fflush(stdout);
    if (argc > 1)
        execl("/bin/echo", "echo", "another", NULL);
    return 9;
}
"""
ALARMS = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
long ticks, calls;
static void handle(int sign) { ticks++; }
__attribute__((noinline)) static void count(void) { calls++; }
int main(void)
{
    struct itimerval often = {{0, 200}, {0, 200}};
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &often, NULL);
    while (ticks < 200 || calls < 200000)
        count();
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    printf("%ld %ld\n", ticks, calls);
    return 0;
}
"""
BUILDS = [(), ("-O1",), ("-O2",), ("-no-pie",), ("-static",), ("-no-pie", "-O2", "-fno-inline"), ("-fcf-protection",)]


@pytest.mark.parametrize("lines", [False, True], ids=["functions", "lines"])
@pytest.mark.parametrize("flags", BUILDS, ids=" ".join)
def test_stubs_record_what_breakpoints_do(build, trace, deadline, flags, lines):
    check_both_ways(build(MANY_WAYS, *flags), trace, deadline, lines)


@pytest.mark.parametrize("lines", [False, True], ids=["functions", "lines"])
@pytest.mark.parametrize("flags", [(), ("-O2",)], ids=" ".join)
def test_cpp(build, trace, deadline, flags, lines):
    check_both_ways(build(CPP, *flags, compiler="c++"), trace, deadline, lines)


def check_both_ways(program, trace, deadline, lines):
    slow, ended = trace(program, lines=lines, use_stubs=False)
    assert ended
    fast, ended = trace(program, lines=lines)
    assert ended
    assert events(fast)
    assert events(fast) == events(slow)
    expected = native(program)
    for tracer in (slow, fast):
        assert tracer.subject.finish(deadline) == End("exit", expected.returncode)
        assert tracer.subject.outputs() == (expected.stdout, expected.stderr)


def test_return_addresses_and_stack_pointers(build, describe, trace):
    program = build(MANY_WAYS)
    described = describe(program)
    tracer, _ = trace(program)
    names = [f.name for f in described.functions]
    recursions = [(back, sp) for back, number, sp in events(tracer) if names[number] == "recurse"]
    assert len(recursions) == 109
    assert len({sp for _, sp in recursions}) == 9
    for back, _ in recursions:
        caller = described.function_at((back - tracer.subject.base & 0xFFFFFFFF) - 1)
        assert caller.name in ("main", "recurse")


class TestUntil:
    @pytest.mark.parametrize("use_stubs", [True, False])
    @pytest.mark.parametrize("visit", [1, 2, 50, 109])
    def test_exactly_before(self, build, describe, trace, visit, use_stubs):
        program = build(MANY_WAYS)
        described = describe(program)
        whole, _ = trace(program)
        number = [f.name for f in described.functions].index("recurse")
        stop = Stop(described.functions[number].address, visit)
        tracer, reached = trace(program, until=stop, use_stubs=use_stubs)
        assert reached
        at = [index for index, event in enumerate(events(whole)) if event[1] == number][visit - 1]
        assert events(tracer) == events(whole)[:at]
        assert tracer.subject.registers().rip - 1 == tracer.subject.base + stop.address

    def test_at_an_instruction_that_is_not_watched(self, build, describe, trace):
        program = build(MANY_WAYS)
        described = describe(program)
        body = next(f.body for f in described.functions if f.name == "choose")
        tracer, reached = trace(program, watched=[watch(described, "choose")], until=Stop(body, 4))
        assert reached
        assert len(events(tracer)) == 4

    def test_never_reached(self, build, describe, trace):
        program = build(MANY_WAYS)
        tracer, ended = trace(program, until=Stop(watch(describe(program), "recurse").address, 110))
        whole, _ = trace(program)
        assert ended
        assert events(tracer) == events(whole)


@pytest.mark.parametrize("use_stubs", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_limit(build, trace, limit, use_stubs):
    program = build(MANY_WAYS)
    whole, _ = trace(program)
    tracer, ended = trace(program, limit=limit, use_stubs=use_stubs)
    assert not ended
    assert events(tracer)[:limit] == events(whole)[:limit]
    assert len(events(tracer)) == limit


def test_more_records_than_the_buffer_holds(build, trace, deadline):
    program = build(COUNTING)
    tracer, ended = trace(program)
    assert ended
    assert len(events(tracer)) == 200_000 + 1200 + 1 > 3 * CAPACITY
    assert tracer.subject.finish(deadline) == End("exit", 0)
    assert tracer.subject.outputs()[0] == b"200000\n"


def test_time_is_over(build, start, describe, deadline, monkeypatch):
    program = build("int main(void) { volatile int n = 0; for (;;) n++; }")
    subject = start(program)
    tracer = Tracer(subject, watch_functions(describe(program)), ())
    # Far behind the first instructions of main.
    monkeypatch.setattr(tracee, "time", Clock(lambda: cpu_seconds(subject.pid) > 0.2))
    assert not tracer.run(None, LIMIT, deadline)
    assert len(events(tracer)) == 1


class TestStopBefore:
    @pytest.fixture
    def stopped(self, build, start, describe, deadline):
        def stop(name, visit, use_stubs=True):
            program = build(COUNTING)
            described = describe(program)
            subject = start(program)
            mappings = read_mappings(subject.pid)
            tracer = Tracer(subject, [watch(described, name)], (), use_stubs)
            tracer.stop_before(visit, deadline)
            address = subject.base + next(f.address for f in described.functions if f.name == name)
            assert subject.registers().rip == address
            assert subject.read(address, 8) in Path(program.path).read_bytes()
            left = {m.start for m in read_mappings(subject.pid) if m.name == ""} - {m.start for m in mappings}
            assert not any(BUFFER <= start < GUARD for start in left)
            return subject

        return stop

    @pytest.mark.parametrize("visit", [1, 2, 51, 1000, CAPACITY, CAPACITY + 1, CAPACITY + 2, 70_000, 200_000])
    def test_the_counter_tells(self, stopped, build, symbol, deadline, visit):
        subject = stopped("count", visit)
        address = subject.base + symbol(build(COUNTING), "counter")
        assert struct.unpack("<q", subject.read(address, 8)) == (visit - 1,)
        assert subject.finish(deadline) == End("exit", 0)
        assert subject.outputs()[0] == b"200000\n"

    @pytest.mark.parametrize("visit", [1, 51, 1000])
    def test_a_function_too_short_for_a_jump(self, stopped, build, symbol, deadline, visit):
        subject = stopped("tiny", visit)
        address = subject.base + symbol(build(COUNTING), "counter")
        assert struct.unpack("<q", subject.read(address, 8)) == (visit,)
        assert subject.finish(deadline) == End("exit", 0)

    def test_twice_in_a_row(self, stopped, build, describe, symbol, deadline):
        program = build(COUNTING)
        subject = stopped("count", 300)
        tracer = Tracer(subject, [watch(describe(program), "count")], ())
        tracer.stop_before(60, deadline)
        address = subject.base + symbol(program, "counter")
        assert struct.unpack("<q", subject.read(address, 8)) == (359,)

    def test_one_that_never_comes(self, stopped):
        with pytest.raises(NotReached):
            stopped("count", 200_001)


class TestChildren:
    @pytest.mark.parametrize("use_stubs", [True, False])
    def test_run_unharmed(self, build, trace, deadline, use_stubs):
        program = build(CHILDREN)
        expected = native(program)
        assert expected.stdout.endswith(b" 0 3\n")
        tracer, ended = trace(program, use_stubs=use_stubs)
        assert ended
        assert tracer.subject.finish(deadline) == End("exit", 9)
        assert tracer.subject.outputs() == (expected.stdout, expected.stderr)

    def test_while_it_runs_to_a_stop(self, build, start, describe, deadline):
        program = build(CHILDREN)
        subject = start(program)
        with pytest.raises(NotReached):
            subject.run_to([Stop(watch(describe(program), "tiny").address, 1000)], deadline)
        assert subject.outputs()[0] == native(program).stdout

    def test_an_exec_loses_records_and_says_so(self, build, trace, deadline):
        program = build(CHILDREN)
        tracer, ended = trace(program, "exec")
        assert (ended, tracer.is_lossy) == (True, True)
        slow, ended = trace(program, "exec", use_stubs=False)
        assert (ended, slow.is_lossy) == (True, False)
        assert len(events(slow)) == 1 + 3 * 6
        assert slow.subject.finish(deadline) == End("exit", 0)
        assert slow.subject.outputs()[0] == native(program, "exec").stdout


def test_a_crash_in_a_moved_instruction(build, trace, deadline):
    program = build("int *volatile nowhere;\nint main(void)\n{\n    int *at = nowhere;\n    return *at;\n}\n")
    tracer, ended = trace(program, lines=True)
    assert ended
    assert len(events(tracer)) == 3
    assert time.monotonic() < deadline


class TestSignals:
    def test_a_handler_amid_records(self, build, describe, trace, deadline):
        program = build(ALARMS)
        tracer, ended = trace(program)
        assert ended
        names = [f.name for f in describe(program).functions]
        assert tracer.subject.finish(deadline) == End("exit", 0)
        ticks, calls = (int(word) for word in tracer.subject.outputs()[0].split())
        recorded = [names[number] for _, number, _ in events(tracer)]
        assert (recorded.count("handle"), recorded.count("count")) == (ticks, calls)
