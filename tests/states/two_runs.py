"""Two runs of one small program, stopped at a marked line, compared and altered there."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.lab.laboratory import Open, Side
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Observation, Program
from pytest_causechain.states.deltas import Delta, StateComparison, compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import Layouts
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.shapes import Object
from pytest_causechain.states.transfer import transfer_to_failing_run, transfer_to_passing_run

# What most programs need.
HEADERS = r"""
#include <alloca.h>
#include <complex.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
"""
# No test here comes near it on a machine that is not broken.
PLENTY_SECONDS = 300.0


def hear_of_children() -> None:
    """In a gdb before it starts: a laboratory in this process blocks SIGCHLD, for which gdb would wait."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class TwoRuns:
    """Use as a context manager. The moment is the line of the source that ends in `/* here */`."""

    def __init__(
        self,
        program: Program,
        source: str,
        passing: Sequence[str] = (),
        failing: Sequence[str] = (),
        stdin: tuple[bytes, bytes] = (b"", b""),
        environment: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = ((), ()),
    ) -> None:
        self._source = source
        directory = str(Path(program.path).parent)
        self.commands = [
            Command(program, (program.path, *arguments), directory, changes, text)
            for arguments, changes, text in zip((passing, failing), environment, stdin, strict=True)
        ]
        # Each run is a fresh one: a test may change what they read.
        self.lab = LocalLab(Open(*self.commands, deadline=time.monotonic() + PLENTY_SECONDS, kind="rerun"))
        self.stops = self.at("/* here */")
        self._layouts = Layouts(self.lab.program.types)
        self._originals: dict[Side, Observation] = {}

    def __enter__(self) -> TwoRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.lab.__exit__(kind, error, traceback)

    def at(self, mark: str, visit: int = 1) -> tuple[Stop, ...]:
        """The stop at a line that is marked so."""
        line = next(n for n, text in enumerate(self._source.splitlines(), 1) if text.rstrip().endswith(mark))
        statements = (s for function in self.lab.program.functions for s in function.statements)
        return (Stop(next(s.address for s in statements if s.line == line), visit),)

    def graph(self, side: Side, stops: Sequence[Stop] | None = None) -> MemoryGraph:
        visit = self.lab.visit(side, self.stops if stops is None else stops)
        assert visit is not None
        return self.make_graph(visit)

    def make_graph(self, visit: Visit) -> MemoryGraph:
        return MemoryGraph(visit, self.lab.program, self._layouts)

    def compare(self, stops: Sequence[Stop] | None = None) -> StateComparison:
        return compare_states(match_states(self.graph("passing", stops), self.graph("failing", stops)))

    @cached_property
    def comparison(self) -> StateComparison:
        return self.compare()

    @property
    def deltas(self) -> tuple[Delta, ...]:
        return self.comparison.deltas

    def told(self) -> list[tuple[str, str, str, str]]:
        """The deltas as a reader gets them."""
        return [(delta.name, delta.passing, delta.failing, delta.kind) for delta in self.deltas]

    def delta(self, name: str) -> Delta:
        found = [delta for delta in self.deltas if delta.name == name]
        assert len(found) == 1, f"{len(found)} deltas of {name} in {[delta.name for delta in self.deltas]}"
        return found[0]

    def original(self, side: Side) -> Observation:
        if side not in self._originals:
            self._originals[side] = self.lab.experiment(side)
        return self._originals[side]

    def forget(self) -> None:
        """What the runs read has been changed."""
        self.__dict__.pop("comparison", None)
        self._originals.clear()

    def alter_passing(
        self, deltas: Collection[Delta], comparison: StateComparison | None = None, stops: Sequence[Stop] | None = None
    ) -> Observation:
        transfer = transfer_to_passing_run(comparison or self.comparison, deltas)
        return self.lab.experiment("passing", self.stops if stops is None else stops, transfer)

    def alter_failing(
        self, deltas: Collection[Delta], comparison: StateComparison | None = None, stops: Sequence[Stop] | None = None
    ) -> Observation:
        transfer = transfer_to_failing_run(comparison or self.comparison, deltas)
        return self.lab.experiment("failing", self.stops if stops is None else stops, transfer)


def find_variable(graph: MemoryGraph, name: str) -> Object:
    return next(o for o in graph.variables if o.name == name)


def find_target(graph: MemoryGraph, name: str) -> Object:
    """What a pointer leads to that is written so: a heap block, a vector or a text."""
    names = {o: graph.naming.name(o) for o in graph.objects if o.kind != "variable"}
    found = [o for o, known in names.items() if known == name]
    assert len(found) == 1, f"{len(found)} of {name} among {sorted(names.values())}"
    return found[0]


def check_both_ways(runs: TwoRuns) -> None:
    """All deltas make either run the other; no run prints anything before the moment."""
    passing, failing = runs.original("passing"), runs.original("failing")
    assert passing.stdout != failing.stdout
    assert runs.alter_passing([]) == passing
    assert runs.alter_passing(runs.deltas) == failing
    assert runs.alter_failing(runs.deltas) == passing
