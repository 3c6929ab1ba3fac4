"""Turns chains into files: chain.json, chain.html and the gdb scripts of each test, and the index of the session.

Runs can hold private data, so files and directories are the user's alone; and no reader ever sees half a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_causechain.model.chain import Chain, Party, Script
from pytest_causechain.model.codec import encode, write_whole
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.report.gdb_script import (
    Inputs,
    find_obstacle,
    name_script,
    render_gdb_script,
    render_undo_script,
)
from pytest_causechain.report.index import render_index
from pytest_causechain.report.page import render_page

SCHEMA = "causechain/1"
INDEX_SCHEMA = "causechain-index/1"
# With the directory's own name, `gdb -x` and the script's name this fits into a line of 80 columns.
SLUG_LIMIT = 44

# What a session writes into a test's directory; anything else there is the user's.
_OURS = re.compile(
    r"chain\.json|chain\.html|\d+(-undo)?\.gdb|(passing|failing|\d+(-undo)?)\.stdin|\.causechain-\w+\.tmp"
)


def slug(test: str) -> str:
    """A directory name for a node id: readable, and different for different tests."""
    safe = re.sub(r"[^A-Za-z0-9._]+", "-", _without_directories(test)).strip("-.")
    if safe and safe == test and len(safe) <= SLUG_LIMIT:
        return safe
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: SLUG_LIMIT - len(digest) - 1].rstrip('-.')}-{digest}".lstrip("-")


def _without_directories(test: str) -> str:
    # Only the file has directories: a parameter may contain slashes of its own.
    file, separator, name = test.partition("::")
    return file.rpartition("/")[2].removesuffix(".py") + separator + name


def encode_chain(chain: Chain) -> dict[str, Any]:
    """chain.json as data; `model.codec.decode(Chain, ...)` turns it back. Links also have the names of their scripts,
    or why there is none. Variables of the environment are the user's business unless they are part of a cause."""
    data = {"schema": SCHEMA, **encode(chain)}
    others = [other["passing"] for other in data["alternatives"]]
    for party in (data["failing"], data["passing"], *others):
        if party is not None:
            del party["environment"]
    for index, link in enumerate(data["chain"]):
        link["script"], link["undo_script"] = name_script(chain, index), name_script(chain, index, "passing")
        link["unscripted"] = find_obstacle(chain, index)
    return data


def write_artefacts(chain: Chain, directory: Path, *, root: Path | None = None) -> Path:
    """Write everything about one test, in place of what an earlier session wrote; the test's own directory.

    The page shows paths relative to `root`."""
    place = directory / slug(chain.test)
    try:
        _make_directory(directory)
        place.mkdir(mode=0o700, exist_ok=True)
        for old in place.iterdir():
            if _OURS.fullmatch(old.name):
                old.unlink()
        _write_scripts(chain, place)
        page = render_page(chain, root=root, artefacts=place)
        write_whole(place / "chain.html", page.encode("utf-8", "backslashreplace"))
        # Last, so that whoever finds a chain.json also finds the scripts that belong to it.
        _write_json(place / "chain.json", encode_chain(chain))
    except OSError as error:
        raise _refuse(directory, error) from error
    return place


def _write_scripts(chain: Chain, place: Path) -> None:
    """For each link one that shows the failure, and one that makes it go away where that was seen."""
    for index, link in enumerate(chain.chain):
        if (name := name_script(chain, index)) is not None:
            inputs = Inputs(
                _write_input(chain.passing, place / "passing.stdin"), _write_change(link.replay, place / name)
            )
            _write_text(place / name, render_gdb_script(chain, link, inputs))
        if (name := name_script(chain, index, "passing")) is not None:
            inputs = Inputs(
                _write_input(chain.failing, place / "failing.stdin"), _write_change(link.undo, place / name)
            )
            _write_text(place / name, render_undo_script(chain, link, inputs))


def _write_input(party: Party | None, path: Path) -> str | None:
    if party is None or not party.stdin:
        return None
    _write_text(path, party.stdin)
    return str(path.absolute())


def _write_change(change: Script | None, script: Path) -> str | None:
    if change is None or change.stdin is None:
        return None
    path = script.with_suffix(".stdin")
    _write_text(path, change.stdin)
    return str(path.absolute())


def _write_text(path: Path, text: str) -> None:
    write_whole(path, text.encode("utf-8", "surrogateescape"))


def write_index(chains: Sequence[Chain], directory: Path, *, root: Path | None = None) -> Path:
    """Write index.json and index.html, which list the chains of the last session."""
    path = directory / "index.json"
    try:
        _make_directory(directory)
        page = render_index([(slug(chain.test), chain) for chain in chains], root=root)
        write_whole(directory / "index.html", page.encode("utf-8", "backslashreplace"))
        _write_json(path, {"schema": INDEX_SCHEMA, "chains": [_list_chain(chain) for chain in chains]})
    except OSError as error:
        raise _refuse(directory, error) from error
    return path


def _list_chain(chain: Chain) -> dict[str, Any]:
    first = min(chain.suspects, key=lambda suspect: suspect.rank, default=None)
    return {
        "test": chain.test,
        "status": chain.status,
        "reason": chain.reason,
        "suspect": encode(first),
        "path": f"{slug(chain.test)}/chain.json",
    }


def _make_directory(directory: Path) -> None:
    """Make the directory, hidden from git. One that exists may be the user's sources: it is left as it is."""
    if re.search(r"[\n\r]", str(directory.absolute())):
        raise Refusal(f"{str(directory)!r} has a line break in its name: name another place by --cause-chain-dir.")
    if directory.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    write_whole(directory / ".gitignore", b"# Made by pytest --cause-chain.\n*\n")


def _write_json(path: Path, data: Any) -> None:
    write_whole(path, json.dumps(data, indent=2).encode("ascii") + b"\n")


def _refuse(directory: Path, error: OSError) -> Refusal:
    why = error.strerror or type(error).__name__
    return Refusal(f"The chain could not be written to {directory} ({why}): name another place by --cause-chain-dir.")
