"""The hooks that others can implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_causechain.model.chain import Chain


def pytest_causechain_report(config: pytest.Config, report: pytest.TestReport, chain: Chain) -> None:
    """Called for each diagnosed test, when its chain is found and its files are written.

    `report` is that of the failed phase; `report.cause_chain` is the chain too. An exception becomes a note in the
    terminal. A conftest.py that must also work without this plugin marks it `@pytest.hookimpl(optionalhook=True)`."""
