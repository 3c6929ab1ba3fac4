"""Turns causes, values and command lines into words.

Everything a program under test may have had a hand in passes through `printable`: it must never move the
cursor, start a new line or change colours in somebody's terminal.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

# An engine, which takes its sentences from here too, need not know of chains.
if TYPE_CHECKING:
    from pytest_causechain.model.chain import Cause, Chain, Link, Party, Repair

# Two values of this length and their variable still fit into two lines of the report's text column.
VALUE_LIMIT = 32
NAME_LIMIT = 40
# A cause of more variables is a list nobody reads; chain.json has all of them.
NAMED_CAUSES = 3

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_INPUT_LINES = re.compile(r"(stdin|file .*) (lines? \d+(?:-\d+)?)")
_NULL_POINTERS = frozenset({"NULL", "0x0", "0", "nullptr", "(nil)"})


def printable(text: str) -> str:
    """The text in printable ASCII; a byte that was no UTF-8 (a surrogate escape) appears as that byte."""
    return "".join(c if " " <= c <= "~" else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."


def shorten_value(text: str, limit: int) -> str:
    """The beginning of a value, closed like the whole: "..." in a text, {1, 2, ...} in what consists of values."""
    if len(text) <= limit:
        return text
    if text.startswith('"'):
        return text[: limit - 4].rstrip("\\") + '..."'
    if not text.startswith("{"):
        return shorten(text, limit)
    # Room for the dots and some brackets.
    kept = text[: limit - 7].rpartition(", ")[0]
    return f"{kept}, ...{'}' * max(kept.count('{') - kept.count('}'), 1)}" if kept else "{...}"


def shorten_pair(passing: str, failing: str, limit: int = VALUE_LIMIT, head: int = 0) -> tuple[str, str]:
    """Both values, printable and short; where they differ only far behind their beginning, of which `head` characters
    are always kept, the place where they begin to differ is shown."""
    passing, failing = printable(passing), printable(failing)
    head = head if head <= limit // 2 else 0
    pairs = zip(passing, failing, strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    # Equal ones have no such place.
    if max(len(passing), len(failing)) > limit and common > max(limit // 2, head + 11) and passing != failing:
        # What comes before the first difference, as far as there is room, tells the reader where in the value it is.
        room = limit - head - len("...")
        start = max(min(common - 8, max(len(passing), len(failing)) - room), head)
        passing, failing = (f"{text[:head]}...{text[start:]}" for text in (passing, failing))
    return shorten_value(passing, limit), shorten_value(failing, limit)


def name_function(name: str, limit: int | None = None) -> str:
    """Without what a C++ compiler adds to the name that was written; within a limit, the end of it."""
    name = printable(re.sub(r"\(anonymous namespace\)::|\[abi:\w+\]", "", name))
    if limit is None:
        return name
    while len(name) > limit and "::" in name:
        name = name.partition("::")[2]
    return shorten(name, limit)


def name_variable(cause: Cause, limit: int = NAME_LIMIT) -> str:
    """As a reader calls it: "line 3 of stdin", "the return value"; a C++ reference by its own name."""
    name = printable(cause.variable)
    if found := _INPUT_LINES.fullmatch(name):
        name = f"{found[2]} of {found[1]}"
    elif name == "return value":
        name = "the return value"
    return shorten(name.removeprefix("&"), limit)


def quote_argument(argument: str) -> str:
    """The argument for a shell, in printable ASCII; bash's $'...' where plain quotes cannot say it."""
    if printable(argument) == argument:
        return shlex.quote(argument)
    return "$'" + printable(argument.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def describe_command(party: Party) -> str:
    """The command line as typed by someone in the program's directory."""
    program = PurePath(party.argv[0]).name if party.argv else ""
    words = [quote_argument(word) for word in (program, *party.argv[1:])]
    if party.stdin:
        words += ["<<<", quote_argument(party.stdin.removesuffix("\n"))]
    return " ".join(words)


def describe_commands(passing: Party, failing: Party, limit: int) -> tuple[str, str]:
    """Both command lines, short, with the program's name and the part in which they differ."""
    program = quote_argument(PurePath(failing.argv[0]).name) if failing.argv else ""
    return shorten_pair(describe_command(passing), describe_command(failing), limit, head=len(program) + 1)


def name_test(test: str, beside: str) -> str:
    """A short name for a test: without directories, and without its file when `beside` lives there too."""
    file, _, name = test.partition("::")
    if name and file == beside.partition("::")[0]:
        return printable(name)
    return printable("::".join(part for part in (file.rpartition("/")[2], name) if part))


def told_causes(link: Link) -> tuple[Cause, ...]:
    """The causes of a link as a reader tells them apart: what reads the same is one, and variables of one name in
    several calls get the name of their function."""
    told = {(cause.variable, cause.passing, cause.failing): cause for cause in reversed(link.causes)}
    causes = list(told.values())[::-1]
    names = Counter(cause.variable for cause in causes)
    return tuple(_qualify(cause, link) if names[cause.variable] > 1 else cause for cause in causes)


def _qualify(cause: Cause, link: Link) -> Cause:
    backtrace = link.moment.backtrace
    if cause.frame is None or cause.frame >= len(backtrace):
        return cause
    return replace(cause, variable=f"{backtrace[cause.frame]}'s {cause.variable}")


def name_run(party: Party, beside: str) -> str:
    """The test that a run belongs to, or that it was made from."""
    name = name_test(party.test, beside)
    return f"a run like that of {name}" if party.is_made else name


def tell_rivals(party: Party, beside: str) -> str:
    """In short; the first of them come with what speaks against them."""
    further = [rival for rival in party.rivals if rival.refused is None]
    refused = [rival for rival in party.rivals if rival.refused is not None]
    told = []
    if further:
        more = f" and {count_of(len(further) - 1, 'other')}" if len(further) > 1 else ""
        told.append(f"nearer than {name_test(further[0].test, beside)}{more}")
    if refused:
        reason = printable(refused[0].refused or "").partition(":")[0].rstrip(".")
        more = f" and {count_of(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
        told.append(f"not {name_test(refused[0].test, beside)}{more}, since {reason}")
    return "; ".join(told)


def describe_causes(
    causes: Sequence[Cause],
    verb: Literal["was", "became"],
    *,
    first: bool,
    peer: str = "passing run",
    limit: int = NAMED_CAUSES,
) -> str:
    """What the variables were in the failing run and, in brackets, in the passing one.

    The first link of a chain says that the brackets are about the passing run; the later ones rely on it.
    """
    named = [
        _describe_cause(cause, verb, peer if first and index == 0 else None)
        for index, cause in enumerate(causes[:limit])
    ]
    return _join(named, len(causes))


def _describe_cause(cause: Cause, verb: Literal["was", "became"], peer: str | None) -> str:
    variable = name_variable(cause)
    passing, failing = shorten_pair(cause.passing, cause.failing)
    if not failing:
        said = f"{variable} was removed" if verb == "became" else f"{variable} was missing"
    elif variable.startswith("lines "):
        said = f"{variable} were {failing}"
    elif _is_address(cause, failing):
        said = f"{variable} {'came to point' if verb == 'became' else 'pointed'} to {failing}"
    else:
        said = f"{variable} {verb} {failing}"
    instead = passing or "none"
    return f"{said} ({instead} in the {peer})" if peer is not None else f"{said} ({instead})"


def _is_address(cause: Cause, value: str) -> bool:
    """Whether a value tells what a pointer leads to; NULL and texts are told like other values."""
    return (
        cause.kind in ("repoint", "create", "delete", "alias")
        and value not in _NULL_POINTERS
        and not value.startswith('"')
    )


def describe_change(causes: Sequence[Cause], towards: Literal["failing", "passing"]) -> str:
    """What an experiment did to the variables: "a[2] = 0"."""
    return _join([_describe_change(cause, towards) for cause in causes[:NAMED_CAUSES]], len(causes))


def _describe_change(cause: Cause, towards: Literal["failing", "passing"]) -> str:
    variable = name_variable(cause)
    value = shorten_pair(cause.passing, cause.failing)[0 if towards == "passing" else 1]
    if not value:
        return f"{variable} removed"
    if _is_address(cause, value):
        return f"{variable} pointing to {value}"
    return f"{variable} = {value}"


def _join(named: Sequence[str], count: int) -> str:
    if count > len(named):
        return f"{', '.join(named)} and {count - len(named)} more"
    return ", ".join([*named[:-2], " and ".join(named[-2:])])


def twin_repair(chain: Chain) -> Repair | None:
    """The repair that makes the passing run of a chain, where that is a twin."""
    return chain.peer.repair if chain.peer is not None else None


def describe_repair(repair: Repair) -> str:
    """What was done otherwise: "with size = 2 instead of 3 passed to shell_sort"."""
    was, then = shorten(printable(repair.was), VALUE_LIMIT), shorten(printable(repair.with_), VALUE_LIMIT)
    variable = shorten(printable(repair.variable), NAME_LIMIT) if repair.variable is not None else None
    match repair.kind, variable:
        case "branch", _ if repair.visit:
            return f"with the {count_visit(repair.visit)} branch taken the other way"
        case "branch", _:
            return f"with {then} in the condition" if "equal" in then else f"with the condition {then}"
        case "return", _:
            return f"with {then} returned instead of {was}"
        case "argument", _:
            if variable is not None and variable.startswith("argument "):
                return f"with {then} passed as {variable} instead of {was}"
            callee = f" passed to {shorten(name_function(repair.callee), NAME_LIMIT)}" if repair.callee else " passed"
            return f"with {variable} = {then} instead of {was}{callee}"
        case _, None if repair.visit:
            return f"with {then} stored instead of {was}"
        case _, None:
            noun = "the constant " if then.lstrip("-").isdecimal() else ""  # else an operator
            return f"with {noun}{then} instead of {was}"
        case _:
            return f"with {variable} = {then} instead of {was}"


def name_code(repair: Repair) -> tuple[str, str, str]:
    """What a repair of the code changes, as a variable: its name, what it is with the repair, and without."""
    line = f"{PurePath(repair.file).name}:{repair.line}"
    if repair.kind == "branch":
        then = f"with {repair.with_}" if "equal" in repair.with_ else repair.with_
        return f"the condition in {line}", then, "as written"
    noun = "constant" if repair.was.lstrip("-").isdecimal() else "operator"
    return f"the {noun} in {line}", repair.with_, repair.was


def count_visit(visit: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(visit, f"{visit}th")


def describe_lines(lines: Iterable[tuple[str, int]], ranges_named: int = 4, conjunction: str = "and") -> str:
    """Source lines in a few words: "sample.c:50-52, sample.c:60 and 7 more lines"."""
    ranges: list[tuple[str, int, int]] = []
    for file, line in sorted(set(lines)):
        if ranges and ranges[-1][0] == file and ranges[-1][2] == line - 1:
            ranges[-1] = (file, ranges[-1][1], line)
        else:
            ranges.append((file, line, line))
    named = [f"{file}:{low}" + (f"-{high}" if high > low else "") for file, low, high in ranges[:ranges_named]]
    unnamed = sum(high - low + 1 for _, low, high in ranges[ranges_named:])
    if unnamed:
        return f"{', '.join(named)} {conjunction} {count_of(unnamed, 'more line')}"
    return ", ".join([*named[:-2], f" {conjunction} ".join(named[-2:])])


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def end_sentence(text: str) -> str:
    """With one full stop, unless it is cut short."""
    return text if text.endswith("...") else text.rstrip(".") + "."
