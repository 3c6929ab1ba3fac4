"""All tests here wait for processes."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def in_an_engine(blocked_children: None) -> None:
    """As an engine does."""
