"""Runs that do not end by themselves, and what is left of them: nothing."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from typing import TypeVar

import pytest
from places import PLENTY_SECONDS, find_function, find_global, find_processes, open_remote_lab

from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import NOTHING, Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.runs import Command, Observation, Program

T = TypeVar("T")

HANGING = r"""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int wheel;
static void turn(void)
{
    for (;;)
        wheel++;
}
static void *turn_in_thread(void *nothing) { turn(); return nothing; }
static int is(char **argv, const char *name) { return strcmp(argv[1], name) == 0; }
static void never(void) { puts("never"); }

int main(int argc, char **argv)
{
    printf("so far\n");
    fflush(stdout);
    if (is(argv, "loop"))
        turn();
    if (is(argv, "sleep"))
        sleep(1000);
    if (is(argv, "stubborn")) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        turn();
    }
    if (is(argv, "threads")) {
        pthread_t thread;
        pthread_create(&thread, NULL, turn_in_thread, NULL);
        pthread_join(thread, NULL);
    }
    if (is(argv, "child")) {
        if (fork() == 0)
            turn();
        wait(NULL);
    }
    if (is(argv, "family")) {
        for (int i = 0; i < 3; i++)
            if (fork() == 0)
                sleep(1000);
        return 4;
    }
    if (is(argv, "daemon")) {
        if (fork() == 0) {
            for (int i = 0; i < 3; i++)
                close(i);
            if (argc > 2 && setsid() && fork() > 0)
                _exit(0);
            sleep(1000);
        }
        return 5;
    }
    if (is(argv, "killed")) {
        pid_t parent = getpid();
        if (fork() == 0) {
            kill(parent, argv[2][0] == 't' ? SIGTERM : SIGKILL);
            _exit(0);
        }
        sleep(1000);
    }
    if (is(argv, "flood"))
        for (;;)
            puts("................................................................................................");
    if (is(argv, "exec"))
        execl("/bin/sleep", "sleep", "0", NULL);
    never();
    return 0;
}
"""
# For a run that will not end. Where it must get behind main's first lines before, a busy machine may need more.
SHORT_SECONDS = 1.0
LONGER_SECONDS = (SHORT_SECONDS, 4.0, 16.0, 64.0)


@pytest.fixture
def program(build) -> Program:
    return build(HANGING, "-pthread")


class TestSpeculation:
    def test_what_nobody_asked_for_is_cancelled(self, build):
        program = build(
            """
            static volatile int turning;
            static void turn(void) { while (turning) ; }
            int main(void) { turn(); return 3; }
            """
        )
        with open_remote_lab("fork", program) as lab:
            stops = (Stop(find_function(lab, "turn"), 1),)
            base = lab.visit("passing", stops).load_map.base
            endless = Transfer(writes=((find_global(lab, "turning") + base, b"\1"),))
            asked, beside = lab.speculate("passing", stops, [NOTHING, endless])
            assert (asked.ending, asked.code) == ("exit", 3)
            # Else it would have been a run that did not end in time.
            assert beside is None
            assert find_processes(program) == []

    def test_what_is_asked_for_is_not(self, program):
        with open_remote_lab("fork", program, "loop") as lab:
            lab.run_seconds = SHORT_SECONDS
            asked, _ = lab.speculate("passing", (), [NOTHING, NOTHING])
            assert asked.ending == "timeout"


def look_at_hanging(lab: RemoteLab, look: Callable[[], T], has_begun: Callable[[T], object]) -> T:
    """What is seen of a run that is given enough time to come to where it hangs."""
    for seconds in LONGER_SECONDS:
        lab.run_seconds = seconds
        if has_begun(seen := look()):
            break
    return seen


def observe_hanging(lab: RemoteLab) -> Observation:
    return look_at_hanging(lab, lambda: lab.experiment("passing"), lambda observation: observation.stdout)


class TestTimeouts:
    @pytest.mark.parametrize(
        ("mode", "innermost"), [("loop", "turn"), ("stubborn", "turn"), ("sleep", None), ("child", None)]
    )
    def test_a_hanging_run_tells_where_it_was(self, program, open_lab, mode, innermost):
        lab = open_lab(program, mode)
        observation = observe_hanging(lab)
        assert observation.ending == "timeout"
        assert observation.code == signal.SIGKILL
        assert observation.stdout == b"so far\n"
        functions = [frame.function for frame in observation.backtrace]
        assert functions[-1] == "main"
        assert innermost in (None, functions[0])
        assert find_processes(program) == []
        assert lab.visit("passing", (Stop(find_function(lab, "main"), 1),)) is not None

    def test_threads(self, program, open_lab):
        observation = observe_hanging(open_lab(program, "threads"))
        assert (observation.ending, observation.stdout) == ("timeout", b"so far\n")
        assert observation.backtrace
        assert find_processes(program) == []

    def test_a_stop_behind_the_endless_loop(self, program, open_lab):
        lab = open_lab(program, "loop")
        lab.run_seconds = SHORT_SECONDS
        never = Stop(find_function(lab, "never"), 1)
        assert lab.visit("passing", (never,)) is None
        assert find_processes(program) == []

    def test_a_trace_is_not_complete(self, program, open_lab):
        lab = open_lab(program, "loop")
        addresses = [find_function(lab, name) for name in ("main", "turn", "never")]
        trace = look_at_hanging(lab, lambda: lab.trace("passing", (), addresses), lambda trace: len(trace.events) > 1)
        assert not trace.complete
        assert [event.address for event in trace.events] == addresses[:2]

    def test_endless_output(self, program, open_lab):
        observation = open_lab(program, "flood").experiment("passing")
        assert observation.ending == "timeout"
        assert observation.code == signal.SIGXFSZ
        assert len(observation.stdout) == 64 << 20


class TestFamilies:
    def test_children_that_hang_are_ended(self, program, open_lab):
        observation = observe_hanging(open_lab(program, "family"))
        assert (observation.ending, observation.code, observation.stdout) == ("exit", 4, b"so far\n")
        assert find_processes(program) == []

    @pytest.mark.parametrize("words", [(), ("session",)], ids=["", "in a session of its own"])
    def test_a_child_that_writes_nothing_is_not_waited_for(self, program, open_lab, words):
        lab = open_lab(program, "daemon", *words)
        # If it were waited for, the run would take all of it.
        lab.run_seconds = PLENTY_SECONDS
        begin = time.monotonic()
        assert lab.experiment("passing").code == 5
        assert time.monotonic() - begin < PLENTY_SECONDS / 2
        assert find_processes(program) == []

    def test_children_of_a_visited_run_are_ended(self, program, open_lab):
        lab = open_lab(program, "child", failing=["daemon"])
        main = next(f for f in lab.program.functions if f.name == "main")
        line = next(n for n, text in enumerate(HANGING.splitlines(), 1) if "return 5;" in text)
        stop = Stop(next(s.address for s in main.statements if s.line == line), 1)
        assert lab.visit("failing", (stop,)) is not None
        assert find_processes(program) == []

    @pytest.mark.parametrize(("how", "sign"), [("terminated", signal.SIGTERM), ("killed", signal.SIGKILL)])
    def test_killed_from_outside(self, program, open_lab, how, sign):
        observation = open_lab(program, "killed", how).experiment("passing")
        assert (observation.ending, observation.code, observation.backtrace) == ("signal", sign, ())

    def test_a_trace_ends_where_the_program_becomes_another(self, program, open_lab):
        lab = open_lab(program, "exec", failing=["none"])
        addresses = [f.address for f in lab.program.functions]
        names = [lab.program.function_at(e.address).name for e in lab.trace("passing", (), addresses).events]
        assert names[0] == "main"
        assert set(names[1:]) == {"is"}
        names = [lab.program.function_at(e.address).name for e in lab.trace("failing", (), addresses).events]
        assert names[-1] == "never"


class TestBudget:
    def test_nothing_is_begun_behind_the_deadline(self, program, open_lab):
        lab = open_lab(program, "none")
        lab.budget.deadline = time.monotonic()
        stop = Stop(find_function(lab, "main"), 1)
        for begin in (
            lambda: lab.experiment("passing"),
            lambda: lab.visit("passing", (stop,)),
            lambda: lab.trace("passing", (), [stop.address]),
        ):
            with pytest.raises(BudgetUsedUp, match="--cause-chain-timeout"):
                begin()


class TestRefusals:
    def test_the_directory_is_gone(self, program, kind, tmp_path):
        directory = tmp_path / "gone"
        directory.mkdir()
        command = Command(program, (program.path, "none"), str(directory))
        with RemoteLab(Open(command, command, kind=kind), Budget(60)) as lab:
            assert lab.experiment("passing").stdout == b"so far\nnever\n"
            directory.rmdir()
            with pytest.raises(Refusal, match=r"gone is gone.*tmp_path_retention_policy"):
                lab.experiment("passing")

    def test_the_program_is_gone(self, program, kind, tmp_path):
        copy = shutil.copy(program.path, tmp_path / "copy")
        command = Command(Program(str(copy), "copy"), (str(copy), "none"), str(tmp_path))
        with RemoteLab(Open(command, command, kind=kind), Budget(60)) as lab:
            copy.unlink()
            with pytest.raises(Refusal, match="copy"):
                lab.experiment("passing")

    def test_no_program_at_all(self, kind, tmp_path):
        (tmp_path / "text").write_text("no program\n" * 10)
        command = Command(Program(str(tmp_path / "text"), "none"), ("text",), str(tmp_path))
        with pytest.raises(Refusal, match="text is no program for x86-64"):
            RemoteLab(Open(command, command, kind=kind), Budget(60))
