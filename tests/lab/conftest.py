"""Opens laboratories on compiled text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from places import open_remote_lab

from pytest_causechain.lab.pool import Share, open_pool
from pytest_causechain.lab.remote_lab import RemoteLab

MakeLab = Callable[..., RemoteLab]


@pytest.fixture(scope="session", params=["fork", "rerun"])
def kind(request: pytest.FixtureRequest) -> str:
    """Copies and fresh runs must show the same: every test that opens a laboratory is run with both."""
    return request.param


@pytest.fixture(scope="module")
def share() -> Iterator[Share]:
    """A worker that keeps its engine: to start one would take most of the time of a test."""
    with open_pool(jobs=1) as pool:
        yield Share(pool)


@pytest.fixture(scope="module")
def make_lab(kind: str, share: Share, tmp_path_factory: pytest.TempPathFactory) -> MakeLab:
    """make_lab(program, *arguments, stdin=...) is a laboratory whose both runs are that one; to be closed.

    `failing` and `failing_stdin` make the failing run another one."""
    return partial(open_remote_lab, kind, share=share, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def open_lab(make_lab: MakeLab) -> Iterator[MakeLab]:
    """The same, closed behind the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **more: stack.enter_context(make_lab(*arguments, **more))
