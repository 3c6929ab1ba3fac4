"""Turns stories into what the CI systems show: annotations and a step summary for GitHub, a code quality report for
GitLab, SARIF 2.1.0 for code scanning, and what the JUnit report says of a test case.

All point at the first suspect of each story; paths are as seen from the `checkout`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from pytest_causechain import __version__
from pytest_causechain.report.sources import show_path
from pytest_causechain.report.story import Reporter, SourceLine, Story, StoryStep
from pytest_causechain.report.text import WHOLE, render_text
from pytest_causechain.report.wording import begin_sentence, count_of, name_test, plain, printable, shorten

CHECK = "cause-effect-chain"
# Objects of a format that others define, and whose schema the tests check.
Json = dict[str, Any]


def tell_failure(story: Story, why: str) -> str:
    return f"{name_test(story.chain.test, beside='')} fails: {why}"


def identify(test: str, path: str, function: str) -> str:
    """The same for the same failure while lines move: without line numbers and values."""
    return hashlib.sha256("\0".join((test, path, function)).encode("utf-8", "surrogatepass")).hexdigest()[:40]


class JsonReporter(Reporter):
    """Writes a file with what `make` makes of all stories."""

    title = "a report"

    def __init__(self, path: Path, make: Callable[[Sequence[Story], Path], object], checkout: Path) -> None:
        self._path, self._make, self._checkout = path, make, checkout

    def finish(self, stories: Sequence[Story]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        made = self._make(stories, self._checkout)
        self._path.write_text(json.dumps(made, indent=2) + "\n", encoding="ascii")


# GitLab's code quality report


def list_issues(stories: Sequence[Story], checkout: Path | None = None) -> list[Json]:
    return [
        {
            "description": printable(tell_failure(story, suspect.why)),
            "check_name": CHECK,
            "fingerprint": identify(story.chain.test, path, suspect.place.function),
            "severity": "major",
            "location": {"path": path, "lines": {"begin": suspect.place.line}},
        }
        for story in stories
        if (suspect := story.suspect) is not None
        for path in [show_path(suspect.place.path, checkout)]
    ]


# SARIF: a result for each story, with the chain as its code flow

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def make_log(stories: Sequence[Story], checkout: Path | None = None) -> Json:
    rule = {
        "id": CHECK,
        "shortDescription": {"text": "Why a native program fails its test"},
        "fullDescription": {
            "text": "Found by experiments: runs of the program whose state was altered and whose outcome was judged."
        },
        "defaultConfiguration": {"level": "error"},
    }
    driver = {"name": "pytest-causechain", "semanticVersion": __version__, "rules": [rule]}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": [*list_results(stories, checkout)]}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def list_results(stories: Sequence[Story], checkout: Path | None = None) -> Iterator[Json]:
    for story in stories:
        suspect = story.suspect
        if suspect is None:
            continue
        path = show_path(suspect.place.path, checkout)
        result: Json = {
            "ruleId": CHECK,
            "ruleIndex": 0,
            "level": "error",
            "message": _make_message(f"{tell_failure(story, suspect.why)}."),
            "locations": [_locate(suspect.place, checkout)],
            "partialFingerprints": {"causeChain/v1": identify(story.chain.test, path, suspect.place.function)},
        }
        if story.steps:
            flow = [_make_flow(step, checkout) for step in story.steps]
            end = _locate(story.ending.place or story.steps[-1].place, checkout, story.ending.tell())
            flow.append({"location": end, "executionOrder": story.ending.number})
            chain = _make_message("The chain in time order.")
            result["codeFlows"] = [{"message": chain, "threadFlows": [{"locations": flow}]}]
        yield result


def _make_flow(step: StoryStep, checkout: Path | None) -> Json:
    """One link; its state are the variables in the failing run."""
    state = {printable(cause.variable): _make_message(cause.failing or "none") for cause in step.causes}
    location = _locate(step.place, checkout, plain(step.tell()))
    return {"location": location, "state": state, "executionOrder": step.number}


def _locate(place: SourceLine, checkout: Path | None, message: str | None = None) -> Json:
    path = show_path(place.path, checkout)
    uri = quote(path.encode("utf-8", "surrogateescape"))
    artefact = {"uri": f"file://{uri}"} if Path(path).is_absolute() else {"uri": uri, "uriBaseId": "%SRCROOT%"}
    location: Json = {"physicalLocation": {"artifactLocation": artefact, "region": {"startLine": max(place.line, 1)}}}
    if place.function:
        location["logicalLocations"] = [{"name": printable(place.function), "kind": "function"}]
    if message is not None:
        location["message"] = _make_message(message)
    return location


def _make_message(text: str) -> Json:
    # A link, in SARIF's messages, is written [text](where).
    return {"text": printable(text).replace("](", "] (")}


# GitHub Actions' annotations at lines of the program

# Of each kind GitHub shows ten for a step.
MOST_ANNOTATIONS = 10


class AnnotationReporter(Reporter):
    """Says lines that the terminal must show each on its own."""

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
        yield _annotate("error", suspect.place, tell_failure(story, suspect.why), checkout)
        for step in story.steps:
            if notices < MOST_ANNOTATIONS and step.place.at != suspect.place.at:
                notices += 1
                yield _annotate("notice", step.place, f"{step.number}. {plain(step.tell())} ({test})", checkout)


def _annotate(kind: str, place: SourceLine, message: str, checkout: Path) -> str:
    # Letters of all languages may be in a path.
    path = "".join(c if c.isprintable() else printable(c) for c in show_path(place.path, checkout))
    path = _escape_message(path).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} file={path},line={place.line},title=cause-effect chain::{_escape_message(printable(message))}"


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# GitHub Actions' summary of a step, in Markdown

# A summary may have 1 MiB for a whole step, to which others write too.
MOST_BYTES = 900_000


class SummaryReporter(Reporter):
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
    yield f"### {_code(chain.test)}\n"
    if chain.reason is not None:
        label = "No chain" if chain.status == "none" else "Incomplete"
        yield f"{label}: {_escape_markup(chain.reason)}\n"
    if story.repair is not None:
        told = _escape_markup(plain(begin_sentence(story.repair.told)))
        yield f"**{told} at {_where(story.repair.place, story.root)} the test passes.**\n"
    if story.steps:
        yield "| | where | |"
        yield "| --- | --- | --- |"
        for step in story.steps:
            is_first = suspect is not None and suspect.place.at == step.place.at
            look = " **look here first**" if is_first else ""
            yield f"| {step.number} | {_where(step.place, story.root)} | {_escape_markup(plain(step.tell()))}{look} |"
        yield f"| {story.ending.number} | | {_escape_markup(story.ending.tell())} |"


def _where(place: SourceLine, root: Path | None) -> str:
    return _code(f"{show_path(place.path, root)}:{place.line}")


def _escape_markup(text: str) -> str:
    """Nothing in it is Markdown or HTML."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~&!" else c for c in printable(shorten(text, 1000)))


def _code(text: str) -> str:
    return f"`{printable(text).replace('`', chr(39)).replace('|', '/')}`"


# The JUnit report: properties, output and attachments of a test case

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
        ElementTree.SubElement(element, "property", name=f"causechain.{name}", value=value)
    output = testcase.find("system-out")
    if output is None:
        output = ElementTree.SubElement(testcase, "system-out")
    # Jenkins and GitLab read attachments from the text: only ours.
    text = text.replace(ATTACHMENT, ATTACHMENT.replace("[[", "[\\["))
    marks = [f"{ATTACHMENT}|{printable(path)}]]" for path in attachments]
    output.text = "\n".join([*([output.text.rstrip("\n")] if output.text else []), text, *marks, ""])
