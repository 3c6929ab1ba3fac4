"""The session's worker pool, and each diagnosis's share of it.

Workers are places where engines can run: those on which pytest-xdist has run the tests, at the other end of an execnet
gateway, or as many of our own as there are processors, whose engines are processes that we start ourselves. Channels
are the ways of diagnoses to engines there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest_causechain
from pytest_causechain.kernel.companion import (
    Closing,
    Companion,
    CompanionLost,
    OwnDirectory,
    uninterrupted,
    wait_patiently,
)
from pytest_causechain.lab import relay
from pytest_causechain.lab.laboratory import Check, EngineAnswer, Fitness, Message, Open
from pytest_causechain.lab.relay import CLOSING_SECONDS, ENGINE, Packet
from pytest_causechain.model.refusal import Hopeless, Refusal
from pytest_causechain.model.runs import Command, Program

if TYPE_CHECKING:
    from execnet import Gateway
    from execnet.gateway_base import Channel as ExecnetChannel

# For a worker of pytest-xdist to end its session: after -x it may be amid a test.
SESSION_SECONDS = 5.0
# How long one thread may keep others waiting that an engine has answered, most often within a millisecond.
SWITCH_SECONDS = 0.0005
# For a worker's first word, which may have to import all of Python through a network; and for a program's start.
HELLO_SECONDS = 30.0
# A worker that works answers nothing for a while, but never leaves a PING unanswered for so long.
PING_SECONDS, SILENCE_SECONDS = 5.0, 20.0
# A worker notices by itself that an engine is late; its word takes a moment.
RELAY_SECONDS = 0.5


class Channel(ABC):
    """One diagnosis's way to an engine on a worker, used like a Companion."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._is_open = True
        worker.count_leases(+1)

    @abstractmethod
    def exchange(self, message: Message, timeout_seconds: float) -> EngineAnswer: ...

    @abstractmethod
    def cancel(self) -> None:
        """What the engine does without being asked for, while an answer is waited for."""

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """It will not be asked anything for a while: others may have the worker."""
        self.worker.count_leases(-1)
        try:
            yield
        finally:
            self.worker.count_leases(+1)

    def close(self, patience_seconds: float = 0.0) -> None:
        if self._is_open:
            self._is_open = False
            self._end()
            self.worker.count_leases(-1)

    @abstractmethod
    def _end(self) -> None: ...


class Worker(ABC):
    """Its engines take turns; `leases` counts them. `is_local`: on this machine, with this file system. Waiting for
    answers ends with a KeyboardInterrupt once `cancelled` is set."""

    def __init__(self, name: str, temporary: str, cancelled: threading.Event, *, is_local: bool) -> None:
        self.name, self.is_local = name, is_local
        self.leases = 0
        self.is_lost = False
        self.temporary, self.cancelled = temporary, cancelled
        self._lock = threading.Lock()
        self._fitness: dict[tuple[Program, str, object], Fitness] = {}

    def check(self, command: Command, channel: Channel, timeout_seconds: float) -> Fitness:
        """Whether it can deal with a program, as a command starts it; asked once."""
        key = (command.program, command.cwd, command.environment)
        if key not in self._fitness:
            answer = channel.exchange(Check(command, time.monotonic() + HELLO_SECONDS), timeout_seconds)
            assert isinstance(answer.value, Fitness)
            self._fitness[key] = answer.value
        return self._fitness[key]

    def count_leases(self, change: int) -> None:
        with self._lock:
            self.leases += change

    @abstractmethod
    def prepare(self) -> None:
        """It will be needed soon."""

    @abstractmethod
    def open_channel(self) -> Channel: ...

    @property
    @abstractmethod
    def why_lost(self) -> str: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def join(self, deadline: float) -> None:
        """Until it has ended all that it started."""


class OwnWorker(Worker):
    """Engines that we start ourselves: nobody has to pass on what they are asked and answer."""

    why_lost = ""

    def __init__(self, name: str, temporary: str, cancelled: threading.Event) -> None:
        super().__init__(name, temporary, cancelled, is_local=True)
        self.turn = threading.Lock()
        # Engines that wait for another lab.
        self.spare: list[Companion] = []

    def prepare(self) -> None:
        with self._lock:
            if not self.leases and not self.spare:
                self.spare.append(self._start())

    def open_channel(self) -> OwnChannel:
        with self._lock:
            companion = self.spare.pop() if self.spare else None
        return OwnChannel(self, companion or self._start())

    def stop(self) -> None:
        for companion in self.spare:
            companion.close(CLOSING_SECONDS)

    def join(self, deadline: float) -> None:
        return

    def _start(self) -> Companion:
        with uninterrupted():
            return Companion(ENGINE, cancelled=self.cancelled, temporary=self.temporary)


class OwnChannel(Channel):
    worker: OwnWorker

    def __init__(self, worker: OwnWorker, companion: Companion) -> None:
        super().__init__(worker)
        self._companion = companion
        self._using = threading.Lock()

    def exchange(self, message: Message, timeout_seconds: float) -> EngineAnswer:
        if isinstance(message, Open):
            # It may have been started when that was another one.
            message = replace(message, environment=tuple(os.environ.items()))
        turn, deadline = self.worker.turn, time.monotonic() + timeout_seconds
        wait_patiently(lambda seconds: turn.acquire(timeout=seconds), self.worker.cancelled, deadline)
        try:
            with self._using:
                if not self._is_open:
                    raise CompanionLost(is_late=False, log="it was given up")
                answer: EngineAnswer = self._companion.exchange(message, max(0.0, deadline - time.monotonic()))
                return answer
        finally:
            turn.release()

    def cancel(self) -> None:
        self._companion.send(relay.CANCEL)

    def _end(self) -> None:
        if self._companion.is_busy:
            self._companion.end()  # for a thread that still waits for an answer
        with self._using:
            if self._companion.is_busy:
                self._companion.close()
            else:
                self._companion.tell(relay.RESET)
                self.worker.spare.append(self._companion)


class GatewayWorker(Worker):
    def __init__(
        self, name: str, gateway: Gateway, temporary: str, cancelled: threading.Event, *, is_local: bool
    ) -> None:
        super().__init__(name, temporary, cancelled, is_local=is_local)
        self._gateway = gateway
        self._why = ""
        # Apart from each other: what is received must never wait until something is sent.
        self._sending, self._starting = threading.Lock(), threading.Lock()
        self._numbers = itertools.count()
        # Of its channels, by the numbers of their engines.
        self.inboxes: dict[int, queue.SimpleQueue[Packet]] = {}
        self._heard = time.monotonic()
        self._pinged: float | None = None
        self._greeted = threading.Event()
        self._clock = 0.0
        self._connection: ExecnetChannel | None = None

    def prepare(self) -> None:
        with self._starting:
            if self._connection is not None or self.is_lost:
                return
            try:
                self._connection = self._gateway.remote_exec(relay.START)
                self._connection.setcallback(self._receive, endmarker=(relay.LOST,))
                with self._sending:
                    self._connection.send((self.temporary if self.is_local else None,))
            except (OSError, EOFError) as error:
                self._lose(f"its gateway cannot be used ({error})")

    @property
    def why_lost(self) -> str:
        if not self._why and self._connection is not None:
            text = ""
            try:
                self._connection.waitclose(0.0)
            except (self._connection.RemoteError, self._connection.TimeoutError, EOFError, OSError) as error:
                text = str(error)
            missing = "pytest-causechain is not installed there" if "No module named" in text else ""
            self._why = missing or "its process or its connection has ended"
        return self._why

    def open_channel(self) -> GatewayChannel:
        return GatewayChannel(self, next(self._numbers))

    def greet(self) -> None:
        """Wait for its first word."""
        self.prepare()
        try:
            wait_patiently(self._greeted.wait, self.cancelled, time.monotonic() + HELLO_SECONDS)
        except CompanionLost:
            self._lose("it does not answer")

    def adapt(self, message: Message) -> Message:
        """Its clock is another one, and it may be on another machine."""
        if isinstance(message, Open | Check):
            message = replace(message, deadline=message.deadline + self._clock)
        if isinstance(message, Open):
            cache = message.cache if self.is_local else None
            message = replace(message, environment=tuple(os.environ.items()), cache=cache)
        return message

    def look_after(self) -> None:
        """Called now and then while an answer is waited for."""
        now = time.monotonic()
        if self._pinged is not None:
            if now - self._pinged > SILENCE_SECONDS:
                self._lose("it does not answer")
        elif now - self._heard > PING_SECONDS:
            self._pinged = now
            self.send(Packet(relay.PING))

    def stop(self) -> None:
        self.send(Packet(relay.STOP))

    def join(self, deadline: float) -> None:
        if (connection := self._connection) is not None:
            with contextlib.suppress(connection.RemoteError, connection.TimeoutError, EOFError, OSError):
                connection.waitclose(max(0.0, deadline - time.monotonic()))

    def send(self, packet: Packet) -> bool:
        """False when it is gone."""
        if self._connection is None:
            return False
        try:
            with self._sending:  # a socket may take a message in parts
                self._connection.send(tuple(packet))
        except OSError:
            self._lose()
        return not self.is_lost

    def _receive(self, message: tuple[str]) -> None:
        """In a thread of execnet's."""
        packet = Packet(*message)
        self._heard, self._pinged = time.monotonic(), None
        if packet == Packet(relay.LOST):
            self._lose()
        elif packet.kind == relay.HELLO:
            self._clock = packet.seconds - time.monotonic()
            if packet.text != pytest_causechain.__version__:
                self._lose(f"it has version {packet.text} of pytest-causechain, not {pytest_causechain.__version__}")
            self._greeted.set()
        elif packet.kind in (relay.ANSWER, relay.LOST) and (inbox := self.inboxes.get(packet.number)) is not None:
            inbox.put(packet)

    def _lose(self, why: str = "") -> None:
        self._why = self._why or why
        self.is_lost = True
        for inbox in list(self.inboxes.values()):
            inbox.put(Packet(relay.LOST))
        self._greeted.set()


class GatewayChannel(Channel):
    worker: GatewayWorker

    def __init__(self, worker: GatewayWorker, number: int) -> None:
        super().__init__(worker)
        self._number = number
        self._inbox = worker.inboxes[number] = queue.SimpleQueue[Packet]()

    def exchange(self, message: Message, timeout_seconds: float) -> EngineAnswer:
        worker = self.worker
        worker.greet()
        data = pickle.dumps(worker.adapt(message))
        # A lost worker has told all that were waiting then, but nobody since.
        if worker.is_lost or not worker.send(Packet(relay.CALL, self._number, data, timeout_seconds)):
            raise CompanionLost(is_late=False, log=worker.why_lost)
        packet = wait_patiently(self._receive, worker.cancelled, time.monotonic() + timeout_seconds + RELAY_SECONDS)
        if packet.kind == relay.LOST:
            is_own = packet.number == self._number
            log = packet.text if is_own else f"worker {worker.name} was lost: {worker.why_lost}"
            raise CompanionLost(packet.is_late, log)
        answer: EngineAnswer = pickle.loads(packet.data)
        return answer

    def _receive(self, seconds: float) -> Packet | None:
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            self.worker.look_after()
            return None

    def cancel(self) -> None:
        self.worker.send(Packet(relay.CANCEL, self._number))

    def _end(self) -> None:
        del self.worker.inboxes[self._number]
        # For a thread that still waits for an answer.
        self._inbox.put(Packet(relay.LOST, self._number, text="it was given up"))
        self.worker.send(Packet(relay.END, self._number))


# Makes a worker that has its temporary files in this directory and waits for nothing once the event is set.
MakeWorker = Callable[[str, threading.Event], Worker]


class Node(Protocol):
    """A worker of pytest-xdist."""

    gateway: Gateway
    channel: ExecnetChannel


class Pool(Closing):
    """All workers of a session. Once `cancelled` is set nobody waits for them any more: a KeyboardInterrupt."""

    def __init__(self, make_workers: Sequence[MakeWorker], cancelled: threading.Event | None = None) -> None:
        # What a worker that is killed would leave behind.
        self._temporary = OwnDirectory()
        cancelled = cancelled or threading.Event()
        self.workers = [make(str(self._temporary.path), cancelled) for make in make_workers]
        self._diagnoses = 0
        self._lock = threading.Lock()
        # What keeps a worker from a program that another one deals with.
        self._obstacles: dict[tuple[str, str], str] = {}
        with contextlib.suppress(OSError):  # which is told of when an engine is really needed
            self._prepare_next()

    def close(self) -> None:
        deadline = time.monotonic() + CLOSING_SECONDS
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.join(deadline)
        self._temporary.remove()

    @property
    def notes(self) -> list[str]:
        """Sentences about workers that were of no use, though others were."""
        lost = [f"worker {worker.name} was lost: {worker.why_lost}." for worker in self.workers if worker.is_lost]
        refused = [f"worker {name} takes no part: {why}" for (name, _), why in self._obstacles.items()]
        return list(dict.fromkeys([*lost, *refused]))

    @contextlib.contextmanager
    def diagnosing(self) -> Iterator[None]:
        """Free workers are divided among the diagnoses that are under way."""
        with self._lock:
            self._diagnoses += 1
        try:
            yield
        finally:
            with self._lock:
                self._diagnoses -= 1

    @property
    def has_room(self) -> bool:
        """Whether each diagnosis that is under way can have two workers."""
        return 2 * self._diagnoses <= sum(not worker.is_lost for worker in self.workers)

    @property
    def busy(self) -> int:
        return sum(worker.leases > 0 for worker in self.workers)

    def lease(self, command: Command, timeout_seconds: float) -> Channel:
        """For all that a lab asks: to the worker that has least to do. A Refusal when there is none."""
        refused: list[tuple[Worker, Fitness]] = []
        for worker in self._living():
            with contextlib.ExitStack() as unless_fit, contextlib.suppress(CompanionLost):
                channel = worker.open_channel()
                unless_fit.callback(channel.close)
                self._prepare_next()
                fitness = worker.check(command, channel, timeout_seconds)
                if not fitness.obstacle:
                    for other, why in refused:
                        self.refuse(other, command, why.obstacle)
                    unless_fit.pop_all()
                    return channel
                refused.append((worker, fitness))
        if not refused:
            raise Refusal(self._why_none())
        _, first = refused[0]
        raise (Hopeless if first.is_hopeless else Refusal)(first.obstacle)

    def borrow(self) -> list[Channel]:
        """To workers that have nothing to do; others may want some of them too."""
        with self._lock:
            idle = [worker for worker in self.workers if not worker.is_lost and not worker.leases]
            fair = -(-len(idle) // max(1, self._diagnoses))
            return [worker.open_channel() for worker in idle[:fair]]

    def check(self, channel: Channel, command: Command, timeout_seconds: float) -> None:
        """A Refusal when its worker cannot help with a program, CompanionLost when it is not there any more."""
        fitness = channel.worker.check(command, channel, timeout_seconds)
        if fitness.obstacle:
            raise Refusal(fitness.obstacle)

    def refuse(self, worker: Worker, command: Command, why: str) -> None:
        self._obstacles.setdefault((worker.name, command.program.build_id), why)

    def _prepare_next(self) -> None:
        """An engine takes as long to start as hundreds of experiments."""
        idle = (worker for worker in self.workers if not worker.is_lost and not worker.leases)
        if (following := next(idle, None)) is not None:
            following.prepare()

    def _living(self) -> list[Worker]:
        with self._lock:
            return sorted((w for w in self.workers if not w.is_lost), key=lambda worker: worker.leases)

    def _why_none(self) -> str:
        lost = next((worker for worker in reversed(self.workers) if worker.is_lost), None)
        last = f" (the last one, {lost.name}: {lost.why_lost})" if lost is not None else ""
        return f"all workers are lost{last}: run the failing test alone."


@dataclass(frozen=True, slots=True)
class Share:
    """What one diagnosis has of the pool: unless it `is_parallel`, a single worker."""

    pool: Pool
    is_parallel: bool = True

    @property
    def size(self) -> int:
        return len(self.pool.workers) if self.is_parallel else 1

    @property
    def has_room(self) -> bool:
        return self.is_parallel and self.pool.has_room

    def borrow(self) -> list[Channel]:
        return self.pool.borrow() if self.is_parallel else []


@contextlib.contextmanager
def open_pool(
    nodes: Sequence[Node] = (), *, jobs: int | None = None, cancelled: threading.Event | None = None
) -> Iterator[Pool]:
    """Of the workers of pytest-xdist, whose gateways live on behind the last test; without any, of `jobs` our own."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with Pool(find_nodes(nodes) or plan_own(jobs), cancelled) as pool:
            yield pool
    finally:
        sys.setswitchinterval(interval)


def find_nodes(nodes: Sequence[Node]) -> list[MakeWorker]:
    """Those whose session is over: a gateway executes one thing at a time."""
    workers: list[MakeWorker] = []
    deadline = time.monotonic() + SESSION_SECONDS
    for node in nodes:
        gateway, channel = node.gateway, node.channel
        try:
            channel.waitclose(max(0.0, deadline - time.monotonic()))
        except channel.TimeoutError:
            continue
        except (channel.RemoteError, EOFError):
            pass  # when its gateway is gone too, that is found out soon
        where = [f" ({kind}={place})" for kind in ("ssh", "socket") if (place := getattr(gateway.spec, kind, None))]
        name = "".join([gateway.id, *where])
        workers.append(partial(GatewayWorker, name, gateway, is_local=bool(gateway.spec.popen)))
    return workers


def plan_own(jobs: int | None) -> list[MakeWorker]:
    jobs = jobs or len(os.sched_getaffinity(0))
    return [partial(OwnWorker, f"worker{number}") for number in range(1, jobs + 1)]
