"""Turns a chain into the section shown under a failing test: plain ASCII, 80 columns, about 25 lines, or all of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pytest_causechain.model.chain import Alternative, Cause, Chain, Link, Party, Place, Repair, Suspect, Transition
from pytest_causechain.report.places import (
    Pointer,
    find_transition,
    locate_failure,
    locate_link,
    locate_suspect,
    name_files,
    split_lines,
)
from pytest_causechain.report.sources import (
    ReadSource,
    choose_suspect,
    locate_file,
    read_excerpt,
    read_line,
    read_lines,
    show_path,
)
from pytest_causechain.report.wording import (
    NAME_LIMIT,
    NAMED_CAUSES,
    count_of,
    describe_causes,
    describe_change,
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
COMMAND_LIMIT, OUTCOME_LEAST = 34, 20
PLACE_LIMIT = 26
FUNCTION_LIMIT = 18
INDENT = 9
# A space at which no line is broken; `printable` leaves none of its kind in a text.
KEPT_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is told. Hidden links are counted; a sentence that is cut ends in dots."""

    # Chains have three to six links as a rule; more would push the proof off the reader's screen.
    links: int = 9
    # One over-long sentence must not push the others off the screen either.
    lines: int = 4
    # The neighbour's chain is told in short where there is a twin's.
    alternative_lines: int | None = 3
    # A reason ends with its remedy, which must not be lost behind long paths.
    reason_lines: int = 10
    causes: int = NAMED_CAUSES


BRIEF = Limits()
# Even so a hostile program cannot fill the screen for hours.
WHOLE = Limits(links=500, lines=40, alternative_lines=None, reason_lines=40, causes=50)


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


def render_text(
    chain: Chain,
    *,
    width: int = 80,
    read_source: ReadSource = read_lines,
    root: Path | None = None,
    artefacts: Path | None = None,
    limits: Limits = BRIEF,
) -> str:
    """The section's body. Paths are shown relative to `root`; `artefacts` is the directory with the gdb scripts."""
    width = max(width, NARROWEST)
    if chain.status == "none":
        return "\n".join(_wrap(f"No cause-effect chain: {_reason(chain)}", width, limits.reason_lines))
    page = _open_page(chain, width, limits, read_source, root)
    excerpt = _render_suspect(page)
    paragraphs = [
        [*_render_repair(page), *excerpt] if chain.repairs else [],
        [*_render_parties(page), *_render_rule(page)],
        _render_links(page),
        [] if chain.repairs else excerpt,
        _render_proof(page),
        *_render_alternatives(page),
        list(_render_end(page, artefacts)),
    ]
    if limits.alternative_lines is not None:
        # In short, the proof and what follows are one paragraph.
        paragraphs[4:] = [[line for lines in paragraphs[4:] for line in lines]]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _open_page(chain: Chain, width: int, limits: Limits, read_source: ReadSource, root: Path | None) -> _Page:
    suspect = choose_suspect(chain, read_source, root)
    pointer = locate_suspect(chain, suspect) if suspect is not None else None
    return _Page(chain, width, limits, read_source, root, name_files(chain), suspect, pointer)


def is_repaired(chain: Chain, suspect: Suspect) -> bool:
    """Whether why it is suspect has been said already."""
    return [(repair.file, repair.line) for repair in chain.repairs[:1]] == [(suspect.file, suspect.line)]


def choose_proof(chain: Chain, pointer: Pointer | None) -> int | None:
    """The link whose proof is told: the first suspect's, else the first one behind the input, which a twin shares."""
    if pointer is not None:
        return pointer.index
    return min(0 if twin_repair(chain) is not None else 1, len(chain.chain) - 1) if chain.chain else None


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
    told = _keep_together(describe_repair(best))
    lines = page.wrap(f"W{told[1:]} at {page.name_line(best)} the test passes.")
    others = {(names[repair.file], repair.line) for repair in repairs}
    others.discard((names[best.file], best.line))
    if others:
        lines += page.wrap(f"A single change at {describe_lines(others, conjunction='or')} does it as well.", lines=2)
    return lines


def _keep_together(text: str) -> str:
    """An assignment stays on one line."""
    return text.replace(" = ", f"{KEPT_SPACE}={KEPT_SPACE}")


# The two runs


def _tell_peer(page: _Page, passing: Party) -> list[str]:
    chain = page.chain
    repair = twin_repair(chain)
    if repair is None:
        rivals = tell_rivals(passing, beside=chain.test) if page.limits.alternative_lines is None else ""
        told = [f"({printable(text)})" for text in (passing.why, rivals) if text]
        return [name_run(passing, beside=chain.test), *told]
    if chain.repairs and repair == chain.repairs[0]:
        return ["its twin, the same run with this repair"]
    return ["its twin", f"(the same run {describe_repair(repair)} at {page.name_line(repair)})"]


def _render_parties(page: _Page) -> Iterator[str]:
    passing, failing = page.chain.passing, page.chain.failing
    if failing is None or passing is None:
        for label, party in (("fails", failing), ("passes", passing)):
            if party is not None:
                yield from page.wrap(f"{label:<{INDENT}}{describe_command(party)}   {printable(party.outcome)}")
        return
    is_whole = page.limits.alternative_lines is None
    commands = describe_commands(passing, failing, page.width - INDENT if is_whole else COMMAND_LIMIT)
    command_width = max(map(len, commands))
    outcome_width = page.width - INDENT - command_width - 3
    if outcome_width < OUTCOME_LEAST:
        # There is room for both only one below the other.
        command_width, outcome_width = page.width, page.width - INDENT
    # What a run did ("printed") stays in front of what it printed.
    head = failing.outcome.find('"') + 1
    outcomes = shorten_pair(passing.outcome, failing.outcome, outcome_width, head)
    yield from _lay_out_party("fails", commands[1], outcomes[1], command_width, page.width)
    lines = list(_lay_out_party("passes", commands[0], outcomes[0], command_width, page.width))
    chosen = _tell_peer(page, passing)
    if len(lines[-1]) + 3 + len(chosen[0]) <= page.width:
        lines[-1] += f"   {chosen[0]}"
    else:
        lines.append(" " * INDENT + shorten(chosen[0], page.width - INDENT))
    yield from lines
    for sentence in chosen[1:]:
        yield from (" " * INDENT + line for line in page.wrap(sentence, INDENT, lines=2))


def _lay_out_party(label: str, command: str, outcome: str, command_width: int, width: int) -> Iterator[str]:
    if command_width < width:
        yield f"{label:<{INDENT}}{command:<{command_width}}   {outcome}".rstrip()
    else:
        yield f"{label:<{INDENT}}{command}"
        yield " " * INDENT + outcome


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
            rows.append(_Row("", "", "", (f"... {count_of(hidden, 'more link')}, see chain.json",)))
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


def tell_link(chain: Chain, index: int, before: Sequence[Cause] = (), limit: int = NAMED_CAUSES) -> str:
    """A link as a sentence without its end; what is still as it was `before` is not told again."""
    link = chain.chain[index]
    became = link.origin is not None and index > 0
    known = {(cause.variable, cause.failing) for cause in before}
    causes = told_causes(link)
    news = [cause for cause in causes if (cause.variable, cause.failing) not in known]
    verb: Literal["was", "became"] = "became" if became else "was"
    told = describe_causes(news or causes, verb, first=index == 0, peer=name_peer(chain), limit=limit)
    # Only what was seen to bring this about is given as its reason.
    led = "so" if link.follows else "then"
    called = name_function(link.moment.function if link.moment.is_entry else link.moment.calls or "main")
    if called != "main" and not became:
        told = f"at the call of {shorten(called, FUNCTION_LIMIT)}, {told}"
        return told if index == 0 else f"{led}, {told}"
    return f"{led} {told}" if index > 0 else told


def name_peer(chain: Chain) -> str:
    return "twin" if twin_repair(chain) is not None else "passing run"


def tell_gap(link: Link, transition: Transition, names: Mapping[str, str]) -> list[str]:
    """What is not known about the way from one cause to the next."""
    told = []
    if link.origin is None and (transition.earliest.file, transition.earliest.line) != (
        transition.file,
        transition.line,
    ):
        start, end = (f"{names[place.file]}:{place.line}" for place in (transition.earliest, transition))
        told.append(f"somewhere between {start} and {end}")
    alone = [(names[file], line) for file, line in split_lines(transition.only_in_failing)]
    if alone:
        told.append(f"the failing run alone executes {describe_lines(alone)}")
    return ["; ".join(told)] if told else []


def _failure_row(page: _Page) -> _Row:
    number = str(len(page.chain.chain) + 1)
    told = tell_failure(page.chain, page.read_source, page.root)
    place = locate_failure(page.chain)
    if place is None:
        return _Row(number, "", "", (told,))
    return _Row(number, page.name_line(place), name_function(place.function or ""), (told,))


def tell_failure(chain: Chain, read_source: ReadSource, root: Path | None) -> str:
    """The last row: how the failing run ended."""
    if chain.failure is None:
        return "so the test fails."
    told, null = f"so {printable(chain.failure.text)}", find_null(chain, read_source, root)
    if null is not None:
        told = f"{told.rstrip('.')}, where {shorten(printable(null), NAME_LIMIT)} is used, which was NULL"
    return f"{end_sentence(told)} The test fails."


def find_null(chain: Chain, read_source: ReadSource, root: Path | None) -> str | None:
    """The pointer of the last link that was NULL and through which the line of a crash reads or writes."""
    place = locate_failure(chain)
    if place is None or chain.failure is None or chain.failure.kind not in ("signal", "crash") or not chain.chain:
        return None
    code = read_line(locate_file(place.file, root), place.line, read_source)
    for cause in chain.chain[-1].causes:
        name = re.search(r"(\w+)$", cause.variable)
        if cause.failing == "NULL" and name is not None and uses_pointer(code, name[1]):
            return cause.variable
    return None


def uses_pointer(code: str, name: str) -> bool:
    """Whether a line goes through a pointer: `name->`, `name[`, `*name`, `*list->name`."""
    return re.search(rf"\b{name}\s*(->|\[)|(^|[^\w\s)])\s*\*\s*(\w+(->|\.))*{name}\b", code) is not None


def _lay_out(rows: Sequence[_Row], page: _Page) -> list[str]:
    number_width = max((len(row.number) for row in rows), default=0)
    place_width = min(max((len(row.place) for row in rows), default=0), PLACE_LIMIT)
    function_width = min(max((len(row.function) for row in rows), default=0), FUNCTION_LIMIT)
    column = 2 + number_width + 2 + place_width + 2 + function_width + 3
    lines: list[str] = []
    for row in rows:
        # The end of a path and its line number matter more than its beginning.
        place = row.place if len(row.place) <= place_width else "..." + row.place[3 - place_width :]
        left = f"  {row.number:>{number_width}}  {place:<{place_width}}  {shorten(row.function, function_width)}"
        told = page.wrap(row.sentences[0], column) or [""]
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
        lines += page.wrap(f"Look first at {page.name_line(suspect)}: {printable(suspect.why)}.", lines=2)
    path = locate_file(suspect.file, page.root)
    excerpt = read_excerpt(path, suspect.line, page.read_source)
    if excerpt is None:
        return lines
    shown = printable(show_path(path, page.root))
    if shown != page.names[suspect.file]:
        # Editors and terminals open a path that is written out.
        lines += page.wrap(f"{shown}:{suspect.line}")
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


def tell_proof(chain: Chain, index: int, names: Mapping[str, str]) -> str:
    """What the experiments with this link showed."""
    link, place = chain.chain[index], locate_link(chain, index)
    # What a statement made so is altered once that statement is done.
    preposition = "at" if link.origin is None else "after"
    where = f"{preposition} {names[place.file]}:{place.line}"
    causes = told_causes(link)
    change, undone = (_keep_together(describe_change(causes, side)) for side in ("failing", "passing"))
    peer = name_peer(chain)
    if link.confirmed == "context":
        others = count_of(max(link.differences - len(link.causes), 0), "other transferred difference")
        return f"with {change} {where}, together with up to {others}, the {peer} fails too."
    if link.confirmed == "passing":
        return f"with only {change} {where} the {peer} fails too."
    return f"with only {change} {where} the {peer} fails too; with {undone} the failing run passes."


def as_chain(chain: Chain, other: Alternative) -> Chain:
    """The chain against another peer as one of its own; repairs and suspects are told with the first."""
    return replace(
        chain,
        peer=other.peer,
        passing=other.passing,
        oracle=other.oracle,
        chain=other.chain,
        transitions=other.transitions,
        reason=other.reason,
        alternatives=(),
        repairs=(),
        suspects=(),
    )


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
            yield page.wrap(_tell_alternative(page.chain, other), lines=page.limits.alternative_lines)


def _tell_alternative(chain: Chain, other: Alternative) -> str:
    assert other.passing is not None
    name = name_run(other.passing, beside=chain.test)
    command, _ = describe_commands(other.passing, chain.failing or other.passing, COMMAND_LIMIT)
    told = ""
    for index, link in enumerate(other.chain):
        # Only what was seen to bring this about is given as its reason.
        led = "" if index == 0 else ", so " if link.follows else ", then "
        told += led + describe_causes(told_causes(link), "was", first=False)
    return f"Beside {name} ({command}): {told}."


def _render_end(page: _Page, artefacts: Path | None) -> Iterator[str]:
    chain = page.chain
    if chain.status == "partial":
        yield from page.wrap(f"Incomplete: {_reason(chain)}", lines=page.limits.reason_lines)
    figures = page.wrap(tell_figures(chain))
    index = choose_proof(chain, page.pointer)
    if artefacts is None or index is None or not can_replay(chain, index):
        yield from figures
        return
    script = printable(show_path(artefacts / f"{index + 1}.gdb", page.root))
    command = f"Replay: gdb -x {_escape_for_shell(script)}"
    yield from figures[:-1]
    if len(figures[-1]) + 3 + len(command) <= page.width:
        yield f"{figures[-1]}   {command}"
    else:
        yield figures[-1]
        yield from _break_command(command, page.width)


def can_replay(chain: Chain, index: int) -> bool:
    return bool(chain.chain[index].moment.stops) or twin_repair(chain) is not None


def tell_figures(chain: Chain) -> str:
    experiments, seconds = chain.statistics.experiments, chain.statistics.seconds.total
    interventions = chain.statistics.interventions
    searched = f"{count_of(interventions, 'intervention')}, " if interventions else ""
    took = f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
    outcomes = f"{experiments.pass_} passed, {experiments.fail} failed, {experiments.unresolved} unresolved"
    return f"{searched}{count_of(experiments.total, 'experiment')} ({outcomes}) in {took} s."


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
