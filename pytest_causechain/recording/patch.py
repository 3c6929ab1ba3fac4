"""Puts functions of ours in the place of others for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Function = Callable[..., Any]


class Patch:
    """Functions of `owner`, a module or class, by name; each replacement is made from the function that it finds."""

    def __init__(self, owner: Any, replacements: Mapping[str, Callable[[Function], Function]]) -> None:
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
        """Ours may be covered by somebody's later patch; it then stays and only passes calls on."""
        for name, ours in self._ours.items():
            if vars(self._owner)[name] is ours:
                setattr(self._owner, name, self._real[name])
