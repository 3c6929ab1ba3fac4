"""What a session, its workers and their engines send each other, and the proxy that makes calls of a laboratory.

They are pickled, and pass through gateways as they are (see relay).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.lab.laboratory import Laboratory
from pytest_causechain.lab.relay import Order
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch
from pytest_causechain.model.isolation import USUAL, Isolation, Precautions


@dataclass(frozen=True, slots=True)
class Open:
    """Prepare a pair. `deadline` is a time.monotonic(), which all processes share; `kind` is "fork", or "rerun" where
    each experiment is to be a fresh run. `libraries` are patterns for those that count as the program's own code,
    `cache` is a directory for what should be known again in later sessions. `others` are further runs of the program;
    with a `repair` the passing run is the failing one with it. `environment` is the one that pytest runs in, None the
    engine's own."""

    passing: Command
    failing: Command
    deadline: float
    kind: str = "fork"
    libraries: tuple[str, ...] = ()
    cache: Path | None = None
    others: tuple[Command, ...] = ()
    repair: Intervention | Patch | None = None
    precautions: Precautions = USUAL
    environment: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a program, as a command starts it, can be dealt with where this engine runs: a Fitness."""

    command: Command
    deadline: float


@dataclass(frozen=True, slots=True)
class Fitness:
    """`obstacle` is a sentence that says why not; `is_hopeless`: it holds for every program there."""

    obstacle: str = ""
    is_hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A question of Laboratory, by name."""

    name: str
    arguments: tuple[object, ...] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)


Message = Open | Check | Call | Order | None


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The value of a call, with the name of the lab by then and the types it has learned since the last answer; or
    why there is none: the user's time is over, a sentence for the user, or a trouble that another try may not meet.
    `is_hopeless`: the sentence holds for whatever is tried; the trouble is gdb's, should it be met again."""

    value: object = None
    lab: str = ""
    types: tuple[dict[str, Any], ...] = ()
    is_used_up: bool = False
    refusal: str = ""
    is_hopeless: bool = False
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Of a lab: `notes` are sentences for the user on what is left out, `isolation` what keeps the runs from harming
    anything."""

    program: ProgramMap
    width: int
    notes: tuple[str, ...]
    isolation: Isolation


CALLS = frozenset(
    name for name, value in vars(Laboratory).items() if isinstance(value, FunctionType) and not name.startswith("_")
)


class _Proxy:
    def __init__(self, send: Callable[[Call], object]) -> None:
        for name in CALLS:
            setattr(self, name, partial(_send, send, name))


def _send(send: Callable[[Call], object], name: str, *arguments: object, **keywords: object) -> object:
    return send(Call(name, tuple(map(_pack, arguments)), {key: _pack(value) for key, value in keywords.items()}))


def _pack(argument: object) -> object:
    """What may be any collection, such as the view of a dictionary, must be one that can be sent."""
    if isinstance(argument, Collection) and not isinstance(argument, str | bytes | tuple):
        return tuple(argument)
    return argument


def make_proxy(send: Callable[[Call], object]) -> Laboratory:
    """A laboratory each of whose methods sends a call of the same name and returns what the answer holds."""
    return cast(Laboratory, _Proxy(send))
