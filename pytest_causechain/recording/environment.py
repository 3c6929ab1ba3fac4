"""Tells which environment a started program finds, and how it differs from that of the session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

Changes = tuple[tuple[str, str | None], ...]

# Set by pytest and its plugins for each test; a program has no business with them.
_PYTEST_VARIABLES = "PYTEST_"
# The one of them that is another at each start, as os.environ keeps it.
_CURRENT_TEST = b"PYTEST_CURRENT_TEST"

# The environment of this process when last looked at, and the same as text.
_inherited: tuple[dict[Any, Any], dict[str, str]] = {}, {}


def copy_environment(given: Mapping[Any, Any] | None) -> dict[str, str]:
    """What Popen is given, as text; of what programs inherit the same dictionary as long as nothing changes."""
    global _inherited
    if given is not None:
        return {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
    # Bytes: to have os.environ decode all of them at each start takes longer than all the rest of recording.
    present: Any = getattr(os.environ, "_data", None) or dict(os.environ)
    if _CURRENT_TEST in present:
        _inherited[0][_CURRENT_TEST] = present[_CURRENT_TEST]
    if present != _inherited[0]:
        _inherited = dict(present), copy_environment(present)
        _inherited[1].pop(os.fsdecode(_CURRENT_TEST), None)
    return _inherited[1]


class Environments:
    """Environments as changes against the one found when this is made."""

    def __init__(self) -> None:
        self._base = dict(os.environ)
        # The one asked about last, and the answer.
        self._last: tuple[Mapping[str, str], Changes] = {}, ()

    def derive_changes(self, environment: Mapping[str, str]) -> Changes:
        """What turns the base into `environment`; removed variables have None."""
        if environment is not self._last[0]:
            names = {name for name, _value in environment.items() - self._base.items()}
            names |= self._base.keys() - environment.keys()
            told = sorted(name for name in names if not name.startswith(_PYTEST_VARIABLES))
            self._last = environment, tuple((name, environment.get(name)) for name in told)
        return self._last[1]
