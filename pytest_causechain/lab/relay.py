"""The far end of an execnet gateway: engines where the tests have run, or where new ones may.

An engine is a process of its own there too: the gateway's has threads, and the user's tests may have left more in it.
Messages for engines pass through as bytes, one at a time, so that a worker never does two things at once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import pytest_causechain
from pytest_causechain.kernel.companion import Companion, CompanionLost, undisturbed

if TYPE_CHECKING:
    from execnet.gateway_base import Channel as GatewayChannel

# What a gateway is sent to execute.
START = """
(temporary,) = channel.receive()
from pytest_causechain.lab.relay import serve
serve(channel, temporary)
"""
ENGINE = "pytest_causechain.lab.engine"
CLOSING_SECONDS = 5.0
# Orders to an engine. CANCEL: what it was not asked for by then it will not be. RESET: it gives up its lab, for
# another one.
CANCEL: Final = "cancel"
RESET: Final = "reset"
Order = Literal["cancel", "reset"]
# The other kinds of packets that a worker gets: CALL and END are for one of its engines, PING is answered amid work
# too.
CALL, END, PING, STOP = "call", "end", "ping", "stop"
# Those that it sends.
HELLO, ANSWER, LOST = "hello", "answer", "lost"


class Packet(NamedTuple):
    """What passes through a gateway, as a tuple. `number` is that of an engine; `seconds` is how long an answer is
    waited for, or what a worker's clock shows; `text` is a worker's version, or what a lost engine has printed."""

    kind: str
    number: int = -1
    data: bytes = b""
    seconds: float = 0.0
    text: str = ""
    is_late: bool = False


def serve(channel: GatewayChannel, temporary: str | None) -> None:
    """Until the other side says STOP or is gone. Engines have their files in `temporary`."""
    packets: queue.SimpleQueue[Packet] = queue.SimpleQueue()
    engines: dict[int, Companion] = {}
    # Those that wait for another lab.
    spare: list[Companion] = []
    sending = threading.Lock()
    # By the number of an engine: it is to end, even amid work.
    ended: dict[int, threading.Event] = {}
    is_over = threading.Event()

    def send(packet: Packet) -> None:
        with sending:
            channel.send(tuple(packet))

    def receive(message: tuple[str]) -> None:
        """In execnet's own thread: an answer to PING comes from a busy worker too."""
        packet = Packet(*message)
        if packet.kind == PING:
            send(packet)
            return
        if packet.kind == CANCEL:
            if (engine := engines.get(packet.number)) is not None:
                engine.send(CANCEL)
            return
        if packet.kind == END:
            ended.setdefault(packet.number, threading.Event()).set()
        if packet.kind == STOP:
            is_over.set()
            for event in list(ended.values()):
                event.set()
        packets.put(packet)

    def open_engine(number: int) -> Companion:
        engine = spare.pop() if spare else Companion(ENGINE, temporary=temporary)
        engine.cancelled = ended.setdefault(number, threading.Event())
        return engine

    channel.setcallback(receive, endmarker=(STOP,))
    # OSError: the other side is gone.
    with undisturbed(), contextlib.suppress(OSError):
        try:
            send(Packet(HELLO, seconds=time.monotonic(), text=pytest_causechain.__version__))
            spare.append(Companion(ENGINE, temporary=temporary))
            while (packet := packets.get()).kind != STOP and not is_over.is_set():
                number = packet.number
                if packet.kind == END:
                    if number in engines:
                        spare.append(engines.pop(number))
                        spare[-1].tell(RESET)
                    ended.pop(number, None)
                    continue
                if number not in engines:
                    engines[number] = open_engine(number)
                try:
                    answer = engines[number].exchange_bytes(packet.data, packet.seconds)
                    send(Packet(ANSWER, number, answer))
                except CompanionLost as lost:
                    engines.pop(number).close()
                    send(Packet(LOST, number, text=lost.log, is_late=lost.is_late))
                except KeyboardInterrupt:  # it is to end, and the answer is not waited for
                    engines.pop(number).close()
        finally:
            for engine in (*engines.values(), *spare):
                engine.close()
