"""Workers are places where engines can run; channels are the ways of diagnoses to engines there.

An own worker's engines are processes of our own; others are on the other side of an execnet gateway, on which
pytest-xdist has run the tests.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest_causechain
from pytest_causechain.kernel.companion import LOOK_UP_SECONDS, Companion, CompanionLost, uninterrupted
from pytest_causechain.lab.laboratory import Check, EngineAnswer, Fitness, Message, Open
from pytest_causechain.lab.relay import (
    ANSWER,
    CALL,
    CANCEL,
    CLOSING_SECONDS,
    END,
    ENGINE,
    HELLO,
    LOST,
    PING,
    RESET,
    START,
    STOP,
    Packet,
)
from pytest_causechain.model.command import Command, Program

if TYPE_CHECKING:
    from execnet import Gateway
    from execnet.gateway_base import Channel as ExecnetChannel

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

    @abstractmethod
    def _end(self) -> None: ...


class Worker(ABC):
    """Its engines take turns; `leases` counts them. `is_local`: on this machine, with this file system. Waiting for
    answers ends with a KeyboardInterrupt once `cancelled` is set."""

    def __init__(self, name: str, temporary: str, cancelled: threading.Event, *, is_local: bool) -> None:
        self.name, self.is_local = name, is_local
        self.leases = 0
        self.is_lost = False
        self._temporary, self._cancelled = temporary, cancelled
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

    def __init__(self, name: str, temporary: str, cancelled: threading.Event) -> None:
        super().__init__(name, temporary, cancelled, is_local=True)
        self.turn = threading.Lock()
        # Engines that wait for another lab.
        self._spare: list[Companion] = []

    why_lost = ""

    def prepare(self) -> None:
        with self._lock:
            if not self.leases and not self._spare:
                self._spare.append(self._start())

    def open_channel(self) -> OwnChannel:
        with self._lock:
            self.leases += 1
            companion = self._spare.pop() if self._spare else None
        return OwnChannel(self, companion or self._start())

    def end_engine(self, companion: Companion) -> None:
        is_usable = not companion.is_busy
        if is_usable:
            companion.tell(RESET)
        else:
            companion.close()
        with self._lock:
            self.leases -= 1
            if is_usable:
                self._spare.append(companion)

    def stop(self) -> None:
        for companion in self._spare:
            companion.close(CLOSING_SECONDS)

    def join(self, deadline: float) -> None:
        return

    def _start(self) -> Companion:
        with uninterrupted():
            return Companion(ENGINE, cancelled=self._cancelled, temporary=self._temporary)


class OwnChannel(Channel):
    def __init__(self, worker: OwnWorker, companion: Companion) -> None:
        super().__init__(worker)
        self._own_worker, self._companion = worker, companion
        self._using = threading.Lock()

    def exchange(self, message: Message, timeout_seconds: float) -> EngineAnswer:
        if isinstance(message, Open):
            # It may have been started when that was another one.
            message = replace(message, environment=tuple(os.environ.items()))
        turn, deadline = self._own_worker.turn, time.monotonic() + timeout_seconds
        while not turn.acquire(timeout=LOOK_UP_SECONDS):
            if self._companion.cancelled.is_set():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise CompanionLost(is_late=True)
        try:
            with self._using:
                if not self._is_open:
                    raise CompanionLost(is_late=False, log="it was given up")
                answer: EngineAnswer = self._companion.exchange(message, max(0.0, deadline - time.monotonic()))
                return answer
        finally:
            turn.release()

    def cancel(self) -> None:
        self._companion.send(CANCEL)

    def _end(self) -> None:
        if self._companion.is_busy:
            self._companion.end()  # for a thread that still waits for an answer
        with self._using:
            self._own_worker.end_engine(self._companion)


Inbox = queue.SimpleQueue[Packet]


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
        self._inboxes: dict[int, Inbox] = {}
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
                self._connection = self._gateway.remote_exec(START)
                self._connection.setcallback(self._receive, endmarker=(LOST,))
                with self._sending:
                    self._connection.send((self._temporary if self.is_local else None,))
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
        with self._lock:
            self.leases += 1
            number = next(self._numbers)
            inbox = self._inboxes[number] = Inbox()
        return GatewayChannel(self, number, inbox, self._cancelled)

    def end_engine(self, number: int) -> None:
        with self._lock:
            self.leases -= 1
            inbox = self._inboxes.pop(number)
        inbox.put(Packet(LOST, number, text="it was given up"))  # for a thread that still waits for an answer
        self._send(Packet(END, number))

    def call(self, number: int, message: Message, timeout_seconds: float) -> None:
        """The answer comes to the channel's inbox."""
        self.prepare()
        deadline = time.monotonic() + HELLO_SECONDS
        while not self._greeted.wait(LOOK_UP_SECONDS):
            if self._cancelled.is_set():
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                self._lose("it does not answer")
        data = pickle.dumps(self._adapt(message))
        # A lost worker has told all that were waiting then, but nobody since.
        if self.is_lost or not self._send(Packet(CALL, number, data, timeout_seconds)):
            raise CompanionLost(is_late=False, log=self.why_lost)

    def cancel(self, number: int) -> None:
        self._send(Packet(CANCEL, number))

    def look_after(self) -> None:
        """Called now and then while an answer is waited for."""
        now = time.monotonic()
        if self._pinged is not None:
            if now - self._pinged > SILENCE_SECONDS:
                self._lose("it does not answer")
        elif now - self._heard > PING_SECONDS:
            self._pinged = now
            self._send(Packet(PING))

    def stop(self) -> None:
        self._send(Packet(STOP))

    def join(self, deadline: float) -> None:
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(connection.RemoteError, connection.TimeoutError, EOFError, OSError):
            connection.waitclose(max(0.0, deadline - time.monotonic()))

    def _adapt(self, message: Message) -> Message:
        """Its clock is another one, and it may be on another machine."""
        if isinstance(message, Open | Check):
            message = replace(message, deadline=message.deadline + self._clock)
        if isinstance(message, Open):
            cache = message.cache if self.is_local else None
            message = replace(message, environment=tuple(os.environ.items()), cache=cache)
        return message

    def _send(self, packet: Packet) -> bool:
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
        if packet == Packet(LOST):
            self._lose()
        elif packet.kind == HELLO:
            self._clock = packet.seconds - time.monotonic()
            if packet.text != pytest_causechain.__version__:
                self._lose(f"it has version {packet.text} of pytest-causechain, not {pytest_causechain.__version__}")
            self._greeted.set()
        elif packet.kind in (ANSWER, LOST):
            with self._lock:
                inbox = self._inboxes.get(packet.number)
            if inbox is not None:
                inbox.put(packet)

    def _lose(self, why: str = "") -> None:
        self._why = self._why or why
        self.is_lost = True
        with self._lock:
            inboxes = list(self._inboxes.values())
        for inbox in inboxes:
            inbox.put(Packet(LOST))
        self._greeted.set()


class GatewayChannel(Channel):
    def __init__(self, worker: GatewayWorker, number: int, inbox: Inbox, cancelled: threading.Event) -> None:
        super().__init__(worker)
        self._gateway_worker, self._number, self._inbox, self._cancelled = worker, number, inbox, cancelled

    def exchange(self, message: Message, timeout_seconds: float) -> EngineAnswer:
        self._gateway_worker.call(self._number, message, timeout_seconds)
        deadline = time.monotonic() + timeout_seconds + RELAY_SECONDS
        while True:
            try:
                packet = self._inbox.get(timeout=LOOK_UP_SECONDS)
                break
            except queue.Empty:
                if self._cancelled.is_set():
                    raise KeyboardInterrupt from None
                self._gateway_worker.look_after()
                if time.monotonic() > deadline:
                    raise CompanionLost(is_late=True) from None
        if packet.kind == LOST:
            is_own = packet.number == self._number
            log = packet.text if is_own else f"worker {self.worker.name} was lost: {self.worker.why_lost}"
            raise CompanionLost(packet.is_late, log)
        answer: EngineAnswer = pickle.loads(packet.data)
        return answer

    def cancel(self) -> None:
        self._gateway_worker.cancel(self._number)

    def _end(self) -> None:
        self._gateway_worker.end_engine(self._number)
