"""The streams of C's stdio in a stopped process: what they have read ahead, and what they have not written yet."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_causechain.process.injection import call_function
from pytest_causechain.process.tracee import WORD, Tracee

# struct _IO_FILE of glibc, in which since 1997 only new members at the end have changed: flags; pointers into the
# buffers for reading, writing and the buffer itself; a second area that ungetc makes; markers; the next stream.
HEAD = struct.Struct("<i4x13Qi")
READ_POINTER, WRITE_BASE, BUFFER_BASE, SAVED_BASE, OFFSET = 8, 32, 56, 72, 144
FLAGS = struct.Struct("<i")
UNKNOWN_OFFSET = struct.pack("<q", -1)
USER_BUFFER, UNBUFFERED, END_SEEN, IN_BACKUP, LINE_BUFFERED, PUTTING = 0x1, 0x2, 0x10, 0x100, 0x200, 0x800
# A program whose memory is ruined may have a circle there.
STREAMS_LIMIT = 1_000
BUFFER_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class Stream:
    address: int
    flags: int
    read_pointer: int
    read_end: int
    read_base: int
    write_base: int
    write_pointer: int
    write_end: int
    buffer_base: int
    buffer_end: int
    saved_base: int
    backup_base: int
    saved_end: int
    markers: int
    following: int
    number: int

    @property
    def is_putting(self) -> bool:
        return bool(self.flags & PUTTING)

    @property
    def is_at_end(self) -> bool:
        return bool(self.flags & END_SEEN)


def read_streams(process: Tracee) -> dict[int, Stream]:
    """By descriptor; none of a program without stdio."""
    return {stream.number: stream for stream in _walk(process) if stream.number >= 0}


def _walk(process: Tracee) -> Iterator[Stream]:
    first = process.landmarks.symbols.get("_IO_list_all")
    try:
        address = WORD.unpack(process.read(first, WORD.size))[0] if first is not None else 0
        for _ in range(STREAMS_LIMIT):
            if not address:
                return
            stream = Stream(address, *HEAD.unpack(process.read(address, HEAD.size)))
            yield stream
            address = stream.following
    except (OSError, struct.error, OverflowError):
        return  # the program has ruined it


def read_ahead(process: Tracee, stream: Stream) -> bytes:
    """What it has got from its file, and the program has not got from it; what was put back comes first."""
    if stream.is_putting:
        return b""
    ahead = _read_span(process, stream.read_pointer, stream.read_end)
    if stream.flags & IN_BACKUP:
        ahead += _read_span(process, stream.saved_base, stream.saved_end)
    return ahead


def count_ahead(stream: Stream) -> int:
    """How far the file has been read beyond what the program knows of it."""
    if stream.is_putting:
        return 0
    saved = stream.saved_end - stream.saved_base if stream.flags & IN_BACKUP else 0
    return stream.read_end - stream.read_pointer + saved


def read_pending(process: Tracee, stream: Stream) -> bytes:
    return _read_span(process, stream.write_base, stream.write_pointer) if stream.is_putting else b""


def _read_span(process: Tracee, start: int, end: int) -> bytes:
    if not 0 < end - start <= BUFFER_LIMIT:
        return b""
    try:
        return process.read(start, end - start)
    except (OSError, OverflowError):
        return b""


def reset_stream(process: Tracee, stream: Stream, pending: bytes, buffer_size: int, is_at_end: bool) -> None:
    """Have it forget what it has read ahead, so that it goes on with what its file has then, and have this output
    waiting."""
    flags = stream.flags & ~END_SEEN | (END_SEEN if is_at_end else 0)
    if pending:
        flags = _fill(process, stream, pending, buffer_size, flags)
    elif stream.is_putting:
        process.write(stream.address + WRITE_BASE + WORD.size, WORD.pack(stream.write_base))
    else:
        process.write(stream.address + READ_POINTER, WORD.pack(stream.read_end))
        if flags & IN_BACKUP:
            process.write(stream.address + SAVED_BASE, WORD.pack(stream.saved_end))
    process.write(stream.address, FLAGS.pack(flags))
    # Where it believes to be in its file: it asks the system again.
    process.write(stream.address + OFFSET, UNKNOWN_OFFSET)


def _fill(process: Tracee, stream: Stream, pending: bytes, buffer_size: int, flags: int) -> int:
    """Put output into the buffer, or into a new one where that has no room; the stream's new flags."""
    base, end = stream.buffer_base, stream.buffer_end
    if end - base < len(pending):
        size = max(buffer_size, len(pending))
        base = call_function(process, process.landmarks.symbols["malloc"], [size])
        end = base + size
        flags |= USER_BUFFER  # its own, if any, is not ours to give back
        process.write(stream.address + BUFFER_BASE, struct.pack("<2Q", base, end))
    process.write(base, pending)
    last = base if flags & (LINE_BUFFERED | UNBUFFERED) else end
    words = (base, base, base, base, base + len(pending), last)
    process.write(stream.address + READ_POINTER, struct.pack("<6Q", *words))
    return flags & ~IN_BACKUP | PUTTING
