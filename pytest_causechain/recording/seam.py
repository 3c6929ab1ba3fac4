"""Shows every start of a program in this process, and can put an Observation in the program's place.

One seam is enough: subprocess.run, call, check_output, getoutput, os.popen and Popen itself all end in
Popen._execute_child. It is private, but has been there since Python 3.0; its parameters vary, hence the bound
names. asyncio and psutil come by here too, but want a process id, so that they get a stand-in for the program.
os.system, os.posix_spawn and pty.fork do not come by: they are shown, and nothing can be put in their place.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from pytest_causechain.recording.programs import Start, join_path
from pytest_causechain.recording.streams import (
    NOT_GIVEN,
    Descriptors,
    Feed,
    Process,
    StandIn,
    describe_stand_in,
    find_feed,
    read_given_stdin,
    substitute_process,
)

if TYPE_CHECKING:
    from subprocess import _ENV

    from _typeshed import ReadableBuffer, StrOrBytesPath

    from pytest_causechain.model.runs import Observation

# Called at each start: None runs the real program, an Observation is delivered as if the program had shown it.
Watch = Callable[[Start], "Observation | None"]
Function = Callable[..., object]


class Seam:
    """Shows starts to `watch` while installed; of several installed seams the latest is asked first.

    Whatever goes wrong in here or in `watch` stays away from the test, which then gets the real program; the
    first such exception is kept in `error`.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.error: Exception | None = None

    def install(self) -> None:
        with _lock:
            if not _installed:
                for patch in _patches:
                    patch.install()
            _installed.append(self)

    def remove(self) -> None:
        """Removes it, in any order with others; harmless when it is not installed."""
        with _lock:
            if self.is_installed:
                _installed.remove(self)
                if not _installed:
                    for patch in (*_patches, *_loop_patches):
                        patch.remove()

    @property
    def is_installed(self) -> bool:
        return self in _installed

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


_lock = threading.Lock()
_installed: list[Seam] = []


def _show(start: Start, seams: Sequence[Seam]) -> Observation | None:
    """Asks the seams, until one returns what is to be shown in the program's place."""
    for seam in seams:
        try:
            observation = seam.watch(start)
        except Exception as error:
            seam.error = seam.error or error
        else:
            if observation is not None:
                return observation
    return None


class FunctionPatch:
    """Puts functions in the place of those of `owner`, a module or class; each is made from the one that it finds."""

    def __init__(self, owner: object, replacements: Mapping[str, Callable[[Function], Function]]) -> None:
        self._owner, self._replacements = owner, replacements
        # The functions in whose place ours stand, and ours.
        self._real: dict[str, Function] = {}
        self._ours: dict[str, Function] = {}

    def install(self) -> None:
        for name, make in self._replacements.items():
            present = vars(self._owner)[name]
            if present is not self._ours.get(name):
                if present is not self._real.get(name):  # else ours is ready: making it takes longer than all the rest
                    self._real[name], self._ours[name] = present, make(present)
                setattr(self._owner, name, self._ours[name])

    def remove(self) -> None:
        """Puts the real functions back. Ours may be covered by a later patch of others; it then stays and only passes
        calls on."""
        for name, ours in self._ours.items():
            if vars(self._owner)[name] is ours:
                setattr(self._owner, name, self._real[name])


# Popen

# Where a process keeps its Start and what is fed to it. Never asked for by vars: from then on Python finds all
# attributes of the process in a slower way.
_ATTRIBUTE = "_causechain_start"
_UNSEEN: tuple[None, None] = None, None

_LIBRARIES = ("asyncio", "psutil")
# After each of them more is known of a process.
_ENDINGS = ("communicate", "wait", "poll")


def _replace_execute_child(real: Function) -> Function:
    names = tuple(inspect.signature(real).parameters)[1:]

    @functools.wraps(real)
    def _execute_child(process: Process, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        # One that is still covered by somebody's patch would show the same start again.
        seams = () if hasattr(process, _ATTRIBUTE) else tuple(reversed(_installed))
        stand_in: StandIn | None = None
        try:
            if seams:
                library = _find_library()
                if library == "asyncio":
                    _listen_to_loops()
                call = dict(zip(names, args, strict=False)) | kwargs
                observation = _show_start(process, call, seams)
                if observation is not None:
                    descriptors = Descriptors(*(call[name] for name in Descriptors._fields))
                    if library is None:
                        substitute_process(process, descriptors, observation)
                        return
                    stand_in = describe_stand_in(descriptors, observation)
        except Exception as error:
            for seam in seams:
                seam.error = seam.error or error
        if stand_in is None:
            real(process, *args, **kwargs)
            return
        try:
            real(process, **{**call, **stand_in})
        finally:
            for descriptor in stand_in["pass_fds"]:
                os.close(descriptor)

    return _execute_child


def _add(note: Callable[..., None]) -> Callable[[Function], Function]:
    """Returns what makes a function do the same and call `note` afterwards, with the result (None after an exception)
    before the arguments."""

    def replace(real: Function) -> Function:
        @functools.wraps(real)
        def noted(*args: object, **kwargs: object) -> object:
            __tracebackhide__ = True
            result: object = None
            try:
                result = real(*args, **kwargs)
                return result
            finally:
                with contextlib.suppress(Exception):
                    note(result, *args, **kwargs)

        return noted

    return replace


def _show_start(process: Process, call: Mapping[str, Any], seams: Sequence[Seam]) -> Observation | None:
    """Shows a start to the seams; returns what is to be shown in the program's place."""
    start = describe_start(call)
    feed = Feed(process) if call["p2cwrite"] != NOT_GIVEN else None
    setattr(process, _ATTRIBUTE, (start, feed))
    return _show(start, seams)


def _find_library() -> str | None:
    """Finds the library whose code called Popen, if it is one that goes on with the process id."""
    if sys.modules.keys().isdisjoint(_LIBRARIES):
        return None
    frame = sys._getframe()
    while frame.f_back is not None and (frame.f_globals is globals() or frame.f_code.co_name == "__init__"):
        frame = frame.f_back
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package if package in _LIBRARIES else None


def _complete_start(shown: object, process: Process, *_args: object, **_options: object) -> None:
    """Adds what is known now of how the process went; communicate has `shown` stdout and stderr."""
    start, feed = getattr(process, _ATTRIBUTE, _UNSEEN)
    if start is None:
        return
    if process.returncode is not None:
        start.returncode = process.returncode
    if feed is not None and start.stdin is None:
        start.stdin = feed.bytes_given(process)
    if isinstance(shown, tuple):
        start.stdout, start.stderr = map(_as_bytes, shown)


def _as_bytes(output: str | bytes | None) -> bytes | None:
    return output.encode(errors="surrogateescape") if isinstance(output, str) else output


def describe_start(call: Mapping[str, Any]) -> Start:
    """Returns the start that Popen was asked for, from the arguments of _execute_child by name."""
    given, executable, cwd = call["args"], call["executable"], call["cwd"]
    argv = [given] if isinstance(given, (str, bytes, os.PathLike)) else given
    return Start(
        argv=tuple([word if type(word) is str else os.fsdecode(word) for word in argv]),
        executable=None if executable is None else os.fsdecode(executable),
        shell=bool(call["shell"]),
        # Not resolved: the program may look at the name it was given.
        cwd=join_path(os.getcwd(), os.fsdecode(cwd)) if cwd else os.getcwd(),
        environment=copy_environment(call["env"]),
        stdin=read_given_stdin(call["p2cread"], call["p2cwrite"]),
    )


# Set anew by pytest for each part of each test, as os.environ keeps it.
_CURRENT_TEST = b"PYTEST_CURRENT_TEST"

# The environment of this process when last looked at, and the same as text.
_inherited: tuple[dict[bytes, bytes], dict[str, str]] = {}, {}


def copy_environment(given: _ENV | None) -> dict[str, str]:
    """Returns the environment given to Popen, as text; of what programs inherit, the same dictionary as long as nothing
    changes."""
    global _inherited
    if given is not None:
        return {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    # Bytes: to have os.environ decode all of them at each start takes longer than all the rest of recording.
    present: dict[bytes, bytes] = getattr(os.environ, "_data", None) or dict(os.environb)
    if _CURRENT_TEST in present:
        _inherited[0][_CURRENT_TEST] = present[_CURRENT_TEST]
    if present != _inherited[0]:
        _inherited = dict(present), copy_environment(present)
        _inherited[1].pop(os.fsdecode(_CURRENT_TEST), None)
    return _inherited[1]


# Starts that do not come by Popen, shown so that they can be named

# Called by each of spawnl, spawnve, ...: the only function of os that is private here.
_SPAWN = "_spawnvef"
_DETOURS = ("system", "posix_spawn", "posix_spawnp", _SPAWN, "forkpty")
# Those who call pty.fork for others.
_TERMINAL_LIBRARIES = ("pexpect", "ptyprocess")


def _show_detour(name: str, real: Function) -> Function:
    @functools.wraps(real)
    def shown(*args: object, **kwargs: object) -> object:
        __tracebackhide__ = True
        # Popen may use posix_spawn itself, and was seen already.
        if sys._getframe(1).f_globals.get("__name__") != "subprocess":
            _show(_describe_detour(name, args, kwargs), tuple(reversed(_installed)))
        return real(*args, **kwargs)

    return shown


def _describe_detour(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Start:
    way = {_SPAWN: "os.spawn*", "forkpty": _find_terminal_library()}.get(name, f"os.{name}")
    words: Sequence[StrOrBytesPath] = ()
    if name == "system":
        words = [args[0] if args else kwargs["command"]]
    elif name == _SPAWN:
        words = args[2]
    elif name != "forkpty":
        words = args[1] if len(args) > 1 else kwargs["argv"]
    argv = tuple(os.fsdecode(word) for word in words)
    return Start(argv, None, name == "system", str(Path.cwd()), dict(os.environ), None, unsupported=way)


def _find_terminal_library() -> str:
    """Finds the outermost of the libraries through which pty.fork was called; else that function itself."""
    found = "pty.fork"
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _TERMINAL_LIBRARIES:
            found = package
        frame = frame.f_back
    return found


_patches = (
    FunctionPatch(Popen, {"_execute_child": _replace_execute_child, **dict.fromkeys(_ENDINGS, _add(_complete_start))}),
    FunctionPatch(os, {name: functools.partial(_show_detour, name) for name in _DETOURS if hasattr(os, name)}),
)


# asyncio's event loops, which feed programs and wait for them without asking Popen

_loop_patches: list[FunctionPatch] = []


def _listen_to_loops() -> None:
    """Patches the transports of asyncio, which is imported only by those who use it."""
    if not _loop_patches:
        from asyncio.base_subprocess import BaseSubprocessTransport
        from asyncio.unix_events import _UnixWritePipeTransport  # type: ignore[attr-defined]

        _loop_patches.append(FunctionPatch(_UnixWritePipeTransport, {"write": _add(_keep_written)}))
        _loop_patches.append(FunctionPatch(BaseSubprocessTransport, {"_process_exited": _add(_note_exit)}))
    for patch in _loop_patches:
        patch.install()


def _keep_written(_result: object, transport: object, data: ReadableBuffer) -> None:
    feed = find_feed(vars(transport)["_pipe"])
    if feed is not None:
        feed.keep(data)


def _note_exit(_result: object, transport: object, _returncode: int) -> None:
    _complete_start(None, vars(transport)["_proc"])
