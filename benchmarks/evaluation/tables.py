"""Renders measures: tables in Markdown, and the cumulative picture as SVG."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape

from benchmarks.evaluation.driver import Record
from benchmarks.evaluation.measures import (
    LIMIT,
    LIMITS,
    NEAREST,
    OURS,
    TRANSITIONS,
    Examined,
    Measure,
    chance_of_hit,
    chance_within,
    share_within,
)
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


WIDTH, HEIGHT, MARGIN, LEGEND = 640, 400, 48, 150
COLOURS = ("#c0392b", "#7f8c8d", "#2980b9", "#16a085", "#8e44ad", "#d35400", "#2c3e50", "#f39c12")


def draw_picture(measures: Sequence[Measure]) -> str:
    """SVG; the whole axis is all statements, the curves are shares of versions."""
    names = list(measures[0].examined) if measures else []
    parts = [*_axes(), *(part for number, name in enumerate(names) for part in _curve(number, name, measures))]
    size = f'width="{WIDTH + LEGEND}" height="{HEIGHT}" viewBox="0 0 {WIDTH + LEGEND} {HEIGHT}"'
    style = "font: 12px sans-serif; background: #fff"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{style}">\n' + "\n".join(parts) + "\n</svg>\n"


def _at(share: float, versions: float) -> str:
    x = MARGIN + share * (WIDTH - 2 * MARGIN)
    y = HEIGHT - MARGIN - versions * (HEIGHT - 2 * MARGIN)
    return f"{x:.1f},{y:.1f}"


def _axes() -> list[str]:
    parts = []
    for tick in range(0, 101, 20):
        share = tick / 100
        for start, end in ((_at(share, 0), _at(share, 1)), (_at(0, share), _at(1, share))):
            parts.append(f'<path d="M{start} L{end}" stroke="#ddd"/>')
        x, y = _at(share, 0).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 16:.1f}" text-anchor="middle">{tick}%</text>')
        x, y = _at(0, share).split(",")
        parts.append(f'<text x="{float(x) - 6:.1f}" y="{float(y) + 4:.1f}" text-anchor="end">{tick}%</text>')
    middle = WIDTH / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">statements looked at</text>')
    parts.append(f'<text x="{MARGIN}" y="24">versions whose defect is found by then</text>')
    return parts


def _curve(number: int, name: str, measures: Sequence[Measure]) -> list[str]:
    shares = sorted(measure.examined[name].share for measure in measures)
    points, before = [], 0.0
    for count, share in enumerate(shares, start=1):
        points += [_at(share, before), _at(share, count / len(shares))]
        before = count / len(shares)
    colour = COLOURS[number % len(COLOURS)]
    dashes = ' stroke-dasharray="5 4"' if name == LIMIT else ""
    pen = f'stroke="{colour}" stroke-width="{3 if name == OURS else 1.5}"{dashes}'
    path = f'<path d="M{" L".join([*points, _at(1, 1)])}" fill="none" {pen}/>'
    y = MARGIN + 18 * number
    mark = f'<path d="M{WIDTH - 30},{y} h24" {pen}/>'
    return [path, mark, f'<text x="{WIDTH}" y="{y + 4}">{escape(name)}</text>']
