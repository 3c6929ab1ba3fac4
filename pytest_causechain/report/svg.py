"""Turns a scene, the part of a state around a cause, into an SVG picture: boxes for values, arrows for references.

What differs is told by a thick border with cut corners as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_causechain.model.chain import Edge, Scene
from pytest_causechain.report.markup import escape
from pytest_causechain.report.wording import shorten

# Pixels; a character of the 12 pixel fixed font is 7.3 wide.
CHARACTER, LINE, PADDING = 7.3, 17, 8
ROW_GAP, MARGIN, CORNER, BEND = 14, 4, 9, 26
TEXT_LIMIT = 26

# Left, top, width, height.
Box = tuple[float, float, float, float]
Text = Sequence[tuple[str, str]]


def render_scene(scene: Scene, side: str, label: str) -> str:
    """`side` is the class of the picture, "passing" or "failing"; `label` is read out by screen readers."""
    texts = _write_texts(scene)
    boxes = _place(scene, _arrange(scene), texts)
    width = max((x + w for x, _, w, _ in boxes), default=0) + MARGIN
    height = max((y + h for _, y, _, h in boxes), default=0) + MARGIN
    parts = [_draw_edge(edge, boxes) for edge in scene.edges]
    drawn = zip(scene.vertices, boxes, texts, strict=True)
    parts += [_draw_vertex(vertex.differs, box, lines) for vertex, box, lines in drawn]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg class="{side}" role="img" aria-label="{escape(label)}" {size}>{"".join(parts)}</svg>'


def describe_scene(scene: Scene) -> str:
    """The picture in words."""
    told = [f"{v.name}{f' = {v.value}' if v.value else ''}{' (differs)' if v.differs else ''}" for v in scene.vertices]
    return ", ".join(told) or "nothing"


def _arrange(scene: Scene) -> list[list[int]]:
    """The vertices by their distance from where the ways begin."""
    reached = {edge.target for edge in scene.edges}
    starts = [n for n in range(len(scene.vertices)) if n not in reached]
    columns: list[list[int]] = [starts or list(range(len(scene.vertices)))[:1]]
    known = set(columns[0])
    while following := list(
        dict.fromkeys(e.target for n in columns[-1] for e in scene.edges if e.source == n and e.target not in known)
    ):
        columns.append(following)
        known.update(following)
    rest = [n for n in range(len(scene.vertices)) if n not in known]
    return [*columns, rest] if rest else columns


def _place(scene: Scene, columns: Sequence[Sequence[int]], texts: Sequence[Text]) -> list[Box]:
    """Column by column; what a vertex leads to stands beside it or below, never above."""
    boxes: dict[int, Box] = {}
    x: float = MARGIN
    for column in columns:
        y: float = MARGIN
        widest = 0.0
        for number in column:
            sources = [boxes[edge.source][1] for edge in scene.edges if edge.target == number and edge.source in boxes]
            y = max(y, min(sources, default=y))
            width = max(len(text) for _, text in texts[number]) * CHARACTER + 2 * PADDING
            height = len(texts[number]) * LINE + 2 * PADDING - 4
            boxes[number] = (x, y, width, height)
            y += height + ROW_GAP
            widest = max(widest, width)
        labels = [len(edge.operation) for edge in scene.edges if edge.source in column]
        x += widest + BEND + (min(max(labels, default=0), TEXT_LIMIT) + 3) * CHARACTER
    return [boxes[number] for number in range(len(scene.vertices))]


def _write_texts(scene: Scene) -> list[Text]:
    """Class and text of each line in each box; a name that stands at the arrow already is not repeated."""
    told = {(edge.target, edge.operation) for edge in scene.edges}
    texts: list[Text] = []
    for number, vertex in enumerate(scene.vertices):
        name = "" if (number, vertex.name) in told else vertex.name
        lines = [("name", name), ("kind", vertex.type), ("value", vertex.value)]
        texts.append([(kind, shorten(text, TEXT_LIMIT)) for kind, text in lines if text] or [("value", " ")])
    return texts


def _draw_vertex(differs: bool, box: Box, lines: Text) -> str:
    x, y, width, height = box
    if differs:
        right, bottom, c = x + width, y + height, CORNER
        corners = (
            *((x + c, y), (right - c, y), (right, y + c), (right, bottom - c)),
            *((right - c, bottom), (x + c, bottom), (x, bottom - c), (x, y + c)),
        )
        points = " ".join(f"{px:.0f},{py:.0f}" for px, py in corners)
        shape = f'<polygon class="vertex differs" points="{points}"/>'
    else:
        shape = f'<rect class="vertex" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4"/>'
    texts = [
        f'<text class="{kind}" x="{x + PADDING:.0f}" y="{y + PADDING + 8 + LINE * row:.0f}">{escape(text)}</text>'
        for row, (kind, text) in enumerate(lines)
    ]
    return shape + "".join(texts)


def _draw_edge(edge: Edge, boxes: Sequence[Box]) -> str:
    """From the right side of a box to the left side of another; the operation stands before the head."""
    sx, sy, sw, sh = boxes[edge.source]
    tx, ty, _, th = boxes[edge.target]
    x1, y1, x2, y2 = sx + sw, sy + min(sh, 40) / 2, tx, ty + th / 2
    if x2 < x1:
        # Back to an earlier column: below both.
        y1, y2 = sy + sh, ty + th
        path = f"M{x1 - 12:.0f},{y1:.0f} C{x1:.0f},{y1 + 30:.0f} {x2 + 12:.0f},{y2 + 30:.0f} {x2 + 12:.0f},{y2:.0f}"
        return f'<path class="edge" d="{path}"/>'
    bend = min(BEND, (x2 - x1) / 2)
    turn = f"C{x1 + bend:.0f},{y1:.0f} {x1 + bend / 2:.0f},{y2:.0f} {x1 + bend:.0f},{y2:.0f}"
    path = f"M{x1:.0f},{y1:.0f} {turn} L{x2 - 7:.0f},{y2:.0f}"
    head = f'<path class="head" d="M{x2:.0f},{y2:.0f} l-8,-4 v8 z"/>'
    label = shorten(edge.operation, TEXT_LIMIT)
    where = f'x="{x2 - 12:.0f}" y="{y2 - 4:.0f}" text-anchor="end"'
    return f'<path class="edge" d="{path}"/>{head}<text class="operation" {where}>{escape(label)}</text>'
