"""Turns stories into SARIF 2.1.0: a result at the first suspect of each, with the chain as its code flow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NotRequired, TypedDict
from urllib.parse import quote

from pytest_causechain import __version__
from pytest_causechain.report.gitlab import CHECK, identify
from pytest_causechain.report.sources import show_path
from pytest_causechain.report.story import FirstSuspect, Reporter, SourceLine, Story, StoryStep
from pytest_causechain.report.wording import name_test, plain, printable

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class SarifMessage(TypedDict):
    text: str


class SarifArtifactLocation(TypedDict):
    uri: str
    uriBaseId: NotRequired[str]


class SarifRegion(TypedDict):
    startLine: int


class SarifPhysicalLocation(TypedDict):
    artifactLocation: SarifArtifactLocation
    region: SarifRegion


class SarifLogicalLocation(TypedDict):
    name: str
    kind: Literal["function"]


class SarifLocation(TypedDict):
    physicalLocation: SarifPhysicalLocation
    logicalLocations: NotRequired[list[SarifLogicalLocation]]
    message: NotRequired[SarifMessage]


class SarifFlowLocation(TypedDict):
    location: SarifLocation
    state: NotRequired[dict[str, SarifMessage]]
    executionOrder: int


class SarifThreadFlow(TypedDict):
    locations: list[SarifFlowLocation]


class SarifCodeFlow(TypedDict):
    message: SarifMessage
    threadFlows: list[SarifThreadFlow]


class SarifResult(TypedDict):
    ruleId: str
    ruleIndex: int
    level: Literal["error"]
    message: SarifMessage
    locations: list[SarifLocation]
    partialFingerprints: dict[str, str]
    codeFlows: NotRequired[list[SarifCodeFlow]]


class SarifReporter(Reporter):
    """Writes a file, in which paths are as seen from the `checkout`."""

    title = "a report"

    def __init__(self, path: Path, checkout: Path) -> None:
        self._path, self._checkout = path, checkout

    def finish(self, stories: Sequence[Story]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(make_log(stories, self._checkout), indent=2) + "\n", encoding="ascii")


def make_log(stories: Sequence[Story], checkout: Path | None = None) -> dict[str, object]:
    rule = {
        "id": CHECK,
        "shortDescription": {"text": "Why a native program fails its test"},
        "fullDescription": {
            "text": "Found by experiments: runs of the program whose state was altered and whose outcome was judged."
        },
        "defaultConfiguration": {"level": "error"},
    }
    driver = {"name": "pytest-causechain", "semanticVersion": __version__, "rules": [rule]}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": list_results(stories, checkout)}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def list_results(stories: Sequence[Story], checkout: Path | None = None) -> list[SarifResult]:
    return [_make_result(story, story.suspect, checkout) for story in stories if story.suspect is not None]


def _make_result(story: Story, suspect: FirstSuspect, checkout: Path | None) -> SarifResult:
    path, test = show_path(suspect.place.path, checkout), story.chain.test
    result: SarifResult = {
        "ruleId": CHECK,
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": _escape(f"{name_test(test, beside='')} fails: {suspect.why}.")},
        "locations": [_locate(suspect.place, checkout)],
        "partialFingerprints": {"causeChain/v1": identify(test, path, suspect.place.function)},
    }
    if story.steps:
        flow = [_make_step(step, checkout) for step in story.steps]
        end = story.ending.place or story.steps[-1].place
        location = _locate(end, checkout, story.ending.tell())
        flow.append({"location": location, "executionOrder": story.ending.number})
        result["codeFlows"] = [{"message": {"text": "The chain in time order."}, "threadFlows": [{"locations": flow}]}]
    return result


def _make_step(step: StoryStep, checkout: Path | None) -> SarifFlowLocation:
    """One link; its state are the variables in the failing run."""
    state: dict[str, SarifMessage] = {
        printable(cause.variable): {"text": _escape(cause.failing) or "none"} for cause in step.causes
    }
    location = _locate(step.place, checkout, plain(step.tell()))
    return {"location": location, "state": state, "executionOrder": step.number}


def _locate(place: SourceLine, checkout: Path | None, message: str | None = None) -> SarifLocation:
    path = show_path(place.path, checkout)
    artefact: SarifArtifactLocation = {"uri": quote(path.encode("utf-8", "surrogateescape"))}
    if Path(path).is_absolute():
        artefact["uri"] = f"file://{artefact['uri']}"
    else:
        artefact["uriBaseId"] = "%SRCROOT%"
    location: SarifLocation = {
        "physicalLocation": {"artifactLocation": artefact, "region": {"startLine": max(place.line, 1)}}
    }
    if place.function:
        location["logicalLocations"] = [{"name": printable(place.function), "kind": "function"}]
    if message is not None:
        location["message"] = {"text": _escape(message)}
    return location


def _escape(text: str) -> str:
    """A link, in SARIF's messages, is written [text](where)."""
    return printable(text).replace("](", "] (")
