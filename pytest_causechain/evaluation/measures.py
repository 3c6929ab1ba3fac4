"""What the records and the suites say of each version: how far each ranking is from its defect."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_causechain.evaluation.dependence import Graph
from pytest_causechain.evaluation.formulas import (
    FORMULAS,
    Ranking,
    best_by_coverage,
    blame,
    complete,
    nearest_neighbour,
    op2,
    rank_by,
)
from pytest_causechain.evaluation.records import Record
from pytest_causechain.evaluation.scores import Examined, count_examined
from pytest_causechain.evaluation.suite import Suite
from pytest_causechain.repairs.findings import Line

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
