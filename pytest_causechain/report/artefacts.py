"""Turns stories into the files of a session: each test's directory with chain.json, chain.html and gdb scripts, and
the index of all.

Runs can hold private data, so files and directories are the user's alone; and no reader ever sees half a file.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_causechain.model.chain import Alternative, Chain, Party, Peer, Repair
from pytest_causechain.model.codec import encode, write_whole
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.report.gdb import GdbReporter
from pytest_causechain.report.html import PageReporter
from pytest_causechain.report.story import Reporter, Story, StoryStep, make_story, rank_suspects
from pytest_causechain.report.wording import slug, tell_sides

SCHEMA = "causechain/1"
INDEX_SCHEMA = "causechain-index/1"

# What a session writes into a test's directory; anything else there is the user's.
_OURS = re.compile(
    r"chain\.json|chain\.html|\d+(-undo)?\.gdb|(passing|failing|\d+(-undo)?)\.stdin|\.causechain-\w+\.tmp"
)


class ArtefactsReporter(Reporter):
    """Writes everything about a test, in place of what an earlier session wrote; at the end the index. Where it cannot,
    that is a Refusal."""

    title = "the directory of the chains"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The data last, so that whoever finds a chain.json also finds the scripts that belong to it.
        self._reporters: tuple[Reporter, ...] = (GdbReporter(), PageReporter(directory), DataReporter(directory))

    def write(self, story: Story) -> None:
        if story.artefacts is None:
            return
        with self._refusing():
            self._make_directory()
            story.artefacts.mkdir(mode=0o700, exist_ok=True)
            for old in story.artefacts.iterdir():
                if _OURS.fullmatch(old.name):
                    old.unlink()
            for reporter in self._reporters:
                reporter.write(story)

    def finish(self, stories: Sequence[Story]) -> None:
        with self._refusing():
            self._make_directory()
            for reporter in self._reporters:
                reporter.finish(stories)

    def _make_directory(self) -> None:
        """Make the directory, hidden from git. One that exists may be the user's sources: it is left as it is."""
        directory = self._directory
        if re.search(r"[\n\r]", str(directory.absolute())):
            raise Refusal(f"{str(directory)!r} has a line break in its name: name another place by --cause-chain-dir.")
        if directory.is_dir():
            return
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        write_whole(directory / ".gitignore", b"# Made by pytest --cause-chain.\n*\n")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise Refusal(
                f"The chain could not be written to {self._directory} ({why}): name another place by --cause-chain-dir."
            ) from error


class DataReporter(Reporter):
    """Writes chain.json and index.json."""

    title = "chain.json"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, story: Story) -> None:
        if story.artefacts is not None:
            _write_json(story.artefacts / "chain.json", encode_story(story))

    def finish(self, stories: Sequence[Story]) -> None:
        chains = [_list_chain(story.chain) for story in stories]
        _write_json(self._directory / "index.json", {"schema": INDEX_SCHEMA, "chains": chains})


def write_artefacts(chain: Chain, directory: Path, *, root: Path | None = None) -> Path:
    """Write everything about one test; the test's own directory. Its page shows paths relative to `root`."""
    place = directory / slug(chain.test)
    ArtefactsReporter(directory).write(make_story(chain, root=root, artefacts=place))
    return place


def encode_story(story: Story) -> dict[str, object]:
    """chain.json as data; `model.codec.decode(Chain, ...)` turns it back. Links also have the names of their scripts,
    or why there is none, and repairs what they do in words. Variables of the environment are the user's business unless
    they are part of a cause."""
    chain = story.chain
    return {
        "schema": SCHEMA,
        **encode(chain),
        "failing": _encode_party(chain.failing),
        "passing": _encode_party(chain.passing),
        "chain": [_encode_step(step) for step in story.steps],
        "peer": _encode_peer(chain.peer),
        "alternatives": [_encode_alternative(other) for other in chain.alternatives],
        "repairs": [_encode_repair(repair) for repair in chain.repairs],
    }


def _encode_party(party: Party | None) -> dict[str, object] | None:
    if party is None:
        return None
    return {name: value for name, value in encode(party).items() if name != "environment"}


def _encode_step(step: StoryStep) -> dict[str, object]:
    names = {
        "script": step.replay.name if step.replay.obstacle is None else None,
        "undo_script": step.undo.name if step.undo.obstacle is None else None,
        "unscripted": step.replay.obstacle,
    }
    return {**encode(step.link), **names}


def _encode_peer(peer: Peer | None) -> dict[str, object] | None:
    if peer is None:
        return None
    return {**encode(peer), "repair": _encode_repair(peer.repair) if peer.repair is not None else None}


def _encode_alternative(other: Alternative) -> dict[str, object]:
    return {**encode(other), "peer": _encode_peer(other.peer), "passing": _encode_party(other.passing)}


def _encode_repair(repair: Repair) -> dict[str, object]:
    was, then = tell_sides(repair)
    return {**encode(repair), "was": was, "with": then}


def _list_chain(chain: Chain) -> dict[str, object]:
    return {
        "test": chain.test,
        "status": chain.status,
        "reason": chain.reason,
        "suspect": encode(next(iter(rank_suspects(chain)), None)),
        "path": f"{slug(chain.test)}/chain.json",
    }


def _write_json(path: Path, data: Mapping[str, object]) -> None:
    write_whole(path, json.dumps(data, indent=2).encode("ascii") + b"\n")
