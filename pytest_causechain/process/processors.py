"""On which processors we and the programs are.

A program that is stopped and resumed a dozen times within a millisecond, as a copy is, gets on best where we are
ourselves: elsewhere one of the two has to be woken up each time. Where processors are virtual, and others want them
too, that takes longer than all the rest."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_causechain.process.elf import names_symbol
from pytest_causechain.process.linux import current_processor

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
