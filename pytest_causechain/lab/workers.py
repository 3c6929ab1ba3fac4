"""Workers, and the engines that diagnoses have on them: those in processes of our own."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pytest_causechain.lab.engine import Answer, Check, Fitness, Open
from pytest_causechain.lab.worker import CANCEL, CLOSING_SECONDS, ENGINE, RESET
from pytest_causechain.model.command import Command
from pytest_causechain.process.companion import LOOK_UP_SECONDS, Companion, CompanionLost, uninterrupted

# For a worker's first word and the check of a program: it may have to import all of Python through a network.
HELLO_SECONDS = 30.0


class Engine(ABC):
    """One engine on a worker, used like a Companion."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._is_open = True

    @abstractmethod
    def exchange(self, message: object, timeout_seconds: float) -> Any: ...

    @abstractmethod
    def cancel(self) -> None:
        """What it does without being asked for, while an answer is waited for."""

    @contextmanager
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
    """Its engines take turns; `leases` counts them. `is_local`: on this machine, with this file system."""

    def __init__(self, name: str, is_local: bool) -> None:
        self.name, self.is_local = name, is_local
        self.leases = 0
        self.is_lost = False
        self._lock = threading.Lock()
        self._fitness: dict[tuple[object, ...], Fitness] = {}

    def check(self, command: Command, engine: Engine) -> Fitness:
        """Whether it can deal with a program, as a command starts it; asked once."""
        key = (command.program, command.cwd, command.environment)
        if key not in self._fitness:
            answer: Answer = engine.exchange(Check(command, time.monotonic() + HELLO_SECONDS), HELLO_SECONDS)
            self._fitness[key] = answer.value
        return self._fitness[key]

    def count_leases(self, change: int) -> None:
        with self._lock:
            self.leases += change

    @abstractmethod
    def prepare(self) -> None:
        """It will be needed soon."""

    @abstractmethod
    def open_engine(self, check: Callable[[], None]) -> Engine:
        """`check` is called while an answer is waited for, and raises when nobody wants it any more."""

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

    def __init__(self, name: str, temporary: str) -> None:
        super().__init__(name, is_local=True)
        self._temporary = temporary
        self.turn = threading.Lock()
        # Engines that wait for another lab.
        self._spare: list[Companion] = []

    why_lost = ""

    def prepare(self) -> None:
        with self._lock:
            if not self.leases and not self._spare:
                self._spare.append(self._start())

    def open_engine(self, check: Callable[[], None]) -> OwnEngine:
        with self._lock:
            self.leases += 1
            companion = self._spare.pop() if self._spare else None
        return OwnEngine(self, companion or self._start(), check)

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
            return Companion(ENGINE, temporary=self._temporary)


class OwnEngine(Engine):
    def __init__(self, worker: OwnWorker, companion: Companion, check: Callable[[], None]) -> None:
        super().__init__(worker)
        self._own_worker, self._companion = worker, companion
        self._using = threading.Lock()
        companion.check = check

    def exchange(self, message: object, timeout_seconds: float) -> Any:
        if isinstance(message, Open):
            # It may have been started when that was another one.
            message = replace(message, environment=tuple(os.environ.items()))
        turn = self._own_worker.turn
        while not turn.acquire(timeout=LOOK_UP_SECONDS):
            self._companion.check()
        try:
            with self._using:
                if not self._is_open:
                    raise CompanionLost(is_late=False, log="it was given up")
                return self._companion.exchange(message, timeout_seconds)
        finally:
            turn.release()

    def cancel(self) -> None:
        self._companion.send(CANCEL)

    def _end(self) -> None:
        if self._companion.is_busy:
            self._companion.end()  # for a thread that still waits for an answer
        with self._using:
            self._own_worker.end_engine(self._companion)
