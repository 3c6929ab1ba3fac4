"""The refusal that only concerns asking the test."""

from __future__ import annotations

from pytest_causechain.model.refusal import Refusal


class Unreplayable(Refusal):
    """The test cannot be asked about other output; a crash or a hang can be told without it."""
