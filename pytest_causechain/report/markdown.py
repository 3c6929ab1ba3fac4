"""Turns stories into Markdown, which GitHub Actions shows as the summary of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_causechain.report.sources import show_path
from pytest_causechain.report.story import Reporter, SourceLine, Story
from pytest_causechain.report.wording import begin_sentence, count_of, plain, printable, shorten

# A summary may have 1 MiB for a whole step, to which others write too.
MOST_BYTES = 900_000


class MarkdownReporter(Reporter):
    """Adds to a file."""

    title = "the step summary"

    def __init__(self, path: Path) -> None:
        self._path = path

    def finish(self, stories: Sequence[Story]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(render_summary(stories))


def render_summary(stories: Sequence[Story]) -> str:
    """All chains of a session; those for which there is no room are counted."""
    told = "## Cause-effect chains\n"
    for number, story in enumerate(stories):
        text = "\n".join(["", *_summarise(story)]) + "\n"
        if len(told) + len(text) > MOST_BYTES:
            return f"{told}\n{count_of(len(stories) - number, 'more chain')} in the artefacts.\n"
        told += text
    return told


def _summarise(story: Story) -> Iterator[str]:
    chain, suspect = story.chain, story.suspect
    yield f"### {_code(chain.test)}"
    yield ""
    if chain.reason is not None:
        label = "No chain" if chain.status == "none" else "Incomplete"
        yield f"{label}: {_plain(chain.reason)}"
        yield ""
    if story.repair is not None:
        told = _plain(plain(begin_sentence(story.repair.told)))
        yield f"**{told} at {_where(story.repair.place, story.root)} the test passes.**"
        yield ""
    if story.steps:
        yield "| | where | |"
        yield "| --- | --- | --- |"
        for step in story.steps:
            is_first = suspect is not None and suspect.place.at == step.place.at
            look = " **look here first**" if is_first else ""
            yield f"| {step.number} | {_where(step.place, story.root)} | {_plain(plain(step.tell()))}{look} |"
        yield f"| {story.ending.number} | | {_plain(story.ending.tell())} |"


def _where(place: SourceLine, root: Path | None) -> str:
    return _code(f"{show_path(place.path, root)}:{place.line}")


def _plain(text: str) -> str:
    """Nothing in it is Markdown or HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&!" else c for c in printable(shorten(text, 1000)))


def _code(text: str) -> str:
    return f"`{printable(text).replace('`', chr(39)).replace('|', '/')}`"
