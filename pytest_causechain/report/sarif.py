"""Turns chains into SARIF 2.1.0: a result at the first suspect of each, with the chain as its code flow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pytest_causechain import __version__
from pytest_causechain.model.chain import Chain, Suspect
from pytest_causechain.model.moment import Place
from pytest_causechain.report.gitlab import CHECK, identify
from pytest_causechain.report.places import locate_failure, locate_link
from pytest_causechain.report.sentences import tell_failure, tell_link
from pytest_causechain.report.sources import ReadSource, choose_suspect, locate_file, read_lines, show_path
from pytest_causechain.report.wording import name_test, printable, told_causes

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def make_log(chains: Sequence[Chain], root: Path | None = None, read_source: ReadSource = read_lines) -> dict[str, Any]:
    results = [
        _make_result(chain, suspect, root, read_source)
        for chain in chains
        if (suspect := choose_suspect(chain, read_source, root)) is not None
    ]
    rule = {
        "id": CHECK,
        "shortDescription": {"text": "Why a native program fails its test"},
        "fullDescription": {
            "text": "Found by experiments: runs of the program whose state was altered and whose outcome was judged."
        },
        "defaultConfiguration": {"level": "error"},
    }
    driver = {"name": "pytest-causechain", "semanticVersion": __version__, "rules": [rule]}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _make_result(chain: Chain, suspect: Suspect, root: Path | None, read_source: ReadSource) -> dict[str, Any]:
    path = show_path(locate_file(suspect.file, root), root)
    result: dict[str, Any] = {
        "ruleId": CHECK,
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": _plain(f"{name_test(chain.test, beside='')} fails: {suspect.why}.")},
        "locations": [_locate(Place(suspect.file, suspect.line, suspect.function), root)],
        "partialFingerprints": {"causeChain/v1": identify(chain, path, suspect.function)},
    }
    if chain.chain:
        steps = [_make_step(chain, index, root) for index in range(len(chain.chain))]
        end = locate_failure(chain) or locate_link(chain, len(chain.chain) - 1)
        told = tell_failure(chain, read_source, root)
        steps.append({"location": _locate(end, root, told), "executionOrder": len(steps) + 1})
        result["codeFlows"] = [{"message": {"text": "The chain in time order."}, "threadFlows": [{"locations": steps}]}]
    return result


def _make_step(chain: Chain, index: int, root: Path | None) -> dict[str, Any]:
    """One link; its state are the variables in the failing run."""
    link = chain.chain[index]
    state = {printable(cause.variable): {"text": _plain(cause.failing) or "none"} for cause in told_causes(link)}
    return {
        "location": _locate(locate_link(chain, index), root, tell_link(chain, index)),
        "state": state,
        "executionOrder": index + 1,
    }


def _locate(place: Place, root: Path | None, message: str | None = None) -> dict[str, Any]:
    path = show_path(locate_file(place.file, root), root)
    artefact: dict[str, Any] = {"uri": quote(path.encode("utf-8", "surrogateescape"))}
    if Path(path).is_absolute():
        artefact["uri"] = f"file://{artefact['uri']}"
    else:
        artefact["uriBaseId"] = "%SRCROOT%"
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": artefact, "region": {"startLine": max(place.line, 1)}}
    }
    if place.function:
        location["logicalLocations"] = [{"name": printable(place.function), "kind": "function"}]
    if message is not None:
        location["message"] = {"text": _plain(message)}
    return location


def _plain(text: str) -> str:
    """A link, in SARIF's messages, is written [text](where)."""
    return printable(text).replace("](", "] (")
