"""Turns a chain into what the JUnit report says of its test case: properties, output, attachments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from pytest_causechain.model.chain import Chain
from pytest_causechain.report.places import locate_link, name_files
from pytest_causechain.report.sentences import tell_link
from pytest_causechain.report.sources import ReadSource, choose_suspect, read_lines, show_path
from pytest_causechain.report.wording import describe_repair, printable

PREFIX = "causechain"
ATTACHMENT = "[[ATTACHMENT"


def list_properties(
    chain: Chain, *, root: Path | None = None, read_source: ReadSource = read_lines
) -> Iterator[tuple[str, str]]:
    """Names without their prefix, and values in printable ASCII."""
    names = name_files(chain)
    yield "status", chain.status
    if chain.reason is not None:
        yield "reason", printable(chain.reason)
    suspect = choose_suspect(chain, read_source, root)
    if suspect is not None:
        yield "suspect", printable(f"{show_path(suspect.file, root)}:{suspect.line}")
        yield "suspect.function", printable(suspect.function)
        yield "suspect.why", printable(suspect.why)
    for repair in chain.repairs[:1]:
        yield "repair", f"{describe_repair(repair)} at {names[repair.file]}:{repair.line}"
    if chain.peer is not None:
        yield "peer", chain.peer.kind
        yield "passing", printable(chain.peer.test)
    if chain.oracle is not None:
        yield "fails_when", printable(chain.oracle.fails_when)
    for index in range(len(chain.chain)):
        place = locate_link(chain, index)
        yield f"cause.{index + 1}", f"{names[place.file]}:{place.line}: {tell_link(chain, index)}"
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
