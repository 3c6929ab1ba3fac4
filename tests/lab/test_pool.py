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
from places import PLENTY_SECONDS, find_function, find_global
from waiting import comes_true

import pytest_causechain
from pytest_causechain.kernel.companion import CompanionLost
from pytest_causechain.kernel.processes import list_children
from pytest_causechain.lab import remote_lab
from pytest_causechain.lab.laboratory import Call, Open, RunLimits
from pytest_causechain.lab.pool import GatewayWorker, MakeWorker, OwnWorker, Pool, Share
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Intervention, Spot, Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Program
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
OpenPool = Callable[..., Pool]


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
def open_pool(group, tmp_path, monkeypatch) -> Iterator[OpenPool]:
    """open_pool(*specs): workers of these kinds, which leave nothing behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(remote_lab, "WORTHWHILE_SECONDS", 0.0)
    with contextlib.ExitStack() as stack:

        def open_one(*specs: str) -> Pool:
            return stack.enter_context(Pool([make_worker(group, n, spec) for n, spec in enumerate(specs)]))

        yield open_one
    assert list(tmp_path.iterdir()) == []


def make_worker(group: execnet.Group, number: int, spec: str) -> MakeWorker:
    """On a gateway of that kind; "own" is one without."""
    name = f"w{number}"
    if spec == "own":
        return partial(OwnWorker, name)
    return partial(GatewayWorker, name, group.makegateway(f"{spec}//id={name}"), is_local=spec.startswith("popen"))


def open_lab(command: Command, pool: Pool | None, is_parallel: bool = True) -> RemoteLab:
    share = Share(pool, is_parallel) if pool is not None else None
    return RemoteLab(Open(command, command), Budget(PLENTY_SECONDS), share)


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
    def test_same_results_on_any_number_of_workers(self, command, open_pool, worker, workers):
        pool = open_pool(*[worker] * workers)
        with open_lab(command, pool) as lab:
            await_width(lab, workers)
            assert try_numbers(lab) == EXPECTED
            spot = Spot("return", (Stop(find_function(lab, "twice"), 1),), "rdi", 4)
            attempts = [Intervention(spot, number.to_bytes(4, "little")) for number in NUMBERS]
            changed = lab.interventions("failing", attempts, RunLimits(5.0, 20.0, 1 << 16))
            assert [run.stdout for run in changed] == EXPECTED
            assert pool.busy == workers
        assert (pool.busy, pool.notes) == (0, [])

    def test_what_nobody_asked_for_is_cancelled_on_the_others_too(self, command, open_pool, worker):
        with open_lab(command, open_pool(worker, worker)) as lab:
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
            helper.channel.cancel()
            seen = lab.speculate("passing", stop_at_main(lab), set_numbers(lab, [5, 7]))
            assert [run.stdout for run in seen] == [b"10\n", b"14\n"]

    def test_one_at_a_time(self, command, open_pool, worker):
        pool = open_pool(worker, worker)
        with open_lab(command, pool, is_parallel=False) as lab:
            for _ in range(3):
                assert try_numbers(lab) == EXPECTED
            assert (lab.width, pool.busy) == (1, 1)

    def test_who_works_for_another_diagnosis_is_left_alone(self, command, open_pool, worker):
        pool = open_pool(worker, worker)
        with open_lab(command, pool) as one, open_lab(command, pool) as other:
            assert [worker.leases for worker in pool.workers] == [1, 1]
            for lab in (one, other):
                assert try_numbers(lab) == EXPECTED
                assert lab.width == 1

    def test_who_rests_leaves_its_worker_to_others(self, command, open_pool, worker):
        pool = open_pool(worker, worker)
        with open_lab(command, pool) as one, open_lab(command, pool) as other:
            with other.resting():
                await_width(one, 2)
            assert [worker.leases for worker in pool.workers] == [1, 2]
            assert try_numbers(other) == EXPECTED
        assert pool.busy == 0

    def test_free_workers_are_shared_fairly(self, command, open_pool):
        pool = open_pool(*["own"] * 4)
        with pool.diagnosing(), pool.diagnosing(), open_lab(command, pool), open_lab(command, pool):
            borrowed = [pool.borrow() for _ in range(3)]
            assert [len(channels) for channels in borrowed] == [1, 1, 0]
            for channel in chain(*borrowed):
                channel.close()


class TestSpareEngines:
    def test_the_next_lab_need_not_wait_for_a_new_process(self, command, open_pool, group):
        pool = open_pool("popen")
        seen = []
        for _ in range(3):
            with open_lab(command, pool) as lab:
                assert try_numbers(lab) == EXPECTED
                seen.append(list_children(group["w0"]._io.popen.pid))
        assert len(seen[0]) == 1
        assert seen[0] == seen[1] == seen[2]

    def test_one_that_has_died_meanwhile(self, command, open_pool, group):
        pool = open_pool("popen")
        with open_lab(command, pool) as lab:
            assert try_numbers(lab) == EXPECTED
        (spare,) = list_children(group["w0"]._io.popen.pid)
        os.kill(spare, signal.SIGKILL)
        with open_lab(command, pool) as lab:
            assert try_numbers(lab) == EXPECTED
        assert pool.notes == []


class TestOwnWorkers:
    def test_the_next_lab_need_not_wait_for_a_new_process(self, command, open_pool):
        pool = open_pool("own")
        seen = []
        for _ in range(3):
            with open_lab(command, pool) as lab:
                assert try_numbers(lab) == EXPECTED
                seen.append(engine_of(lab))
        assert seen[0] == seen[1] == seen[2]

    def test_the_next_one_gets_ready_meanwhile(self, command, open_pool):
        pool = open_pool("own", "own", "own")
        before = set(list_children(os.getpid()))
        with open_lab(command, pool) as lab:
            prepared = set(list_children(os.getpid())) - before - {engine_of(lab)}
            assert len(prepared) == 1
            with open_lab(command, pool) as other:
                assert {engine_of(other)} == prepared

    def test_one_that_has_died_meanwhile(self, command, open_pool):
        pool = open_pool("own")
        with open_lab(command, pool) as lab:
            assert try_numbers(lab) == EXPECTED
            engine = engine_of(lab)
        os.kill(engine, signal.SIGKILL)
        with open_lab(command, pool) as lab:
            assert try_numbers(lab) == EXPECTED
        assert pool.notes == []

    def test_one_killed_amid_a_diagnosis_is_replaced(self, command, open_pool):
        with open_lab(command, open_pool("own")) as lab:
            os.kill(engine_of(lab), signal.SIGKILL)
            assert try_numbers(lab) == EXPECTED

    def test_a_helper_killed_amid_its_part(self, command, open_pool):
        with open_lab(command, open_pool("own", "own")) as lab:
            await_width(lab, 2)
            (helper,) = lab._find_idle(1)
            killer = once(lambda: helper.is_busy, os.kill, helper.channel._companion._process.pid, signal.SIGKILL)
            deadline = time.monotonic() + PLENTY_SECONDS
            while lab.width == 2 and time.monotonic() < deadline:
                assert try_numbers(lab) == EXPECTED
            killer.join()
            assert helper not in lab._helping

    def test_its_engines_take_turns(self, command, open_pool):
        pool = open_pool("own")
        (own,) = pool.workers
        with open_lab(command, pool) as one, open_lab(command, pool) as other, ThreadPoolExecutor(1) as threads:
            with own.turn:
                waiting = threads.submit(other.experiment, "passing")
                assert wait([waiting], 0.3).done == set()
            assert waiting.result(PLENTY_SECONDS) == one.experiment("passing")

    def test_one_that_is_given_up_amid_work(self, command, open_pool):
        pool = open_pool("own")
        with open_lab(command, pool) as lab, ThreadPoolExecutor(1) as threads:
            lab.run_seconds = PLENTY_SECONDS
            channel = lab._channel
            message = Call("experiments", ("passing", stop_at_main(lab), tuple(set_numbers(lab, [-1]))))
            endless = threads.submit(channel.exchange, message, PLENTY_SECONDS)
            assert comes_true(lambda: channel._companion.is_busy)
            channel.close()
            assert isinstance(endless.exception(PLENTY_SECONDS), CompanionLost)
            with pytest.raises(CompanionLost):
                channel.exchange(message, PLENTY_SECONDS)
            lab._channel = None
        assert pool.busy == 0

    def test_an_interrupted_diagnosis_waits_for_nobody(self, command):
        cancelled = threading.Event()
        with Pool([partial(OwnWorker, "w0")], cancelled) as pool, open_lab(command, pool) as lab:
            lab.run_seconds = PLENTY_SECONDS
            transfers = set_numbers(lab, [-1])
            cancelled.set()  # looked at only while an answer is waited for
            with pytest.raises(KeyboardInterrupt):
                lab.experiments("passing", stop_at_main(lab), transfers)
            cancelled.clear()


def engine_of(lab: RemoteLab) -> int:
    return lab._channel._companion._process.pid


class TestLostWorkers:
    def test_a_helper_killed_amid_its_part(self, command, open_pool, group):
        pool = open_pool("popen", "popen")
        with open_lab(command, pool) as lab:
            await_width(lab, 2)
            (helper,) = lab._find_idle(1)
            killer = once(lambda: helper.is_busy, end_gateway, group, "w1")
            deadline = time.monotonic() + PLENTY_SECONDS
            while not pool.notes and time.monotonic() < deadline:
                assert try_numbers(lab) == EXPECTED
            killer.join()
            assert try_numbers(lab) == EXPECTED
            assert lab.width == 1
        assert pool.notes == ["worker w1 was lost: its process or its connection has ended."]

    def test_the_first_one_killed(self, command, open_pool, group):
        """Its helper is asked for all that it was asked for."""
        pool = open_pool("popen", "popen")
        with open_lab(command, pool) as lab:
            await_width(lab, 2)
            end_gateway(group, "w0")
            assert try_numbers(lab) == EXPECTED
            assert [worker.is_lost for worker in pool.workers] == [True, False]

    def test_the_last_one_killed(self, command, open_pool, group):
        pool = open_pool("popen")
        with open_lab(command, pool) as lab:
            end_gateway(group, "w0")
            with pytest.raises(Refusal, match=r"all workers are lost \(the last one, w0: its process"):
                try_numbers(lab)

    def test_one_that_hangs(self, command, open_pool, group, monkeypatch):
        monkeypatch.setattr("pytest_causechain.lab.pool.PING_SECONDS", 0.1)
        # The other one is never taken for silent, however slow it is.
        monkeypatch.setattr("pytest_causechain.lab.pool.SILENCE_SECONDS", PLENTY_SECONDS)
        pool = open_pool("popen", "popen")
        hanging = pool.workers[1]

        def is_given_up() -> bool:
            """An unanswered ping was long ago."""
            if hanging._pinged is not None:
                hanging._pinged = -math.inf
            return hanging.is_lost

        with open_lab(command, pool) as lab:
            await_width(lab, 2)
            end_gateway(group, "w1", signal.SIGSTOP)
            clock = once(is_given_up, lambda: None)
            try:
                assert try_numbers(lab) == EXPECTED
            finally:
                end_gateway(group, "w1")
                clock.join()
        assert pool.notes == ["worker w1 was lost: it does not answer."]

    def test_an_interrupted_diagnosis_waits_for_nobody(self, command, group):
        cancelled = threading.Event()
        with Pool([make_worker(group, 0, "popen")], cancelled) as pool, open_lab(command, pool) as lab:
            lab.run_seconds = PLENTY_SECONDS
            end_gateway(group, "w0", signal.SIGSTOP)
            cancelled.set()  # looked at only while an answer is waited for
            try:
                with pytest.raises(KeyboardInterrupt):
                    try_numbers(lab)
            finally:
                end_gateway(group, "w0", signal.SIGCONT)


@pytest.fixture
def dependent(build, tmp_path_factory) -> tuple[Program, Path]:
    """A program, and the directory of a library that it does not find by itself."""
    libraries = tmp_path_factory.mktemp("libraries")
    part = build("int part(void) { return 3; }", "-shared", "-fPIC")
    (libraries / "libpart.so").write_bytes(Path(part.path).read_bytes())
    return build("int part(void); int main(void) { return part(); }", f"-L{libraries}", "-lpart"), libraries


class TestOtherMachines:
    def test_a_socket(self, command, open_pool, socket_gateway):
        pool = open_pool("popen", socket_gateway)
        with open_lab(command, pool) as lab:
            await_width(lab, 2)
            assert try_numbers(lab) == EXPECTED
        assert pool.notes == []

    def test_another_build(self, command, open_pool):
        expected = Command(Program(command.program.path, "another"), command.argv, command.cwd)
        with pytest.raises(Refusal, match=r"is another build there \(its build id differs\): bring it up to date\."):
            open_pool("popen").lease(expected, PLENTY_SECONDS)

    def test_no_gdb(self, command, open_pool, tmp_path_factory):
        pool = open_pool(f"popen//env:PATH={tmp_path_factory.mktemp('empty')}", "popen")
        channel = pool.lease(command, PLENTY_SECONDS)
        assert channel.worker.name == "w1"
        channel.close()
        assert [note.partition(":")[0] for note in pool.notes] == ["worker w0 takes no part"]
        assert "gdb was not found" in pool.notes[0]

    def test_where_the_program_does_not_start(self, dependent, open_pool):
        program, libraries = dependent
        pool = open_pool("popen", f"popen//env:LD_LIBRARY_PATH={libraries}")
        channel = pool.lease(Command(program, (program.path,), "/"), PLENTY_SECONDS)
        assert channel.worker.name == "w1"
        channel.close()
        (note,) = pool.notes
        assert note.startswith(f"worker w0 takes no part: {program.path} ends before its first instruction: ")

    def test_where_it_starts_for_some_tests(self, dependent, open_pool):
        program, libraries = dependent
        pool = open_pool("popen")
        with pytest.raises(Refusal, match="ends before its first instruction"):
            pool.lease(Command(program, (program.path,), "/"), PLENTY_SECONDS)
        command = Command(program, (program.path,), "/", (("LD_LIBRARY_PATH", str(libraries)),))
        pool.lease(command, PLENTY_SECONDS).close()
        assert pool.notes == []

    def test_nobody_can_help(self, command, open_pool, tmp_path_factory):
        """Then it is no matter of workers."""
        pool = open_pool(f"popen//env:PATH={tmp_path_factory.mktemp('empty')}")
        with pytest.raises(Refusal, match="gdb was not found"):
            pool.lease(command, PLENTY_SECONDS)
        assert pool.notes == []

    def test_another_version(self, command, open_pool, monkeypatch):
        monkeypatch.setattr(pytest_causechain, "__version__", "0.0.7")
        pool = open_pool("popen")
        with pytest.raises(Refusal, match=r"all workers are lost \(the last one, w0: it has version .* not 0\.0\.7\)"):
            pool.lease(command, PLENTY_SECONDS)


@pytest.mark.parametrize(
    ("workers", "diagnoses", "has_room"), [(1, 1, False), (2, 1, True), (3, 2, False), (4, 2, True)]
)
def test_room_for_a_second_worker_each(workers, diagnoses, has_room):
    make_workers = [partial(OwnWorker, f"w{number}") for number in range(workers)]
    with Pool(make_workers) as pool, contextlib.ExitStack() as stack:
        for _ in range(diagnoses):
            stack.enter_context(pool.diagnosing())
        assert Share(pool).has_room == has_room
        assert not Share(pool, is_parallel=False).has_room
        pool.workers[0].is_lost = True
        assert not Share(pool).has_room
