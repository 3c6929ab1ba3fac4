"""What /proc says of processes, on which processors they are, and how those left behind are ended.

A program that is stopped and resumed a dozen times within a millisecond, as a copy is, gets on best where we are
ourselves: elsewhere one of the two has to be woken up each time. Where processors are virtual, and others want them
too, that takes longer than all the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pytest_causechain.kernel.elf import names_symbol
from pytest_causechain.kernel.linux import AT_ENTRY, PAGE, current_processor, is_one_open_file
from pytest_causechain.model.load_map import LoadMap, Module

# The bits from here on of an entry of /proc/PID/pagemap: present, or swapped out.
PAGE_IN_USE = 62
# All that we may use.
PROCESSORS = frozenset(os.sched_getaffinity(0))
# What a program asks for that may find out on how many processors it is, or have use for several.
TELLING = (
    "sched_getaffinity", "sched_setaffinity", "pthread_getaffinity_np", "pthread_setaffinity_np",
    "pthread_getattr_np", "get_nprocs", "sysconf", "syscall",
    "_ZNSt6thread20hardware_concurrencyEv",
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    "pthread_create", "thrd_create", "clone", "fork", "posix_spawn", "posix_spawnp", "system", "popen",
    "execl", "execle", "execlp", "execv", "execve", "execveat", "execvp", "execvpe", "fexecve",
    "dlopen", "dlmopen",
)  # fmt: skip
# Libraries that name all this, but do nothing of it by themselves.
BARE_LIBRARIES = ("libc.", "libm.", "libmvec.", "libpthread.", "libdl.", "librt.", "libgcc_s.", "libstdc++.", "ld-")
POLL_SECONDS = 0.005
END_SECONDS = 2.0


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


def _read_fields(thread: int) -> dict[str, str]:
    """Of /proc/PID/status, by name."""
    lines = Path(f"/proc/{thread}/status").read_text("utf-8", "surrogateescape").splitlines()
    return {name: value for name, _, value in (line.partition(":\t") for line in lines)}


def find_process(thread: int) -> int:
    """The one that it belongs to."""
    return int(_read_fields(thread)["Tgid"])


def pending_signals(pid: int) -> list[int]:
    """Sent to it and not delivered yet."""
    fields = _read_fields(pid)
    masks = [int(fields[name], 16) for name in ("SigPnd", "ShdPnd")]
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
    umask = _read_fields(pid).get("Umask")
    return int(umask, 8) if umask is not None else None


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


@contextlib.contextmanager
def staying() -> Iterator[set[int]]:
    """On the processor that we are on, which is told; what is started meanwhile stays there."""
    before = os.sched_getaffinity(0)
    if len(before) == 1:
        yield before
        return
    here = {current_processor()}
    os.sched_setaffinity(0, here)
    try:
        yield here
    finally:
        os.sched_setaffinity(0, before)


def roam(pid: int = 0) -> None:
    """Let a process, or this one, be on any processor again."""
    os.sched_setaffinity(pid, PROCESSORS)


def needs_processors(files: Iterable[str]) -> bool:
    """Whether a program that consists of these files may do otherwise on one processor than on several."""
    own = (path for path in files if not Path(path).name.startswith(BARE_LIBRARIES))
    try:
        return any(names_symbol(path, TELLING) for path in own)
    except (OSError, ValueError, struct.error):
        return True


def await_writers(group: int, files: Collection[Path], deadline: float, most: int = 1000) -> None:
    """Wait for those that still have the run's output open, as the reader of a pipe would; not when they are so many
    that they only multiply."""
    wanted = {str(file) for file in files}
    while time.monotonic() < deadline:
        members = find_members(group)
        if len(members) > most or not any(wanted & open_files(pid) for pid in members):
            return
        time.sleep(POLL_SECONDS)


def _end_all(find: Callable[[], Collection[int]], are_ours: bool = False) -> None:
    """Until there are none any more, whose numbers are as kill(2) has them: a process that waits for a device may
    survive even SIGKILL for a while."""
    deadline = time.monotonic() + END_SECONDS
    while (found := find()) and time.monotonic() < deadline:
        for number in found:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(number, signal.SIGKILL)
                if are_ours:
                    os.waitpid(number, os.WNOHANG)
        time.sleep(POLL_SECONDS)


def end_group(group: int) -> None:
    """All at once: else some would be made while others are ended."""
    _end_all(lambda: [-group] if find_members(group) else [])


def end_orphans(kept: Collection[int]) -> None:
    """All children of ours but these, and what they leave to us in turn: daemons, which leave the process group."""
    _end_all(lambda: set(list_children(os.getpid())) - set(kept), are_ours=True)


def find_members(group: int) -> list[int]:
    """Without zombies: where nobody reaps orphans, they stay for ever."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        # None is left, nearly always, which is told without a look at all processes; or they have become another
        # user's, out of our reach.
        return []
    return [process.pid for process in read_processes() if process.group == group]


def find_sessions(root: int) -> set[int]:
    """Of a process and all that descend from it."""
    processes = read_processes()
    found, size = {root}, 0
    while len(found) > size:
        size = len(found)
        found |= {process.pid for process in processes if process.parent in found}
    return {root} | {process.session for process in processes if process.pid in found}


def end_sessions(sessions: Collection[int]) -> None:
    """Those of a process of ours and what it started: orphans stay in the session, whoever adopts them."""
    _end_all(lambda: [process.pid for process in read_processes() if process.session in sessions])


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int


def read_processes() -> list[Process]:
    """All that live."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):
            status = _read_status(pid)
            if status[0] not in "ZX":
                found.append(Process(pid, *map(int, status[1:4])))
    return found


def open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for link in Path("/proc", str(pid), "fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found
