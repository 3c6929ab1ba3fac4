"""Manifests in which one thing is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(directory: Path, plain: Any) -> Path:
    path = directory / "manifest.json"
    path.write_text(json.dumps(plain))
    return path


def change(plain: dict[str, Any], keys: tuple[str | int, ...], value: object) -> None:
    *way, last = keys
    at: Any = plain
    for key in way:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
