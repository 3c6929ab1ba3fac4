"""Turns a chain into a story: all that reports tell of a failing test, found once and read by each of them.

A story is plain data. What a program under test had a hand in stands in it as it is: each reporter makes that harmless
in its own way, and cuts what is too long for it. Sentences are spans, so that nobody has to look into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Literal, Protocol

from pytest_causechain.model.chain import (
    Alternative,
    Cause,
    Chain,
    Link,
    Party,
    Repair,
    Script,
    Suspect,
    Transition,
)
from pytest_causechain.model.moment import Breakpoint, Place
from pytest_causechain.report.sources import Excerpt, ReadSource, find_excerpt, locate_file, read_lines
from pytest_causechain.report.wording import (
    NAME_LIMIT,
    NAMED_CAUSES,
    Span,
    Spans,
    count_of,
    describe_causes,
    describe_change,
    describe_commands,
    describe_lines,
    describe_shortfall,
    end_sentence,
    name_function,
    name_run,
    plain,
    printable,
    shorten,
    shorten_value,
    told_causes,
    word_repair,
)

COMMAND_LIMIT = 34
FUNCTION_LIMIT = 18
# What was printed stands above already; at the end of a chain it tells where the chain has led to.
FAILURE_LIMIT = 56
# Lines of source on either side of the one that matters.
AROUND = 3
Side = Literal["failing", "passing"]
# What the passing run is called.
PeerName = Literal["passing run", "twin"]


class Reporter(Protocol):
    """Tells stories in one format. It is made with the places that it writes to."""

    # What has no chain in it, should it fail.
    title: str

    def write(self, story: Story) -> None:
        """Called when the chain of a test is known."""
        return

    def finish(self, stories: Sequence[Story]) -> None:
        """Called when those of all tests are known; there is one at least."""
        return


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program. `name` is the end of its file's path that no other file of the story shares; `path` is
    where the file can be read."""

    name: str
    path: str
    line: int
    function: str = ""

    @property
    def at(self) -> tuple[str, int]:
        return self.name, self.line

    def __str__(self) -> str:
        return f"{self.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class ToldRepair:
    """A repair in words: "with size = 2 instead of 3 passed to shell_sort"."""

    told: Spans
    place: SourceLine


@dataclass(frozen=True, slots=True)
class GdbScript:
    """How plain gdb makes a run as the other one at the moment of a link: each change with the value before, the one
    after, and a statement; all of them by `script` where they are no statements. `obstacle` tells why it cannot."""

    party: Party | None
    stops: tuple[Breakpoint, ...]
    changes: tuple[tuple[Cause, str, str, str | None], ...]
    script: Script | None
    # Its file.
    name: str
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class StoryStep:
    """A link of the chain. Its sentence begins with `lead`, and says what each variable `verb`; `notes` say what is not
    known about the way to it, `moved` says how the cause came to these variables, `moved_at` where."""

    number: int
    link: Link
    # As a reader tells them apart; and those that the step before does not tell, if there are any.
    causes: tuple[Cause, ...]
    news: tuple[Cause, ...]
    place: SourceLine
    lead: str
    verb: Literal["was", "became"]
    peer: PeerName
    notes: tuple[str, ...]
    moved: str | None
    moved_at: SourceLine | None
    proof: Spans
    excerpt: Excerpt | None
    replay: GdbScript
    undo: GdbScript

    def tell(self, limit: int = NAMED_CAUSES, is_after_last: bool = False) -> Spans:
        """Its sentence without the end; what the step before tells is left out where that was told just now."""
        causes, is_first = self.news if is_after_last else self.causes, self.number == 1
        told = describe_causes(causes, self.verb, first=is_first, peer=self.peer, limit=limit)
        return (Span(self.lead), *told) if self.lead else told


@dataclass(frozen=True, slots=True)
class Ending:
    """How the failing run ended: `shown` is what it printed, `null` the pointer through which it crashed."""

    number: int
    place: SourceLine | None
    excerpt: Excerpt | None
    head: str | None
    shown: str
    null: str | None

    def tell(self, limit: int = FAILURE_LIMIT) -> str:
        if self.head is None:
            return "so the test fails."
        told = f"so {self.head}{shorten_value(self.shown, limit)}"
        if self.null is not None:
            told = f"{told.rstrip('.')}, where {shorten(printable(self.null), NAME_LIMIT)} is used, which was NULL"
        return f"{end_sentence(told)} The test fails."


@dataclass(frozen=True, slots=True)
class FirstSuspect:
    """The line to look at first: `step` is the index of the one that leads there, `is_exact` if it is told at this very
    line."""

    place: SourceLine
    why: str
    excerpt: Excerpt | None
    step: int | None
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Aside:
    """The chain against another peer: as a story of its own, and in short, a piece for each of its steps."""

    story: Story
    test: str
    command: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of a failing test. Paths are shown as seen from `root`; `artefacts` is the directory with its
    files, None where they could not be written."""

    chain: Chain
    root: Path | None
    artefacts: Path | None
    # What the passing run is called in sentences.
    peer: PeerName
    # The first repair, and lines at which others do it as well.
    repair: ToldRepair | None
    other_repairs: tuple[tuple[str, int], ...]
    # What makes the passing run, if that is a twin; whether it is the first repair.
    twin: ToldRepair | None
    is_first_twin: bool
    steps: tuple[StoryStep, ...]
    ending: Ending
    suspect: FirstSuspect | None
    # All of them by their ranks, with the reasons.
    suspects: tuple[tuple[SourceLine, str], ...]
    # The step whose proof is told.
    proof: int | None
    asides: tuple[Aside, ...]
    figures: Spans
    # A sentence on each activity that was cut short.
    shortfalls: tuple[str, ...]


def make_story(
    chain: Chain,
    *,
    root: Path | None = None,
    artefacts: Path | None = None,
    read_source: ReadSource = read_lines,
) -> Story:
    return _Narrator(chain, root, read_source).tell(artefacts)


def twin_repair(chain: Chain) -> Repair | None:
    """The repair that makes the passing run of a chain, where that is a twin."""
    return chain.peer.repair if chain.peer is not None else None


class _Narrator:
    def __init__(self, chain: Chain, root: Path | None, read_source: ReadSource) -> None:
        self._chain, self._root, self._read_source = chain, root, read_source
        self._names = name_files(chain)
        self._twin = twin_repair(chain)
        self._peer: PeerName = "passing run" if self._twin is None else "twin"
        self._read = lru_cache(maxsize=None)(self._read_file)

    def tell(self, artefacts: Path | None) -> Story:
        chain, twin = self._chain, self._twin
        best = chain.repairs[0] if chain.repairs else None
        suspect = self._suspect()
        others = {(self._names[repair.file], repair.line) for repair in chain.repairs}
        return Story(
            chain=chain,
            root=self._root,
            artefacts=artefacts,
            peer=self._peer,
            repair=self._repair(best) if best is not None else None,
            other_repairs=tuple(sorted(others - {self._line(best).at})) if best is not None else (),
            twin=self._repair(twin) if twin is not None else None,
            is_first_twin=best is not None and twin == best,
            steps=tuple(map(self._step, range(len(chain.chain)))),
            ending=self._ending(),
            suspect=suspect,
            suspects=tuple((self._line(one), one.why) for one in rank_suspects(chain)),
            proof=self._choose_proof(suspect),
            asides=tuple(self._aside(other) for other in chain.alternatives if other.passing and other.chain),
            figures=tell_figures(chain),
            shortfalls=tuple(map(describe_shortfall, chain.cut_short)),
        )

    # Lines of the program

    def _line(self, place: Place | Transition | Suspect | Repair) -> SourceLine:
        path = locate_file(place.file, self._root)
        return SourceLine(self._names[place.file], path, place.line, place.function or "")

    def _excerpt(self, place: SourceLine) -> Excerpt | None:
        return find_excerpt(self._read(place.path), place.line, AROUND)

    def _read_file(self, path: str) -> Sequence[str]:
        try:
            return self._read_source(path)
        except (OSError, ValueError):
            return ()

    def _source(self, place: SourceLine) -> str:
        """The text of the line; empty when it cannot be read."""
        excerpt = find_excerpt(self._read(place.path), place.line, 0)
        return excerpt.lines[0][1] if excerpt is not None else ""

    # What to look at first

    def _repair(self, repair: Repair) -> ToldRepair:
        return ToldRepair(word_repair(repair), self._line(repair))

    def _suspect(self) -> FirstSuspect | None:
        """The first with something to read on its line: a closing brace only tells that a block ends."""
        ranked = rank_suspects(self._chain)
        for suspect in ranked:
            text = self._source(self._line(suspect))
            if not text.strip() or re.search(r"\w", text):
                break
        else:
            if not ranked:
                return None
            suspect = ranked[0]
        where, place = (suspect.file, suspect.line), self._line(suspect)
        step, is_exact = self._find_step(where)
        return FirstSuspect(place, suspect.why, self._excerpt(place), step, is_exact)

    def _find_step(self, where: tuple[str, int]) -> tuple[int | None, bool]:
        """The step that a line belongs to, and whether it is told there."""
        places = map(locate_link, self._chain.chain)
        lines = [(place.file, place.line) for place in places]
        if where in lines:
            return lines.index(where), True
        for index, link in enumerate(self._chain.chain):
            if link.arrived_by is not None and where in _interval(link.arrived_by):
                return index, False
        return None, False

    def _choose_proof(self, suspect: FirstSuspect | None) -> int | None:
        """The first suspect's step, else the first one behind the input, which a twin shares."""
        if suspect is not None and suspect.step is not None:
            return suspect.step
        count = len(self._chain.chain)
        return min(0 if self._twin is not None else 1, count - 1) if count else None

    # The steps

    def _step(self, index: int) -> StoryStep:
        link, place = self._chain.chain[index], self._line(locate_link(self._chain.chain[index]))
        causes = told_causes(link)
        moved = link.arrived_by
        before = told_causes(self._chain.chain[index - 1]) if index else ()
        known = {(cause.variable, cause.failing) for cause in before}
        news = tuple(cause for cause in causes if (cause.variable, cause.failing) not in known)
        return StoryStep(
            number=index + 1,
            link=link,
            causes=causes,
            news=news or causes,
            place=place,
            lead=self._lead(link, index),
            verb="became" if link.origin is not None and index else "was",
            peer=self._peer,
            notes=self._tell_gap(link),
            moved=f"the cause moves from {', '.join(moved.from_)} to {', '.join(moved.to)}" if moved else None,
            moved_at=self._line(moved) if moved else None,
            proof=self._prove(link, causes, place),
            excerpt=self._excerpt(place),
            replay=plan_script(self._chain, index, "failing"),
            undo=plan_script(self._chain, index, "passing"),
        )

    def _lead(self, link: Link, index: int) -> str:
        # Only what was seen to bring this about is given as its reason.
        led = "so" if link.follows else "then"
        called = name_function(link.moment.function if link.moment.is_entry else link.moment.calls or "main")
        if called != "main" and not (link.origin is not None and index):
            call = f"at the call of {name_function(called, FUNCTION_LIMIT)}, "
            return call if index == 0 else f"{led}, {call}"
        return f"{led} " if index else ""

    def _tell_gap(self, link: Link) -> tuple[str, ...]:
        """What is not known about the way from one cause to the next."""
        moved = link.arrived_by
        if moved is None:
            return ()
        told = []
        start, end = self._line(moved.earliest), self._line(moved)
        if link.origin is None and (moved.earliest.file, moved.earliest.line) != (moved.file, moved.line):
            told.append(f"somewhere between {start} and {end}")
        alone = [(self._names[file], line) for file, line in split_lines(moved.only_in_failing)]
        if alone:
            told.append(f"the failing run alone executes {describe_lines(alone)}")
        return tuple(told)

    def _prove(self, link: Link, causes: Sequence[Cause], place: SourceLine) -> Spans:
        """What the experiments with this link showed."""
        # What a statement made so is altered once that statement is done.
        after = Span(" at " if link.origin is None else " after ")
        change = (*describe_change(causes, "failing"), after, Span(str(place), "code"))
        fails = f" the {self._peer} fails too"
        if link.confirmed == "context":
            others = count_of(max(link.differences - len(link.causes), 0), "other transferred difference")
            return Span("with "), *change, Span(f", together with up to {others},{fails}.")
        if link.confirmed == "passing":
            return Span("with only "), *change, Span(f"{fails}.")
        undone = describe_change(causes, "passing")
        return Span("with only "), *change, Span(f"{fails}; with "), *undone, Span(" the failing run passes.")

    def _ending(self) -> Ending:
        failure, number = self._chain.failure, len(self._chain.chain) + 1
        found = locate_failure(self._chain)
        place = self._line(found) if found is not None else None
        excerpt = self._excerpt(place) if place is not None else None
        if failure is None:
            return Ending(number, place, excerpt, None, "", None)
        head, quote, printed = printable(failure.text).partition('"')
        return Ending(number, place, excerpt, head, quote + printed, self._find_null(place))

    def _find_null(self, place: SourceLine | None) -> str | None:
        """The pointer of the last link that was NULL and through which the line of a crash reads or writes."""
        failure = self._chain.failure
        if place is None or failure is None or failure.kind not in ("signal", "crash") or not self._chain.chain:
            return None
        code = self._source(place)
        for cause in self._chain.chain[-1].causes:
            name = re.search(r"(\w+)$", cause.variable)
            if cause.failing == "NULL" and name is not None and uses_pointer(code, name[1]):
                return cause.variable
        return None

    # Other chains

    def _aside(self, other: Alternative) -> Aside:
        assert other.passing is not None
        command, _ = describe_commands(other.passing, self._chain.failing or other.passing, COMMAND_LIMIT)
        story = _Narrator(as_chain(self._chain, other), self._root, self._read_source).tell(None)
        pieces = []
        for index, step in enumerate(story.steps):
            led = "" if index == 0 else ", so " if step.link.follows else ", then "
            pieces.append(led + plain(describe_causes(step.news, "was", first=False)))
        return Aside(story, name_run(other.passing, beside=self._chain.test), command, tuple(pieces))


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


def rank_suspects(chain: Chain) -> list[Suspect]:
    return sorted(chain.suspects, key=lambda one: one.rank)


def uses_pointer(code: str, name: str) -> bool:
    """Whether a line goes through a pointer: `name->`, `name[`, `*name`, `*list->name`."""
    return re.search(rf"\b{name}\s*(->|\[)|(^|[^\w\s)])\s*\*\s*(\w+(->|\.))*{name}\b", code) is not None


def tell_figures(chain: Chain) -> Spans:
    experiments, seconds = chain.statistics.experiments, chain.statistics.seconds.total
    interventions = chain.statistics.interventions
    searched = f"{count_of(interventions, 'intervention')}, " if interventions else ""
    took = f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
    outcomes = f"{experiments.pass_} passed, {experiments.fail} failed, {experiments.unresolved} unresolved"
    told = f"{searched}{count_of(experiments.total, 'experiment')} ({outcomes}) in "
    return Span(told), Span(f"{took} s", "figure"), Span(".")


# Places


def locate_link(link: Link) -> Place:
    """The line a reader should look at: what made the cause so, else the call, else the moment's own line."""
    if link.origin is not None:
        return link.origin
    moment, moved = link.moment, link.arrived_by
    # The moment of a call lies in the called function; the line that calls it is the transition's.
    if moment.is_entry and moved is not None and moved.function in moment.backtrace[1:2]:
        return Place(moved.file, moved.line, moved.function)
    return Place(moment.file, moment.line, moment.function)


def locate_failure(chain: Chain) -> Place | None:
    """Where the failing run was when it ended, if that is in the program's own code."""
    for frame in chain.failure.backtrace if chain.failure is not None else ():
        if frame.file is not None:
            return Place(frame.file, frame.line, frame.function)
    return None


def _interval(transition: Transition) -> set[tuple[str, int]]:
    ends = {(transition.file, transition.line), (transition.earliest.file, transition.earliest.line)}
    return ends | set(split_lines(transition.only_in_failing))


def split_lines(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """("sample.c:50", ...) as pairs of file and line."""
    for text in lines:
        file, _, line = text.rpartition(":")
        if file and line.isdecimal():
            yield file, int(line)


def name_files(chain: Chain) -> Mapping[str, str]:
    """A short name for each source file: the end of its path that no other file of the chain shares."""
    files = sorted(set(_files(chain)))
    return {file: printable(_shortest_end(file, [other for other in files if other != file])) for file in files}


def _files(chain: Chain) -> Iterator[str]:
    for link in chain.chain:
        yield link.moment.file
        if link.origin is not None:
            yield link.origin.file
    arrivals = (link.arrived_by for link in chain.chain if link.arrived_by is not None)
    for transition in (*chain.transitions, *arrivals):
        yield transition.file
        yield transition.earliest.file
        yield from (file for file, _ in split_lines(transition.only_in_failing))
    yield from (suspect.file for suspect in chain.suspects)
    yield from (repair.file for repair in chain.repairs)
    if chain.peer is not None and chain.peer.repair is not None:
        yield chain.peer.repair.file
    if chain.failure is not None:
        yield from (frame.file for frame in chain.failure.backtrace if frame.file is not None)


def _shortest_end(file: str, others: list[str]) -> str:
    parts = PurePath(file).parts
    for count in range(1, len(parts)):
        end = parts[-count:]
        if all(PurePath(other).parts[-count:] != end for other in others):
            return "/".join(end)
    return file


# Scripts


def plan_script(chain: Chain, index: int, towards: Side) -> GdbScript:
    """Towards the failing run: the passing one is made as that. The other way round where that was seen to help."""
    link = chain.chain[index]
    changes: tuple[tuple[Cause, str, str, str | None], ...]
    if towards == "failing":
        changes = tuple((c, c.passing, c.failing, c.assignment) for c in link.causes)
        plan = GdbScript(chain.passing, link.moment.stops, changes, link.replay, f"{index + 1}.gdb")
    else:
        changes = tuple((c, c.failing, c.passing, c.undo) for c in link.causes)
        plan = GdbScript(chain.failing, link.moment.failing_stops, changes, link.undo, f"{index + 1}-undo.gdb")
        if link.confirmed != "both":
            return replace(plan, obstacle="undoing it alone does not make the failing run pass")
    return replace(plan, obstacle=_find_obstacle(chain, plan))


def _find_obstacle(chain: Chain, plan: GdbScript) -> str | None:
    if chain.program is None or plan.party is None:
        return "the run is not known"
    repair = twin_repair(chain)
    if not plan.stops and (repair is None or not repair.stops):
        return "its moment has no place in the program's code to stop at"
    if plan.script is not None and plan.script.obstacle is not None:
        return plan.script.obstacle
    if plan.script is None and not all(statement and _is_statement(statement) for *_, statement in plan.changes):
        return "no statement makes this change"
    names = [chain.program.path, plan.party.cwd]
    stops = (*plan.stops, *(repair.stops if repair is not None else ()))
    names += [name for stop in stops for name in (stop.file, stop.function, stop.library or "")]
    if any(c in name for name in names for c in "\n\r\0"):
        return "the name of a file or function contains a line break"
    if any(c in text for name, value in plan.party.environment for text in (name, value or "") for c in "\n\r\0"):
        return "a variable of the environment contains a line break"
    if any(argument.endswith("\n") for argument in plan.party.argv[1:]):
        # "$(...)" drops them, and the shells have no other notation in common.
        return "an argument of the run ends in a line break"
    return None


def _is_statement(assignment: str) -> bool:
    return printable(assignment) == assignment and not assignment.endswith("\\")
