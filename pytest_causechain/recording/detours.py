"""Shows the starts of programs that do not come by Popen, so that they can be named: nothing is put in their place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_causechain.recording.start import Start

Show = Callable[[Start], object]

# Called by each of spawnl, spawnve, ...: the only function of os that is private here.
_SPAWN = "_spawnvef"
_FUNCTIONS = ("system", "posix_spawn", "posix_spawnp", _SPAWN, "forkpty")
# Those who call pty.fork for others.
_TERMINAL_LIBRARIES = ("pexpect", "ptyprocess")


class Detours:
    """The functions of os while they are watched."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._real: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        for name in _FUNCTIONS:
            real = getattr(os, name, None)
            if real is not None and name not in self._real:
                self._real[name] = real
                setattr(os, name, self._replace(name, real))

    def remove(self) -> None:
        for name, real in self._real.items():
            if getattr(getattr(os, name), "__wrapped__", None) is real:
                setattr(os, name, real)
        self._real.clear()

    def _replace(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def watched(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # Popen may use posix_spawn itself, and was seen already.
            if sys._getframe(1).f_globals.get("__name__") != "subprocess":
                self._show(_describe(name, args, kwargs))
            return real(*args, **kwargs)

        return watched


def _describe(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Start:
    way = {_SPAWN: "os.spawn*", "forkpty": _find_terminal_library()}.get(name, f"os.{name}")
    words: Sequence[Any] = ()
    if name == "system":
        words = [args[0] if args else kwargs["command"]]
    elif name == _SPAWN:
        words = args[2]
    elif name != "forkpty":
        words = args[1] if len(args) > 1 else kwargs["argv"]
    argv = tuple(os.fsdecode(word) for word in words)
    return Start(argv, None, name == "system", str(Path.cwd()), dict(os.environ), None, unsupported=way)


def _find_terminal_library() -> str:
    """The outermost of the libraries through which pty.fork was called; else that function itself."""
    found = "pty.fork"
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _TERMINAL_LIBRARIES:
            found = package
        frame = frame.f_back
    return found
