"""Turns a story into the section shown under a failing test: plain ASCII, 80 columns, about 25 lines, or all of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_causechain.model.chain import Party
from pytest_causechain.report.sources import show_path, split_words
from pytest_causechain.report.story import (
    FAILURE_LIMIT,
    FUNCTION_LIMIT,
    Aside,
    Reporter,
    SourceLine,
    Story,
    StoryStep,
)
from pytest_causechain.report.wording import (
    NAMED_CAUSES,
    Span,
    Spans,
    Style,
    begin_sentence,
    count_of,
    describe_command,
    describe_commands,
    describe_lines,
    end_sentence,
    name_function,
    name_run,
    plain,
    printable,
    shorten,
    shorten_pair,
    tell_rivals,
)

# Below this the columns leave no room for the sentences.
NARROWEST = 60
PLACE_LIMIT = 26
INDENT = 9
LINES_OF_FAILURE = 6
# A space at which no line is broken; `printable` leaves none of its kind in a text.
KEPT_SPACE = "\N{NO-BREAK SPACE}"
# How a line begins that GitHub obeys.
COMMAND = re.compile(r"^( *)([:#])(?=:|#\[)")
ANSI: dict[Style, str] = {
    "failing": "31;1",
    "passing": "32;1",
    "mark": "31;1",
    "head": "1",
    "place": "36",
    "faint": "90",
}
# Of words of the program, by their kinds.
ANSI_WORDS = {
    "preprocessor": "35",
    "comment": "90",
    "type": "36",
    "keyword": "94",
    "function": "1",
    "string": "33",
    "number": "35",
}


@dataclass(frozen=True, slots=True)
class Detail:
    """How much is told. Hidden links are counted; a sentence that is cut ends in dots."""

    links: int
    # One over-long sentence must not push the others off the screen.
    lines: int
    # The neighbour's chain is told in short where there is a twin's.
    alternative_lines: int | None = 3
    # A reason ends with its remedy, which must not be lost behind long paths.
    reason_lines: int = 10
    causes: int = NAMED_CAUSES
    failure: int = FAILURE_LIMIT


# Of these the first with which all of it fits on a screen, else the last.
MOST_LINES = 27
BRIEF = (Detail(9, 4), Detail(6, 4), Detail(5, 3), Detail(4, 3, failure=32), Detail(3, 3, 2, failure=32))
# Even so a hostile program cannot fill the screen for hours.
WHOLE = (Detail(500, 40, None, 40, 50, 2000),)


class TextReporter(Reporter):
    """Gives each test's section to `show`, with the test's name."""

    title = "the terminal's report"

    def __init__(self, show: Callable[[str, str], None], *, is_whole: bool, is_painted: bool) -> None:
        self._show, self._details, self._is_painted = show, WHOLE if is_whole else BRIEF, is_painted

    def write(self, story: Story) -> None:
        self._show(story.chain.test, render_text(story, details=self._details, is_painted=self._is_painted))


def render_text(story: Story, *, width: int = 80, details: Sequence[Detail] = BRIEF, is_painted: bool = False) -> str:
    """The section's body; without the colours a painted one is the same."""
    lines = lay_out(story, max(width, NARROWEST), details)
    return "\n".join("".join(map(paint_span, line)) if is_painted else plain(line) for line in lines)


def lay_out(story: Story, width: int, details: Sequence[Detail]) -> list[Spans]:
    lines: list[Spans] = []
    for detail in details:
        lines = _Section(story, width, detail).render()
        if len(lines) <= MOST_LINES:
            break
    return [_disarm(line, width) for line in lines]


# Spans


def wrap(line: Spans, width: int, most: int) -> list[Spans]:
    """The line broken into several, of which those beyond `most` are cut. Code and figures stay together where they
    can."""
    kept = tuple(Span(_keep_together(span), span.style) for span in line)
    text = plain(kept)
    # Hyphens are left alone: "-1" must stay in one piece.
    broken = textwrap.wrap(
        text, width, break_on_hyphens=False, replace_whitespace=False, max_lines=most, placeholder=" ..."
    )
    lines: list[Spans] = []
    at = 0
    for piece in broken:
        start = text.find(piece, at)
        if start >= 0:
            at = start + len(piece)
            lines.append(_cut(kept, start, at))
        else:  # the last one, which ends in the placeholder
            shown = piece.removesuffix("...").rstrip()
            start = text.find(shown, at)
            lines.append((*_cut(kept, start, start + len(shown)), Span(piece[len(shown) :])))
    return [tuple(Span(span.text.replace(KEPT_SPACE, " "), span.style) for span in one) for one in lines]


def _keep_together(span: Span) -> str:
    text = printable(span.text)
    if span.style == "figure":
        return text.replace(" ", KEPT_SPACE)
    return text.replace(" = ", f"{KEPT_SPACE}={KEPT_SPACE}") if span.style == "code" else text


def _cut(line: Spans, start: int, end: int) -> Spans:
    """The spans between two places in the line's text."""
    cut, at = [], 0
    for span in line:
        text = span.text[max(start - at, 0) : max(end - at, 0)]
        at += len(span.text)
        if text:
            cut.append(Span(text, span.style))
    return tuple(cut)


def _trim(line: Spans) -> Spans:
    """Without spaces at its end."""
    return _cut(line, 0, len(plain(line).rstrip()))


def _disarm(line: Spans, width: int) -> Spans:
    """Not a command to GitHub, at whatever place a text of the program's making has been broken."""
    if found := COMMAND.match(plain(line)):
        end = len(found[0])
        line = (*_cut(line, 0, end - 1), Span(f"\\x{ord(found[2]):02x}"), *_cut(line, end, len(plain(line))))
    return shorten_spans(line, width)


def paint_span(span: Span) -> str:
    if span.style == "source":
        (words,) = split_words([span.text])
        return "".join(_paint(text, ANSI_WORDS.get(kind, "")) for kind, text in words)
    return _paint(span.text, ANSI.get(span.style, ""))


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text.strip() else text


# The section


@dataclass(frozen=True, slots=True)
class _Row:
    number: str
    place: str
    function: str
    sentences: tuple[Spans, ...]
    mark: str = ""


@dataclass(frozen=True, slots=True)
class _Section:
    """A story, and how much of it is told in how many columns."""

    story: Story
    width: int
    detail: Detail

    def render(self) -> list[Spans]:
        if self.story.chain.status == "none":
            head = Span("No cause-effect chain", "head")
            reason = self.wrap((head, Span(f": {self._reason()}")), lines=self.detail.reason_lines)
            return [*reason, *self._render_shortfalls()]
        lines: list[Spans] = []
        for paragraph in self._list_paragraphs():
            if paragraph:
                lines += [(), *paragraph] if lines else paragraph
        return lines

    def wrap(self, text: str | Spans, narrower: int = 0, lines: int = 0) -> list[Spans]:
        spans = (Span(text),) if isinstance(text, str) else text
        return wrap(spans, self.width - narrower, lines or self.detail.lines)

    def _list_paragraphs(self) -> Iterator[list[Spans]]:
        excerpt, is_repaired = self._render_suspect(), self.story.repair is not None
        if is_repaired:
            yield [*self._render_repair(), *excerpt]
        yield [*self._render_parties(), *self._render_rule()]
        yield self._render_links()
        if not is_repaired:
            yield excerpt
        rest = [self._render_proof(), *self._render_asides(), list(self._render_end())]
        # In short, the proof and what follows are one paragraph.
        yield from rest if self._is_whole else [[line for lines in rest for line in lines]]

    @property
    def _is_whole(self) -> bool:
        return self.detail.alternative_lines is None

    def _name_path(self, place: SourceLine) -> str:
        """Editors and terminals open a path that is written out."""
        return f"{printable(show_path(place.path, self.story.root))}:{place.line}"

    def _reason(self) -> str:
        return end_sentence(printable(self.story.chain.reason or "the reason is not known"))

    # The repairs

    def _render_repair(self) -> list[Spans]:
        """What was done otherwise in the failing run, and that its test passes then: not whose fault it is."""
        repair, others = self.story.repair, self.story.other_repairs
        if repair is None:
            return []
        told = (*begin_sentence(repair.told), Span(f" at {self._name_path(repair.place)} the test passes."))
        lines: list[Spans] = [(Span(plain(line), "head"),) for line in self.wrap(told)]
        if others:
            named = 20 if self._is_whole else 2
            lines += self.wrap(f"A single change at {describe_lines(others, named, 'or')} does it as well.")
        return lines

    # The two runs

    def _describe_runs(self, passing: Party, failing: Party) -> tuple[str, str]:
        """How each was started; of a twin only what makes it one."""
        width, twin = self.width - INDENT, self.story.twin
        if twin is None:
            return describe_commands(passing, failing, width)
        command = shorten(describe_command(failing), width)
        if self.story.is_first_twin:
            return "its twin, the same run with this repair", command
        return shorten(f"its twin, the same run {plain(twin.told)} at {twin.place}", width), command

    def _render_parties(self) -> Iterator[Spans]:
        chain = self.story.chain
        passing, failing = chain.passing, chain.failing
        if failing is None or passing is None:
            for party, label in ((failing, _label_run("fails")), (passing, _label_run("passes"))):
                if party is not None:
                    yield from self.wrap((*label, Span(f"{describe_command(party)}   {printable(party.outcome)}")))
            return
        runs = self._describe_runs(passing, failing)
        command_width = max(map(len, runs))
        widest = max(len(printable(party.outcome)) for party in (passing, failing))
        is_narrow = INDENT + command_width + 3 + widest > self.width
        # What a run did ("printed") stays in front of what it printed.
        head = failing.outcome.find('"') + 1
        outcomes = shorten_pair(passing.outcome, failing.outcome, self.width - INDENT, head)
        for label, run, outcome in (
            (_label_run("fails"), runs[1], outcomes[1]),
            (_label_run("passes"), runs[0], outcomes[0]),
        ):
            if is_narrow:
                yield *label, Span(run)
                yield (Span(" " * INDENT + outcome),)
            else:
                yield _trim((*label, Span(f"{run:<{command_width}}   {outcome}")))
        if self.story.twin is None:
            rivals = tell_rivals(passing, beside=chain.test) if self._is_whole else ""
            told = "".join(f" ({printable(text)})" for text in (passing.why, rivals) if text)
            name = name_run(passing, beside=chain.test)
            for line in self.wrap(f"{name}{told}", INDENT, lines=0 if rivals else 2):
                yield Span(" " * INDENT), *line

    def _render_rule(self) -> list[Spans]:
        rule = self.story.chain.oracle
        return self.wrap(end_sentence(f"A run fails when {printable(rule.fails_when)}")) if rule is not None else []

    # The links

    def _render_links(self) -> list[Spans]:
        steps, suspect = self.story.steps, self.story.suspect
        if not steps:
            return []
        rows: list[_Row] = []
        last = 0
        for step in self._choose_steps():
            hidden = step.number - last - 1
            if hidden:
                rows.append(_Row("", "", "", ((Span(f"... {count_of(hidden, 'more link')}: -v shows all"),),)))
            mark = ""
            if suspect is not None and suspect.step == step.number - 1:
                mark = "<- look here first" if suspect.is_exact else f"<- look first at {suspect.place}"
            rows.append(self._make_row(step, mark, is_after_last=not hidden))
            last = step.number
        rows.append(self._make_last_row())
        return self._lay_out(rows)

    def _choose_steps(self) -> list[StoryStep]:
        """Those nearest to where a reader looks: the beginning, the suspect and the end."""
        steps, suspect = self.story.steps, self.story.suspect
        anchors = {0, len(steps) - 1}
        if suspect is not None and suspect.step is not None:
            anchors.add(suspect.step)
        nearest = sorted(range(len(steps)), key=lambda index: (min(abs(index - anchor) for anchor in anchors), index))
        return [steps[index] for index in sorted(nearest[: self.detail.links])]

    def _make_row(self, step: StoryStep, mark: str, is_after_last: bool) -> _Row:
        notes = (Span(f"({'; '.join(step.notes)})"),) if step.notes else ()
        told = step.tell(self.detail.causes, is_after_last)
        function = name_function(step.place.function)
        return _Row(str(step.number), str(step.place), function, (told, notes) if notes else (told,), mark)

    def _make_last_row(self) -> _Row:
        ending = self.story.ending
        told = (Span(ending.tell(self.detail.failure)),)
        where = (str(ending.place), name_function(ending.place.function)) if ending.place is not None else ("", "")
        return _Row(str(ending.number), *where, (told,))

    def _lay_out(self, rows: Sequence[_Row]) -> list[Spans]:
        number_width = max(len(row.number) for row in rows)
        place_width = min(max(len(row.place) for row in rows), PLACE_LIMIT)
        # The sentences need half of the width at least.
        room = min(FUNCTION_LIMIT, max(self.width // 2 - number_width - place_width - 9, 10))
        function_width = min(max(len(row.function) for row in rows), room)
        column = 2 + number_width + 2 + place_width + 2 + function_width + 3
        lines: list[Spans] = []
        for row in rows:
            # The end of a path and its line number matter more than its beginning.
            place = row.place if len(row.place) <= place_width else "..." + row.place[3 - place_width :]
            function = name_function(row.function, function_width)
            begin = (
                Span(f"  {row.number:>{number_width}}", "head"),
                Span(f"  {place}", "place"),
                Span(f"{'':<{place_width - len(place)}}  {function:<{function_width}}   "),
            )
            # How it ended is told whole: it is short already.
            most = 0 if row is not rows[-1] else LINES_OF_FAILURE
            told = self.wrap(row.sentences[0], column, most) or [()]
            mark = Span(row.mark, "mark")
            if row.mark and len(plain(told[-1])) + 3 + len(row.mark) <= self.width - column:
                told[-1] = (*told[-1], Span("   "), mark)
            elif row.mark:
                told += self.wrap((mark,), column)
            told += [line for sentence in row.sentences[1:] for line in self.wrap(sentence, column)]
            margin = (Span(" " * column),)
            lines += [_trim((*(margin if index else begin), *line)) for index, line in enumerate(told)]
        return lines

    # The first suspect

    def _render_suspect(self) -> list[Spans]:
        suspect = self.story.suspect
        if suspect is None:
            return []
        path, lines = self._name_path(suspect.place), []
        repair = self.story.repair
        # Why the line of the first repair is suspect is what that says.
        if suspect.step is None and (repair is None or repair.place.at != suspect.place.at):
            lines += self.wrap(f"Look first at {path}: {printable(suspect.why)}.", lines=3)
        if suspect.excerpt is None:
            return lines
        if path != str(suspect.place) and suspect.step is not None and repair is None:
            lines += self.wrap(path)
        digits = len(str(suspect.place.line + 1))
        for number, text in suspect.excerpt.narrow(1).lines:
            is_focus = number == suspect.place.line
            margin = Span(f"  {'>' if is_focus else ' '} {number:>{digits}} | ", "failing" if is_focus else "faint")
            line = _trim((margin, Span(printable(text.expandtabs(4)), "source")))
            lines.append(shorten_spans(line, self.width))
        return lines

    # The proof and the figures

    def _render_proof(self) -> list[Spans]:
        if self.story.proof is None:
            return []
        return self.wrap((Span("Proof", "head"), Span(": "), *self.story.steps[self.story.proof].proof))

    def _render_asides(self) -> Iterator[list[Spans]]:
        """The chains against other peers: in one sentence each, or as whole ones; why there is no neighbour."""
        absence = self.story.chain.without_neighbour
        if absence is not None:
            yield self.wrap(end_sentence(printable(absence[:1].upper() + absence[1:])))
        for aside in self.story.asides:
            if self.detail.alternative_lines is None:
                whole = replace(self, story=aside.story)
                yield [*whole._render_parties(), *whole._render_rule()]
                yield whole._render_links()
            else:
                yield self._shorten_aside(aside, self.detail.alternative_lines)

    def _shorten_aside(self, aside: Aside, most: int) -> list[Spans]:
        """As many of its links as there is room for."""
        for links in range(len(aside.pieces), 0, -1):
            lines = self.wrap(self._tell_aside(aside, links), lines=most + 1)
            if len(lines) <= most:
                return lines
        return self.wrap(self._tell_aside(aside, 1), lines=most)

    def _tell_aside(self, aside: Aside, links: int) -> Spans:
        """In one sentence; the other links are counted."""
        hidden = len(aside.pieces) - links
        end = f"; {count_of(hidden, 'more link')}." if hidden > 0 else "."
        told = f" {aside.test} ({aside.command}): {''.join(aside.pieces[:links])}{end}"
        return Span("Beside", "head"), Span(told)

    def _render_shortfalls(self) -> Iterator[Spans]:
        for sentence in self.story.shortfalls:
            yield from self.wrap(sentence)

    def _render_end(self) -> Iterator[Spans]:
        story = self.story
        if story.chain.status == "partial":
            reason = (Span("Incomplete", "head"), Span(f": {self._reason()}"))
            yield from self.wrap(reason, lines=self.detail.reason_lines)
        yield from self._render_shortfalls()
        figures = self.wrap(story.figures)
        if story.artefacts is None or story.proof is None:
            yield from figures
            return
        script = story.steps[story.proof].replay
        if script.obstacle is not None:
            yield from figures
            yield from self.wrap(f"No replay in gdb: {printable(script.obstacle)}.", lines=2)
            return
        path = printable(show_path(story.artefacts / script.name, story.root))
        label, command = Span("Replay", "head"), f": gdb -x {_escape_for_shell(path)}"
        yield from figures[:-1]
        if len(plain(figures[-1])) + 3 + len(label.text) + len(command) <= self.width:
            yield *figures[-1], Span("   "), label, Span(command)
        else:
            yield figures[-1]
            first, *more = _break_command(command, self.width, len(label.text))
            yield label, Span(first)
            yield from ((Span(line),) for line in more)


def shorten_spans(line: Spans, width: int) -> Spans:
    return line if len(plain(line)) <= width else (*_cut(line, 0, width - 3), Span("...", line[-1].style))


def _label_run(verb: str) -> Spans:
    style: Style = "failing" if verb == "fails" else "passing"
    return Span(verb, style), Span(" " * (INDENT - len(verb)))


def _escape_for_shell(path: str) -> str:
    """The path with special characters escaped one by one: unlike in quotes, it may be broken anywhere."""
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", path)


def _break_command(command: str, width: int, taken: int) -> Iterator[str]:
    """The command on one line or several, the first of which is `taken` in part; a shell joins lines that end in a
    backslash, so it can still be pasted."""
    if taken + len(command) <= width:
        yield command
        return
    line = ""
    for piece in re.findall(r"\\.|[^\\]", command):
        if taken + len(line) + len(piece) > width - 1:
            yield line + "\\"
            line, taken = "", 0
        line += piece
    yield line
