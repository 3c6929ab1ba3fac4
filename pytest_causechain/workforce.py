"""Finds workers for the experiments: those on which pytest-xdist has run the tests, or as many of our own."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    from pytest_causechain.lab.crew import Crew, MakeWorker

# For a worker of pytest-xdist to end its session: after -x it may be amid a test.
SESSION_SECONDS = 5.0
# How long one thread may keep others waiting that an engine has answered, most often within a millisecond.
SWITCH_SECONDS = 0.0005


class Workforce:
    """`nodes` are the workers of pytest-xdist, whose gateways live on behind the last test."""

    def __init__(self, settings: Settings, nodes: Sequence[Any]) -> None:
        self._settings, self._nodes = settings, nodes

    @contextlib.contextmanager
    def open_crew(self, check: Callable[[], None]) -> Iterator[Crew]:
        from pytest_causechain.lab.crew import Crew

        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            with Crew(self._find_nodes() or self._plan_own(), check) as crew:
                yield crew
        finally:
            sys.setswitchinterval(interval)

    def _find_nodes(self) -> list[MakeWorker]:
        """Those whose session is over: a gateway executes one thing at a time."""
        from pytest_causechain.lab.gateways import GatewayWorker

        workers: list[MakeWorker] = []
        deadline = time.monotonic() + SESSION_SECONDS
        for node in self._nodes:
            gateway, channel = node.gateway, node.channel
            try:
                channel.waitclose(max(0.0, deadline - time.monotonic()))
            except channel.TimeoutError:
                continue
            except (channel.RemoteError, EOFError):
                pass  # when its gateway is gone too, that is found out soon
            where = [f" ({kind}={place})" for kind in ("ssh", "socket") if (place := getattr(gateway.spec, kind, None))]
            name = "".join([gateway.id, *where])
            workers.append(partial(GatewayWorker, name, gateway, bool(gateway.spec.popen)))
        return workers

    def _plan_own(self) -> list[MakeWorker]:
        from pytest_causechain.lab.workers import OwnWorker

        jobs = self._settings.jobs or len(os.sched_getaffinity(0))
        return [partial(OwnWorker, f"worker{number}") for number in range(1, jobs + 1)]
