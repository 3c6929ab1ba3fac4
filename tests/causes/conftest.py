"""Opens cases on compiled text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cases import Case, OpenCase


@pytest.fixture(scope="module")
def open_case(build) -> Iterator[OpenCase]:
    """open_case(source, passing, failing, stdin=...): the same one is opened once in a module."""
    with ExitStack() as stack:
        opened: dict[tuple[object, ...], Case] = {}

        def open_one(source: str, passing: list[str], failing: list[str], **options: object) -> Case:
            key = (source, *passing, "/", *failing, *options.values())
            if key not in opened:
                opened[key] = stack.enter_context(Case(build(source), source, passing, failing, **options))
            return opened[key]

        yield open_one
