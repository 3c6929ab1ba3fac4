"""What /proc says of a process: its mappings, descriptors, threads, timers and signals."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_causechain.model.load_map import LoadMap, Module
from pytest_causechain.process.linux import AT_ENTRY, PAGE, is_one_open_file

# The bits from here on of an entry of /proc/PID/pagemap: present, or swapped out.
PAGE_IN_USE = 62


@dataclass(frozen=True, slots=True)
class Mapping:
    """`name` is a path, "[heap]", "[stack]", "[vdso]" or ""."""

    start: int
    end: int
    permissions: str
    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An open file; `shared_with` is the first descriptor with which it shares its offset: mostly itself."""

    number: int
    mode: int
    position: int
    flags: int
    file: tuple[int, int]
    shared_with: int

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_writable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY


def read_mappings(pid: int) -> list[Mapping]:
    mappings = []
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape").splitlines():
        span, permissions, offset, _, _, *name = line.split(maxsplit=5)
        start, end = (int(x, 16) for x in span.split("-"))
        mappings.append(Mapping(start, end, permissions, int(offset, 16), name[0] if name else ""))
    return mappings


class NotMapped(Exception):
    """The file, named by `path`, is no part of the process."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not mapped")
        self.path = path


def locate_modules(mappings: list[Mapping], path: str, relocated: bool, libraries: Sequence[str] = ()) -> LoadMap:
    """Where a program, whose addresses may be fixed, and libraries have been loaded; NotMapped for one that has not."""
    program = locate(mappings, path)
    if not relocated:
        program = replace(program, base=0)
    return LoadMap((program, *(locate(mappings, library) for library in libraries)))


def locate(mappings: list[Mapping], path: str) -> Module:
    own = [mapping for mapping in mappings if mapping.name == path]
    base = next((mapping.start for mapping in own if mapping.offset == 0), None)
    if base is None:
        raise NotMapped(path)
    return Module(base, own[0].start, own[-1].end)


def skip_unused_stack(pid: int, mappings: list[Mapping]) -> Iterator[Mapping]:
    """The same without the pages of threads' stacks, living or kept for new ones, that were never touched: each is 8
    MiB, of which most is not. They lie above a page that nothing may touch."""
    guarded = {mapping.end for mapping in mappings if mapping.permissions.startswith("---")}
    for mapping in mappings:
        if mapping.name == "" and mapping.start in guarded and mapping.permissions.startswith("rw"):
            if (start := first_touched(pid, mapping)) < mapping.end:
                yield replace(mapping, start=start)
        else:
            yield mapping


def first_touched(pid: int, mapping: Mapping) -> int:
    """Where its first page begins that has a place in memory or was swapped out; else its end."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        entries = os.pread(file.fileno(), (mapping.end - mapping.start) // PAGE * 8, mapping.start // PAGE * 8)
    touched = (number for number, (entry,) in enumerate(struct.iter_unpack("<Q", entries)) if entry >> PAGE_IN_USE)
    return mapping.start + PAGE * next(touched, len(entries) // 8)


def read_descriptors(pid: int) -> list[Descriptor]:
    found: list[Descriptor] = []
    for name in sorted(os.listdir(f"/proc/{pid}/fd"), key=int):
        try:
            status = os.stat(f"/proc/{pid}/fd/{name}")
            info = Path(f"/proc/{pid}/fdinfo/{name}").read_text().split()
        except OSError:
            continue  # closed meanwhile
        position, flags = int(info[1]), int(info[3], 8)
        number, file = int(name), (status.st_dev, status.st_ino)
        shared_with = next(
            (
                d.number
                for d in found
                # The flag to close it at an exec belongs to the number, all others to the open file.
                if (d.file, d.position, d.flags & ~os.O_CLOEXEC) == (file, position, flags & ~os.O_CLOEXEC)
                and is_one_open_file(pid, d.number, number)
            ),
            number,
        )
        found.append(Descriptor(number, status.st_mode, position, flags, file, shared_with))
    return found


def list_children(pid: int) -> list[int]:
    """Of a process with a single thread; also those that have ended and were not waited for."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def list_threads(pid: int) -> list[int]:
    """None of a process that is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return []


def is_thread(pid: int, thread: int) -> bool:
    return os.path.exists(f"/proc/{pid}/task/{thread}")


def has_ended(thread: int) -> bool:
    """The first thread of a process stays in this state while others go on."""
    return read_state(thread) in "ZX"


def waiting_call(thread: int) -> int | None:
    """The number of the system call in which a thread sleeps; None while it runs or is stopped."""
    if read_state(thread) not in "SD":
        return None
    try:
        number = Path(f"/proc/{thread}/syscall").read_text().split()[0]
    except OSError:
        return None
    return None if number == "running" else int(number)


def read_state(thread: int) -> str:
    try:
        return _read_status(thread)[0]
    except OSError:
        return "X"


def pending_signals(pid: int) -> list[int]:
    """Sent to it and not delivered yet."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8", "surrogateescape").splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return [number for mask in masks for number in range(1, 65) if mask >> number - 1 & 1]


def read_timers(pid: int) -> str:
    """Those of timer_create(2), as text; nothing where the kernel does not tell."""
    try:
        return Path(f"/proc/{pid}/timers").read_text()
    except OSError:
        return ""


def read_directory(pid: int) -> str:
    return str(Path(f"/proc/{pid}/cwd").readlink())


def read_umask(pid: int) -> int | None:
    """None where the kernel does not tell."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8", "surrogateescape").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), None)


def cpu_seconds(pid: int) -> float:
    """Spent by the threads that a process has now."""
    spent = 0
    for thread in list_threads(pid):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            spent += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return spent / 1e9


def resident_bytes(pid: int) -> int:
    """What it keeps in memory; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def is_waiting(pid: int) -> bool:
    """Whether all threads of a process sleep, and no child of it could wake them."""
    try:
        threads = list_threads(pid)
        children = [Path(f"/proc/{pid}/task/{thread}/children").read_text() for thread in threads]
    except OSError:
        return False
    return not any(children) and all(read_state(thread) == "S" for thread in threads)


def argument_start(pid: int) -> int:
    """Where the kernel put the text of the program's arguments."""
    return int(_read_status(pid)[45])


def heap_start(pid: int) -> int:
    return int(_read_status(pid)[44])


def stack_start(pid: int) -> int:
    """What the stack pointer was at first."""
    return int(_read_status(pid)[25])


def _read_status(thread: int) -> list[str]:
    """Of /proc/PID/stat, what stands behind the name."""
    return Path(f"/proc/{thread}/stat").read_text("utf-8", "surrogateescape").rpartition(")")[2].split()


def entry_point(pid: int) -> int:
    """Where the program itself begins, behind the loader."""
    auxiliary: dict[int, int] = dict(struct.iter_unpack("<QQ", Path(f"/proc/{pid}/auxv").read_bytes()))
    return auxiliary[AT_ENTRY]
