"""Turns chains into what GitHub Actions shows: annotations at lines of the program, and the summary of a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_causechain.model.chain import Chain, Repair
from pytest_causechain.model.moment import Place
from pytest_causechain.report.places import locate_link
from pytest_causechain.report.sentences import tell_failure, tell_link
from pytest_causechain.report.sources import ReadSource, choose_suspect, locate_file, read_lines, show_path
from pytest_causechain.report.wording import count_of, describe_repair, name_test, printable, shorten

# Of each kind GitHub shows ten for a step.
MOST_ANNOTATIONS = 10
# A summary may have 1 MiB for a whole step, to which others write too.
MOST_BYTES = 900_000
TITLE = "cause-effect chain"


def annotate(chains: list[Chain], root: Path, read_source: ReadSource = read_lines) -> Iterator[str]:
    """An error for each chain at its first suspect; notices for the other links as long as there is room."""
    errors, notices = 0, 0
    for chain in chains:
        suspect = choose_suspect(chain, read_source, root)
        if suspect is None or errors == MOST_ANNOTATIONS:
            continue
        errors += 1
        message = f"{name_test(chain.test, beside='')} fails: {suspect.why}"
        yield _annotate("error", suspect.file, suspect.line, message, root)
        for index in range(len(chain.chain)):
            place = locate_link(chain, index)
            if notices < MOST_ANNOTATIONS and (place.file, place.line) != (suspect.file, suspect.line):
                notices += 1
                message = f"{index + 1}. {tell_link(chain, index)} ({name_test(chain.test, beside='')})"
                yield _annotate("notice", place.file, place.line, message, root)


def _annotate(kind: str, file: str, line: int, message: str, root: Path) -> str:
    path = _escape_property(show_path(locate_file(file, root), root))
    return f"::{kind} file={path},line={line},title={_escape_property(TITLE)}::{_escape_message(printable(message))}"


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    # Letters of all languages may be in a path.
    text = "".join(c if c.isprintable() else printable(c) for c in text)
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")


def render_summary(chains: list[Chain], root: Path | None = None, read_source: ReadSource = read_lines) -> str:
    """All chains of a session as Markdown; those for which there is no room are counted."""
    told = "## Cause-effect chains\n"
    for number, chain in enumerate(chains):
        text = "\n".join(["", *_summarise(chain, root, read_source)]) + "\n"
        if len(told) + len(text) > MOST_BYTES:
            return f"{told}\n{count_of(len(chains) - number, 'more chain')} in the artefacts.\n"
        told += text
    return told


def _summarise(chain: Chain, root: Path | None, read_source: ReadSource) -> Iterator[str]:
    yield f"### {_code(chain.test)}"
    yield ""
    if chain.reason is not None:
        label = "No chain" if chain.status == "none" else "Incomplete"
        yield f"{label}: {_plain(chain.reason)}"
        yield ""
    if chain.repairs:
        best = chain.repairs[0]
        told = describe_repair(best)
        yield f"**W{_plain(told[1:])} at {_where(best, root)} the test passes.**"
        yield ""
    if chain.chain:
        yield "| | where | |"
        yield "| --- | --- | --- |"
        suspect = choose_suspect(chain, read_source, root)
        for index in range(len(chain.chain)):
            place = locate_link(chain, index)
            is_first = suspect is not None and (suspect.file, suspect.line) == (place.file, place.line)
            look = " **look here first**" if is_first else ""
            yield f"| {index + 1} | {_where(place, root)} | {_plain(tell_link(chain, index))}{look} |"
        yield f"| {len(chain.chain) + 1} | | {_plain(tell_failure(chain, read_source, root))} |"


def _where(place: Place | Repair, root: Path | None) -> str:
    return _code(f"{show_path(locate_file(place.file, root), root)}:{place.line}")


def _plain(text: str) -> str:
    """Nothing in it is Markdown or HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&!" else c for c in printable(shorten(text, 1000)))


def _code(text: str) -> str:
    return f"`{printable(text).replace('`', chr(39)).replace('|', '/')}`"
