"""Rankings of others, from which tests execute which lines, to be measured on the same tests.

A ranking is a list of groups of lines, the most suspicious first; the lines of a group are equal to it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from pytest_causechain.repairs.findings import Line

Ranking = list[tuple[Line, ...]]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many failing and passing tests execute a line, of how many there are."""

    failing: int
    passing: int
    all_failing: int
    all_passing: int


def tarantula(counts: Counts) -> float:
    """Jones and Harrold 2005."""
    failing = counts.failing / counts.all_failing
    passing = counts.passing / counts.all_passing if counts.all_passing else 0.0
    return failing / (failing + passing) if failing else 0.0


def ochiai(counts: Counts) -> float:
    """Abreu, Zoeteweij and van Gemund 2006."""
    if not counts.failing:
        return 0.0
    return counts.failing / math.sqrt(counts.all_failing * (counts.failing + counts.passing))


def op2(counts: Counts) -> float:
    """Naish, Lee and Ramamohanarao 2011."""
    return counts.failing - counts.passing / (counts.all_passing + 1)


def dstar(counts: Counts) -> float:
    """Wong, Debroy, Gao and Li 2014, with their exponent 2."""
    others = counts.passing + counts.all_failing - counts.failing
    return counts.failing**2 / others if others else math.inf if counts.failing else 0.0


FORMULAS: dict[str, Callable[[Counts], float]] = {
    "Tarantula": tarantula,
    "Ochiai": ochiai,
    "Op2": op2,
    "DStar": dstar,
}


def rank_by(
    formula: Callable[[Counts], float],
    lines: Iterable[Line],
    failing: Sequence[Collection[Line]],
    passing: Sequence[Collection[Line]],
) -> Ranking:
    groups: dict[float, list[Line]] = defaultdict(list)
    for line in lines:
        executing = sum(line in executed for executed in failing), sum(line in executed for executed in passing)
        groups[formula(Counts(*executing, len(failing), len(passing)))].append(line)
    return [tuple(groups[score]) for score in sorted(groups, reverse=True)]


def nearest_neighbour(failing: Collection[Line], passing: Sequence[Collection[Line]]) -> tuple[Line, ...]:
    """Renieris and Reiss 2003: the lines of the failing run that the passing run with the most similar coverage does
    not execute; where there are none, those of the next one that leaves some."""
    own = frozenset(failing)
    for other in sorted(map(frozenset, passing), key=lambda lines: len(own ^ lines)):
        if own - other:
            return tuple(sorted(own - other))
    return ()


def best_by_coverage(lines: Iterable[Line], runs: Sequence[Collection[Line]], defects: Collection[Line]) -> Ranking:
    """The limit of any formula: the defect comes first, but with all lines that the same tests execute."""
    groups: dict[tuple[bool, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[tuple(line in executed for executed in runs)].append(line)
    return sorted(map(tuple, groups.values()), key=lambda group: (not set(group) & set(defects), len(group)))


def blame(blamed: Iterable[Line], executed: Collection[Line], lines: Collection[Line]) -> Ranking:
    """A set of lines as a ranking: they come first, all of them equal, then what else the failing run executes."""
    first = tuple(dict.fromkeys(blamed))
    return complete([first] if first else [], executed, lines)


def complete(ranking: Iterable[Iterable[Line]], executed: Collection[Line], lines: Collection[Line]) -> Ranking:
    """With the lines that it leaves out: what the failing run executes, then all others."""
    whole = [tuple(group) for group in ranking]
    known = {line for group in whole for line in group}
    rest = [line for line in lines if line not in known]
    whole.append(tuple(line for line in rest if line in executed))
    whole.append(tuple(line for line in rest if line not in executed))
    return [group for group in whole if group]
