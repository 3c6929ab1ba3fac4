"""Turns stories into annotations, which GitHub Actions shows at lines of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pytest_causechain.report.sources import show_path
from pytest_causechain.report.story import Reporter, SourceLine, Story
from pytest_causechain.report.wording import name_test, plain, printable

# Of each kind GitHub shows ten for a step.
MOST_ANNOTATIONS = 10
TITLE = "cause-effect chain"


class GitHubReporter(Reporter):
    """Says lines that the terminal must show each on its own. Paths are as seen from the `checkout`."""

    title = "annotations"

    def __init__(self, say: Callable[[str], None], checkout: Path) -> None:
        self._say, self._checkout = say, checkout

    def finish(self, stories: Sequence[Story]) -> None:
        for line in annotate(stories, self._checkout):
            self._say(line)


def annotate(stories: Sequence[Story], checkout: Path) -> Iterator[str]:
    """An error for each chain at its first suspect; notices for the other links as long as there is room."""
    errors, notices = 0, 0
    for story in stories:
        suspect, test = story.suspect, name_test(story.chain.test, beside="")
        if suspect is None or errors == MOST_ANNOTATIONS:
            continue
        errors += 1
        yield _annotate("error", suspect.place, f"{test} fails: {suspect.why}", checkout)
        for step in story.steps:
            if notices < MOST_ANNOTATIONS and step.place.at != suspect.place.at:
                notices += 1
                yield _annotate("notice", step.place, f"{step.number}. {plain(step.tell())} ({test})", checkout)


def _annotate(kind: str, place: SourceLine, message: str, checkout: Path) -> str:
    path = _escape_property(show_path(place.path, checkout))
    title = _escape_property(TITLE)
    return f"::{kind} file={path},line={place.line},title={title}::{_escape_message(printable(message))}"


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    # Letters of all languages may be in a path.
    text = "".join(c if c.isprintable() else printable(c) for c in text)
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
