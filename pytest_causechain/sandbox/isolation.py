"""Keeps runs from harming anything, as far as the kernel allows and the user wants: what they may use, where they work.

On a stage each run changes only what it sees itself of the user's directories, which are as they are. A user namespace
takes away all power over the machine, even from root; in a mount namespace everything is read-only; in namespaces of
their own the network has no other end and System V's shared memory ends with us.

An overlay over each such directory, an area, takes up what is written there. As long as nobody writes, one overlay
serves all runs and costs nothing. Once a run has written to an area, each run gets an overlay of its own there, in a
mount namespace of its own, on top of what the program it is a copy of had written by then.

Where there can be no overlays, each run works in a copy of the directory it was started in, under another name.
"""

from __future__ import annotations

import contextlib
import filecmp
import math
import os
import re
import resource
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from pytest_causechain.kernel import linux
from pytest_causechain.kernel.linux import (
    change_mount,
    keep_capabilities,
    mount,
    raise_interface,
    show_to_children,
    spare_others,
    unshare,
)
from pytest_causechain.model.isolation import NO_BOUNDS, NO_ISOLATION, Bounds, Isolation, Precautions, Wish
from pytest_causechain.model.refusal import Hopeless
from pytest_causechain.model.runs import Command, InputFile
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
# Those that hold nothing of anybody's.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
# Of /proc, where we write to the memory of processes: what belongs to the machine and obeys root.
MACHINE = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
EVERYBODY = (1 << 32) - 1
# Programs put their temporary files there, wherever they are started.
SCRATCH_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")
# Nothing is ever created there.
SYSTEM_DIRECTORIES = ("/", "/proc", "/sys", "/dev")
# All that the runs of a laboratory may write; it is kept in memory.
STAGE_BYTES = 1 << 30
# Of what a run wrote, for those who judge it.
FILES_TOLD, FILE_BYTES_TOLD = 256, 1 << 20
# As spaces and the like are written in the kernel's list of mounts.
OCTAL = re.compile(r"\\([0-7]{3})")
# In the namespaces, to mount overlays; and to be given files that we have opened.
POWER = (linux.CAP_CHOWN, linux.CAP_DAC_OVERRIDE, linux.CAP_FOWNER, linux.CAP_SYS_ADMIN, linux.CAP_SYS_PTRACE)
OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


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


@dataclass(frozen=True, slots=True)
class View:
    """What a run sees in the areas, by their numbers, that are its own: `upper` takes what it writes itself; `layers`,
    the latest first, hold what the programs have written that it is a copy of."""

    layers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    upper: dict[int, str] = field(default_factory=dict)

    def stack(self, number: int) -> tuple[str, ...]:
        """All that lies over the user's directory, the latest first."""
        own = self.upper.get(number)
        return (*(() if own is None else (own,)), *self.layers.get(number, ()))


UNTOUCHED = View()


class Stage:
    """Where runs work: this one is where the tests did, and changes what they find there."""

    _areas: Sequence[str] = ()

    def admit_self(self, others: Sequence[int]) -> None:
        """In a child, before it becomes the program, which leaves these processes alone."""

    def admit(self, process: Tracee) -> None:
        """A program just started has no more power than its user, until it is given a view."""

    def is_doubtful(self, view: View) -> bool:
        """Whether a run with this view has written, or may have read, what was meant for it alone: it should be made
        again. From now on each has an area for itself to which somebody has written."""
        return False

    def can_restore(self, file: InputFile) -> bool:
        return file.can_be_restored and is_within(file.path, self._areas)

    def reserve(self, files: Iterable[InputFile]) -> None:
        """Each run has for itself from now on what these lie in."""

    def restore(self, process: Tracee, view: View, files: Iterable[InputFile]) -> None:
        """Where this process sees them, which has a view of its own."""

    def enter(self, process: Tracee, before: View) -> View:
        """Give a stopped process, which has seen `before` so far, a view of its own."""
        return before

    def leave(self, view: View) -> None:
        """The run has ended, and there are no copies of it."""
        for upper in view.upper.values():
            shutil.rmtree(Path(upper).parent, ignore_errors=True)

    def lend_directory(self, command: Command) -> str:
        """To a run that gets no view of its own: where it can work without harm."""
        return command.cwd

    def find_original(self, path: str) -> str:
        """Where to look for what is really there."""
        return path

    def collect(self, command: Command, view: View) -> tuple[tuple[str, bytes | None], ...]:
        """What a run has written, as far as it is the test's concern."""
        return ()


OPEN_STAGE = Stage()


class OverlayStage(Stage):
    """Takes this whole process into namespaces of its own; an OSError where that is not allowed."""

    def __init__(self, areas: Sequence[str], directory: str, is_closed: bool = True) -> None:
        """`directory` is one of ours, for files that pass between us and what we start. `is_closed`: it stays the only
        place outside the areas that can be written to, and there is no network."""
        self._own = Path(directory, "stage")
        self._own.mkdir(exist_ok=True)
        self._areas = list(areas)
        enter_namespaces([directory], is_closed)
        mount("tmpfs", str(self._own), "tmpfs", options=f"size={STAGE_BYTES},mode=755")
        self._is_root = os.getuid() == 0
        self._numbers = count()
        # The numbers of the areas that are each run's own.
        self._divided: set[int] = set()
        # Where all others are written to, and the time when nobody had done so.
        self._shared: dict[int, tuple[str, int]] = {}
        for number, area in enumerate(self._areas):
            os.mkdir(self._lower(number))
            mount(area, self._lower(number), flags=linux.MS_BIND)
        # What lies below an area on a mount of its own, as our own directory may.
        self._below = [{point: os.open(point, os.O_PATH) for point in find_mounts(area)} for area in self._areas]
        for number in range(len(self._areas)):
            self._cover(number)

    def _cover(self, number: int) -> None:
        area, upper = self._areas[number], self._make_upper()
        mount("overlay", area, "overlay", options=self._options((self._lower(number),), upper))
        for point, descriptor in self._below[number].items():
            mount(f"/proc/self/fd/{descriptor}", point, flags=linux.MS_BIND | linux.MS_REC)
        self._shared[number] = upper, os.stat(upper).st_ctime_ns

    def _lower(self, number: int) -> str:
        return str(self._own / f"lower{number}")

    def _make_upper(self) -> str:
        directory = self._own / str(next(self._numbers))
        for path in (directory, directory / "upper", directory / "work"):
            path.mkdir()
        return str(directory / "upper")

    def _options(self, lowers: Sequence[str], upper: str) -> str:
        return f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={Path(upper).with_name('work')},userxattr"

    def admit_self(self, others: Sequence[int]) -> None:
        keep_capabilities(POWER)
        spare_others(others)

    def admit(self, process: Tracee) -> None:
        if not self._is_root:
            inject(process, "prctl", linux.PR_CAP_AMBIENT, linux.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
            empower(process, (linux.CAP_SYS_PTRACE,))

    def _find_touched(self) -> set[int]:
        return {number for number, (upper, time) in self._shared.items() if os.stat(upper).st_ctime_ns != time}

    def is_doubtful(self, view: View) -> bool:
        self._divided |= self._find_touched()
        return not self._divided <= view.upper.keys()

    def reserve(self, files: Iterable[InputFile]) -> None:
        self._divided |= {n for n, area in enumerate(self._areas) for file in files if is_within(file.path, (area,))}

    def restore(self, process: Tracee, view: View, files: Iterable[InputFile]) -> None:
        for file in files:
            file.restore(f"/proc/{process.pid}/root")

    def enter(self, process: Tracee, before: View) -> View:
        if not self.is_doubtful(UNTOUCHED):
            return before
        directory = os.readlink(f"/proc/{process.pid}/cwd")
        layers = {number: before.stack(number) for number in self._divided}
        view = View(layers, {number: self._make_upper() for number in self._divided})
        if not self._is_root:
            empower(process, POWER)
        inject(process, "unshare", linux.CLONE_NEWNS)
        for number in before.upper:  # under the view it has so far the layers cannot be seen
            inject(process, "umount2", self._areas[number], linux.MNT_DETACH)
        for number, upper in view.upper.items():
            options = self._options((*view.layers[number], self._lower(number)), upper)
            inject(process, "mount", "overlay", self._areas[number], "overlay", 0, options)
        inject(process, "chdir", directory)
        if not self._is_root:
            empower(process, (linux.CAP_SYS_PTRACE,))
        return view

    def find_original(self, path: str) -> str:
        for number, area in enumerate(self._areas):
            if is_within(path, (area,)):
                return os.path.join(self._lower(number), os.path.relpath(path, area))
        return path

    def collect(self, command: Command, view: View) -> tuple[tuple[str, bytes | None], ...]:
        if not view.upper:
            return ()
        wanted = [os.path.join(os.path.realpath(directory), "") for directory in named_directories(command)]
        told: dict[str, bytes | None] = {}
        for number in view.upper:
            for name, path in merge_layers(view.stack(number), Path(self._lower(number))).items():
                place = os.path.join(self._areas[number], name)
                if any(place.startswith(directory) for directory in wanted) and len(told) < FILES_TOLD:
                    told[place] = read_content(path)
        return leave_out(command.inputs, told)


def enter_namespaces(writable: Sequence[str], is_closed: bool) -> None:
    """What is mounted from now on is seen here only. If it is closed, only what lies below these directories can be
    written to. An OSError says that the kernel does not allow it: then the process may be anywhere between, and should
    end."""
    with _mapping_users():
        unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | (linux.CLONE_NEWIPC | linux.CLONE_NEWNET if is_closed else 0))
    show_to_children()
    mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    for path in writable:
        mount(path, path, flags=linux.MS_BIND | linux.MS_REC)
    if is_closed:
        raise_interface("lo")
        _close(writable)


def _close(writable: Sequence[str]) -> None:
    devices = [path for name in DEVICES if os.path.exists(path := f"/dev/{name}")]
    machine = [path for name in MACHINE if os.path.exists(path := f"/proc/{name}")]
    for path in (*devices, *machine):
        mount(path, path, flags=linux.MS_BIND | linux.MS_REC)
    change_mount("/", linux.MOUNT_ATTR_RDONLY | linux.MOUNT_ATTR_NODEV | linux.MOUNT_ATTR_NOSUID, recursive=True)
    for path in devices:
        change_mount(path, to_clear=linux.MOUNT_ATTR_NODEV | linux.MOUNT_ATTR_RDONLY)
    for path in ("/proc", *writable):
        change_mount(path, to_clear=linux.MOUNT_ATTR_RDONLY)


@contextlib.contextmanager
def _mapping_users() -> Iterator[None]:
    """Everybody keeps the number they have. That of others can be mapped by root only, and only from outside."""
    uid, gid, pid = os.getuid(), os.getgid(), os.getpid()
    gate, opener = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(opener)
            os.read(gate, 1)
            directory = Path(f"/proc/{pid}")
            try:
                for kind in ("uid_map", "gid_map"):
                    (directory / kind).write_text(f"0 0 {EVERYBODY}")
            except OSError:
                (directory / "setgroups").write_text("deny")
                (directory / "uid_map").write_text(f"{uid} {uid} 1")
                (directory / "gid_map").write_text(f"{gid} {gid} 1")
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.close(opener)
        os.close(gate)
        os.waitpid(helper, 0)
    if "".join(Path("/proc/self/uid_map").read_text().split()) == "":
        raise PermissionError("the user cannot be mapped")


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


def leave_out(files: Iterable[InputFile], told: dict[str, bytes | None]) -> tuple[tuple[str, bytes | None], ...]:
    """What we have restored is not written by the run, unless it has become another."""
    same = {file.path for file in files if file.path in told and file.is_as(told[file.path])}
    return tuple(sorted((path, content) for path, content in told.items() if path not in same))


def is_within(path: str, directories: Iterable[str]) -> bool:
    return any(path == directory or path.startswith(os.path.join(directory, "")) for directory in directories)


def find_areas(directories: Iterable[str]) -> list[str]:
    """The outermost of these and of all that anybody may want to write to. None with a mount below: in a namespace of
    an ordinary user that cannot be looked behind."""
    wanted = {os.path.realpath(directory) for directory in (*directories, *SCRATCH_DIRECTORIES)}
    return keep_outermost(
        directory
        for directory in wanted
        if directory not in SYSTEM_DIRECTORIES and os.path.isdir(directory) and not find_mounts(directory)
    )


def named_directories(command: Command) -> list[str]:
    """Its working directory, and those of the files that its arguments and its environment name."""
    words = [*command.argv[1:], *(value for _, value in command.environment if value is not None)]
    names = (word.rpartition("=")[2] for word in words)
    named = (os.path.dirname(os.path.join(command.cwd, name)) for name in names if "/" in name)
    return [command.cwd, *(directory for directory in named if directory != "/")]


def find_mounts(area: str) -> list[str]:
    """The outermost places below it at which something else is mounted."""
    lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    points = {OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines}
    return keep_outermost(point for point in points if point.startswith(os.path.join(area, "")))


def keep_outermost(directories: Iterable[str]) -> list[str]:
    found: list[str] = []
    for directory in sorted(directories):
        if not is_within(directory, found):
            found.append(directory)
    return found


def merge_layers(layers: Sequence[str], lower: Path) -> dict[str, Path | None]:
    """The files that layers, the latest first, add or change, by their names below the area; None: they hide one."""
    found: dict[str, Path | None] = {}
    for layer in reversed(layers):
        for directory, _, names in os.walk(layer):
            place = os.path.relpath(directory, layer)
            if is_opaque(directory):
                found |= dict.fromkeys(list_files(lower, place))
            for name in names:
                path = Path(directory, name)
                status = path.lstat()
                is_hidden = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
                if is_hidden and (lower / place / name).is_dir():
                    found |= dict.fromkeys(list_files(lower, os.path.join(place, name)))
                elif is_hidden or stat.S_ISREG(status.st_mode):
                    found[os.path.normpath(os.path.join(place, name))] = None if is_hidden else path
    return {name: path for name, path in found.items() if path is not None or os.path.lexists(lower / name)}


def list_files(base: Path, place: str) -> list[str]:
    return [
        os.path.normpath(os.path.relpath(os.path.join(directory, name), base))
        for directory, _, names in os.walk(base / place)
        for name in names
    ]


def is_opaque(directory: str) -> bool:
    """Whether it took the place of another one."""
    for name in OPAQUE:
        with contextlib.suppress(OSError):
            return os.getxattr(directory, name) == b"y"
    return False


def read_content(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_TOLD)
    except OSError:
        return b""


def empower(process: Tracee, capabilities: Iterable[int]) -> None:
    """What it may do at once, of all that it may claim."""
    effective, permitted = (sum(1 << number for number in numbers) for numbers in (capabilities, POWER))
    header = struct.pack("<2I", linux.CAPABILITY_VERSION, 0)
    inject(process, "capset", header, struct.pack("<6I", effective, permitted, 0, 0, 0, 0))
