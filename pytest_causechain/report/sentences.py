"""Turns what a chain knows into sentences: its links, the gaps between them, the proof, the failure, the figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pytest_causechain.model.chain import Alternative, Cause, Chain, Link, Suspect, Transition
from pytest_causechain.report.places import Pointer, locate_failure, locate_link, split_lines
from pytest_causechain.report.sources import ReadSource, locate_file, read_line
from pytest_causechain.report.wording import (
    NAME_LIMIT,
    NAMED_CAUSES,
    count_of,
    describe_causes,
    describe_change,
    describe_commands,
    describe_lines,
    end_sentence,
    name_function,
    name_run,
    printable,
    shorten,
    shorten_value,
    told_causes,
    twin_repair,
)

COMMAND_LIMIT = 34
FUNCTION_LIMIT = 18
# What was printed stands above already; here it tells where the chain has led to.
FAILURE_LIMIT = 56
# A space at which no line is broken; `printable` leaves none of its kind in a text.
KEPT_SPACE = "\N{NO-BREAK SPACE}"


def tell_link(chain: Chain, index: int, before: Sequence[Cause] = (), limit: int = NAMED_CAUSES) -> str:
    """A link as a sentence without its end; what is still as it was `before` is not told again."""
    link = chain.chain[index]
    became = link.origin is not None and index > 0
    verb: Literal["was", "became"] = "became" if became else "was"
    told = describe_causes(choose_news(link, before), verb, first=index == 0, peer=name_peer(chain), limit=limit)
    # Only what was seen to bring this about is given as its reason.
    led = "so" if link.follows else "then"
    called = name_function(link.moment.function if link.moment.is_entry else link.moment.calls or "main")
    if called != "main" and not became:
        told = f"at the call of {name_function(called, FUNCTION_LIMIT)}, {told}"
        return told if index == 0 else f"{led}, {told}"
    return f"{led} {told}" if index > 0 else told


def choose_news(link: Link, before: Sequence[Cause]) -> Sequence[Cause]:
    """The causes of a link without those told just `before`, unless there are no others."""
    known, causes = {(cause.variable, cause.failing) for cause in before}, told_causes(link)
    return [cause for cause in causes if (cause.variable, cause.failing) not in known] or causes


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


def tell_failure(chain: Chain, read_source: ReadSource, root: Path | None, limit: int = FAILURE_LIMIT) -> str:
    """The last row: how the failing run ended."""
    if chain.failure is None:
        return "so the test fails."
    head, quote, printed = printable(chain.failure.text).partition('"')
    told, null = f"so {head}{shorten_value(quote + printed, limit)}", find_null(chain, read_source, root)
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


def tell_proof(chain: Chain, index: int, names: Mapping[str, str]) -> str:
    """What the experiments with this link showed."""
    link, place = chain.chain[index], locate_link(chain, index)
    # What a statement made so is altered once that statement is done.
    preposition = "at" if link.origin is None else "after"
    where = f"{preposition} {names[place.file]}:{place.line}"
    causes = told_causes(link)
    change, undone = (keep_together(describe_change(causes, side)) for side in ("failing", "passing"))
    peer = name_peer(chain)
    if link.confirmed == "context":
        others = count_of(max(link.differences - len(link.causes), 0), "other transferred difference")
        return f"with {change} {where}, together with up to {others}, the {peer} fails too."
    if link.confirmed == "passing":
        return f"with only {change} {where} the {peer} fails too."
    return f"with only {change} {where} the {peer} fails too; with {undone} the failing run passes."


def choose_proof(chain: Chain, pointer: Pointer | None) -> int | None:
    """The link whose proof is told: the first suspect's, else the first one behind the input, which a twin shares."""
    if pointer is not None:
        return pointer.index
    return min(0 if twin_repair(chain) is not None else 1, len(chain.chain) - 1) if chain.chain else None


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


def tell_alternative(chain: Chain, other: Alternative, links: int) -> str:
    """The chain against another peer in one sentence; the other links are counted."""
    assert other.passing is not None
    name = name_run(other.passing, beside=chain.test)
    command, _ = describe_commands(other.passing, chain.failing or other.passing, COMMAND_LIMIT)
    told = ""
    for index, link in enumerate(other.chain[:links]):
        # Only what was seen to bring this about is given as its reason.
        led = "" if index == 0 else ", so " if link.follows else ", then "
        before = told_causes(other.chain[index - 1]) if index else ()
        told += led + describe_causes(choose_news(link, before), "was", first=False)
    hidden = len(other.chain) - links
    return f"Beside {name} ({command}): {told}" + (f"; {count_of(hidden, 'more link')}." if hidden > 0 else ".")


def tell_figures(chain: Chain) -> str:
    experiments, seconds = chain.statistics.experiments, chain.statistics.seconds.total
    interventions = chain.statistics.interventions
    searched = f"{count_of(interventions, 'intervention')}, " if interventions else ""
    took = f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
    outcomes = f"{experiments.pass_} passed, {experiments.fail} failed, {experiments.unresolved} unresolved"
    return f"{searched}{count_of(experiments.total, 'experiment')} ({outcomes}) in {took}{KEPT_SPACE}s."


def is_repaired(chain: Chain, suspect: Suspect) -> bool:
    """Whether why it is suspect has been said already."""
    return [(repair.file, repair.line) for repair in chain.repairs[:1]] == [(suspect.file, suspect.line)]


def keep_together(text: str) -> str:
    """An assignment stays on one line."""
    return text.replace(" = ", f"{KEPT_SPACE}={KEPT_SPACE}")
