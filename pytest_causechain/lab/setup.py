"""What all laboratories of a session have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.pool import Share
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Intervention, Patch
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.isolation import USUAL, Precautions
from pytest_causechain.model.runs import Command


@dataclass(frozen=True, slots=True)
class LabSetup:
    """`libraries` are patterns for shared libraries that count as the program's own code; `cache` is a directory for
    what should be known again in later sessions; `share` is what a diagnosis has of the session's workers: without
    one, a lab has an engine of its own."""

    libraries: tuple[str, ...] = ()
    cache: Path | None = None
    precautions: Precautions = USUAL
    share: Share | None = None

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self.share.size if self.share is not None else 1

    def open_lab(
        self,
        passing: Command,
        failing: Command,
        *,
        budget: Budget,
        others: Sequence[Command] = (),
        repair: Intervention | Patch | None = None,
    ) -> RemoteLab:
        """For these two runs and some others, until the budget is over. With a `repair` the passing run is the twin of
        the failing one."""
        budget.check()
        opening = Open(
            passing,
            failing,
            libraries=self.libraries,
            cache=self.cache,
            others=tuple(others),
            repair=repair,
            precautions=self.precautions,
        )
        return RemoteLab(opening, budget, self.share)
