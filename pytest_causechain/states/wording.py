"""How a delta is told to a reader, and known again at another moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Told(Protocol):
    """`key` names the variable independently of the calls on the stack, `name` as a programmer writes it here, in
    frame number `frame`. `assignment` makes this change in the passing run as a C statement, where one can, `undo`
    takes it back in the failing run. `group` are the ever smaller wholes it is a part of: scope, variable, object,
    members and elements. `value_key`, of a pointer, is what it leads to in the failing run, by the key of that."""

    @property
    def key(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def passing(self) -> str: ...
    @property
    def failing(self) -> str: ...
    @property
    def frame(self) -> int | None: ...
    @property
    def assignment(self) -> str | None: ...
    @property
    def undo(self) -> str | None: ...
    @property
    def value_key(self) -> str | None: ...
    @property
    def group(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Wording:
    """What is told of a delta, where nothing has to be found out for it."""

    key: str
    name: str
    type: str
    passing: str
    failing: str
    group: tuple[str, ...] = ()
    frame: int | None = None
    assignment: str | None = None
    undo: str | None = None
    value_key: str | None = None
