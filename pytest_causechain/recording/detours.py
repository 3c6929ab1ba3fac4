"""Shows the starts of programs that do not come by Popen, so that they can be named: nothing is put in their place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_causechain.recording.patch import Patch
from pytest_causechain.recording.start import Start

Show = Callable[[Start], object]

# Called by each of spawnl, spawnve, ...: the only function of os that is private here.
_SPAWN = "_spawnvef"
_FUNCTIONS = ("system", "posix_spawn", "posix_spawnp", _SPAWN, "forkpty")
# Those who call pty.fork for others.
_TERMINAL_LIBRARIES = ("pexpect", "ptyprocess")


def make_detours(show: Show) -> Patch:
    """The functions of os, watched."""
    return Patch(os, {name: functools.partial(_watch, name, show) for name in _FUNCTIONS if hasattr(os, name)})


def _watch(name: str, show: Show, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def watched(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        # Popen may use posix_spawn itself, and was seen already.
        if sys._getframe(1).f_globals.get("__name__") != "subprocess":
            show(_describe(name, args, kwargs))
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
