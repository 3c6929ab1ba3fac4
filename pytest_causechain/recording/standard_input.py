"""Tells what a started program finds on its standard input."""

from __future__ import annotations

import io
import os
import stat
import weakref
from pathlib import Path
from subprocess import Popen
from typing import Any

# More than this is neither kept in memory nor compared with anything: a test that feeds more counts as unknown.
MAX_STDIN_BYTES = 64 * 1024 * 1024

# Descriptors of _execute_child that were not asked for.
NOT_GIVEN = -1

# Where a raw file keeps its Feed.
_ATTRIBUTE = "_causechain_feed"


def read_given_stdin(read_end: int, write_end: int) -> bytes | None:
    """The standard input of a program about to start, or None where it is not known (yet)."""
    if write_end != NOT_GIVEN:
        return None  # a pipe: its Feed knows later
    if read_end == NOT_GIVEN:
        return _read_ahead(0) if _is_regular(0) else b""
    if _is_regular(read_end):
        return _read_ahead(read_end)
    return b"" if os.fstat(read_end).st_rdev == Path(os.devnull).stat().st_rdev else None


def _is_regular(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # a closed standard input
        return False


def _read_ahead(descriptor: int) -> bytes | None:
    """The bytes from the descriptor's position on, which does not move."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    size = os.fstat(descriptor).st_size - position
    if size > MAX_STDIN_BYTES:
        return None
    content = bytearray()
    while len(content) < size:
        part = os.pread(descriptor, size - len(content), position + len(content))
        if not part:
            break
        content += part
    return bytes(content)


class Feed:
    """Listens to what the test writes to a process through a pipe.

    Popen makes process.stdin before it starts the child. All writing by hand ends in the `write` of the raw
    file below it, looked up on the instance; only communicate writes around it, from `_input`, and asyncio, which
    tells by `keep`.
    """

    def __init__(self, process: Popen[Any]) -> None:
        self._written: bytearray | None = bytearray()
        raw = process.stdin
        raw = getattr(raw, "buffer", raw)
        raw = getattr(raw, "raw", raw)
        # The raw file holds this function: by a weak reference back, files nobody closes still close at once.
        self._raw = itself = weakref.ref(raw)

        def write(data: Any) -> int | None:
            target = itself()
            assert target is not None
            try:
                count = io.FileIO.write(target, data)  # type: ignore[arg-type]
            except BrokenPipeError:
                self.keep(data)  # the program ended without reading all it was given
                raise
            self.keep(memoryview(data).cast("B")[: count or 0])
            return count

        raw.write = write  # type: ignore[method-assign, union-attr]
        setattr(raw, _ATTRIBUTE, self)

    def keep(self, data: Any) -> None:
        if self._written is None:
            return
        if len(self._written) + memoryview(data).nbytes > MAX_STDIN_BYTES:
            self._written = None
        else:
            self._written += data

    def bytes_given(self, process: Popen[Any]) -> bytes | None:
        """All that was fed; None as long as more may follow: the pipe is open and the process alive."""
        raw = self._raw()
        is_open = raw is not None and not raw.closed
        if self._written is None or (is_open and process.returncode is None):
            return None
        given = bytes(self._written) + bytes(getattr(process, "_input", None) or b"")
        return given if len(given) <= MAX_STDIN_BYTES else None


def find_feed(raw: object) -> Feed | None:
    """The one that listens to this raw file."""
    return getattr(raw, _ATTRIBUTE, None)
