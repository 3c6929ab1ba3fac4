"""Engines on workers: the same results on any number of workers, whatever happens to some of them."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import chain
from pathlib import Path

import execnet
import pytest
from places import PLENTY_SECONDS, comes_true, find_function, find_global

import pytest_causechain
from pytest_causechain.lab import gateways, remote_lab
from pytest_causechain.lab.crew import Crew, MakeWorker, Share
from pytest_causechain.lab.engine import Call
from pytest_causechain.lab.flights import Limits
from pytest_causechain.lab.gateways import GatewayWorker
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.lab.workers import OwnWorker
from pytest_causechain.model.command import Command, Program
from pytest_causechain.model.intervention import Intervention, Spot
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.transfer import Transfer
from pytest_causechain.process.companion import CompanionLost
from pytest_causechain.process.maps import list_children
from pytest_causechain.recording.programs import identify_program

PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>
int number = 1;
static int twice(int n) { return 2 * n; }
int main(void)
{
    usleep(2000);
    while (number < 0)
        ;
    printf("%d\n", twice(number));
    return 0;
}
"""
# As many as one engine would take a while for.
NUMBERS = range(40)
OpenCrew = Callable[..., Crew]


@pytest.fixture(scope="module")
def command(build) -> Command:
    program = identify_program(build(PROGRAM).path)
    return Command(program, (program.path,), str(Path(program.path).parent))


@pytest.fixture
def group() -> Iterator[execnet.Group]:
    group = execnet.Group(execmodel="main_thread_only")
    yield group
    gateways = list(group)
    group.terminate(5)
    for gateway in gateways:
        gateway.join(5)
    # The rest of a gateway's descriptors goes with it, and other tests count theirs.
    gateways.clear()
    gc.collect()


@pytest.fixture
def open_crew(group, tmp_path, monkeypatch) -> Iterator[OpenCrew]:
    """open_crew(*specs): workers of these kinds, which leave nothing behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(remote_lab, "WORTHWHILE_SECONDS", 0.0)
    with contextlib.ExitStack() as stack:

        def open_one(*specs: str) -> Crew:
            return stack.enter_context(Crew([make_worker(group, n, spec) for n, spec in enumerate(specs)]))

        yield open_one
    assert list(tmp_path.iterdir()) == []


def make_worker(group: execnet.Group, number: int, spec: str) -> MakeWorker:
    """On a gateway of that kind; "own" is one without."""
    name = f"w{number}"
    if spec == "own":
        return partial(OwnWorker, name)
    return partial(GatewayWorker, name, group.makegateway(f"{spec}//id={name}"), spec.startswith("popen"))


def open_lab(command: Command, crew: Crew | None, is_parallel: bool = True) -> RemoteLab:
    share = Share(crew, is_parallel) if crew is not None else None
    return RemoteLab(command, command, time.monotonic() + PLENTY_SECONDS, share=share)


def stop_at_main(lab: RemoteLab) -> tuple[Stop, ...]:
    return (Stop(find_function(lab, "main"), 1),)


def try_numbers(lab: RemoteLab) -> list[bytes]:
    """The outputs of experiments that each show another number."""
    return [run.stdout for run in lab.experiments("passing", stop_at_main(lab), set_numbers(lab, NUMBERS))]


def set_numbers(lab: RemoteLab, numbers: Sequence[int]) -> list[Transfer]:
    visit = lab.visit("passing", stop_at_main(lab))
    assert visit is not None
    place = visit.load_map.to_run(find_global(lab, "number"))
    return [Transfer(((place, number.to_bytes(4, "little", signed=True)),)) for number in numbers]


EXPECTED = [b"%d\n" % (2 * number) for number in NUMBERS]


def await_width(lab: RemoteLab, width: int) -> None:
    """Until so many workers take part."""
    deadline = time.monotonic() + PLENTY_SECONDS
    while lab.width < width and time.monotonic() < deadline:
        assert try_numbers(lab) == EXPECTED
    assert lab.width == width


def once(condition: Callable[[], object], action: Callable[..., object], *arguments: object) -> threading.Thread:
    """The action follows in a thread of its own."""

    def act() -> None:
        if comes_true(condition):
            action(*arguments)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def end_gateway(group: execnet.Group, name: str, sign: signal.Signals = signal.SIGKILL) -> None:
    os.kill(group[name]._io.popen.pid, sign)


@pytest.fixture(params=["own", "popen"])
def worker(request) -> str:
    return request.param


class TestSpreading:
    @pytest.mark.parametrize("workers", [1, 2, 3])
    def test_same_results_on_any_number_of_workers(self, command, open_crew, worker, workers):
        crew = open_crew(*[worker] * workers)
        with open_lab(command, crew) as lab:
            await_width(lab, workers)
            assert try_numbers(lab) == EXPECTED
            spot = Spot("return", (Stop(find_function(lab, "twice"), 1),), "rdi", 4)
            attempts = [Intervention(spot, number.to_bytes(4, "little")) for number in NUMBERS]
            changed = lab.interventions("failing", attempts, Limits(5.0, 20.0, 1 << 16))
            assert [run.stdout for run in changed] == EXPECTED
            assert crew.busy == workers
        assert (crew.busy, crew.notes) == (0, [])

    def test_what_nobody_asked_for_is_cancelled_on_the_others_too(self, command, open_crew, worker):
        with open_lab(command, open_crew(worker, worker)) as lab:
            await_width(lab, 2)
            lab.run_seconds = 2 * PLENTY_SECONDS
            transfers = set_numbers(lab, [5, -1])
            # The second time the helper is there again.
            for _ in range(2):
                (helper,) = lab._find_idle(1)
                asked, beside = lab.speculate("passing", stop_at_main(lab), transfers)
                assert (asked.stdout, beside) == (b"10\n", None)
                assert comes_true(lambda helper=helper: not helper.is_busy)
            # An order to cancel that came too late is not taken for the next experiment.
            helper.engine.cancel()
            seen = lab.speculate("passing", stop_at_main(lab), set_numbers(lab, [5, 7]))
            assert [run.stdout for run in seen] == [b"10\n", b"14\n"]

    def test_one_at_a_time(self, command, open_crew, worker):
        crew = open_crew(worker, worker)
        with open_lab(command, crew, is_parallel=False) as lab:
            for _ in range(3):
                assert try_numbers(lab) == EXPECTED
            assert (lab.width, crew.busy) == (1, 1)

    def test_who_works_for_another_diagnosis_is_left_alone(self, command, open_crew, worker):
        crew = open_crew(worker, worker)
        with open_lab(command, crew) as one, open_lab(command, crew) as other:
            assert [worker.leases for worker in crew.workers] == [1, 1]
            for lab in (one, other):
                assert try_numbers(lab) == EXPECTED
                assert lab.width == 1

    def test_who_rests_leaves_its_worker_to_others(self, command, open_crew, worker):
        crew = open_crew(worker, worker)
        with open_lab(command, crew) as one, open_lab(command, crew) as other:
            with other.resting():
                await_width(one, 2)
            assert [worker.leases for worker in crew.workers] == [1, 2]
            assert try_numbers(other) == EXPECTED
        assert crew.busy == 0

    def test_free_workers_are_shared_fairly(self, command, open_crew):
        crew = open_crew(*["own"] * 4)
        with crew.diagnosing(), crew.diagnosing(), open_lab(command, crew), open_lab(command, crew):
            borrowed = [crew.borrow() for _ in range(3)]
            assert [len(engines) for engines in borrowed] == [1, 1, 0]
            for engine in chain(*borrowed):
                engine.close()


class TestSpareEngines:
    def test_the_next_lab_need_not_wait_for_a_new_process(self, command, open_crew, group):
        crew = open_crew("popen")
        seen = []
        for _ in range(3):
            with open_lab(command, crew) as lab:
                assert try_numbers(lab) == EXPECTED
                seen.append(list_children(group["w0"]._io.popen.pid))
        assert len(seen[0]) == 1
        assert seen[0] == seen[1] == seen[2]

    def test_one_that_has_died_meanwhile(self, command, open_crew, group):
        crew = open_crew("popen")
        with open_lab(command, crew) as lab:
            assert try_numbers(lab) == EXPECTED
        (spare,) = list_children(group["w0"]._io.popen.pid)
        os.kill(spare, signal.SIGKILL)
        with open_lab(command, crew) as lab:
            assert try_numbers(lab) == EXPECTED
        assert crew.notes == []


class TestOwnWorkers:
    def test_the_next_lab_need_not_wait_for_a_new_process(self, command, open_crew):
        crew = open_crew("own")
        seen = []
        for _ in range(3):
            with open_lab(command, crew) as lab:
                assert try_numbers(lab) == EXPECTED
                seen.append(engine_of(lab))
        assert seen[0] == seen[1] == seen[2]

    def test_the_next_one_gets_ready_meanwhile(self, command, open_crew):
        crew = open_crew("own", "own", "own")
        before = set(list_children(os.getpid()))
        with open_lab(command, crew) as lab:
            prepared = set(list_children(os.getpid())) - before - {engine_of(lab)}
            assert len(prepared) == 1
            with open_lab(command, crew) as other:
                assert {engine_of(other)} == prepared

    def test_one_that_has_died_meanwhile(self, command, open_crew):
        crew = open_crew("own")
        with open_lab(command, crew) as lab:
            assert try_numbers(lab) == EXPECTED
            engine = engine_of(lab)
        os.kill(engine, signal.SIGKILL)
        with open_lab(command, crew) as lab:
            assert try_numbers(lab) == EXPECTED
        assert crew.notes == []

    def test_one_killed_amid_a_diagnosis_is_replaced(self, command, open_crew):
        with open_lab(command, open_crew("own")) as lab:
            os.kill(engine_of(lab), signal.SIGKILL)
            assert try_numbers(lab) == EXPECTED

    def test_a_helper_killed_amid_its_part(self, command, open_crew):
        with open_lab(command, open_crew("own", "own")) as lab:
            await_width(lab, 2)
            (helper,) = lab._find_idle(1)
            killer = once(lambda: helper.is_busy, os.kill, helper.engine._companion._process.pid, signal.SIGKILL)
            deadline = time.monotonic() + PLENTY_SECONDS
            while lab.width == 2 and time.monotonic() < deadline:
                assert try_numbers(lab) == EXPECTED
            killer.join()
            assert helper not in lab._helpers

    def test_its_engines_take_turns(self, command, open_crew):
        crew = open_crew("own")
        (own,) = crew.workers
        with open_lab(command, crew) as one, open_lab(command, crew) as other, ThreadPoolExecutor(1) as pool:
            with own.turn:
                waiting = pool.submit(other.experiment, "passing")
                assert wait([waiting], 0.3).done == set()
            assert waiting.result(PLENTY_SECONDS) == one.experiment("passing")

    def test_one_that_is_given_up_amid_work(self, command, open_crew):
        crew = open_crew("own")
        with open_lab(command, crew) as lab, ThreadPoolExecutor(1) as pool:
            lab.run_seconds = PLENTY_SECONDS
            engine = lab._engine
            message = Call("experiments", ("passing", stop_at_main(lab), tuple(set_numbers(lab, [-1]))))
            endless = pool.submit(engine.exchange, message, PLENTY_SECONDS)
            assert comes_true(lambda: engine._companion.is_busy)
            engine.close()
            assert isinstance(endless.exception(PLENTY_SECONDS), CompanionLost)
            with pytest.raises(CompanionLost):
                engine.exchange(message, PLENTY_SECONDS)
            lab._engine = None
        assert crew.busy == 0

    def test_an_interrupted_diagnosis_waits_for_nobody(self, command):
        is_interrupted = threading.Event()

        def check() -> None:
            if is_interrupted.is_set():
                raise KeyboardInterrupt

        with Crew([partial(OwnWorker, "w0")], check) as crew, open_lab(command, crew) as lab:
            lab.run_seconds = PLENTY_SECONDS
            transfers = set_numbers(lab, [-1])
            is_interrupted.set()  # looked at only while an answer is waited for
            with pytest.raises(KeyboardInterrupt):
                lab.experiments("passing", stop_at_main(lab), transfers)
            is_interrupted.clear()


def engine_of(lab: RemoteLab) -> int:
    return lab._engine._companion._process.pid


class TestLostWorkers:
    def test_a_helper_killed_amid_its_part(self, command, open_crew, group):
        crew = open_crew("popen", "popen")
        with open_lab(command, crew) as lab:
            await_width(lab, 2)
            (helper,) = lab._find_idle(1)
            killer = once(lambda: helper.is_busy, end_gateway, group, "w1")
            deadline = time.monotonic() + PLENTY_SECONDS
            while not crew.notes and time.monotonic() < deadline:
                assert try_numbers(lab) == EXPECTED
            killer.join()
            assert try_numbers(lab) == EXPECTED
            assert lab.width == 1
        assert crew.notes == ["worker w1 was lost: its process or its connection has ended."]

    def test_the_first_one_killed(self, command, open_crew, group):
        """Its helper is asked for all that it was asked for."""
        crew = open_crew("popen", "popen")
        with open_lab(command, crew) as lab:
            await_width(lab, 2)
            end_gateway(group, "w0")
            assert try_numbers(lab) == EXPECTED
            assert [worker.is_lost for worker in crew.workers] == [True, False]

    def test_the_last_one_killed(self, command, open_crew, group):
        crew = open_crew("popen")
        with open_lab(command, crew) as lab:
            end_gateway(group, "w0")
            with pytest.raises(Refusal, match=r"all workers are lost \(the last one, w0: its process"):
                try_numbers(lab)

    def test_one_that_hangs(self, command, open_crew, group, monkeypatch):
        monkeypatch.setattr(gateways, "PING_SECONDS", 0.1)
        # The other one is never taken for silent, however slow it is.
        monkeypatch.setattr(gateways, "SILENCE_SECONDS", PLENTY_SECONDS)
        crew = open_crew("popen", "popen")
        hanging = crew.workers[1]

        def is_given_up() -> bool:
            """An unanswered ping was long ago."""
            if hanging._pinged is not None:
                hanging._pinged = -math.inf
            return hanging.is_lost

        with open_lab(command, crew) as lab:
            await_width(lab, 2)
            end_gateway(group, "w1", signal.SIGSTOP)
            clock = once(is_given_up, lambda: None)
            try:
                assert try_numbers(lab) == EXPECTED
            finally:
                end_gateway(group, "w1")
                clock.join()
        assert crew.notes == ["worker w1 was lost: it does not answer."]

    def test_an_interrupted_diagnosis_waits_for_nobody(self, command, group):
        is_interrupted = threading.Event()

        def check() -> None:
            if is_interrupted.is_set():
                raise KeyboardInterrupt

        with Crew([make_worker(group, 0, "popen")], check) as crew, open_lab(command, crew) as lab:
            lab.run_seconds = PLENTY_SECONDS
            end_gateway(group, "w0", signal.SIGSTOP)
            is_interrupted.set()  # looked at only while an answer is waited for
            try:
                with pytest.raises(KeyboardInterrupt):
                    try_numbers(lab)
            finally:
                end_gateway(group, "w0", signal.SIGCONT)


class TestOtherMachines:
    def test_a_socket(self, command, open_crew, socket_gateway):
        crew = open_crew("popen", socket_gateway)
        with open_lab(command, crew) as lab:
            await_width(lab, 2)
            assert try_numbers(lab) == EXPECTED
        assert crew.notes == []

    def test_another_build(self, command, open_crew, build, tmp_path_factory):
        """One path, under which each worker finds the program of its own directory."""
        here, there = Path(command.program.path).parent, tmp_path_factory.mktemp("there")
        Path(build("int main(void) { return 0; }").path).rename(there / "program")
        crew = open_crew(f"popen//chdir={there}", f"popen//chdir={here}")
        program = Program("/proc/self/cwd/program", command.program.build_id)
        engine = crew.lease(Command(program, ("program",), "/"))
        assert engine.worker.name == "w1"
        engine.close()
        assert crew.notes == [
            "worker w0 takes no part: /proc/self/cwd/program is another build there (its build id differs): bring it "
            "up to date."
        ]

    def test_no_gdb(self, command, open_crew, tmp_path_factory):
        crew = open_crew(f"popen//env:PATH={tmp_path_factory.mktemp('empty')}", "popen")
        engine = crew.lease(command)
        assert engine.worker.name == "w1"
        engine.close()
        assert [note.partition(":")[0] for note in crew.notes] == ["worker w0 takes no part"]
        assert "gdb was not found" in crew.notes[0]

    def test_nobody_can_help(self, command, open_crew, tmp_path_factory):
        """Then it is no matter of workers."""
        crew = open_crew(f"popen//env:PATH={tmp_path_factory.mktemp('empty')}")
        with pytest.raises(Refusal, match="gdb was not found"):
            crew.lease(command)
        assert crew.notes == []

    def test_another_version(self, command, open_crew, monkeypatch):
        monkeypatch.setattr(pytest_causechain, "__version__", "0.0.7")
        crew = open_crew("popen")
        with pytest.raises(Refusal, match=r"all workers are lost \(the last one, w0: it has version .* not 0\.0\.7\)"):
            crew.lease(command)


@pytest.mark.parametrize(
    ("workers", "diagnoses", "has_room"), [(1, 1, False), (2, 1, True), (3, 2, False), (4, 2, True)]
)
def test_room_for_a_second_worker_each(workers, diagnoses, has_room):
    make_workers = [partial(OwnWorker, f"w{number}") for number in range(workers)]
    with Crew(make_workers) as crew, contextlib.ExitStack() as stack:
        for _ in range(diagnoses):
            stack.enter_context(crew.diagnosing())
        assert Share(crew).has_room == has_room
        assert not Share(crew, is_parallel=False).has_room
        crew.workers[0].is_lost = True
        assert not Share(crew).has_room
