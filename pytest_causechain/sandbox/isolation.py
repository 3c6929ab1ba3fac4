"""Keeps runs from harming anything, as far as the kernel allows and the user wants.

Limits what a run may use. Chooses where runs work: on a stage; where none can be had, each in a copy of the directory
it was started in, under another name.
"""

from __future__ import annotations

import contextlib
import filecmp
import math
import os
import resource
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.kernel.linux import spare_others
from pytest_causechain.model.isolation import NO_BOUNDS, NO_ISOLATION, Bounds, Isolation, Precautions, Wish
from pytest_causechain.model.refusal import Hopeless
from pytest_causechain.model.runs import Command, InputFile
from pytest_causechain.sandbox.stage import (
    FILES_TOLD,
    OPEN_STAGE,
    OverlayStage,
    Stage,
    View,
    find_areas,
    is_within,
    leave_out,
    list_files,
    named_directories,
    read_content,
)
from pytest_causechain.tracee.tracee import Tracee, inject

OUTPUT_BYTES = 64 << 20
STACK_BYTES = 8 << 20
# Beyond what the program had when it was stopped (a sanitizer maps terabytes at the start). What may be written counts,
# not what is only reserved, as the C library does by 128 MiB for each thread.
MEMORY_BYTES = 2 << 30
PROCESSES = 100
# Of what the original runs use; an altered one may need more, but not without end.
FACTOR, LEAST_MEMORY_BYTES, LEAST_OUTPUT_BYTES = 10, 256 << 20, 4 << 20
# For each run: what takes longer than the run itself is no help.
MOST_BYTES, MOST_FILES = 16 << 20, 500


@dataclass(frozen=True, slots=True)
class Usage:
    """What runs have used: memory at most, and the largest of what they wrote. Zero: not known yet."""

    memory: int = 0
    output: int = 0


NOTHING_USED = Usage()


def allow(used: Usage, wanted: Bounds) -> tuple[int, int, int]:
    """Bytes of memory and of output, and processes, for runs like those."""
    memory = min(max(LEAST_MEMORY_BYTES, FACTOR * used.memory), MEMORY_BYTES) if used.memory else MEMORY_BYTES
    output = min(max(LEAST_OUTPUT_BYTES, FACTOR * used.output), OUTPUT_BYTES) if used.memory else OUTPUT_BYTES
    return wanted.memory or memory, wanted.output or output, wanted.processes or PROCESSES


def limit_self(wanted: Bounds = NO_BOUNDS) -> None:
    """In a child, before exec; inherited by all its copies."""
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, wanted.output or OUTPUT_BYTES),
        # Hard: some programs raise their own soft limit, and an endless recursion then takes all memory.
        (resource.RLIMIT_STACK, wanted.stack or STACK_BYTES),
    ):
        _lower(0, kind, value)


def limit_run(pid: int, memory: int, output: int, cpu_seconds: float) -> int:
    """How many bytes it may keep in memory: so many more than it has now, and so many may it write to a file. For what
    it starts itself, each may use the processor as long as it may itself."""
    statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)  # a third of the time that open() takes
    pages = [int(number) for number in os.read(statm, 100).split()]
    os.close(statm)
    _lower(pid, resource.RLIMIT_DATA, pages[5] * resource.getpagesize() + memory)
    _lower(pid, resource.RLIMIT_FSIZE, output)
    if cpu_seconds < math.inf:
        _lower(pid, resource.RLIMIT_CPU, math.ceil(cpu_seconds) + 1)
    return pages[1] * resource.getpagesize() + memory


def _lower(pid: int, kind: int, value: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        hard = resource.prlimit(pid, kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.prlimit(pid, kind, (value, value))


class CopiedStage(Stage):
    """What a run writes elsewhere, by an absolute path, it writes to the user's files."""

    def __init__(self, commands: Sequence[Command], directory: str) -> None:
        """An OSError when a directory is too large to be copied each time."""
        self._areas = sorted({os.path.realpath(command.cwd) for command in commands})
        self._own = Path(directory, "copies")
        self._own.mkdir(exist_ok=True)
        self._made = 0
        for area in self._areas:
            require_small(area)

    def admit_self(self, others: Sequence[int]) -> None:
        spare_others(others)

    def enter(self, process: Tracee, before: View) -> View:
        here = os.readlink(f"/proc/{process.pid}/cwd")
        for number, area in enumerate(self._areas):
            source = before.upper.get(number, area)
            if here == source or here.startswith(os.path.join(source, "")):
                copy = self._copy(source, Path(area).name)
                inject(process, "chdir", os.path.normpath(os.path.join(copy, os.path.relpath(here, source))))
                return View(upper={number: copy})
        return before

    def _copy(self, source: str, name: str) -> str:
        self._made += 1
        copy = str(self._own / f"{self._made}" / name)
        shutil.copytree(source, copy, symlinks=True, ignore_dangling_symlinks=True)
        return copy

    def lend_directory(self, command: Command) -> str:
        return self._copy(command.cwd, Path(command.cwd).name)

    def restore(self, process: Tracee, view: View, files: Iterable[InputFile]) -> None:
        for number, copy in view.upper.items():
            for file in files:
                if is_within(file.path, (self._areas[number],)):
                    path = os.path.join(copy, os.path.relpath(file.path, self._areas[number]))
                    file._replace(path=path).restore()

    def collect(self, command: Command, view: View) -> tuple[tuple[str, bytes | None], ...]:
        told: dict[str, bytes | None] = {}
        for number, copy in view.upper.items():
            area = Path(self._areas[number])
            now, then = set(list_files(Path(copy), ".")), set(list_files(area, "."))
            changed = {name for name in now & then if not filecmp.cmp(Path(copy, name), area / name)}
            told |= {str(area / name): read_content(Path(copy, name)) for name in (now - then) | changed}
            told |= {str(area / name): None for name in then - now}
        return leave_out(command.inputs, told)[:FILES_TOLD]


def require_small(directory: str) -> None:
    size = number = 0
    for place, _, names in os.walk(directory):
        for name in names:
            number, size = number + 1, size + os.lstat(os.path.join(place, name)).st_size
            if number > MOST_FILES or size > MOST_BYTES:
                raise OSError(f"{directory} is too large to be copied for each run")


def isolate(precautions: Precautions, commands: Sequence[Command], directory: str) -> tuple[Stage, Isolation]:
    """For this process, and all it starts from now on."""
    if precautions.isolation == "off":
        return OPEN_STAGE, NO_ISOLATION
    areas = find_areas(name for command in commands for name in named_directories(command))
    apart = [command.cwd for command in commands if not is_within(os.path.realpath(command.cwd), areas)]
    obstacle = f"other file systems are mounted below {apart[0]}" if apart else try_stage(areas, directory)
    if obstacle is None:
        return OverlayStage(areas, directory), Isolation("view", "read-only", "none", "single")
    if precautions.isolation == "require":
        raise Hopeless(
            f"experiments cannot be isolated here ({obstacle}): allow user namespaces, or set cause_chain_isolation "
            "to auto."
        )
    try:
        return CopiedStage(commands, directory), Isolation("copy", signals="single")
    except OSError:
        return OPEN_STAGE, NO_ISOLATION


def isolate_tests(wish: Wish, directories: Sequence[str], directory: str) -> None:
    """The same for a process that runs the user's tests, as far as possible: what they write below these directories
    is seen by themselves only. They may need all the rest."""
    areas = find_areas(directories)
    if wish != "off" and try_stage(areas, directory) is None:
        OverlayStage(areas, directory, is_closed=False)
        os.chdir(os.getcwd())


def try_stage(areas: Sequence[str], directory: str) -> str | None:
    """Why there can be no stage here. Tried twice: one of the processes that it takes may have been killed, and without
    a stage the user's files are not safe."""
    return _try_stage(areas, directory) and _try_stage(areas, directory)


def _try_stage(areas: Sequence[str], directory: str) -> str | None:
    """In another process, since there is no way back."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            OverlayStage(areas, directory)
        except OSError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        obstacle = answer.read().decode()
    os.waitpid(pid, 0)
    return obstacle or None
