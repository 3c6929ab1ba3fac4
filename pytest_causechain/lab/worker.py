"""The far end of an execnet gateway: engines where the tests have run, or where new ones may.

An engine is a process of its own there too: the gateway's has threads, and the user's tests may have left more in it.
Messages for engines pass through as bytes, one at a time, so that a worker never does two things at once.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest_causechain
from pytest_causechain.kernel.companion import Companion, CompanionLost

if TYPE_CHECKING:
    from execnet.gateway_base import Channel

# What a gateway is sent to execute.
START = """
(temporary,) = channel.receive()
from pytest_causechain.lab.worker import serve
serve(channel, temporary)
"""
ENGINE = "pytest_causechain.lab.engine"
CLOSING_SECONDS = 5.0
# The first word of each message; then comes the number of the engine. CANCEL is passed on to it amid a call: what it
# was not asked for by then it will not be. RESET has an engine give up its lab, for another.
CALL, CANCEL, END, PING, RESET, STOP = "call", "cancel", "end", "ping", "reset", "stop"
# Of each answer.
HELLO, ANSWER, LOST = "hello", "answer", "lost"


class _Over(Exception):
    """Nobody waits for the answer any more."""


def serve(channel: Channel, temporary: str | None) -> None:
    """Until the other side says STOP or is gone. Engines have their files in `temporary`."""
    messages: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    engines: dict[int, Companion] = {}
    # Those that wait for another lab.
    spare: list[Companion] = []
    sending = threading.Lock()
    # Engines that are to end, even amid work; of the worker as a whole with STOP in it.
    ended: set[int | str] = set()

    def send(*message: object) -> None:
        with sending:
            channel.send(message)

    def receive(message: tuple[Any, ...]) -> None:
        """In execnet's own thread: an answer to PING comes from a busy worker too."""
        if message[0] == PING:
            send(PING)
            return
        if message[0] == CANCEL:
            if (engine := engines.get(message[1])) is not None:
                engine.send(CANCEL)
            return
        if message[0] in (END, STOP):
            ended.add(message[-1])
        messages.put(message)

    def check(*ends: int | str) -> None:
        if not ended.isdisjoint(ends):
            raise _Over

    def open_engine(number: int) -> Companion:
        engine = spare.pop() if spare else Companion(ENGINE, temporary=temporary)
        engine.check = partial(check, number, STOP)
        return engine

    def put_by(engine: Companion) -> None:
        engine.check = partial(check, STOP)
        try:
            engine.exchange(RESET, CLOSING_SECONDS)
            spare.append(engine)
        except (CompanionLost, _Over):
            engine.close()

    channel.setcallback(receive, endmarker=(STOP,))
    # OSError: the other side is gone.
    with undisturbed(), contextlib.suppress(OSError):
        try:
            send(HELLO, pytest_causechain.__version__, time.monotonic())
            spare.append(Companion(ENGINE, temporary=temporary))
            while (message := messages.get())[0] != STOP:
                if message[0] == END:
                    if message[1] in engines:
                        put_by(engines.pop(message[1]))
                    continue
                _, number, data, timeout_seconds = message
                if number not in engines:
                    engines[number] = open_engine(number)
                try:
                    send(ANSWER, number, engines[number].exchange_bytes(data, timeout_seconds))
                except CompanionLost as lost:
                    engines.pop(number).close()
                    send(LOST, number, lost.is_late, lost.log)
                except _Over:
                    engines.pop(number).close()
        finally:
            for engine in (*engines.values(), *spare):
                engine.close()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal, but is meant for the session alone."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted
        return
    # Not ignored, as the programs in experiments would inherit that; unless they do anyhow.
    handler = signal.getsignal(signal.SIGINT)
    if handler != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda sign, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
