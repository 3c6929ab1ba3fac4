"""Measures how far each ranking of lines is from a version's defect: ours, and others' on the same tests.

A ranking is a list of groups of lines, the most suspicious first; the lines of a group are equal to it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.evaluation.dependence import Graph
from benchmarks.evaluation.driver import Record
from benchmarks.evaluation.suite import Suite
from pytest_causechain.repairs.findings import Line

Ranking = list[tuple[Line, ...]]

# Of the share of statements looked at: pinpointed, and the two that the literature counts.
LIMITS = (0.01, 0.10, 0.20)


@dataclass(frozen=True, slots=True)
class Examined:
    """Statements looked at until the first line of the defect is reached; of lines of equal rank the defect's comes
    last (`worst`), or where it is to be expected (`mid`)."""

    worst: int
    mid: float
    statements: int

    @property
    def share(self) -> float:
        return share_of(self.worst, self.statements)

    @property
    def mid_share(self) -> float:
        return share_of(self.mid, self.statements)


def share_of(looked_at: float, statements: int) -> float:
    """The first line of a program with few lines is not more than the smallest limit: who looks at one line only has
    the defect pinpointed."""
    return 0.0 if looked_at <= 1 else looked_at / statements


def count_examined(ranking: Iterable[Sequence[Line]], defects: Collection[Line], statements: int) -> Examined:
    before = 0
    for group in ranking:
        hits = sum(line in defects for line in group)
        if hits:
            return Examined(before + len(group) - hits + 1, before + (len(group) + 1) / (hits + 1), statements)
        before += len(group)
    return Examined(statements, statements, statements)


def chance_within(limit: float, executed: int, defects: int, statements: int) -> float:
    """How probable it is that lines of the failing run, taken at random, hit the defect within this share."""
    return chance_of_hit(max(1, math.floor(limit * statements)), executed, defects)


def chance_of_hit(count: int, executed: int, defects: int) -> float:
    """That `count` lines out of those executed contain one of the defect's."""
    count = min(count, executed)
    return 1.0 - math.comb(executed - defects, count) / math.comb(executed, count)


def share_within(shares: Sequence[float], limit: float) -> float:
    """In percent."""
    return 100.0 * sum(share <= limit for share in shares) / len(shares) if shares else 0.0


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


OURS, TRANSITIONS, NEAREST, LIMIT = "repairs and chains", "cause transitions", "nearest neighbour", "coverage's limit"
# The suspects from which the papers' search through the dependence graph begins.
BLAMED = 1
# More than this share of the statements looked at needs a reason.
BAD_SHARE = 0.20


@dataclass(frozen=True, slots=True)
class Measure:
    """`examined` by ranking, on the scale of statements; `unexamined`, in percent, on that of the dependence graph.
    `rank` is the place of the defect among our suspects, counting ties against us."""

    record: Record
    executed: int
    executed_defects: int
    examined: dict[str, Examined]
    unexamined: dict[str, float]
    trouble: str | None

    @property
    def rank(self) -> int:
        return self.examined[OURS].worst


def measure(record: Record, suite: Suite, defects: Collection[Line], graph: Graph | None) -> Measure:
    """`graph`: of the statements' dependences, where it can be made."""
    executed = suite.executed(record.tests[0])
    rankings = rank_all(record, suite, defects)
    statements = len(suite.lines)
    examined = {name: count_examined(ranking, defects, statements) for name, ranking in rankings.items()}
    unexamined = {}
    if graph is not None:
        blamed = {
            OURS: [line for group in record.ranking for line in group][:BLAMED],
            TRANSITIONS: record.transitions,
            NEAREST: nearest_neighbour(executed, passing_runs(suite)),
        }
        unexamined = {name: graph.unexamined(lines, defects) for name, lines in blamed.items()}
    hit = len(executed & set(defects))
    trouble = explain(record, examined[OURS], executed & set(defects), set(defects))
    return Measure(record, len(executed), hit, examined, unexamined, trouble)


def passing_runs(suite: Suite) -> list[frozenset[Line]]:
    return [suite.executed(test) for test in suite.covered(suite.passing)]


def rank_all(record: Record, suite: Suite, defects: Collection[Line]) -> dict[str, Ranking]:
    """Those of others by the failing tests that were diagnosed and all passing ones whose lines are known."""
    failing, passing = [suite.executed(test) for test in record.tests], passing_runs(suite)
    executed, lines = failing[0], suite.lines
    by_coverage = {name: rank_by(formula, lines, failing, passing) for name, formula in FORMULAS.items()}
    return {
        OURS: finish(record.ranking, rank_by(op2, lines, failing, passing), executed, lines),
        **by_coverage,
        NEAREST: blame(nearest_neighbour(executed, passing), executed, lines),
        TRANSITIONS: blame(record.transitions, executed, lines),
        LIMIT: best_by_coverage(lines, [*failing, *passing], defects),
    }


def finish(
    ranking: Sequence[Sequence[Line]], coverage: Ranking, executed: Collection[Line], lines: Collection[Line]
) -> Ranking:
    """Who has looked at all suspects goes on with what else the failing run executes, by coverage."""
    known = {line for group in ranking for line in group}
    rest = [tuple(line for line in group if line not in known and line in executed) for group in coverage]
    return complete([*ranking, *(group for group in rest if group)], executed, lines)


def explain(record: Record, ours: Examined, executed: Collection[Line], defects: Collection[Line]) -> str | None:
    """Why there is no chain, or the defect so far behind; None where all is well."""
    if record.status == "none":
        return record.reason
    if ours.share <= BAD_SHARE:
        return None
    if not executed:
        return "the failing run does not execute the defect's line"
    if not record.repaired:
        return "no repair was found"
    if not set(record.repaired) & set(defects):
        return "there are repairs, but none in the defect's line"
    return "too many other lines have repairs"
