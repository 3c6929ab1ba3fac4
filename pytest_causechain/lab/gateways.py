"""Workers on the other side of an execnet gateway: those on which pytest-xdist has run the tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest_causechain
from pytest_causechain.kernel.companion import LOOK_UP_SECONDS, CompanionLost
from pytest_causechain.lab.engine import Check, Open
from pytest_causechain.lab.worker import ANSWER, CALL, CANCEL, END, HELLO, LOST, PING, START, STOP
from pytest_causechain.lab.workers import HELLO_SECONDS, Engine, Worker

if TYPE_CHECKING:
    from execnet import Gateway
    from execnet.gateway_base import Channel

Inbox = queue.SimpleQueue[tuple[Any, ...]]

# A worker that works answers nothing for a while, but never leaves a PING unanswered for so long.
PING_SECONDS, SILENCE_SECONDS = 5.0, 20.0
# A worker notices by itself that an engine is late.
RELAY_SECONDS = 5.0


class GatewayWorker(Worker):
    def __init__(self, name: str, gateway: Gateway, is_local: bool, temporary: str) -> None:
        super().__init__(name, is_local)
        self._gateway, self._temporary = gateway, temporary
        self._why = ""
        # Apart from each other: what is received must never wait until something is sent.
        self._sending, self._starting = threading.Lock(), threading.Lock()
        self._numbers = itertools.count()
        self._inboxes: dict[int, Inbox] = {}
        self._heard = time.monotonic()
        self._pinged: float | None = None
        self._greeted = threading.Event()
        self._clock = 0.0
        self._channel: Channel | None = None

    def prepare(self) -> None:
        with self._starting:
            if self._channel is not None or self.is_lost:
                return
            try:
                self._channel = self._gateway.remote_exec(START)
                self._channel.setcallback(self._receive, endmarker=(LOST,))
            except (OSError, EOFError) as error:
                self._lose(f"its gateway cannot be used ({error})")
                return
        self._send(self._temporary if self.is_local else None)

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

    def open_engine(self, check: Callable[[], None]) -> GatewayEngine:
        with self._lock:
            self.leases += 1
            number = next(self._numbers)
            inbox = self._inboxes[number] = Inbox()
        return GatewayEngine(self, number, inbox, check)

    def end_engine(self, number: int) -> None:
        with self._lock:
            self.leases -= 1
            inbox = self._inboxes.pop(number)
        inbox.put((LOST,))  # for a thread that still waits for an answer
        self._send(END, number)

    def call(self, number: int, message: Any, timeout_seconds: float) -> None:
        """The answer comes to the engine's inbox."""
        self.prepare()
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


class GatewayEngine(Engine):
    def __init__(self, worker: GatewayWorker, number: int, inbox: Inbox, check: Callable[[], None]) -> None:
        super().__init__(worker)
        self._gateway_worker, self._number, self._inbox, self._check = worker, number, inbox, check

    def exchange(self, message: object, timeout_seconds: float) -> Any:
        self._gateway_worker.call(self._number, message, timeout_seconds)
        deadline = time.monotonic() + timeout_seconds + RELAY_SECONDS
        while True:
            try:
                answer = self._inbox.get(timeout=LOOK_UP_SECONDS)
                break
            except queue.Empty:
                self._check()
                self._gateway_worker.look_after()
                if time.monotonic() > deadline:
                    raise CompanionLost(is_late=True) from None
        if answer[0] == LOST:
            raise CompanionLost(*answer[2:] or (False, f"worker {self.worker.name} was lost: {self.worker.why_lost}"))
        return pickle.loads(answer[2])

    def cancel(self) -> None:
        self._gateway_worker.cancel(self._number)

    def _end(self) -> None:
        self._gateway_worker.end_engine(self._number)
