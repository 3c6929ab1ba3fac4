"""Turns a chain into the section shown under a failing test: plain ASCII, 80 columns, about 25 lines."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.chain import Cause, Chain, Party, Place, Repair, Suspect, Transition
from pytest_causechain.report.places import (
    Pointer,
    find_transition,
    locate_link,
    locate_suspect,
    name_files,
    split_lines,
)
from pytest_causechain.report.wording import (
    count_of,
    describe_causes,
    describe_change,
    describe_command,
    describe_lines,
    describe_repair,
    end_sentence,
    name_function,
    name_test,
    printable,
    shorten,
    twin_repair,
)

# Below this the columns leave no room for the sentences.
NARROWEST = 60
COMMAND_LIMIT = 34
PLACE_LIMIT = 26
FUNCTION_LIMIT = 18
# Chains have three to six links as a rule; more would push the proof off the reader's screen.
LINKS_SHOWN = 9
# One over-long sentence must not push the others off the screen either.
LINES_PER_SENTENCE = 4
# The neighbour's chain is told in short where there is a twin's.
ALTERNATIVE_LINES = 3
# A reason ends with its remedy, which must not be lost behind long paths.
REASON_LINES = 10
INDENT = 9
# A space at which no line is broken; `printable` leaves none of its kind in a text.
KEPT_SPACE = "\N{NO-BREAK SPACE}"

ReadSource = Callable[[str], Sequence[str]]


def read_lines(file: str) -> Sequence[str]:
    """The lines of a source file; OSError when it is not there (any more)."""
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(file)
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")


def render_text(
    chain: Chain,
    *,
    width: int = 80,
    read_source: ReadSource = read_lines,
    root: Path | None = None,
    artefacts: Path | None = None,
) -> str:
    """The section's body. Paths are shown relative to `root`; `artefacts` is the directory with the gdb scripts."""
    width = max(width, NARROWEST)
    if chain.status == "none":
        return "\n".join(_wrap(f"No cause-effect chain: {_reason(chain)}", width, REASON_LINES))
    names = name_files(chain)
    suspect = min(chain.suspects, key=lambda one: one.rank, default=None)
    pointer = locate_suspect(chain, suspect) if suspect is not None else None
    excerpt = (
        []
        if suspect is None
        else _render_suspect(suspect, pointer, is_repaired(chain, suspect), names, read_source, root, width)
    )
    paragraphs = [
        [*_render_repair(chain, names, width), *excerpt] if chain.repairs else [],
        [*_render_parties(chain, names, width), *_render_rule(chain, width)],
        _render_links(chain, names, suspect, pointer, width),
        [] if chain.repairs else excerpt,
        [
            *_render_proof(chain, names, pointer, width),
            *_render_alternatives(chain, width),
            *_render_end(chain, pointer, root, artefacts, width),
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def is_repaired(chain: Chain, suspect: Suspect) -> bool:
    return [(repair.file, repair.line) for repair in chain.repairs[:1]] == [(suspect.file, suspect.line)]


def choose_proof(chain: Chain, pointer: Pointer | None) -> int | None:
    """The link whose proof is told: the first suspect's, else the first one behind the input, which a twin shares."""
    if pointer is not None:
        return pointer.index
    return min(0 if twin_repair(chain) is not None else 1, len(chain.chain) - 1) if chain.chain else None


def _reason(chain: Chain) -> str:
    return end_sentence(printable(chain.reason or "the reason is not known"))


def _wrap(text: str, width: int, lines: int = LINES_PER_SENTENCE) -> list[str]:
    # Hyphens are left alone: "-1" must stay in one piece.
    wrapped = textwrap.wrap(
        text, width, break_on_hyphens=False, replace_whitespace=False, max_lines=lines, placeholder=" ..."
    )
    return [line.replace(KEPT_SPACE, " ") for line in wrapped]


# The repairs


def _render_repair(chain: Chain, names: Mapping[str, str], width: int) -> list[str]:
    """What was done otherwise in the failing run, and that its test passes then: not whose fault it is."""
    best = chain.repairs[0]
    told = _keep_together(describe_repair(best))
    lines = _wrap(f"W{told[1:]} at {_name_line(best, names)} the test passes.", width)
    others = {(names[repair.file], repair.line) for repair in chain.repairs}
    others.discard((names[best.file], best.line))
    if others:
        lines += _wrap(f"A single change at {describe_lines(others, conjunction='or')} does it as well.", width, 2)
    return lines


def _keep_together(text: str) -> str:
    """An assignment stays on one line."""
    return text.replace(" = ", f"{KEPT_SPACE}={KEPT_SPACE}")


# The two runs


def _tell_twin(chain: Chain, names: Mapping[str, str]) -> list[str]:
    repair = twin_repair(chain)
    if repair is None:
        return []
    if repair == chain.repairs[0]:
        return ["its twin, the same run with this repair"]
    return ["its twin", f"(the same run {describe_repair(repair)} at {_name_line(repair, names)})"]


def _render_parties(chain: Chain, names: Mapping[str, str], width: int) -> Iterator[str]:
    parties = [(label, party) for label, party in (("fails", chain.failing), ("passes", chain.passing)) if party]
    commands = [shorten(describe_command(party), COMMAND_LIMIT) for _, party in parties]
    command_width = max(map(len, commands), default=0)
    outcome_width = width - INDENT - command_width - 3
    outcomes = [shorten(printable(party.outcome), outcome_width) for _, party in parties]
    for (label, party), command, outcome in zip(parties, commands, outcomes, strict=True):
        line = f"{label:<{INDENT}}{command:<{command_width}}   {outcome}"
        if label == "fails":
            yield line.rstrip()
            continue
        chosen = _tell_twin(chain, names) or _tell_choice(party, chain.test)
        if len(line) + 3 + len(chosen[0]) <= width:
            yield f"{line}   {chosen[0]}"
        else:
            yield line.rstrip()
            yield " " * INDENT + shorten(chosen[0], width - INDENT)
        for sentence in chosen[1:]:
            yield from textwrap.indent("\n".join(_wrap(sentence, width - INDENT, 2)), " " * INDENT).split("\n")


def _tell_choice(party: Party, failing_test: str) -> list[str]:
    name = name_test(party.test, beside=failing_test)
    return [name, f"({printable(party.why)})"] if party.why else [name]


def _render_rule(chain: Chain, width: int) -> list[str]:
    if chain.oracle is None:
        return []
    return _wrap(end_sentence(f"A run fails when {printable(chain.oracle.fails_when)}"), width)


# The links


@dataclass(frozen=True, slots=True)
class _Row:
    number: str
    place: str
    function: str
    sentences: tuple[str, ...]
    mark: str = ""


def _render_links(
    chain: Chain, names: Mapping[str, str], suspect: Suspect | None, pointer: Pointer | None, width: int
) -> list[str]:
    rows: list[_Row] = []
    shown = _choose_links(len(chain.chain), pointer)
    for index in shown:
        hidden = index - (shown[shown.index(index) - 1] + 1 if index else 0)
        if hidden:
            rows.append(_Row("", "", "", (f"... {count_of(hidden, 'more link')}, see chain.json",)))
        mark = ""
        if suspect is not None and pointer is not None and pointer.index == index:
            mark = "<- look here first" if pointer.exact else f"<- look first at {_name_line(suspect, names)}"
        before = chain.chain[index - 1].causes if index and not hidden else ()
        rows.append(_link_row(chain, index, names, mark, before))
    if chain.chain:
        rows.append(_failure_row(chain, names))
    return _lay_out(rows, width)


def _choose_links(count: int, pointer: Pointer | None) -> list[int]:
    """The links nearest to where a reader looks: the beginning, the suspect and the end."""
    anchors = {0, count - 1} | ({pointer.index} if pointer else set())
    nearest = sorted(range(count), key=lambda index: (min(abs(index - anchor) for anchor in anchors), index))
    return sorted(nearest[:LINKS_SHOWN])


def _link_row(chain: Chain, index: int, names: Mapping[str, str], mark: str, before: Sequence[Cause]) -> _Row:
    """`before` are the causes told just above: what is still as it was then is not told again."""
    link, place = chain.chain[index], locate_link(chain, index)
    became = link.made_by is not None and index > 0
    known = {(cause.variable, cause.failing) for cause in before}
    news = [cause for cause in link.causes if (cause.variable, cause.failing) not in known]
    told = describe_causes(news or link.causes, "became" if became else "was", first=index == 0, peer=_name_peer(chain))
    # Only what was seen to bring this about is given as its reason.
    led = "so" if link.follows else "then"
    called = name_function(link.moment.function if link.moment.is_entry else link.moment.calls or "main")
    if called != "main" and not became:
        told = f"at the call of {shorten(called, FUNCTION_LIMIT)}, {told}"
        told = told if index == 0 else f"{led}, {told}"
    elif index > 0:
        told = f"{led} {told}"
    transition = find_transition(chain, index)
    notes = [] if transition is None else _tell_gap(transition, names)
    return _Row(str(index + 1), _name_line(place, names), name_function(place.function or ""), (told, *notes), mark)


def _name_peer(chain: Chain) -> str:
    return "twin" if twin_repair(chain) is not None else "passing run"


def _tell_gap(transition: Transition, names: Mapping[str, str]) -> list[str]:
    """What is not known about the way from one cause to the next."""
    told = []
    if (transition.earliest.file, transition.earliest.line) != (transition.file, transition.line):
        told.append(f"somewhere between {_name_line(transition.earliest, names)} and {_name_line(transition, names)}")
    alone = [(names[file], line) for file, line in split_lines(transition.only_in_failing)]
    if alone:
        told.append(f"the failing run alone executes {describe_lines(alone)}")
    return [f"({'; '.join(told)})"] if told else []


def _failure_row(chain: Chain, names: Mapping[str, str]) -> _Row:
    number = str(len(chain.chain) + 1)
    if chain.failure is None:
        return _Row(number, "", "", ("so the test fails.",))
    told = f"{end_sentence(f'so {printable(chain.failure.text)}')} The test fails."
    for frame in chain.failure.backtrace:
        if frame.file is not None:
            place = Place(frame.file, frame.line, frame.function)
            return _Row(number, _name_line(place, names), name_function(frame.function), (told,))
    return _Row(number, "", "", (told,))


def _name_line(place: Place | Transition | Suspect | Repair, names: Mapping[str, str]) -> str:
    return f"{names[place.file]}:{place.line}"


def _lay_out(rows: Sequence[_Row], width: int) -> list[str]:
    number_width = max((len(row.number) for row in rows), default=0)
    place_width = min(max((len(row.place) for row in rows), default=0), PLACE_LIMIT)
    function_width = min(max((len(row.function) for row in rows), default=0), FUNCTION_LIMIT)
    column = 2 + number_width + 2 + place_width + 2 + function_width + 3
    lines: list[str] = []
    for row in rows:
        # The end of a path and its line number matter more than its beginning.
        place = row.place if len(row.place) <= place_width else "..." + row.place[3 - place_width :]
        left = f"  {row.number:>{number_width}}  {place:<{place_width}}  {shorten(row.function, function_width)}"
        told = _wrap(row.sentences[0], width - column) or [""]
        if row.mark and len(told[-1]) + 3 + len(row.mark) <= width - column:
            told[-1] = f"{told[-1]}   {row.mark}"
        elif row.mark:
            told += _wrap(row.mark, width - column)
        told += [line for sentence in row.sentences[1:] for line in _wrap(sentence, width - column)]
        lines += [f"{left if index == 0 else '':<{column}}{line}".rstrip() for index, line in enumerate(told)]
    return lines


# The first suspect


def _render_suspect(
    suspect: Suspect,
    pointer: Pointer | None,
    is_repaired: bool,
    names: Mapping[str, str],
    read_source: ReadSource,
    root: Path | None,
    width: int,
) -> list[str]:
    """`is_repaired`: why it is suspect has been said already."""
    lines = []
    if pointer is None and not is_repaired:
        lines += _wrap(f"Look first at {_name_line(suspect, names)}: {printable(suspect.why)}.", width, 2)
    path = Path(suspect.file) if root is None else root / suspect.file
    excerpt = _read_excerpt(str(path), suspect.line, read_source, width)
    if not excerpt:
        return lines
    shown = printable(_relative(path, root))
    if shown != names[suspect.file]:
        # Editors and terminals open a path that is written out.
        lines += _wrap(f"{shown}:{suspect.line}", width)
    return lines + excerpt


def _relative(path: Path, root: Path | None) -> str:
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)


def _read_excerpt(file: str, line: int, read_source: ReadSource, width: int) -> list[str]:
    """The line between its neighbours; nothing when the source cannot be read or has no such line (any more)."""
    try:
        source = read_source(file)
    except (OSError, ValueError):
        return []
    if not 1 <= line <= len(source) or not source[line - 1].strip():
        return []
    around = [n for n in (line - 1, line, line + 1) if n == line or (0 < n <= len(source) and source[n - 1].strip())]
    digits = len(str(line + 1))
    excerpt = []
    for number in around:
        code = printable(source[number - 1].rstrip().expandtabs(4))
        mark = ">" if number == line else " "
        excerpt.append(shorten(f"  {mark} {number:>{digits}} | {code}".rstrip(), width))
    return excerpt


# The proof and the figures


def _render_proof(chain: Chain, names: Mapping[str, str], pointer: Pointer | None, width: int) -> list[str]:
    index = choose_proof(chain, pointer)
    if index is None:
        return []
    link = chain.chain[index]
    # What a statement made so is altered once that statement is done.
    preposition = "at" if link.made_by is None else "after"
    where = f"{preposition} {_name_line(locate_link(chain, index), names)}"
    change, undone = (_keep_together(describe_change(link.causes, side)) for side in ("failing", "passing"))
    peer = _name_peer(chain)
    if link.confirmed == "context":
        others = count_of(max(link.differences - len(link.causes), 0), "other transferred difference")
        proof = f"with {change} {where}, together with up to {others}, the {peer} fails too."
    elif link.confirmed == "passing":
        proof = f"with only {change} {where} the {peer} fails too."
    else:
        proof = f"with only {change} {where} the {peer} fails too; with {undone} the failing run passes."
    return _wrap(f"Proof: {proof}", width)


def _render_alternatives(chain: Chain, width: int) -> Iterator[str]:
    """The chains against other peers in one sentence each."""
    for other in chain.alternatives:
        if other.passing is None or not other.chain:
            continue
        name = name_test(other.passing.test, beside=chain.test)
        command = shorten(describe_command(other.passing), COMMAND_LIMIT)
        told = ""
        for index, link in enumerate(other.chain):
            # Only what was seen to bring this about is given as its reason.
            led = "" if index == 0 else ", so " if link.follows else ", then "
            told += led + describe_causes(link.causes, "was", first=False)
        yield from _wrap(f"Beside {name} ({command}): {told}.", width, ALTERNATIVE_LINES)


def _render_end(
    chain: Chain, pointer: Pointer | None, root: Path | None, artefacts: Path | None, width: int
) -> Iterator[str]:
    if chain.status == "partial":
        yield from _wrap(f"Incomplete: {_reason(chain)}", width, REASON_LINES)
    figures = _wrap(_tell_figures(chain), width)
    index = choose_proof(chain, pointer)
    if artefacts is None or index is None or not _can_replay(chain, index):
        yield from figures
        return
    script = printable(_relative(artefacts / f"{index + 1}.gdb", root))
    command = f"Replay: gdb -x {_escape_for_shell(script)}"
    yield from figures[:-1]
    if len(figures[-1]) + 3 + len(command) <= width:
        yield f"{figures[-1]}   {command}"
    else:
        yield figures[-1]
        yield from _break_command(command, width)


def _can_replay(chain: Chain, index: int) -> bool:
    return bool(chain.chain[index].moment.stops) or twin_repair(chain) is not None


def _tell_figures(chain: Chain) -> str:
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
