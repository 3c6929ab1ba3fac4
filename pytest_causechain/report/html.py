"""Turns stories into pages: one file each without scripts, for the screen, by day and by night, and for paper.

What a page looks like is in page.html, index.html and page.css beside this module, which a browser shows as they are. A
template has places, {{name}}, and parts between comments: what is `each` of a name is shown for every one there is,
once for what is no list, and not at all for nothing; `use` shows another part of the template here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

from pytest_causechain.model.chain import Cause, Edge, Party, Scene, Trial
from pytest_causechain.model.codec import write_whole
from pytest_causechain.report.sources import Excerpt, show_path, split_words
from pytest_causechain.report.story import Aside, Ending, Reporter, SourceLine, Story, StoryStep
from pytest_causechain.report.wording import (
    Span,
    begin_sentence,
    count_of,
    describe_command,
    name_run,
    name_test,
    name_variable,
    plain,
    printable,
    quote_argument,
    shorten,
    slug,
)

VALUE_LIMIT, INPUT_LIMIT, OUTCOME_LIMIT = 300, 2000, 1200
NAME_LIMIT, TOLD_LIMIT, PATH_LIMIT = 60, 200, 60
SUSPECTS_LISTED = 10
OUTCOMES = {"pass": "passed", "fail": "failed", "unresolved": "unresolved"}
STATUS = {"complete": "chain complete", "partial": "chain incomplete", "none": "no chain"}
# Nothing is fetched, whatever a program under test has put into its output.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = '<link rel="stylesheet" href="page.css">'
TOKEN = re.compile(r"<!-- (each|end|use) (\w+) -->|\{\{(\w+)\}\}")

# Pixels; a character of the 12 pixel fixed font is 7.3 wide.
CHARACTER, LINE, PADDING = 7.3, 17, 8
ROW_GAP, MARGIN, CORNER, BEND = 14, 4, 9, 26
LABEL_LIMIT = 26

# Left, top, width, height.
Box = tuple[float, float, float, float]
Text = Sequence[tuple[str, str]]


class PageReporter(Reporter):
    """Writes chain.html into the directory of each test, and index.html beside these."""

    title = "chain.html"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, story: Story) -> None:
        if story.artefacts is not None:
            _write_page(story.artefacts / "chain.html", render_page(story))

    def finish(self, stories: Sequence[Story]) -> None:
        _write_page(self._directory / "index.html", render_index(stories))


def _write_page(path: Path, page: str) -> None:
    write_whole(path, page.encode("utf-8", "backslashreplace"))


# Templates


class Markup(str):
    """HTML as it is to stand in a page."""


# What a template shows; text is escaped, and stands on one line.
Value: TypeAlias = "str | int | SourceLine | View | Sequence[View] | None"
View: TypeAlias = "Mapping[str, Value]"


class PageTemplate:
    """A file, taken apart once; its style is in page.css beside it."""

    def __init__(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8")
        style = file.with_name("page.css").read_text(encoding="utf-8")
        # Indentation is for who reads the template.
        text = re.sub(r"\n\s*", "\n", text).replace(STYLE, f"<style>\n{style}</style>")
        self._tokens = list(_split(re.sub(r"\n(<!-- \w+ \w+ -->)(?=\n)", r"\1", text)))
        self._parts: dict[str, int] = {}
        self._ends: dict[int, int] = {}
        opened: list[int] = []
        for at, (kind, name) in enumerate(self._tokens):
            if kind == "each":
                opened.append(at)
                self._parts.setdefault(name, at)
            elif kind == "end":
                begin = opened.pop()
                assert self._tokens[begin][1] == name, f"{file.name}: {name} ends inside another part"
                self._ends[begin] = at
        assert not opened, f"{file.name}: a part has no end"

    def render(self, view: View) -> str:
        return "".join(self._render(0, len(self._tokens), [view]))

    def _render(self, start: int, end: int, views: list[View]) -> Iterator[str]:
        at = start
        while at < end:
            kind, name = self._tokens[at]
            if kind == "text":
                yield name
            elif kind == "place":
                yield _show(_find(name, views))
            elif kind == "use":
                yield from self._repeat(self._parts[name], views)
            elif kind == "each":
                yield from self._repeat(at, views)
                at = self._ends[at]
            at += 1

    def _repeat(self, at: int, views: list[View]) -> Iterator[str]:
        """The part that begins there, for each that its name stands for."""
        value = _find(self._tokens[at][1], views)
        if isinstance(value, (Mapping, str, int, SourceLine)):
            value = [value if isinstance(value, Mapping) else {}] if value else []
        for view in value or ():
            yield from self._render(at + 1, self._ends[at], [view, *views])


def _split(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for found in TOKEN.finditer(text):
        yield "text", text[at : found.start()]
        yield (found[1], found[2]) if found[1] else ("place", found[3])
        at = found.end()
    yield "text", text[at:]


def _find(name: str, views: list[View]) -> Value:
    """The innermost one that there is; a name that there is not is an error."""
    return next((view for view in views if name in view), views[-1])[name]


def _show(value: Value) -> str:
    return value if isinstance(value, Markup) else escape("" if value is None else str(value))


@cache
def read_template(file: str) -> PageTemplate:
    return PageTemplate(Path(__file__).with_name(file))


def escape(text: str) -> str:
    """Letters of all languages stay; what has no shape, or turns the direction of writing, is written out."""
    return html.escape("".join(c if c.isprintable() else printable(c) for c in text))


def escape_block(text: str) -> Markup:
    """The same for a text of several lines."""
    return Markup("\n".join(escape(line) for line in text.split("\n")))


# The page of a test


def render_page(story: Story) -> str:
    chain, suspect = story.chain, story.suspect
    file, _, name = chain.test.partition("::")
    is_told = chain.status != "none"
    asides = [_view_aside(story, aside, number) for number, aside in enumerate(story.asides, start=2)]
    ranked: list[View] = [
        {"place": place, "function": place.function, "why": shorten(why, VALUE_LIMIT)}
        for place, why in story.suspects[:SUSPECTS_LISTED]
    ]
    absence = chain.without_neighbour
    view: View = {
        "policy": POLICY,
        "title": name_test(chain.test, beside=""),
        "steps_told": bool(story.steps),
        "file": file,
        "name": name or file,
        "status": chain.status,
        "status_told": STATUS[chain.status],
        "nothing": None if is_told else _view_nothing(story),
        "lead": _view_lead(story) if is_told else None,
        "source": _view_source(story, suspect.place, suspect.excerpt) if suspect is not None else None,
        "comparison": _view_comparison(story, "The two runs", "Cause-effect chain") if is_told else None,
        "absence": absence[:1].upper() + absence[1:] if absence is not None and is_told else None,
        "others": {"asides": asides} if asides and is_told else None,
        "suspects": {"ranked": ranked} if ranked and is_told else None,
        "figures": _view_figures(story),
    }
    return read_template("page.html").render(view)


def _view_lead(story: Story) -> View:
    """What to know first."""
    repair, suspect, chain = story.repair, story.suspect, story.chain
    return {
        "repair": {"told": plain(begin_sentence(repair.told)), "place": repair.place} if repair else None,
        "look": {"place": suspect.place, "why": suspect.why} if suspect and not repair else None,
        "unknown": repair is None and suspect is None,
        "incomplete": (chain.reason or "the reason is not known") if chain.status == "partial" else None,
        **_view_shortfalls(story),
    }


def _view_nothing(story: Story) -> View:
    return {"reason": story.chain.reason or "The reason is not known.", **_view_shortfalls(story)}


def _view_shortfalls(story: Story) -> View:
    return {"shortfalls": [{"sentence": sentence} for sentence in story.shortfalls]}


def _view_source(story: Story, place: SourceLine, excerpt: Excerpt | None) -> View | None:
    """The lines around one, highlighted; nothing when they cannot be read."""
    if excerpt is None:
        return None
    # Of the whole file, so that a comment that began before is known as one.
    words = split_words(list(excerpt.source))
    lines = [
        {
            "number": number,
            "focus": " focus" if number == excerpt.focus else "",
            "words": [_view_word(kind, text) for kind, text in words[number - 1]],
        }
        for number, _ in excerpt.lines
    ]
    return {"label": f"{show_path(place.path, story.root)}, line {place.line}", "lines": lines}


def _view_word(kind: str, text: str) -> View:
    shown = Markup("\t".join(escape(part) for part in text.split("\t")))
    return {"kind": "number-literal" if kind == "number" else kind, "bare": not kind, "text": shown}


def _view_comparison(story: Story, runs_title: str, chain_title: str, prefix: str = "") -> View:
    """The two runs and their chain; `prefix` keeps the anchors of several chains on one page apart."""
    chain = story.chain
    runs = []
    if chain.failing is not None:
        runs.append(_view_run("failing", "fails", chain.failing, name_test(chain.failing.test, beside="")))
    if chain.passing is not None:
        why = f" ({chain.passing.why})" if chain.passing.why else ""
        told, at = f"{name_run(chain.passing, beside=chain.test)}{why}", None
        if story.twin is not None:
            told, at = f"its twin: the same run {plain(story.twin.told)}", story.twin.place
        runs.append(_view_run("passing", "passes", chain.passing, told, at))
    return {
        "prefix": prefix,
        "runs_title": runs_title,
        "runs": runs,
        "rule": chain.oracle.fails_when.rstrip(".") if chain.oracle is not None else None,
        "rivals": _view_rivals(chain.passing, chain.test) if chain.passing is not None else None,
        "chain": bool(story.steps),
        "chain_title": chain_title,
        "peer": story.peer,
        "steps": [_view_step(story, step) for step in story.steps],
        "ending": _view_ending(story, story.ending),
    }


def _view_rivals(passing: Party, beside: str) -> View | None:
    """The other passing tests, and what speaks against each."""
    if not passing.rivals:
        return None
    tests = []
    for rival in passing.rivals:
        refused = f": {rival.refused}" if rival.refused is not None else ""
        tests.append({"rival": f"{name_test(rival.test, beside)} ({rival.why}){refused}"})
    return {"count": count_of(len(tests), "other passing test"), "tests": tests}


def _view_run(side: str, verb: str, party: Party, told: str, at: SourceLine | None = None) -> View:
    return {
        "side": side,
        "verb": verb,
        "told": told,
        "at": at,
        "command": describe_command(Party(party.test, party.argv, party.cwd, "", "")),
        "stdin": escape_block(shorten(party.stdin, INPUT_LIMIT)),
        "outcome": escape_block(shorten(party.outcome, OUTCOME_LIMIT)),
    }


def _view_step(story: Story, step: StoryStep) -> View:
    suspect, scripts = story.suspect, story.artefacts
    is_first = suspect is not None and suspect.step == step.number - 1
    link = step.link
    told = begin_sentence((*step.tell(is_after_last=True), Span(".")))
    return {
        "number": step.number,
        "order": "first" if is_first else "later",
        "arrow": _view_arrow(step),
        "sentence": plain(told),
        "place": step.place,
        "function": step.place.function,
        "look_here": is_first and suspect is not None and suspect.is_exact,
        "look_at": suspect.place if is_first and suspect is not None and not suspect.is_exact else None,
        "source": _view_source(story, step.place, step.excerpt),
        "values": [_view_cause(cause) for cause in step.causes],
        "proof": plain(step.proof),
        "picture": {"scenes": _view_scenes(story, step)} if link.picture is not None else None,
        "trials": {
            "experiments": count_of(len(link.trials), "experiment"),
            "differences": count_of(link.differences, "difference"),
            "tried": [_view_trial(trial) for trial in link.trials],
        }
        if link.trials
        else None,
        "obstacle": step.replay.obstacle or "" if scripts is not None else None,
        "replay": _view_replay(story, step, scripts) if scripts is not None else None,
    }


def _view_arrow(step: StoryStep) -> View | None:
    """The transition that leads to a link."""
    if step.number == 1:
        return None
    if step.moved is None:
        return {"moved_at": None, "arrow_told": "leads to" if step.link.follows else "then"}
    told = "; ".join([shorten(step.moved, VALUE_LIMIT), *step.notes])
    return {"moved_at": step.moved_at, "arrow_told": told}


def _view_cause(cause: Cause) -> View:
    failing, passing = (shorten(text or "none", VALUE_LIMIT) for text in (cause.failing, cause.passing))
    name = name_variable(cause, VALUE_LIMIT)
    return {"variable": name, "type": cause.type, "failing": failing, "passing": passing}


def _view_scenes(story: Story, step: StoryStep) -> list[View]:
    picture = step.link.picture
    assert picture is not None
    sides = (("failing", "failing run", picture.failing), ("passing", story.peer, picture.passing))
    return [
        {"run": run, "scene": render_scene(scene, side, f"Memory graph of the {run}: {describe_scene(scene)}")}
        for side, run, scene in sides
    ]


def _view_trial(trial: Trial) -> View:
    names = [shorten(name, NAME_LIMIT) for name in trial.variables]
    more = trial.count - len(names)
    return {
        "outcome": trial.outcome,
        "outcome_told": OUTCOMES[trial.outcome],
        "names": [{"comma": ", " if index else "", "variable": name} for index, name in enumerate(names)],
        "rest": f" and {more} more" if more else "" if names else "nothing changed",
    }


def _view_replay(story: Story, step: StoryStep, scripts: Path) -> View | None:
    if step.replay.obstacle is not None:
        return None
    script, undo = (
        quote_argument(show_path(scripts / plan.name, story.root)) if plan.obstacle is None else None
        for plan in (step.replay, step.undo)
    )
    return {"script": script, "undo_script": undo}


def _view_ending(story: Story, ending: Ending) -> View:
    place = ending.place
    return {
        "number": ending.number,
        "sentence": plain(begin_sentence((Span(ending.tell()),))),
        "place": place,
        "function": place.function if place is not None else None,
        "source": _view_source(story, place, ending.excerpt) if place is not None else None,
    }


def _view_aside(story: Story, aside: Aside, number: int) -> View:
    comparison = _view_comparison(aside.story, "These two runs", "Its chain", f"c{number}-")
    links = count_of(len(aside.pieces), "link")
    return {"beside": aside.test, "links": links, "comparison": comparison}


def _view_figures(story: Story) -> list[View]:
    statistics = story.chain.statistics
    experiments, moments = statistics.experiments, statistics.moments
    figures = {
        "interventions": f"{statistics.interventions:,}",
        "experiments": f"{experiments.total:,}",
        "passed / failed / unresolved": f"{experiments.pass_} / {experiments.fail} / {experiments.unresolved}",
        "moments tried, usable": f"{moments.tried} / {moments.transferable}",
        "values in a state": f"{statistics.vertices:,}",
        "seconds": f"{statistics.seconds.total:.1f}",
    }
    return [{"figure": figure, "count": count} for figure, count in figures.items()]


# The index of a session


def render_index(stories: Sequence[Story]) -> str:
    """Each test's page is in a directory beside this one."""
    tests = [_view_entry(story) for story in stories]
    count = count_of(len(stories), "failing test")
    return read_template("index.html").render({"policy": POLICY, "count": count, "tests": tests})


def _view_entry(story: Story) -> View:
    chain, suspect = story.chain, story.suspect
    place, why = None, chain.reason or ""
    if suspect is not None:
        path, why = show_path(suspect.place.path, story.root), suspect.why
        place = f"{'...' * (len(path) > PATH_LIMIT)}{path[-PATH_LIMIT:]}:{suspect.place.line}"
    if story.repair is not None:
        why = f"{plain(begin_sentence(story.repair.told))} the test passes."
    return {
        "directory": slug(chain.test),
        "name": shorten(chain.test, TOLD_LIMIT),
        "status": chain.status,
        "status_told": STATUS[chain.status],
        "place": place,
        "why": shorten(why, TOLD_LIMIT),
    }


# Scenes, the parts of a state around a cause, as pictures: boxes for values, arrows for references. What differs is
# told by a thick border with cut corners as well as by colour.


def render_scene(scene: Scene, side: str, label: str) -> Markup:
    """`side` is the class of the picture, "passing" or "failing"; `label` is read out by screen readers."""
    texts = _write_texts(scene)
    boxes = _place(scene, _arrange(scene), texts)
    width = max((x + w for x, _, w, _ in boxes), default=0) + MARGIN
    height = max((y + h for _, y, _, h in boxes), default=0) + MARGIN
    parts = [_draw_edge(edge, boxes) for edge in scene.edges]
    drawn = zip(scene.vertices, boxes, texts, strict=True)
    parts += [_draw_vertex(vertex.differs, box, lines) for vertex, box, lines in drawn]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return Markup(f'<svg class="{side}" role="img" aria-label="{escape(label)}" {size}>{"".join(parts)}</svg>')


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
        x += widest + BEND + (min(max(labels, default=0), LABEL_LIMIT) + 3) * CHARACTER
    return [boxes[number] for number in range(len(scene.vertices))]


def _write_texts(scene: Scene) -> list[Text]:
    """Class and text of each line in each box; a name that stands at the arrow already is not repeated."""
    told = {(edge.target, edge.operation) for edge in scene.edges}
    texts: list[Text] = []
    for number, vertex in enumerate(scene.vertices):
        name = "" if (number, vertex.name) in told else vertex.name
        lines = [("name", name), ("kind", vertex.type), ("value", vertex.value)]
        texts.append([(kind, shorten(text, LABEL_LIMIT)) for kind, text in lines if text] or [("value", " ")])
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
    label = shorten(edge.operation, LABEL_LIMIT)
    where = f'x="{x2 - 12:.0f}" y="{y2 - 4:.0f}" text-anchor="end"'
    return f'<path class="edge" d="{path}"/>{head}<text class="operation" {where}>{escape(label)}</text>'
