"""Where in the source each link of a chain is shown, and which link the first suspect belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from pytest_causechain.model.chain import Chain, Link, Suspect, Transition
from pytest_causechain.model.moment import Place
from pytest_causechain.report.wording import printable


@dataclass(frozen=True, slots=True)
class Pointer:
    """The link a suspect belongs to; `exact` when the link is shown at the suspect's own line."""

    index: int
    exact: bool


def find_transition(chain: Chain, index: int) -> Transition | None:
    """The transition by which the cause moved to the variables of this link."""
    if index == 0:
        return None
    before, after = (_variables(chain.chain[i]) for i in (index - 1, index))
    for transition in chain.transitions:
        if set(transition.from_) == before and set(transition.to) == after:
            return transition
    return None


def _variables(link: Link) -> set[str]:
    return {cause.variable for cause in link.causes}


def locate_link(chain: Chain, index: int) -> Place:
    """The line a reader should look at: what made the cause so, else the call, else the moment's own line."""
    link = chain.chain[index]
    if link.origin is not None:
        return link.origin
    moment = link.moment
    transition = find_transition(chain, index)
    # The moment of a call lies in the called function; the line that calls it is the transition's.
    if moment.is_entry and transition is not None and transition.function in moment.backtrace[1:2]:
        return Place(transition.file, transition.line, transition.function)
    return Place(moment.file, moment.line, moment.function)


def locate_failure(chain: Chain) -> Place | None:
    """Where the failing run was when it ended, if that is in the program's own code."""
    for frame in chain.failure.backtrace if chain.failure is not None else ():
        if frame.file is not None:
            return Place(frame.file, frame.line, frame.function)
    return None


def locate_suspect(chain: Chain, suspect: Suspect) -> Pointer | None:
    where = (suspect.file, suspect.line)
    places = [locate_link(chain, index) for index in range(len(chain.chain))]
    lines = [(place.file, place.line) for place in places]
    if where in lines:
        return Pointer(lines.index(where), exact=True)
    for index in range(len(places)):
        transition = find_transition(chain, index)
        if transition is not None and where in _interval(transition):
            return Pointer(index, exact=False)
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
    for transition in chain.transitions:
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
