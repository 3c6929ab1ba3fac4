"""Turns chains into GitLab's code quality report: an issue at the first suspect of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_causechain.model.chain import Chain
from pytest_causechain.report.sources import ReadSource, choose_suspect, locate_file, read_lines, show_path
from pytest_causechain.report.wording import name_test, printable

CHECK = "cause-effect-chain"


def list_issues(
    chains: Sequence[Chain], root: Path | None = None, read_source: ReadSource = read_lines
) -> list[dict[str, Any]]:
    return list(_list_issues(chains, root, read_source))


def _list_issues(chains: Sequence[Chain], root: Path | None, read_source: ReadSource) -> Iterator[dict[str, Any]]:
    for chain in chains:
        suspect = choose_suspect(chain, read_source, root)
        if suspect is None:
            continue
        path = show_path(locate_file(suspect.file, root), root)
        yield {
            "description": printable(f"{name_test(chain.test, beside='')} fails: {suspect.why}"),
            "check_name": CHECK,
            "fingerprint": identify(chain, path, suspect.function),
            "severity": "major",
            "location": {"path": path, "lines": {"begin": suspect.line}},
        }


def identify(chain: Chain, path: str, function: str) -> str:
    """The same for the same failure while lines move: without line numbers and values."""
    return hashlib.sha256("\0".join((chain.test, path, function)).encode("utf-8", "surrogatepass")).hexdigest()[:40]
