"""Turns a story into what the JUnit report says of its test case: properties, output, attachments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from pytest_causechain.report.sources import show_path
from pytest_causechain.report.story import Reporter, Story
from pytest_causechain.report.text import WHOLE, render_text
from pytest_causechain.report.wording import plain, printable

PREFIX = "causechain"
ATTACHMENT = "[[ATTACHMENT"


class JunitReporter(Reporter):
    """Adds to the element of a test, which `find_testcase` finds where there is one. Attachments are named as seen from
    the `checkout`: GitLab takes paths from there, Jenkins, which tells of none, whole ones."""

    title = "the JUnit report"

    def __init__(self, find_testcase: Callable[[str], ElementTree.Element | None], checkout: Path | None) -> None:
        self._find_testcase, self._checkout = find_testcase, checkout

    def write(self, story: Story) -> None:
        testcase = self._find_testcase(story.chain.test)
        if testcase is None:
            return
        names = ("chain.html", "chain.json") if story.artefacts is not None else ()
        files = [show_path(story.artefacts / name, self._checkout) for name in names if story.artefacts is not None]
        describe_testcase(testcase, list_properties(story), render_text(story, details=WHOLE), files)


def list_properties(story: Story) -> Iterator[tuple[str, str]]:
    """Names without their prefix, and values in printable ASCII."""
    chain, suspect = story.chain, story.suspect
    yield "status", chain.status
    if chain.reason is not None:
        yield "reason", printable(chain.reason)
    if suspect is not None:
        yield "suspect", printable(f"{show_path(suspect.place.path, story.root)}:{suspect.place.line}")
        yield "suspect.function", printable(suspect.place.function)
        yield "suspect.why", printable(suspect.why)
    if story.repair is not None:
        yield "repair", f"{plain(story.repair.told)} at {story.repair.place}"
    if chain.peer is not None:
        yield "peer", chain.peer.kind
        yield "passing", printable(chain.peer.test)
    if chain.oracle is not None:
        yield "fails_when", printable(chain.oracle.fails_when)
    for step in story.steps:
        yield f"cause.{step.number}", f"{step.place}: {plain(step.tell())}"
    if chain.failure is not None:
        yield "failure", printable(chain.failure.text)
    yield "experiments", str(chain.statistics.experiments.total)


def describe_testcase(
    testcase: ElementTree.Element, properties: Iterable[tuple[str, str]], text: str, attachments: Iterable[str]
) -> None:
    """Add a chain to an element of the report; what others have put there stays."""
    element = testcase.find("properties")
    if element is None:
        element = ElementTree.Element("properties")
        testcase.insert(0, element)
    for name, value in properties:
        ElementTree.SubElement(element, "property", name=f"{PREFIX}.{name}", value=value)
    output = testcase.find("system-out")
    if output is None:
        output = ElementTree.SubElement(testcase, "system-out")
    # Jenkins and GitLab read attachments from the text: only ours.
    text = text.replace(ATTACHMENT, ATTACHMENT.replace("[[", "[\\["))
    marks = [f"{ATTACHMENT}|{printable(path)}]]" for path in attachments]
    output.text = "\n".join([*([output.text.rstrip("\n")] if output.text else []), text, *marks, ""])
