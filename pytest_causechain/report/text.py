"""Turns a chain into the section shown under a failing test: plain ASCII, 80 columns, about 25 lines, or all of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.chain import Alternative, Cause, Chain, Party, Repair, Suspect, Transition
from pytest_causechain.model.moment import Place
from pytest_causechain.report.gdb_script import find_obstacle, name_script
from pytest_causechain.report.places import (
    Pointer,
    find_transition,
    locate_failure,
    locate_link,
    locate_suspect,
    name_files,
)
from pytest_causechain.report.sentences import (
    FAILURE_LIMIT,
    FUNCTION_LIMIT,
    KEPT_SPACE,
    as_chain,
    choose_proof,
    is_repaired,
    keep_together,
    tell_alternative,
    tell_failure,
    tell_figures,
    tell_gap,
    tell_link,
    tell_proof,
)
from pytest_causechain.report.sources import (
    ReadSource,
    choose_suspect,
    locate_file,
    read_excerpt,
    read_lines,
    show_path,
)
from pytest_causechain.report.wording import (
    NAMED_CAUSES,
    count_of,
    describe_command,
    describe_commands,
    describe_lines,
    describe_repair,
    end_sentence,
    name_function,
    name_run,
    printable,
    shorten,
    shorten_pair,
    tell_rivals,
    told_causes,
    twin_repair,
)

# Below this the columns leave no room for the sentences.
NARROWEST = 60
PLACE_LIMIT = 26
INDENT = 9
LINES_OF_FAILURE = 6
# How a line begins that GitHub obeys.
COMMAND = re.compile(r"^( *)([:#])(?=:|#\[)")


@dataclass(frozen=True, slots=True)
class Limits:
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
BRIEF = (Limits(9, 4), Limits(6, 4), Limits(5, 3), Limits(4, 3, failure=32), Limits(3, 3, 2, failure=32))
# Even so a hostile program cannot fill the screen for hours.
WHOLE = (Limits(500, 40, None, 40, 50, 2000),)


@dataclass(frozen=True, slots=True)
class _Page:
    """A chain and what its rendering depends on."""

    chain: Chain
    width: int
    limits: Limits
    read_source: ReadSource
    root: Path | None
    names: Mapping[str, str]
    suspect: Suspect | None
    pointer: Pointer | None

    def wrap(self, text: str, narrower: int = 0, lines: int = 0) -> list[str]:
        return _wrap(text, self.width - narrower, lines or self.limits.lines)

    def name_line(self, place: Place | Transition | Suspect | Repair) -> str:
        return f"{self.names[place.file]}:{place.line}"

    def name_path(self, place: Suspect | Repair) -> str:
        """Editors and terminals open a path that is written out."""
        return f"{printable(show_path(locate_file(place.file, self.root), self.root))}:{place.line}"


def render_text(
    chain: Chain,
    *,
    width: int = 80,
    read_source: ReadSource = read_lines,
    root: Path | None = None,
    artefacts: Path | None = None,
    limits: Sequence[Limits] = BRIEF,
) -> str:
    """The section's body. Paths are shown relative to `root`; `artefacts` is the directory with the gdb scripts."""
    width = max(width, NARROWEST)
    if chain.status == "none":
        lines = _wrap(f"No cause-effect chain: {_reason(chain)}", width, limits[0].reason_lines)
        return "\n".join(_disarm(line, width) for line in lines)
    lines = []
    for one in limits:
        lines = _render(_open_page(chain, width, one, read_source, root), artefacts).split("\n")
        if len(lines) <= MOST_LINES:
            break
    return "\n".join(_disarm(line, width) for line in lines)


def _disarm(line: str, width: int) -> str:
    """Not a command to GitHub, at whatever place a text of the program's making has been broken."""
    return shorten(COMMAND.sub(lambda found: f"{found[1]}\\x{ord(found[2]):02x}", line), width)


def _render(page: _Page, artefacts: Path | None) -> str:
    excerpt, repairs = _render_suspect(page), page.chain.repairs
    paragraphs = [
        [*_render_repair(page), *excerpt] if repairs else [],
        [*_render_parties(page), *_render_rule(page)],
        _render_links(page),
        [] if repairs else excerpt,
        _render_proof(page),
        *_render_alternatives(page),
        list(_render_end(page, artefacts)),
    ]
    if page.limits.alternative_lines is not None:
        # In short, the proof and what follows are one paragraph.
        paragraphs[4:] = [[line for lines in paragraphs[4:] for line in lines]]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _open_page(chain: Chain, width: int, limits: Limits, read_source: ReadSource, root: Path | None) -> _Page:
    suspect = choose_suspect(chain, read_source, root)
    pointer = locate_suspect(chain, suspect) if suspect is not None else None
    return _Page(chain, width, limits, read_source, root, name_files(chain), suspect, pointer)


def _reason(chain: Chain) -> str:
    return end_sentence(printable(chain.reason or "the reason is not known"))


def _wrap(text: str, width: int, lines: int) -> list[str]:
    # Hyphens are left alone: "-1" must stay in one piece.
    wrapped = textwrap.wrap(
        text, width, break_on_hyphens=False, replace_whitespace=False, max_lines=lines, placeholder=" ..."
    )
    return [line.replace(KEPT_SPACE, " ") for line in wrapped]


# The repairs


def _render_repair(page: _Page) -> list[str]:
    """What was done otherwise in the failing run, and that its test passes then: not whose fault it is."""
    repairs, names = page.chain.repairs, page.names
    best = repairs[0]
    told = keep_together(describe_repair(best))
    lines = page.wrap(f"W{told[1:]} at {page.name_path(best)} the test passes.")
    others = {(names[repair.file], repair.line) for repair in repairs}
    others.discard((names[best.file], best.line))
    if others:
        named = 2 if page.limits.alternative_lines is not None else 20
        lines += page.wrap(f"A single change at {describe_lines(others, named, 'or')} does it as well.")
    return lines


# The two runs


def _describe_runs(page: _Page, passing: Party, failing: Party) -> tuple[str, str]:
    """How each was started; of a twin only what makes it one."""
    width = page.width - INDENT
    repair = twin_repair(page.chain)
    if repair is None:
        return describe_commands(passing, failing, width)
    command = shorten(describe_command(failing), width)
    if page.chain.repairs and repair == page.chain.repairs[0]:
        return "its twin, the same run with this repair", command
    return shorten(f"its twin, the same run {describe_repair(repair)} at {page.name_line(repair)}", width), command


def _render_parties(page: _Page) -> Iterator[str]:
    passing, failing = page.chain.passing, page.chain.failing
    if failing is None or passing is None:
        for label, party in (("fails", failing), ("passes", passing)):
            if party is not None:
                yield from page.wrap(f"{label:<{INDENT}}{describe_command(party)}   {printable(party.outcome)}")
        return
    runs = _describe_runs(page, passing, failing)
    command_width = max(map(len, runs))
    widest = max(len(printable(party.outcome)) for party in (passing, failing))
    is_narrow = INDENT + command_width + 3 + widest > page.width
    # What a run did ("printed") stays in front of what it printed.
    head = failing.outcome.find('"') + 1
    outcomes = shorten_pair(passing.outcome, failing.outcome, page.width - INDENT, head)
    for label, run, outcome in (("fails", runs[1], outcomes[1]), ("passes", runs[0], outcomes[0])):
        if is_narrow:
            yield f"{label:<{INDENT}}{run}"
            yield " " * INDENT + outcome
        else:
            yield f"{label:<{INDENT}}{run:<{command_width}}   {outcome}".rstrip()
    if twin_repair(page.chain) is None:
        rivals = tell_rivals(passing, beside=page.chain.test) if page.limits.alternative_lines is None else ""
        told = "".join(f" ({printable(text)})" for text in (passing.why, rivals) if text)
        lines = page.wrap(f"{name_run(passing, beside=page.chain.test)}{told}", INDENT, lines=0 if rivals else 2)
        yield from (" " * INDENT + line for line in lines)


def _render_rule(page: _Page) -> list[str]:
    if page.chain.oracle is None:
        return []
    return page.wrap(end_sentence(f"A run fails when {printable(page.chain.oracle.fails_when)}"))


# The links


@dataclass(frozen=True, slots=True)
class _Row:
    number: str
    place: str
    function: str
    sentences: tuple[str, ...]
    mark: str = ""


def _render_links(page: _Page) -> list[str]:
    chain, pointer = page.chain, page.pointer
    rows: list[_Row] = []
    shown = _choose_links(len(chain.chain), pointer, page.limits.links)
    for index in shown:
        hidden = index - (shown[shown.index(index) - 1] + 1 if index else 0)
        if hidden:
            rows.append(_Row("", "", "", (f"... {count_of(hidden, 'more link')}: -v shows all",)))
        mark = ""
        if page.suspect is not None and pointer is not None and pointer.index == index:
            mark = "<- look here first" if pointer.exact else f"<- look first at {page.name_line(page.suspect)}"
        before = told_causes(chain.chain[index - 1]) if index and not hidden else ()
        rows.append(_link_row(page, index, mark, before))
    if chain.chain:
        rows.append(_failure_row(page))
    return _lay_out(rows, page)


def _choose_links(count: int, pointer: Pointer | None, most: int) -> list[int]:
    """The links nearest to where a reader looks: the beginning, the suspect and the end."""
    anchors = {0, count - 1} | ({pointer.index} if pointer else set())
    nearest = sorted(range(count), key=lambda index: (min(abs(index - anchor) for anchor in anchors), index))
    return sorted(nearest[:most])


def _link_row(page: _Page, index: int, mark: str, before: Sequence[Cause]) -> _Row:
    """`before` are the causes told just above."""
    chain, place = page.chain, locate_link(page.chain, index)
    told = tell_link(chain, index, before, page.limits.causes)
    transition = find_transition(chain, index)
    notes = [] if transition is None else tell_gap(chain.chain[index], transition, page.names)
    return _Row(
        str(index + 1),
        page.name_line(place),
        name_function(place.function or ""),
        (told, *(f"({note})" for note in notes)),
        mark,
    )


def _failure_row(page: _Page) -> _Row:
    number = str(len(page.chain.chain) + 1)
    told = tell_failure(page.chain, page.read_source, page.root, page.limits.failure)
    place = locate_failure(page.chain)
    if place is None:
        return _Row(number, "", "", (told,))
    return _Row(number, page.name_line(place), name_function(place.function or ""), (told,))


def _lay_out(rows: Sequence[_Row], page: _Page) -> list[str]:
    number_width = max((len(row.number) for row in rows), default=0)
    place_width = min(max((len(row.place) for row in rows), default=0), PLACE_LIMIT)
    # The sentences need half of the width at least.
    room = min(FUNCTION_LIMIT, max(page.width // 2 - number_width - place_width - 9, 10))
    function_width = min(max((len(row.function) for row in rows), default=0), room)
    column = 2 + number_width + 2 + place_width + 2 + function_width + 3
    lines: list[str] = []
    for row in rows:
        # The end of a path and its line number matter more than its beginning.
        place = row.place if len(row.place) <= place_width else "..." + row.place[3 - place_width :]
        left = f"  {row.number:>{number_width}}  {place:<{place_width}}  {name_function(row.function, function_width)}"
        # How it ended is told whole: it is short already.
        told = page.wrap(row.sentences[0], column, 0 if row is not rows[-1] else LINES_OF_FAILURE) or [""]
        if row.mark and len(told[-1]) + 3 + len(row.mark) <= page.width - column:
            told[-1] = f"{told[-1]}   {row.mark}"
        elif row.mark:
            told += page.wrap(row.mark, column)
        told += [line for sentence in row.sentences[1:] for line in page.wrap(sentence, column)]
        lines += [f"{left if index == 0 else '':<{column}}{line}".rstrip() for index, line in enumerate(told)]
    return lines


# The first suspect


def _render_suspect(page: _Page) -> list[str]:
    suspect, lines = page.suspect, []
    if suspect is None:
        return []
    if page.pointer is None and not is_repaired(page.chain, suspect):
        lines += page.wrap(f"Look first at {page.name_path(suspect)}: {printable(suspect.why)}.", lines=3)
    path = locate_file(suspect.file, page.root)
    excerpt = read_excerpt(path, suspect.line, page.read_source)
    if excerpt is None:
        return lines
    if page.name_path(suspect) != page.name_line(suspect) and page.pointer is not None and not page.chain.repairs:
        lines += page.wrap(page.name_path(suspect))
    digits = len(str(suspect.line + 1))
    for number, text in excerpt.lines:
        mark = ">" if number == excerpt.focus else " "
        code = printable(text.expandtabs(4))
        lines.append(shorten(f"  {mark} {number:>{digits}} | {code}".rstrip(), page.width))
    return lines


# The proof and the figures


def _render_proof(page: _Page) -> list[str]:
    index = choose_proof(page.chain, page.pointer)
    return [] if index is None else page.wrap(f"Proof: {tell_proof(page.chain, index, page.names)}")


def _render_alternatives(page: _Page) -> Iterator[list[str]]:
    """The chains against other peers: in one sentence each, or as whole ones; why there is no neighbour."""
    absence = page.chain.without_neighbour
    if absence is not None:
        yield page.wrap(end_sentence(printable(absence[:1].upper() + absence[1:])))
    for other in page.chain.alternatives:
        if other.passing is None or not other.chain:
            continue
        if page.limits.alternative_lines is None:
            whole = _open_page(as_chain(page.chain, other), page.width, page.limits, page.read_source, page.root)
            yield [*_render_parties(whole), *_render_rule(whole)]
            yield _render_links(whole)
        else:
            yield _shorten_alternative(page, other, page.limits.alternative_lines)


def _shorten_alternative(page: _Page, other: Alternative, most: int) -> list[str]:
    """As many of its links as there is room for."""
    for links in range(len(other.chain), 0, -1):
        lines = page.wrap(tell_alternative(page.chain, other, links), lines=most + 1)
        if len(lines) <= most:
            return lines
    return page.wrap(tell_alternative(page.chain, other, 1), lines=most)


def _render_end(page: _Page, artefacts: Path | None) -> Iterator[str]:
    chain = page.chain
    if chain.status == "partial":
        yield from page.wrap(f"Incomplete: {_reason(chain)}", lines=page.limits.reason_lines)
    figures = page.wrap(tell_figures(chain))
    index = choose_proof(chain, page.pointer)
    if artefacts is None or index is None:
        yield from figures
        return
    name = name_script(chain, index)
    if name is None:
        yield from figures
        yield from page.wrap(f"No replay in gdb: {printable(find_obstacle(chain, index) or '')}.", lines=2)
        return
    script = printable(show_path(artefacts / name, page.root))
    command = f"Replay: gdb -x {_escape_for_shell(script)}"
    yield from figures[:-1]
    if len(figures[-1]) + 3 + len(command) <= page.width:
        yield f"{figures[-1]}   {command}"
    else:
        yield figures[-1]
        yield from _break_command(command, page.width)


def _escape_for_shell(path: str) -> str:
    """The path with special characters escaped one by one: unlike in quotes, it may be broken anywhere."""
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", path)


def _break_command(command: str, width: int) -> Iterator[str]:
    """The command on one line or several; a shell joins lines that end in a backslash, so it can still be pasted."""
    if len(command) <= width:
        yield command
        return
    line = ""
    for piece in re.findall(r"\\.|[^\\]", command):
        if len(line) + len(piece) > width - 1:
            yield line + "\\"
            line = ""
        line += piece
    yield line
