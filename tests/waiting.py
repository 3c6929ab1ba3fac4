"""Waits for what happens beside a test."""

from __future__ import annotations

import time
from collections.abc import Callable

# Nothing takes that long unless it is broken.
PATIENCE_SECONDS = 300.0


def comes_true(condition: Callable[[], object]) -> bool:
    """Whether it does at last, however slow the machine is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(is_true)
