"""Turns causes, repairs, values, command lines and how a run ended into words.

Everything a program under test may have had a hand in passes through `printable`: it must never move the
cursor, start a new line or change colours in somebody's terminal.

Sentences in which some words are more than words are lines of spans: code stays together where lines are broken.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

# An engine, which takes its sentences from here too, need not know of chains.
if TYPE_CHECKING:
    from pytest_causechain.model.budget import Activity, Shortfall
    from pytest_causechain.model.chain import Cause, Failure, Link, Party, Repair, Rule
    from pytest_causechain.model.runs import Observation

# `failing` and `passing` name the two runs, `mark` is what to look at first, `head` a heading; `source` is a line of
# the program, `code` a variable, an assignment or a place in a sentence, `figure` a number with its unit.
Style = Literal["plain", "place", "value", "failing", "passing", "mark", "head", "faint", "code", "source", "figure"]


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    style: Style = "plain"


Spans = tuple[Span, ...]


# Two values of this length and their variable still fit into two lines of the report's text column.
VALUE_LIMIT = 32
NAME_LIMIT = 40
# A cause of more variables is a list nobody reads; chain.json has all of them.
NAMED_CAUSES = 3
# As much of an output as fits on a line of the report.
OUTPUT_SHOWN = 200
# With the directory's own name, `gdb -x` and the script's name this fits into a line of 80 columns.
SLUG_LIMIT = 44
ONE_ALONE = "one operand alone"

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NULL_POINTERS = frozenset({"NULL", "0x0", "0", "nullptr", "(nil)"})


def plain(line: Spans) -> str:
    """A line without its styles."""
    return "".join(span.text for span in line)


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
    if cause.lines is not None:
        lines = _name_lines(*cause.lines)
        name = f"{lines} of {name.removesuffix(lines).rstrip()}"
    elif cause.is_returned:
        name = "the return value"
    return shorten(name.removeprefix("&"), limit)


def _name_lines(first: int, last: int) -> str:
    return f"lines {first}-{last}" if last > first else f"line {first}"


def _is_worded(cause: Cause) -> bool:
    """Whether it has no name in the program's own code."""
    return cause.lines is not None or cause.is_returned or cause.kind == "code"


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


def slug(test: str) -> str:
    """A directory name for a node id: readable, and different for different tests."""
    safe = re.sub(r"[^A-Za-z0-9._]+", "-", _without_directories(test)).strip("-.")
    if safe and safe == test and len(safe) <= SLUG_LIMIT:
        return safe
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: SLUG_LIMIT - len(digest) - 1].rstrip('-.')}-{digest}".lstrip("-")


def _without_directories(test: str) -> str:
    # Only the file has directories: a parameter may contain slashes of its own.
    file, separator, name = test.partition("::")
    return file.rpartition("/")[2].removesuffix(".py") + separator + name


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
    return replace(cause, variable=f"{backtrace[cause.frame]}'s {cause.variable}", is_returned=False)


def name_run(party: Party, beside: str) -> str:
    """The test that a run belongs to, or that it was made from."""
    name = name_test(party.test, beside)
    return f"a run like that of {name}" if party.is_made else name


def tell_rivals(party: Party, beside: str) -> str:
    """In short; the first of them come with what speaks against them."""
    told = []
    for relation, is_refused in (("nearer than", False), ("not", True)):
        rivals = [rival for rival in party.rivals if (rival.refused is not None) == is_refused]
        if rivals:
            more = f" and {count_of(len(rivals) - 1, 'other')}" if len(rivals) > 1 else ""
            reason = printable(rivals[0].refused or "").partition(":")[0].rstrip(".")
            since = f", since {reason}" if is_refused else ""
            told.append(f"{relation} {name_test(rivals[0].test, beside)}{more}{since}")
    return "; ".join(told)


def describe_causes(
    causes: Sequence[Cause],
    verb: Literal["was", "became"],
    *,
    first: bool,
    peer: str = "passing run",
    limit: int = NAMED_CAUSES,
) -> Spans:
    """What the variables were in the failing run and, in brackets, in the passing one.

    The first link of a chain says that the brackets are about the passing run; the later ones rely on it.
    """
    named = [
        describe_cause(cause, verb, peer if first and index == 0 else None)
        for index, cause in enumerate(causes[:limit])
    ]
    return join_spans(named, len(causes))


def describe_cause(cause: Cause, verb: Literal["was", "became"], peer: str | None) -> Spans:
    """ "argc was 3 (5 in the passing run)"; without a `peer` the brackets hold the value only."""
    variable = Span(name_variable(cause), "plain" if _is_worded(cause) else "code")
    passing, failing = shorten_pair(cause.passing, cause.failing)
    said = _say_value(cause, verb, failing)
    instead = passing or "none"
    return variable, *said, Span(f" ({instead} in the {peer})" if peer is not None else f" ({instead})", "value")


def _say_value(cause: Cause, verb: Literal["was", "became"], failing: str) -> Spans:
    if not failing:
        return (Span(" was removed" if verb == "became" else " was missing"),)
    if cause.lines is not None and cause.lines[1] > cause.lines[0]:
        said = "were"
    elif _is_address(cause, failing):
        said = "came to point to" if verb == "became" else "pointed to"
    else:
        said = verb
    return Span(f" {said} "), Span(failing, "value")


def _is_address(cause: Cause, value: str) -> bool:
    """Whether a value tells what a pointer leads to; NULL and texts are told like other values."""
    return (
        cause.kind in ("repoint", "create", "delete", "alias")
        and value not in _NULL_POINTERS
        and not value.startswith('"')
    )


def describe_change(causes: Sequence[Cause], towards: Literal["failing", "passing"]) -> Spans:
    """What an experiment did to the variables: "a[2] = 0"."""
    return join_spans([_describe_change(cause, towards) for cause in causes[:NAMED_CAUSES]], len(causes))


def _describe_change(cause: Cause, towards: Literal["failing", "passing"]) -> Spans:
    variable = name_variable(cause)
    value = shorten_pair(cause.passing, cause.failing)[0 if towards == "passing" else 1]
    if not value:
        return (Span(f"{variable} removed", "code"),)
    if _is_address(cause, value):
        return (Span(f"{variable} pointing to {value}", "code"),)
    return (Span(f"{variable} = {value}", "code"),)


def join_spans(named: Sequence[Spans], count: int) -> Spans:
    """As a list: "a, b and c", "a, b, c and 4 more"."""
    spans: list[Span] = []
    for index, line in enumerate(named):
        if index:
            spans.append(Span(" and " if index == len(named) - 1 == count - 1 else ", "))
        spans += line
    return (*spans, Span(f" and {count - len(named)} more")) if count > len(named) else tuple(spans)


# Repairs


def describe_repair(repair: Repair) -> str:
    """What was done otherwise: "with size = 2 instead of 3 passed to shell_sort"."""
    return plain(word_repair(repair))


def word_repair(repair: Repair) -> Spans:
    if repair.change == "other way":
        return (Span(f"with the {count_visit(repair.visit)} branch taken the other way"),)
    old, new = (shorten(printable(text), VALUE_LIMIT) for text in tell_sides(repair))
    if repair.change == "equal values":
        return (Span(f"with {new} in the condition"),)
    if repair.kind == "branch":
        return (Span(f"with the condition {new}"),)
    if repair.change == "constant":
        return Span("with the constant "), Span(new, "code"), Span(f" instead of {old}")
    if repair.change == "operator":
        return Span("with "), Span(new, "code" if repair.new else "plain"), Span(f" instead of {old}")
    if repair.kind == "return":
        return Span("with "), Span(new, "value"), Span(f" returned instead of {old}")
    variable = shorten(printable(repair.variable), NAME_LIMIT) if repair.variable is not None else None
    if repair.argument is not None or variable is None:
        done = "stored" if repair.kind == "value" else "passed" if variable is None else f"passed as {variable}"
        return Span("with "), Span(new, "value"), Span(f" {done} instead of {old}")
    done = ""
    if repair.kind == "argument":
        done = f" passed to {shorten(name_function(repair.callee), NAME_LIMIT)}" if repair.callee else " passed"
    return Span("with "), Span(f"{variable} = {new}", "code"), Span(f" instead of {old}{done}")


def tell_sides(repair: Repair) -> tuple[str, str]:
    """What was there, and what is there with the repair, where that is no value too."""
    match repair.change:
        case "other way":
            return "this way", "the other way"
        case "equal values":
            return "equal values this way", "equal values the other way"
        case "turned round":
            return "this way round", "turned round"
        case "forced":
            return "leading either way", f"always leading to line {repair.target}"
        case "operator":
            return repair.old, repair.new or ONE_ALONE
        case _:
            return repair.old, repair.new


def name_code(repair: Repair) -> tuple[str, str, str]:
    """What a repair of the code changes, as a variable: its name, what it is with the repair, and without."""
    line = f"{PurePath(repair.file).name}:{repair.line}"
    old, new = tell_sides(repair)
    if repair.kind == "branch":
        then = f"with {new}" if repair.change == "equal values" else new
        return f"the condition in {line}", then, "as written"
    return f"the {repair.change} in {line}", new, old


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


# Of each activity: what it is, and what it does one by one.
ACTIVITIES: dict[Activity, tuple[str, str, str]] = {
    "guilt": ("finding out which run makes the test fail", "run", "asked about"),
    "repairs": ("the search for repairs", "place", "tried"),
    "coverage": ("finding out what passing runs execute", "run", "looked at"),
    "neighbours": ("the comparison of passing runs by what they do", "run", "looked at"),
    "twin": ("the comparison with the twin", "moment", "tried"),
    "neighbour": ("the comparison with a passing test", "moment", "tried"),
}


def describe_shortfall(shortfall: Shortfall) -> str:
    """What was not done to its end, and how far it came, in a sentence."""
    activity, item, verb = ACTIVITIES[shortfall.activity]
    done, total = shortfall.done, shortfall.total
    if done == total:
        how_far = f": all {count_of(done, item)} {verb}, but not in every way."
    elif total is not None:
        how_far = f": {done} of {count_of(total, item)} {verb}."
    else:
        how_far = f": {count_of(done, item)} {verb}." if done else " before it began."
    return f"{activity[0].upper()}{activity[1:]} was cut short{how_far}"


def count_of(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def begin_sentence(line: Spans) -> Spans:
    """With a capital, unless it begins with a name in the program."""
    first, *rest = line
    return line if first.style == "code" else (Span(first.text[:1].upper() + first.text[1:], first.style), *rest)


def end_sentence(text: str) -> str:
    """With one full stop, unless it is cut short."""
    return text if text.endswith("...") else text.rstrip(".") + "."


# How a run ended


def describe_failure(observation: Observation, rule: Rule | None) -> Failure:
    from pytest_causechain.model.chain import Failure

    return Failure(observation.ending, f"the program {describe_outcome(observation, rule)}", observation.backtrace)


def describe_outcome(observation: Observation, rule: Rule | None) -> str:
    """How a run ended: `printed "0 11"`, `wrote words.c`, `wrote "late" to stderr`, `exited with status 3`, `was killed
    by SIGSEGV in next()`."""
    if observation.ending == "timeout":
        return "did not end in time"
    if observation.ending == "signal":
        own = next((f.function for f in observation.backtrace if f.file is not None), None)
        return f"was killed by {observation.signal_name}" + (f" in {own}()" if own else "")
    text = observation.stdout.decode("utf-8", "surrogateescape").strip()
    if not (text or observation.stderr) and observation.files and rule is not None and rule.kind == "output":
        more = len(observation.files) - 1
        return f"wrote {Path(observation.files[0][0]).name}" + (
            f" and {more} more file{'s' * (more > 1)}" if more else ""
        )
    if rule is not None and rule.kind == "exit":
        return f"exited with status {observation.code}"
    complaint = observation.stderr.decode("utf-8", "surrogateescape").strip()
    if complaint and not text and not observation.code:  # or nothing would tell it from others that end well
        return f'wrote "{complaint[:OUTPUT_SHOWN]}" to stderr'
    return f'printed "{text[:OUTPUT_SHOWN]}"' if text else f"exited with status {observation.code}"
