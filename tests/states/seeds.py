"""Programs whose states grow from a seed, and what must hold of any two of these states."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from two_runs import TwoRuns

from pytest_causechain.states.deltas import Delta, compare_states
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.matching import match_states
from pytest_causechain.states.shapes import Target
from pytest_causechain.states.transfer import transfer_to_passing_run

# Subsets of the deltas of two states.
CHOICES = 6


@dataclass
class Seeds:
    """Writes what the two programs read."""

    runs: TwoRuns
    directory: Path

    def plant(self, passing: int, failing: int) -> TwoRuns:
        # Of equal length: the position in a file is no difference between the states.
        (self.directory / "passing").write_text(f"{passing:06}\n")
        (self.directory / "failing").write_text(f"{failing:06}\n")
        self.runs.forget()
        return self.runs


def pairs_of_seeds(count: int, seed: int) -> list[tuple[int, int]]:
    choose = random.Random(seed)
    return [(choose.randrange(1_000_000), choose.randrange(1_000_000)) for _ in range(count)]


def state_with(runs: TwoRuns, deltas: Collection[Delta]) -> MemoryGraph:
    """What the passing run holds once these are written."""
    transfer = transfer_to_passing_run(runs.comparison, deltas)
    visit = runs.lab.visit("passing", runs.stops, transfer)
    assert visit is not None
    return runs.make_graph(visit)


def find_wild_pointers(graph: MemoryGraph) -> list[str]:
    return [
        f"{graph.naming.name(o)}+{pointer.offset}"
        for o in graph.objects
        if o.kept is None and not o.is_unset
        for pointer in graph.pointers(o)
        if pointer.value and graph.target(pointer.value) == Target(None, pointer.value)
    ]


def choose_deltas(runs: TwoRuns, choose: random.Random) -> Iterator[list[Delta]]:
    for _ in range(CHOICES):
        yield choose.sample(runs.deltas, choose.randrange(1, len(runs.deltas)))


def check_all_deltas(runs: TwoRuns) -> None:
    """They make the one run the other, in both directions, up to where it gives everything back."""
    wanted = runs.original("failing"), runs.original("passing")
    assert wanted[0].stdout.endswith(b"released\n")
    assert runs.alter_passing(runs.deltas) == wanted[0]
    assert runs.alter_failing(runs.deltas) == wanted[1]


def check_ends(runs: TwoRuns, choose: random.Random) -> None:
    for chosen in choose_deltas(runs, choose):
        for altered in (runs.alter_passing(chosen), runs.alter_failing(chosen)):
            assert (altered.ending, altered.code) == ("exit", 0), [delta.name for delta in chosen]


def check_nothing_is_left(runs: TwoRuns) -> None:
    matching = match_states(state_with(runs, runs.deltas), runs.comparison.matching.failing)
    assert [(d.name, d.passing, d.failing) for d in compare_states(matching).deltas] == []


def check_pointers(runs: TwoRuns, choose: random.Random) -> None:
    """Whatever was written, they all lead somewhere."""
    assert find_wild_pointers(runs.comparison.matching.passing) == []
    for chosen in choose_deltas(runs, choose):
        assert find_wild_pointers(state_with(runs, chosen)) == [], [delta.name for delta in chosen]
