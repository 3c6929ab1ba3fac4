"""A lab in an engine process of its own."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_causechain.debugger.program import ProgramMap, Signature
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.lab.engine import Answer, Call, Open
from pytest_causechain.lab.flights import Limits
from pytest_causechain.lab.laboratory import (
    FIRST_RUN_SECONDS,
    LEAST_CPU_SECONDS,
    LEAST_SECONDS,
    PATIENCE,
    Lab,
    Side,
    Trace,
)
from pytest_causechain.model.chain import Place
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch, SeenValues, Sighting, Spot
from pytest_causechain.model.isolation import USUAL, Precautions
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.process.companion import Companion, CompanionLost, uninterrupted
from pytest_causechain.process.effects import Effect
from pytest_causechain.process.variants import Variant

# Beyond the user's time limit: for what has begun to come to its end.
GRACE_SECONDS = 10.0
CLOSING_SECONDS = 5.0


class _Trouble(Exception):
    """The engine or its gdb is lost."""


class RemoteLab(Lab):
    """`kind` forces a lab: "fork", "rerun" or "gdb". `libraries` and `cache` are as in Open. `others` are further runs,
    known by `name_other`. With a `repair` the passing run is the twin of the failing one."""

    def __init__(
        self,
        passing: Command,
        failing: Command,
        deadline: float,
        kind: str | None = None,
        libraries: tuple[str, ...] = (),
        cache: Path | None = None,
        others: Sequence[Command] = (),
        repair: Intervention | Patch | None = None,
        precautions: Precautions = USUAL,
    ) -> None:
        self.deadline = deadline
        self.name = kind or ""
        self.begins_inside = isinstance(repair, Intervention)
        self._opening = Open(passing, failing, deadline, kind, libraries, cache, tuple(others), repair, precautions)
        self._limits: tuple[float, ...] = (FIRST_RUN_SECONDS, math.inf)
        self._companion: Companion | None = None
        self.program: ProgramMap
        self.recordable: int
        self.width: int
        try:
            self._call(self._opening)
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        if self._companion is not None:
            self._companion.close(CLOSING_SECONDS)
            self._companion = None

    @property
    def run_seconds(self) -> float:
        """How long one run may take."""
        return self._limits[0]

    @run_seconds.setter
    def run_seconds(self, seconds: float) -> None:
        self._limit_runs(seconds, math.inf)

    def allow(self, usual: float) -> None:
        """By the seconds that the original runs take."""
        self._limit_runs(max(LEAST_SECONDS, PATIENCE * usual), max(LEAST_CPU_SECONDS, PATIENCE * usual))

    def _limit_runs(self, *limits: float) -> None:
        self._limits = limits
        self._call(Call("limit_runs", limits))

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        observations: list[Observation] = self._call(Call("experiments", (side, tuple(stops), tuple(transfers))))
        return observations

    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        some: list[Observation | None] = self._call(Call("speculate", (side, tuple(stops), tuple(transfers))))
        return some

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        visit: Visit | None = self._call(Call("visit", (side, tuple(stops), transfer, tuple(then))))
        return None if visit is None else replace(visit, types=self.program.types)

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = 10_000,
    ) -> Trace:
        trace: Trace = self._call(Call("trace", (side, tuple(stops), tuple(addresses), until, limit)))
        return trace

    # Interventions; a Refusal in a lab that cannot make them.

    def observe(self, command: Command) -> Observation:
        observation: Observation = self._call(Call("observe", (command,)))
        return observation

    def find_writer(
        self, side: Side, stops: Sequence[Stop], then: Sequence[Stop], address: int, size: int
    ) -> Place | None:
        place: Place | None = self._call(Call("find_writer", (side, tuple(stops), tuple(then), address, size)))
        return place

    def signatures(self) -> dict[int, Signature]:
        signatures: dict[int, Signature] = self._call(Call("signatures"))
        return signatures

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant]]:
        effects: tuple[list[Effect], list[Variant]] = self._call(Call("effects", (tuple(functions),)))
        return effects

    def cover(self, side: Side, addresses: Collection[int]) -> frozenset[int]:
        covered: frozenset[int] = self._call(Call("cover", (side, tuple(addresses))))
        return covered

    def count(self, addresses: Collection[int], most: int) -> dict[int, int]:
        counts: dict[int, int] = self._call(Call("count", (tuple(addresses), most)))
        return counts

    def values(self, side: Side, effects: Sequence[Effect], most: int) -> SeenValues:
        values: SeenValues = self._call(Call("values", (side, tuple(effects), most)))
        return values

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        sights: list[Sighting | None] = self._call(Call("sights", (side, tuple(spots))))
        return sights

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        value: bytes | None = self._call(Call("follow", (side, intervention, spot)))
        return value

    def interventions(
        self, side: Side, interventions: Sequence[Intervention | Patch], limits: Limits
    ) -> list[Observation]:
        observed: list[Observation] = self._call(Call("interventions", (side, tuple(interventions), limits)))
        return observed

    def _call(self, message: Open | Call) -> Any:
        """A lost engine is replaced once, since that may be an accident; a second loss at the same work is not."""
        try:
            return self._attempt(message)
        except _Trouble:
            self._abandon()
        try:
            return self._attempt(message)
        except _Trouble as trouble:
            self._abandon()
            raise Refusal(f"the engine failed twice at the same work ({trouble}): please report this.") from None

    def _attempt(self, message: Open | Call) -> Any:
        if self._companion is None:
            with uninterrupted(), refusing():
                self._companion = Companion("pytest_causechain.lab.engine")
            # A new engine numbers types anew: earlier visits keep the table that they came with.
            opened = self._exchange(self._opening)
            self.program, self.recordable, self.width, self.notes, self.isolation = opened
            self._exchange(Call("limit_runs", self._limits))
        return None if isinstance(message, Open) else self._exchange(message)

    def _exchange(self, message: Open | Call) -> Any:
        assert self._companion is not None
        try:
            answer: Answer = self._companion.exchange(message, self._patience())
        except CompanionLost as lost:
            raise _Trouble("it does not answer in time" if lost.is_late else last_line(lost.log)) from None
        if answer.trouble:
            raise _Trouble(answer.trouble)
        if answer.is_used_up:
            raise BudgetUsedUp
        if answer.refusal:
            raise Refusal(answer.refusal)
        self.name = answer.lab
        if not isinstance(message, Open):
            self.program.types.extend(answer.types)
        return answer.value

    def _abandon(self) -> None:
        if self._companion is not None:
            self._companion.close()
            self._companion = None

    def _patience(self) -> float:
        return max(0.0, self.deadline - time.monotonic()) + GRACE_SECONDS


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(
            f"the engine cannot be started ({error}): it needs some room for temporary files, or let TMPDIR name a "
            "directory that has it."
        ) from None


def last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it ended without a word"
