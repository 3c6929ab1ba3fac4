"""Turns every start of a program into a Start, and can put an Observation in the program's place.

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
from collections.abc import Callable
from subprocess import Popen
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pytest_causechain.recording.detours import make_detours
from pytest_causechain.recording.environment import copy_environment
from pytest_causechain.recording.patch import Patch
from pytest_causechain.recording.programs import join_path
from pytest_causechain.recording.standard_input import NOT_GIVEN, Feed, read_given_stdin
from pytest_causechain.recording.start import Start

if TYPE_CHECKING:
    from pytest_causechain.model.runs import Observation

# Called at each start: None runs the real program, an Observation is delivered as if the program had shown it.
Watch = Callable[[Start], "Observation | None"]


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
        """Harmless when not installed; seams may be removed in any order."""
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
# Where a process keeps its Start and what is fed to it. Never asked for by vars: from then on Python finds all
# attributes of the process in a slower way.
_ATTRIBUTE = "_causechain_start"
_UNSEEN: tuple[None, None] = None, None
_harmless = contextlib.suppress(Exception)

_LIBRARIES = ("asyncio", "psutil")
# After each of them more is known of a process.
_ENDINGS = ("communicate", "wait", "poll")

# Of the parameters of _execute_child, those that tell about a start.
_TELLING = ("args", "executable", "shell", "cwd", "env", "p2cread", "p2cwrite")


def _replace_execute_child(real: Callable[..., None]) -> Callable[..., None]:
    names = tuple(inspect.signature(real).parameters)[1:]
    places = tuple((name, names.index(name)) for name in _TELLING if name in names)

    @functools.wraps(real)
    def _execute_child(process: Popen[Any], *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        # One that is still covered by somebody's patch would show the same start again.
        seams = () if hasattr(process, _ATTRIBUTE) else tuple(reversed(_installed))
        stand_in: dict[str, Any] = {}
        try:
            library = _find_library() if seams else None
            if library == "asyncio":
                _listen_to_loops()
            told = {name: args[at] if at < len(args) else kwargs[name] for name, at in places} if seams else {}
            observation = _show_start(process, told, seams) if seams else None
            if observation is not None:
                from pytest_causechain.recording.substitute import Descriptors, describe_stand_in, substitute_process

                call = dict(zip(names, args, strict=False)) | kwargs
                descriptors = Descriptors(*(call[name] for name in Descriptors._fields))
                if library is None:
                    substitute_process(process, descriptors, observation)
                    return
                stand_in = describe_stand_in(descriptors, observation)
        except Exception as error:
            for seam in seams:
                seam.error = seam.error or error
        try:
            if stand_in:
                real(process, **(call | stand_in))
            else:
                real(process, *args, **kwargs)
        finally:
            for descriptor in stand_in.get("pass_fds", ()):
                os.close(descriptor)

    return _execute_child


def _replace_ending(real: Callable[..., Any]) -> Callable[..., Any]:
    shows = real.__name__ == "communicate"

    @functools.wraps(real)
    def ending(process: Popen[Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        start, _feed = getattr(process, _ATTRIBUTE, _UNSEEN)
        if start is None or (start.is_known and not shows):
            return real(process, *args, **kwargs)
        shown: Any = None
        try:
            shown = real(process, *args, **kwargs)
            return shown
        finally:
            with _harmless:
                complete_start(process, shown if shows else None)

    return ending


def _show_start(process: Popen[Any], told: dict[str, Any], seams: tuple[Seam, ...]) -> Observation | None:
    """What is to be shown in the program's place."""
    start = describe_start(told)
    feed = Feed(process) if told["p2cwrite"] != NOT_GIVEN else None
    setattr(process, _ATTRIBUTE, (start, feed))
    for seam in seams:
        observation = _ask(seam, start)
        if observation is not None:
            return observation
    return None


def _show_detour(start: Start) -> None:
    for seam in reversed(_installed):
        _ask(seam, start)


def _find_library() -> str | None:
    """The library whose code called Popen, if it is one that goes on with the process id."""
    if sys.modules.keys().isdisjoint(_LIBRARIES):
        return None
    frame = sys._getframe()
    while frame.f_back is not None and (frame.f_globals is globals() or frame.f_code.co_name == "__init__"):
        frame = frame.f_back
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package if package in _LIBRARIES else None


def _ask(seam: Seam, start: Start) -> Observation | None:
    try:
        return seam.watch(start)
    except Exception as error:
        seam.error = seam.error or error
        return None


def complete_start(process: Popen[Any], shown: tuple[Any, Any] | None = None) -> None:
    """What is known now of how the process went; `shown` is what communicate returned."""
    start, feed = getattr(process, _ATTRIBUTE, _UNSEEN)
    if start is None:
        return
    if process.returncode is not None:
        start.returncode = process.returncode
    if feed is not None and start.stdin is None:
        start.stdin = feed.bytes_given(process)
    if shown is not None:
        start.stdout, start.stderr = map(_as_bytes, shown)


def _as_bytes(output: str | bytes | None) -> bytes | None:
    return output.encode(errors="surrogateescape") if isinstance(output, str) else output


def describe_start(told: dict[str, Any]) -> Start:
    """The Start for what a call of Popen._execute_child tells, by name."""
    given = told["args"]
    argv = [given] if isinstance(given, (str, bytes, os.PathLike)) else given
    return Start(
        argv=tuple([word if type(word) is str else os.fsdecode(word) for word in argv]),
        executable=None if told["executable"] is None else os.fsdecode(told["executable"]),
        shell=bool(told["shell"]),
        # Not resolved: the program may look at the name it was given.
        cwd=join_path(os.getcwd(), os.fsdecode(told["cwd"])) if told["cwd"] else os.getcwd(),
        environment=copy_environment(told["env"]),
        stdin=read_given_stdin(told["p2cread"], told["p2cwrite"]),
    )


_patches = (
    Patch(Popen, {"_execute_child": _replace_execute_child, **dict.fromkeys(_ENDINGS, _replace_ending)}),
    make_detours(_show_detour),
)
_loop_patches: list[Patch] = []


def _listen_to_loops() -> None:
    if not _loop_patches:
        from pytest_causechain.recording.loops import make_loop_patches

        _loop_patches.extend(make_loop_patches(complete_start))
    for patch in _loop_patches:
        patch.install()
