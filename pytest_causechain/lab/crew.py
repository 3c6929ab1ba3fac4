"""The workers of a session, by their execnet gateways, and the engines that diagnoses have on them."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest_causechain
from pytest_causechain.lab.engine import Answer, Check, Fitness, Open
from pytest_causechain.lab.worker import ANSWER, CALL, CANCEL, CLOSING_SECONDS, END, HELLO, LOST, PING, START, STOP
from pytest_causechain.model.command import Command, Program
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.process.closing import Closing
from pytest_causechain.process.companion import LOOK_UP_SECONDS, CompanionLost
from pytest_causechain.process.directories import OwnDirectory

if TYPE_CHECKING:
    from execnet import Gateway
    from execnet.gateway_base import Channel

Inbox = queue.SimpleQueue[tuple[Any, ...]]

# A worker that works answers nothing for a while, but never leaves a PING unanswered for so long.
PING_SECONDS, SILENCE_SECONDS = 5.0, 20.0
# For its first word and the check of a program: it may have to import all of Python through a network.
HELLO_SECONDS = 30.0
# A worker notices by itself that an engine is late.
RELAY_SECONDS = 5.0
NO_PTRACE = "ptrace is not allowed there."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker is to be had: `open_gateway` is called once, when it is first needed. `is_local`: on this machine,
    with this file system; with a `path` the gateway does not know by itself where our modules are."""

    name: str
    open_gateway: Callable[[], Gateway]
    is_local: bool
    path: tuple[str, ...] | None = None


class Worker:
    """One gateway. Its engines take turns; `leases` counts them."""

    def __init__(self, place: Place, temporary: str) -> None:
        self.name, self.is_local = place.name, place.is_local
        self._place, self._temporary = place, temporary
        self.leases = 0
        self.is_lost = False
        self._why = ""
        # Apart from each other: what is received must never wait until something is sent.
        self._lock, self._sending, self._starting = threading.Lock(), threading.Lock(), threading.Lock()
        self._numbers = itertools.count()
        self._inboxes: dict[int, Inbox] = {}
        self._heard = time.monotonic()
        self._pinged: float | None = None
        self._greeted = threading.Event()
        self._clock = 0.0
        self._fitness: dict[tuple[Program, str], Fitness] = {}
        self._channel: Channel | None = None

    def _start(self) -> None:
        with self._starting:
            if self._channel is not None or self.is_lost:
                return
            try:
                self._channel = self._place.open_gateway().remote_exec(START)
                self._channel.setcallback(self._receive, endmarker=(LOST,))
            except (OSError, EOFError) as error:
                self._lose(f"its gateway cannot be used ({error})")
                return
        path = self._place.path
        self._send(None if path is None else list(path), self._temporary if self.is_local else None)

    @property
    def why_lost(self) -> str:
        if not self._why and self._channel is not None:
            text = ""
            try:
                self._channel.waitclose(0.0)
            except (self._channel.RemoteError, self._channel.TimeoutError, EOFError, OSError) as error:
                text = str(error)
            missing = "pytest-causechain is not installed there" if "No module named" in text else ""
            self._why = missing or "its process or its connection has ended"
        return self._why

    def check(self, command: Command, engine: Engine) -> Fitness:
        """Whether it can deal with a program; asked once."""
        key = (command.program, command.cwd)
        if key not in self._fitness:
            answer: Answer = engine.exchange(Check(command, time.monotonic() + HELLO_SECONDS), HELLO_SECONDS)
            self._fitness[key] = answer.value
        return self._fitness[key]

    def open_engine(self, check: Callable[[], None]) -> Engine:
        with self._lock:
            self.leases += 1
            number = next(self._numbers)
            inbox = self._inboxes[number] = Inbox()
        return Engine(self, number, inbox, check)

    def end_engine(self, number: int) -> None:
        with self._lock:
            self.leases -= 1
            inbox = self._inboxes.pop(number)
        inbox.put((LOST,))  # for a thread that still waits for an answer
        self._send(END, number)

    def call(self, number: int, message: Any, timeout_seconds: float) -> None:
        """The answer comes to the engine's inbox."""
        self._start()
        if not self._greeted.wait(HELLO_SECONDS):
            self._lose("it does not answer")
        # A lost worker has told all that were waiting then, but nobody since.
        if self.is_lost or not self._send(CALL, number, pickle.dumps(self._adapt(message)), timeout_seconds):
            raise CompanionLost(is_late=False, log=self.why_lost)

    def cancel(self, number: int) -> None:
        self._send(CANCEL, number)

    def look_after(self) -> None:
        """Called now and then while an answer is waited for."""
        now = time.monotonic()
        if self._pinged is not None:
            if now - self._pinged > SILENCE_SECONDS:
                self._lose("it does not answer")
        elif now - self._heard > PING_SECONDS:
            self._pinged = now
            self._send(PING)

    def stop(self) -> None:
        self._send(STOP)

    def join(self, deadline: float) -> None:
        """Until it has ended all that it started."""
        if self._channel is None:
            return
        with contextlib.suppress(self._channel.RemoteError, self._channel.TimeoutError, EOFError, OSError):
            self._channel.waitclose(max(0.0, deadline - time.monotonic()))

    def _adapt(self, message: Any) -> Any:
        """Its clock is another one, and it may be on another machine."""
        if isinstance(message, Open | Check):
            message = replace(message, deadline=message.deadline + self._clock)
        if isinstance(message, Open):
            cache = message.cache if self.is_local else None
            message = replace(message, environment=tuple(os.environ.items()), cache=cache)
        return message

    def _send(self, *message: object) -> bool:
        """False when it is gone."""
        if self._channel is None:
            return False
        try:
            with self._sending:  # a socket may take a message in parts
                self._channel.send(message)
        except OSError:
            self._lose()
        return not self.is_lost

    def _receive(self, message: tuple[Any, ...]) -> None:
        """In a thread of execnet's."""
        self._heard, self._pinged = time.monotonic(), None
        if message == (LOST,):
            self._lose()
        elif message[0] == HELLO:
            _, version, clock = message
            self._clock = clock - time.monotonic()
            if version != pytest_causechain.__version__:
                self._lose(f"it has version {version} of pytest-causechain, not {pytest_causechain.__version__}")
            self._greeted.set()
        elif message[0] in (ANSWER, LOST):
            with self._lock:
                inbox = self._inboxes.get(message[1])
            if inbox is not None:
                inbox.put(message)

    def _lose(self, why: str = "") -> None:
        self._why = self._why or why
        self.is_lost = True
        with self._lock:
            inboxes = list(self._inboxes.values())
        for inbox in inboxes:
            inbox.put((LOST,))
        self._greeted.set()


class Engine:
    """One engine on a worker, used like a Companion."""

    def __init__(self, worker: Worker, number: int, inbox: Inbox, check: Callable[[], None]) -> None:
        self.worker, self._number, self._inbox, self._check = worker, number, inbox, check
        self._is_open = True

    def exchange(self, message: object, timeout_seconds: float) -> Any:
        self.worker.call(self._number, message, timeout_seconds)
        deadline = time.monotonic() + timeout_seconds + RELAY_SECONDS
        while True:
            try:
                answer = self._inbox.get(timeout=LOOK_UP_SECONDS)
                break
            except queue.Empty:
                self._check()
                self.worker.look_after()
                if time.monotonic() > deadline:
                    raise CompanionLost(is_late=True) from None
        if answer[0] == LOST:
            raise CompanionLost(*answer[2:] or (False, f"worker {self.worker.name} was lost: {self.worker.why_lost}"))
        return pickle.loads(answer[2])

    def cancel(self) -> None:
        """What it does without being asked for, while an answer is waited for."""
        self.worker.cancel(self._number)

    def close(self, patience_seconds: float = 0.0) -> None:
        if self._is_open:
            self._is_open = False
            self.worker.end_engine(self._number)


class Crew(Closing):
    """All workers of a session. `check` raises when the user has interrupted."""

    def __init__(self, places: Sequence[Place], check: Callable[[], None] = lambda: None) -> None:
        self._check_wanted = check
        # What a worker that is killed would leave behind.
        self._temporary = OwnDirectory()
        self.workers = [Worker(place, str(self._temporary.path)) for place in places]
        self._diagnoses = 0
        self._lock = threading.Lock()
        # What keeps a worker from a program, and the programs that some worker deals with.
        self._obstacles: dict[tuple[str, str], str] = {}
        self._accepted: set[str] = set()

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
        refused = [
            f"worker {name} takes no part: {why}"
            for (name, program), why in self._obstacles.items()
            if program in self._accepted
        ]
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

    def lease(self, command: Command) -> Engine:
        """For all that a lab asks: on the worker that has least to do. A Refusal when there is none."""
        second: Engine | None = None
        why = ""
        for worker in self._living():
            engine = worker.open_engine(self._check_wanted)
            try:
                fitness = self._check(engine, command)
            except CompanionLost:
                engine.close()
                continue
            if fitness.traces and not fitness.obstacle:
                if second is not None:
                    self.refuse(second.worker, command, NO_PTRACE)
                    second.close()
                return engine
            why = why or fitness.obstacle
            if fitness.obstacle or second is not None:
                engine.close()
            else:
                second = engine
        if second is not None:
            return second
        raise Refusal(why or self._why_none())

    def borrow(self) -> list[Engine]:
        """On workers that have nothing to do; others may want some of them too."""
        with self._lock:
            idle = [worker for worker in self.workers if not worker.is_lost and not worker.leases]
            fair = -(-len(idle) // max(1, self._diagnoses))
            return [worker.open_engine(self._check_wanted) for worker in idle[:fair]]

    def check(self, engine: Engine, command: Command) -> None:
        """A Refusal when it cannot help with a program, CompanionLost when it is not there any more."""
        fitness = self._check(engine, command)
        if fitness.obstacle or not fitness.traces:
            raise Refusal(fitness.obstacle or NO_PTRACE)

    def refuse(self, worker: Worker, command: Command, why: str) -> None:
        self._obstacles.setdefault((worker.name, command.program.build_id), why)

    def _living(self) -> list[Worker]:
        with self._lock:
            return sorted((w for w in self.workers if not w.is_lost), key=lambda worker: worker.leases)

    def _check(self, engine: Engine, command: Command) -> Fitness:
        fitness = engine.worker.check(command, engine)
        if fitness.obstacle:
            self.refuse(engine.worker, command, fitness.obstacle)
        else:
            self._accepted.add(command.program.build_id)
        return fitness

    def _why_none(self) -> str:
        lost = next((worker for worker in reversed(self.workers) if worker.is_lost), None)
        last = f" (the last one, {lost.name}: {lost.why_lost})" if lost is not None else ""
        return f"all workers are lost{last}: run the failing test alone."


class Share:
    """What one diagnosis has of the crew: unless it `is_parallel`, a single worker."""

    def __init__(self, crew: Crew, is_parallel: bool = True) -> None:
        self._crew, self._is_parallel = crew, is_parallel
        self.lease, self.check, self.refuse = crew.lease, crew.check, crew.refuse

    @property
    def size(self) -> int:
        return len(self._crew.workers) if self._is_parallel else 1

    @property
    def has_room(self) -> bool:
        return self._is_parallel and self._crew.has_room

    def borrow(self) -> list[Engine]:
        return self._crew.borrow() if self._is_parallel else []
