"""The property of a chain: each cause, set at its moment, makes the next one appear at its own.

Checked from chain.json alone, with states and a laboratory, but nothing of what searched for the chain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_causechain.lab.laboratory import Open, Side
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.alteration import NOTHING, Transfer
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.states.deltas import StateComparison, compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Layouts
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.transfer import transfer_to_passing_run

PLENTY_SECONDS = 600.0
Links = tuple[dict[str, Any], dict[str, Any]]


def find_unled(chain: dict[str, Any], cache: Path) -> list[str]:
    """Of the links that are told as following from the one before, those that do not. `cache` has what gdb told of the
    program."""
    with LocalLab(Open(*read_commands(chain), deadline=time.monotonic() + PLENTY_SECONDS, cache=cache)) as lab:
        return [told for pair in pairwise(chain["chain"]) for told in Check(lab, pair).find_missing()]


def read_commands(chain: dict[str, Any]) -> list[Command]:
    program = identify_program(chain["program"]["path"])
    return [
        Command(
            program,
            tuple(party["argv"]),
            party["cwd"],
            stdin=party["stdin"].encode("utf-8", "surrogateescape"),
        )
        for party in (chain["passing"], chain["failing"])
    ]


class Check:
    def __init__(self, lab: LocalLab, links: Links) -> None:
        self._lab = lab
        self._link, self._later = links
        self._layouts = Layouts(lab.program.types)

    def find_missing(self) -> Iterator[str]:
        wanted = {(cause["variable"], cause["frame"]) for cause in self._later["causes"] if cause["kind"] != "input"}
        if not wanted or not self._later["follows"]:
            return
        here = self._compare(self._state("passing", self._stops("stops")), self._failing_state(self._link))
        names = [(cause["variable"], cause["frame"]) for cause in self._link["causes"]]
        causes = [delta for delta in here.deltas if (delta.name, delta.frame) in names]
        assert len(causes) == len(names), f"not all of {names} differ in {[delta.name for delta in here.deltas]}"
        transfer = transfer_to_passing_run(here, causes)
        there = self._state("passing", self._stops("stops"), transfer, self._route())
        left = self._compare(there, self._failing_state(self._later)).deltas
        differing = {(delta.name, delta.frame) for delta in left}
        if missing := wanted & differing:
            yield f"with {names} the passing run does not come to have {sorted(missing)}"

    def _stops(self, key: str, link: dict[str, Any] | None = None) -> tuple[Stop, ...]:
        return tuple(self._find_stop(stop) for stop in (link or self._link)["moment"][key])

    def _find_stop(self, stop: dict[str, Any]) -> Stop:
        (function,) = [f for f in self._lab.program.functions if (f.name, f.file) == (stop["function"], stop["file"])]
        return Stop(function.address + stop["offset"], stop["visit"])

    def _route(self) -> tuple[Stop, ...]:
        """As often as the failing run comes by where the later link is, from the one to the other."""
        early, late = (self._stops("failing_stops", link) for link in (self._link, self._later))
        address = late[-1].address
        passed = [
            len(self._lab.trace("failing", stops, [address], limit=self._lab.recordable)) for stops in (early, late)
        ]
        return (Stop(address, passed[0] - passed[1]),)

    def _failing_state(self, link: dict[str, Any]) -> MemoryGraph:
        return self._state("failing", self._stops("failing_stops", link))

    def _state(
        self, side: Side, stops: tuple[Stop, ...], transfer: Transfer = NOTHING, then: tuple[Stop, ...] = ()
    ) -> MemoryGraph:
        visit = self._lab.visit(side, stops, transfer, then)
        assert visit is not None, (side, stops, then)
        return MemoryGraph(visit, self._lab.program, self._layouts)

    def _compare(self, passing: MemoryGraph, failing: MemoryGraph) -> StateComparison:
        return compare_states(match_states(passing, failing, is_altered=True))
