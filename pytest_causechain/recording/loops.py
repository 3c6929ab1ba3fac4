"""Listens to asyncio's event loops, which feed programs and wait for them without asking Popen."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from subprocess import Popen
from typing import Any

from pytest_causechain.recording.standard_input import find_feed

Complete = Callable[[Popen[Any]], None]


class Loops:
    """The transports' methods while they are listened to; `complete` is called when a program has ended."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete
        self._real: list[tuple[type[Any], str, Callable[..., Any]]] = []

    def install(self) -> None:
        """When the first program is started through asyncio: nobody else has it imported."""
        if self._real:
            return
        from asyncio.base_subprocess import BaseSubprocessTransport
        from asyncio.unix_events import _UnixWritePipeTransport  # type: ignore[attr-defined]

        self._replace(_UnixWritePipeTransport, "write", _listen)
        self._replace(BaseSubprocessTransport, "_process_exited", self._notice)

    def remove(self) -> None:
        while self._real:
            owner, name, real = self._real.pop()
            if getattr(owner.__dict__[name], "__wrapped__", None) is real:
                setattr(owner, name, real)

    def _replace(self, owner: type[Any], name: str, note: Callable[[Any, Any], None]) -> None:
        real = owner.__dict__[name]

        @functools.wraps(real)
        def ours(transport: Any, value: Any) -> Any:
            result = real(transport, value)
            with contextlib.suppress(Exception):
                note(transport, value)
            return result

        self._real.append((owner, name, real))
        setattr(owner, name, ours)

    def _notice(self, transport: Any, _returncode: int) -> None:
        self._complete(transport._proc)


def _listen(transport: Any, data: Any) -> None:
    feed = find_feed(transport._pipe)
    if feed is not None:
        feed.keep(data)
