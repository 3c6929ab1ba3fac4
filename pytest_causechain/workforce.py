"""Finds workers for the experiments: those on which pytest-xdist has run the tests, or as many of our own."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    from execnet import Gateway

    from pytest_causechain.lab.crew import Crew, Place

# For a worker of pytest-xdist to end its session: after -x it may be amid a test.
SESSION_SECONDS = 5.0
# For gateways of our own to end by themselves.
TERMINATE_SECONDS = 2.0


class Workforce:
    """`nodes` are the workers of pytest-xdist, whose gateways live on behind the last test."""

    def __init__(self, settings: Settings, nodes: Sequence[Any]) -> None:
        self._settings, self._nodes = settings, nodes

    @contextlib.contextmanager
    def open_crew(self, check: Callable[[], None]) -> Iterator[Crew]:
        from execnet import Group

        from pytest_causechain.lab.crew import Crew

        own = Group(execmodel="main_thread_only")
        try:
            with Crew(self._find_nodes() or self._plan_own(own), check) as crew:
                yield crew
        finally:
            own.terminate(TERMINATE_SECONDS)

    def _find_nodes(self) -> list[Place]:
        """Those whose session is over: a gateway executes one thing at a time."""
        from pytest_causechain.lab.crew import Place

        places = []
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
            places.append(Place("".join([gateway.id, *where]), partial(keep, gateway), bool(gateway.spec.popen)))
        return places

    def _plan_own(self, group: Any) -> list[Place]:
        from pytest_causechain.lab.crew import Place

        # A group knows nothing of threads.
        making = threading.Lock()

        def open_gateway(name: str) -> Gateway:
            with making:
                gateway: Gateway = group.makegateway(f"popen//id={name}")
                return gateway

        jobs = self._settings.jobs or len(os.sched_getaffinity(0))
        names = [f"worker{number}" for number in range(1, jobs + 1)]
        return [Place(name, partial(open_gateway, name), True, tuple(sys.path)) for name in names]


def keep(gateway: Gateway) -> Gateway:
    return gateway
