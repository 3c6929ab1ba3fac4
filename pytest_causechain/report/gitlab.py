"""Turns stories into GitLab's code quality report: an issue at the first suspect of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from pytest_causechain.report.sources import show_path
from pytest_causechain.report.story import FirstSuspect, Reporter, Story
from pytest_causechain.report.wording import name_test, printable

CHECK = "cause-effect-chain"


class GitLabLines(TypedDict):
    begin: int


class GitLabLocation(TypedDict):
    path: str
    lines: GitLabLines


class GitLabIssue(TypedDict):
    description: str
    check_name: str
    fingerprint: str
    severity: Literal["major"]
    location: GitLabLocation


class GitLabReporter(Reporter):
    """Writes a file, in which paths are as seen from the `checkout`."""

    title = "a report"

    def __init__(self, path: Path, checkout: Path) -> None:
        self._path, self._checkout = path, checkout

    def finish(self, stories: Sequence[Story]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(list_issues(stories, self._checkout), indent=2) + "\n", encoding="ascii")


def list_issues(stories: Sequence[Story], checkout: Path | None = None) -> list[GitLabIssue]:
    return [
        _make_issue(story, story.suspect, show_path(story.suspect.place.path, checkout))
        for story in stories
        if story.suspect is not None
    ]


def _make_issue(story: Story, suspect: FirstSuspect, path: str) -> GitLabIssue:
    return {
        "description": printable(f"{name_test(story.chain.test, beside='')} fails: {suspect.why}"),
        "check_name": CHECK,
        "fingerprint": identify(story.chain.test, path, suspect.place.function),
        "severity": "major",
        "location": {"path": path, "lines": {"begin": suspect.place.line}},
    }


def identify(test: str, path: str, function: str) -> str:
    """The same for the same failure while lines move: without line numbers and values."""
    return hashlib.sha256("\0".join((test, path, function)).encode("utf-8", "surrogatepass")).hexdigest()[:40]
