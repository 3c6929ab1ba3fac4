"""Turns every start of a program into a Start, and can put an Observation in the program's place.

One seam is enough: subprocess.run, call, check_output, getoutput, os.popen and Popen itself all end in
Popen._execute_child. It is private, but has been there since Python 3.0; its parameters vary, hence the bound
signature. asyncio and psutil come by here too, but want a process id, so that they get a stand-in for the program.
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
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import Any, Self

from pytest_causechain.model.observation import Observation
from pytest_causechain.recording.detours import Detours
from pytest_causechain.recording.loops import Loops
from pytest_causechain.recording.standard_input import NOT_GIVEN, Feed, read_given_stdin
from pytest_causechain.recording.start import Start
from pytest_causechain.recording.substitute import Descriptors, describe_stand_in, substitute_process

# Called at each start: None runs the real program, an Observation is delivered as if the program had shown it.
Watch = Callable[[Start], Observation | None]


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
                _patch_popen()
                _detours.install()
            _installed.append(self)

    def remove(self) -> None:
        """Harmless when not installed; seams may be removed in any order."""
        with _lock:
            if self in _installed:
                _installed.remove(self)
                if not _installed:
                    _restore_popen()
                    _detours.remove()
                    _loops.remove()

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


_lock = threading.Lock()
_installed: list[Seam] = []
# The methods of Popen in whose place ours stand, and ours, by name.
_real: dict[str, Callable[..., Any]] = {}
_ours: dict[str, Callable[..., Any]] = {}

# Where a process keeps its Start and what is fed to it.
_ATTRIBUTE = "_causechain_start"


def _patch_popen() -> None:
    for name, make in _REPLACEMENTS.items():
        present = Popen.__dict__[name]
        if present is not _ours.get(name):
            if present is not _real.get(name):  # else ours is ready: making it takes longer than all the rest
                _real[name], _ours[name] = present, make(present)
            setattr(Popen, name, _ours[name])


def _restore_popen() -> None:
    """Ours may be covered by somebody's later patch; it then stays and only passes calls on."""
    for name, ours in _ours.items():
        if Popen.__dict__[name] is ours:
            setattr(Popen, name, _real[name])


def _replace_execute_child(real: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(real)

    @functools.wraps(real)
    def _execute_child(process: Popen[Any], *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        # One that is still covered by somebody's patch (see _restore_popen) would show the same start again.
        seams = () if _ATTRIBUTE in vars(process) else tuple(reversed(_installed))
        bound = signature.bind(process, *args, **kwargs)
        stand_ins: tuple[int, ...] = ()
        try:
            library = _find_library() if seams else None
            if library == "asyncio":
                _loops.install()
            observation = _show_start(process, bound.arguments, seams) if seams else None
            if observation is not None:
                descriptors = Descriptors(*(bound.arguments[name] for name in Descriptors._fields))
                if library is None:
                    substitute_process(process, descriptors, observation)
                    return
                bound.arguments.update(describe_stand_in(descriptors, observation))
                stand_ins = bound.arguments["pass_fds"]
        except Exception as error:
            for seam in seams:
                seam.error = seam.error or error
        try:
            real(*bound.args, **bound.kwargs)
        finally:
            for descriptor in stand_ins:
                os.close(descriptor)

    return _execute_child


def _replace_ending(real: Callable[..., Any]) -> Callable[..., Any]:
    """For communicate, wait and poll: after each of them more is known of the process."""

    @functools.wraps(real)
    def ending(process: Popen[Any], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        shown: Any = None
        try:
            shown = real(process, *args, **kwargs)
            return shown
        finally:
            with contextlib.suppress(Exception):
                complete_start(process, shown if real.__name__ == "communicate" else None)

    return ending


_REPLACEMENTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "_execute_child": _replace_execute_child,
    "communicate": _replace_ending,
    "wait": _replace_ending,
    "poll": _replace_ending,
}


def _show_start(process: Popen[Any], call: dict[str, Any], seams: tuple[Seam, ...]) -> Observation | None:
    """What is to be shown in the program's place."""
    start = describe_start(call)
    feed = Feed(process) if call["p2cwrite"] != NOT_GIVEN else None
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
    frame = sys._getframe()
    while frame.f_back is not None and (frame.f_globals is globals() or frame.f_code.co_name == "__init__"):
        frame = frame.f_back
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package if package in ("asyncio", "psutil") else None


def _ask(seam: Seam, start: Start) -> Observation | None:
    try:
        return seam.watch(start)
    except Exception as error:
        seam.error = seam.error or error
        return None


def complete_start(process: Popen[Any], shown: tuple[Any, Any] | None = None) -> None:
    """What is known now of how the process went; `shown` is what communicate returned."""
    start, feed = vars(process).get(_ATTRIBUTE, (None, None))
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


def describe_start(call: dict[str, Any]) -> Start:
    """The Start for the arguments, by name, of a call of Popen._execute_child."""
    given = call["args"]
    argv = [given] if isinstance(given, (str, bytes, os.PathLike)) else given
    if call["env"] is None:
        environment = dict(os.environ)
    else:
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in call["env"].items()}
    return Start(
        argv=tuple(os.fsdecode(argument) for argument in argv),
        executable=None if call["executable"] is None else os.fsdecode(call["executable"]),
        shell=bool(call["shell"]),
        # Not resolved: the program may look at the name it was given.
        cwd=str(Path.cwd() / os.fsdecode(call["cwd"] or "")),
        environment=environment,
        stdin=read_given_stdin(call["p2cread"], call["p2cwrite"]),
    )


_detours = Detours(_show_detour)
_loops = Loops(complete_start)
