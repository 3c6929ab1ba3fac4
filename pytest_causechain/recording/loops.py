"""Listens to asyncio's event loops, which feed programs and wait for them without asking Popen."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from subprocess import Popen
from typing import Any

from pytest_causechain.recording.patch import Patch
from pytest_causechain.recording.standard_input import find_feed

Complete = Callable[[Popen[Any]], None]


def make_loop_patches(complete: Complete) -> tuple[Patch, ...]:
    """The transports' methods, listened to; `complete` is called when a program has ended. Only for those who use
    asyncio: nobody else has it imported."""
    from asyncio.base_subprocess import BaseSubprocessTransport
    from asyncio.unix_events import _UnixWritePipeTransport  # type: ignore[attr-defined]

    return (
        Patch(_UnixWritePipeTransport, {"write": functools.partial(_note, _listen)}),
        Patch(
            BaseSubprocessTransport,
            {"_process_exited": functools.partial(_note, lambda transport, _: complete(transport._proc))},
        ),
    )


def _note(note: Callable[[Any, Any], None], real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def ours(transport: Any, value: Any) -> Any:
        result = real(transport, value)
        with contextlib.suppress(Exception):
            note(transport, value)
        return result

    return ours


def _listen(transport: Any, data: Any) -> None:
    feed = find_feed(transport._pipe)
    if feed is not None:
        feed.keep(data)
