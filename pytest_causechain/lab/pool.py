"""The session's worker pool, and each diagnosis's share of it.

The workers are those on which pytest-xdist has run the tests, or as many of our own as there are processors.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pytest_causechain.kernel.companion import Closing, CompanionLost, OwnDirectory
from pytest_causechain.lab.laboratory import Fitness
from pytest_causechain.lab.relay import CLOSING_SECONDS
from pytest_causechain.lab.workers import Channel, GatewayWorker, OwnWorker, Worker
from pytest_causechain.model.command import Command
from pytest_causechain.model.refusal import Hopeless, Refusal

if TYPE_CHECKING:
    from execnet import Gateway
    from execnet.gateway_base import Channel as ExecnetChannel

# Makes a worker that has its temporary files in this directory and waits for nothing once the event is set.
MakeWorker = Callable[[str, threading.Event], Worker]

# For a worker of pytest-xdist to end its session: after -x it may be amid a test.
SESSION_SECONDS = 5.0
# How long one thread may keep others waiting that an engine has answered, most often within a millisecond.
SWITCH_SECONDS = 0.0005


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
            channel = worker.open_channel()
            self._prepare_next()
            try:
                fitness = worker.check(command, channel, timeout_seconds)
            except CompanionLost:
                channel.close()
                continue
            except BaseException:
                channel.close()
                raise
            if not fitness.obstacle:
                for other, why in refused:
                    self.refuse(other, command, why.obstacle)
                return channel
            refused.append((worker, fitness))
            channel.close()
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
