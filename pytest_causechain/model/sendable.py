"""What engines are sent and answer by the thousand."""

from __future__ import annotations

from typing import Any


class Sendable:
    """Of a frozen dataclass with slots: pickled as a call with its fields. What it would do by itself, looking up its
    fields for each object, takes several times as long."""

    __slots__: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in type(self).__slots__])
