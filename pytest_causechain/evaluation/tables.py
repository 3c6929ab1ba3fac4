"""Measures as tables in Markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pytest_causechain.evaluation.measures import LIMIT, NEAREST, OURS, TRANSITIONS, Measure
from pytest_causechain.evaluation.records import Record
from pytest_causechain.evaluation.scores import LIMITS, Examined, chance_of_hit, chance_within, share_within
from pytest_causechain.report.wording import count_of

# Of the share of a dependence graph that need not be looked at: the papers' rows.
CLASSES = (99, 90, 80, 70, 60, 50, 40, 30, 20, 10, 0)
FIRST_SUSPECTS = (1, 3, 5, 10)
RANDOM = "random lines of the failing run"


def make_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tell_all(measures: Sequence[Measure], untested: Sequence[Record]) -> str:
    """All tables; `untested` are the versions that no test fails on."""
    sections = [
        ("Statements looked at until the defect is reached (ties against the ranking)", table_statements(measures)),
        ("The same, ties in the middle", table_statements(measures, lambda e: e.mid_share)),
        ("The defect's line among the first suspects", table_hits(measures)),
        ("Share of the dependence graph that need not be looked at", table_graph(measures)),
        ("What it took", table_effort(measures)),
        ("Versions without a chain, or with the defect far behind", table_troubles(measures)),
    ]
    counts = count_of(len(measures), "version") + (f"; no test fails on {len(untested)} more" if untested else "")
    return f"{counts}\n" + "".join(f"\n### {title}\n\n{table}" for title, table in sections)


def percent(value: float) -> str:
    return f"{value:.1f}"


def table_statements(
    measures: Sequence[Measure], share: Callable[[Examined], float] = lambda examined: examined.share
) -> str:
    head = ["ranking", *(f"at most {limit:.0%}" for limit in LIMITS), "mean looked at", "first"]
    rows = []
    for name in measures[0].examined if measures else ():
        shares = [share(measure.examined[name]) for measure in measures]
        firsts = [measure.examined[name].worst == 1 for measure in measures]
        within = [percent(share_within(shares, limit)) for limit in LIMITS]
        rows.append([name, *within, percent(100 * statistics.fmean(shares)), percent(100 * statistics.fmean(firsts))])
    return make_table(head, [*rows, row_of_chance(measures)] if measures else [])


def row_of_chance(measures: Sequence[Measure]) -> list[str]:
    chances = [
        [chance_within(limit, m.executed, m.executed_defects, m.examined[OURS].statements) for m in measures]
        for limit in LIMITS
    ]
    first = [chance_of_hit(1, m.executed, m.executed_defects) for m in measures]
    # The defect's line is to be expected in the middle of the executed ones.
    looked_at = [(m.executed + 1) / (m.executed_defects + 1) / m.examined[OURS].statements for m in measures]
    within = [percent(100 * statistics.fmean(chance)) for chance in chances]
    return [RANDOM, *within, percent(100 * statistics.fmean(looked_at)), percent(100 * statistics.fmean(first))]


def table_hits(measures: Sequence[Measure]) -> str:
    rows = []
    for count in FIRST_SUSPECTS if measures else ():
        hits = [measure.rank <= count for measure in measures]
        chance = [chance_of_hit(count, m.executed, m.executed_defects) for m in measures]
        rows.append([f"first {count}", percent(100 * statistics.fmean(hits)), percent(100 * statistics.fmean(chance))])
    return make_table(["suspects", "hit", "as many random lines"], rows)


def table_graph(measures: Sequence[Measure]) -> str:
    """As table 5 of Cleve and Zeller has it."""
    known = [measure for measure in measures if measure.unexamined]
    names = (OURS, TRANSITIONS, NEAREST)
    counts = {name: Counter(classify(measure.unexamined[name]) for measure in known) for name in names}
    rows = []
    for above, lowest in zip((100, *CLASSES), CLASSES, strict=False):
        shares = [100 * counts[name][lowest] / len(known) if known else 0.0 for name in names]
        rows.append([f"{lowest}-{above}%", *map(percent, shares)])
    return make_table(["not looked at", *names], rows)


def classify(unexamined: float) -> int:
    return next(lowest for lowest in CLASSES if unexamined >= lowest)


def table_effort(measures: Sequence[Measure]) -> str:
    """Per program, medians; the unresolved share is of all experiments."""
    head = ["program", "versions", "vertices", "deltas", "moments matched", "tried", "transferable", "interventions"]
    head += ["experiments", "unresolved", "seconds", "seconds at most"]
    programs = dict.fromkeys(measure.record.program for measure in measures)
    groups = [(name, [m.record for m in measures if m.record.program == name]) for name in sorted(programs)]
    every = [measure.record for measure in measures]
    return make_table(head, [row_of_effort(*group) for group in [*groups, ("all", every)] if group[1]])


def row_of_effort(name: str, records: Sequence[Record]) -> list[object]:
    known = [record.statistics for record in records]
    tallies = [s.experiments for s in known]
    total = sum(tally.total for tally in tallies)
    unresolved = 100 * sum(tally.unresolved for tally in tallies) / total if total else 0.0
    tried, transferable = sum(s.moments.tried for s in known), sum(s.moments.transferable for s in known)
    seconds = [s.seconds.total for s in known]

    def middle(values: Iterable[float]) -> str:
        return f"{statistics.median(values):.0f}"

    return [
        name,
        len(records),
        middle(s.vertices for s in known),
        middle(s.deltas for s in known),
        middle(s.moments.matched for s in known),
        middle(s.moments.tried for s in known),
        f"{100 * transferable / tried:.0f}%" if tried else "-",
        middle(s.interventions for s in known),
        middle(tally.total for tally in tallies),
        f"{unresolved:.0f}%",
        f"{statistics.median(seconds):.1f}",
        f"{max(seconds):.1f}",
    ]


def table_troubles(measures: Sequence[Measure]) -> str:
    bad = sorted((m for m in measures if m.trouble), key=lambda m: (m.trouble or "", m.record.key))
    rows = [
        [m.record.key, f"{100 * m.examined[OURS].share:.1f}%", f"{100 * m.examined[LIMIT].share:.1f}%", m.trouble]
        for m in bad
    ]
    return make_table(["version", "looked at", "coverage's limit", "reason"], rows)
