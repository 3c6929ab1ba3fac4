"""The cumulative picture: for each ranking, in how many versions a share of the statements is enough."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pytest_causechain.evaluation.measures import LIMIT, OURS, Measure

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
