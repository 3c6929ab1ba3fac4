"""The open files of a stopped process as the program sees them, and private ones in their places.

The program sees a file through a stream of C's stdio: what that has read ahead and has not written yet counts too.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pytest_causechain.kernel.processes import Descriptor, read_descriptors
from pytest_causechain.model.alteration import OpenFile
from pytest_causechain.sandbox.subject import Subject, identity, read_all
from pytest_causechain.tracee.tracee import WORD, Tracee, call_function, inject

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
# The content of larger files is not compared.
CONTENT_LIMIT = 16 << 20
PRIVATE = "causechain-file"
STDOUT, STDERR = -1, -2
OUTPUTS = {STDOUT: "stdout", STDERR: "stderr"}
# How a file was opened, without what was to be done with it at that time.
OPENING_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC
KINDS = ((stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"), (stat.S_ISDIR, "directory"))


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


def read_files(subject: Subject) -> tuple[OpenFile, ...]:
    """Those that share an open file are one, by the number of the first. The two outputs come last, by numbers of
    their own: what was written counts even when the program has closed them."""
    streams, descriptors = read_streams(subject), read_descriptors(subject.pid)
    outputs = _outputs(subject)
    files = [
        _read_file(subject, descriptor, streams.get(descriptor.number))
        for descriptor in descriptors
        if descriptor.shared_with == descriptor.number and descriptor.file not in outputs.values()
    ]
    written = [
        _read_output(subject, number, [d for d in descriptors if d.file == file], streams)
        for number, file in outputs.items()
    ]
    return (*(file for file in files if file is not None), *written)


def _outputs(subject: Subject) -> dict[int, tuple[int, int]]:
    """Which files they are, by our numbers."""
    return {number: identity(os.fstat(getattr(subject.streams, name))) for number, name in OUTPUTS.items()}


def _read_output(subject: Subject, number: int, places: list[Descriptor], streams: dict[int, Stream]) -> OpenFile:
    name = OUTPUTS[number]
    content = read_all(getattr(subject.streams, name))
    position = places[0].position if places else 0
    stream = next((streams[d.number] for d in places if d.number in streams), None)
    if stream is None:
        return OpenFile(number, name, "output", content, position)
    size = stream.buffer_end - stream.buffer_base
    return OpenFile(number, name, "output", content, position, read_pending(subject, stream), size)


def _read_file(subject: Subject, descriptor: Descriptor, stream: Stream | None) -> OpenFile | None:
    """None for what has no state, such as a terminal or /dev/null."""
    number, link = descriptor.number, f"/proc/{subject.pid}/fd/{descriptor.number}"
    try:
        status, name = os.stat(link), os.readlink(link)
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode):
        return None
    role = _find_role(descriptor, status)
    if role == "other":
        kind = next((kind for is_kind, kind in KINDS if is_kind(status.st_mode)), name)
        return OpenFile(number, kind, role)
    if descriptor.file == subject.streams.stdin:
        name = "stdin"
    with open(link, "rb", buffering=0) as file:
        content = file.read()
    opened = OpenFile(number, name, role, content, descriptor.position, modified_ns=status.st_mtime_ns)
    return opened if stream is None else _see_through(subject, opened, stream)


def _see_through(subject: Subject, file: OpenFile, stream: Stream) -> OpenFile:
    """The file as the program has it through a stream."""
    content, position = file.content, file.position
    if ahead := count_ahead(stream):
        taken = max(0, position - ahead)
        content, position = content[:taken] + read_ahead(subject, stream) + content[position:], taken
    return replace(
        file,
        content=content,
        position=position,
        pending=read_pending(subject, stream),
        buffer_size=stream.buffer_end - stream.buffer_base,
        is_at_end=stream.is_at_end,
    )


def _find_role(descriptor: Descriptor, status: os.stat_result) -> Literal["input", "scratch", "other"]:
    if not descriptor.is_regular or status.st_size > CONTENT_LIMIT:
        return "other"
    if not descriptor.is_writable:
        return "input"
    return "other" if status.st_nlink else "scratch"


def replace_file(subject: Subject, file: OpenFile) -> None:
    """Another file in the place of a descriptor, which nobody else can see. An output of ours stays, with other
    content. What is not open is left alone, and what is open for writing by a name."""
    descriptors = read_descriptors(subject.pid)
    if file.role == "output":
        places = [d for d in descriptors if d.file == _outputs(subject)[file.number]]
        _rewrite(getattr(subject.streams, OUTPUTS[file.number]), file.content)
        for place in places:
            inject(subject, "lseek", place.number, file.position, os.SEEK_SET)
    else:
        present = next((d for d in descriptors if d.number == file.number), None)
        if present is None or _find_role(present, os.stat(f"/proc/{subject.pid}/fd/{file.number}")) == "other":
            return
        places = [d for d in descriptors if d.shared_with == present.shared_with]
        _open_private(subject, file, present.flags & OPENING_FLAGS, places)
    streams = read_streams(subject)
    stream = next((streams[place.number] for place in places if place.number in streams), None)
    if stream is not None:
        reset_stream(subject, stream, file.pending, file.buffer_size, file.is_at_end)


def _open_private(process: Tracee, file: OpenFile, flags: int, places: list[Descriptor]) -> None:
    memory = inject(process, "memfd_create", PRIVATE, 0)
    path = f"/proc/{process.pid}/fd/{memory}"
    with open(path, "r+b", buffering=0) as opened:
        _rewrite(opened.fileno(), file.content)
        os.utime(opened.fileno(), ns=(file.modified_ns, file.modified_ns))
    # Opened as the program has opened its own.
    number = inject(process, "open", f"/proc/self/fd/{memory}", flags, 0)
    inject(process, "lseek", number, file.position, os.SEEK_SET)
    for place in places:
        inject(process, "dup3", number, place.number, place.flags & os.O_CLOEXEC)
    inject(process, "close", number)
    inject(process, "close", memory)


def _rewrite(descriptor: int, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    at = 0
    while at < len(content):
        at += os.pwrite(descriptor, content[at:], at)


def find_environment(process: Tracee) -> tuple[int, int] | None:
    """Where the pointer to the variables of the environment lies, and its value."""
    address = process.landmarks.symbols.get("__environ")
    if address is None:
        return None
    return address, WORD.unpack(process.read(address, WORD.size))[0]
