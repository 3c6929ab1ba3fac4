"""Keeps the recordings of passing tests between sessions, one file for each build of a program.

A neighbour is run again before it is used, so what is kept is only a hint: whatever cannot be read or written
is done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from pytest_causechain.model.codec import decode
from pytest_causechain.model.files import write_whole
from pytest_causechain.model.recording import Recording

SCHEMA = "causechain-recordings/1"

# Every rebuild makes a new file; a developer goes back to one of the last few builds, if at all.
MAX_BUILDS = 20

# Ranking looks at all of them; beyond this a suite has a near neighbour anyway.
MAX_TESTS_PER_BUILD = 1000

# Of all tests of a build together: reading it again must not be felt.
MAX_STDIN_BYTES_PER_BUILD = 16 * 1024 * 1024


class RecordingStore:
    """The recordings below `directory`, which is made when there is something to keep."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, build_id: str) -> list[Recording]:
        """The passing tests that ran this build, latest first; empty when nothing readable is there."""
        try:
            recordings = [decode(Recording, plain) for plain in self._read(build_id)]
            return [recording for recording in recordings if recording.outcome == "passed"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return []

    def recall(self, paths: Collection[str]) -> list[Recording]:
        """The passing tests that ran a program at one of these paths, whatever its build was; latest first."""
        known: dict[str, Recording] = {}
        for _time, file in sorted(self._list_files(), reverse=True):
            for recording in self.load(file.stem):
                if any(run.command.program.path in paths for run in recording.runs):
                    known.setdefault(recording.test, recording)
        return list(known.values())

    def save(self, recordings: Iterable[dict[str, Any]]) -> None:
        """Merges in what a session recorded, encoded: all that is known of a test is replaced by its latest run.

        A test that failed, or ran another build, is forgotten for the builds this session ran.
        """
        latest = {recording["test"]: recording for recording in recordings if recording["outcome"] != "skipped"}
        for build_id in dict.fromkeys(build for recording in latest.values() for build in _builds(recording)):
            passing = [
                _without_inputs(recording)
                for recording in latest.values()
                if recording["outcome"] == "passed" and build_id in _builds(recording)
            ]
            # As they are: every session pays for this, few look into them.
            passing += [plain for plain in self._read(build_id) if plain["test"] not in latest]
            with contextlib.suppress(OSError):
                self._write(build_id, _limit(passing))
        with contextlib.suppress(OSError):
            self._prune()

    def _read(self, build_id: str) -> list[dict[str, Any]]:
        """The recordings as they were written."""
        try:
            data = json.loads(self._path(build_id).read_bytes())
            known = data["recordings"] if data["schema"] == SCHEMA else []
            return [plain for plain in known if isinstance(plain["test"], str)]
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return []

    def _path(self, build_id: str) -> Path:
        # A build id is hexadecimal; --build-id=0x... may make it too long for a file name.
        name = build_id if len(build_id) <= 64 else hashlib.sha256(build_id.encode()).hexdigest()
        return self._directory / f"{name}.json"

    def _write(self, build_id: str, recordings: list[dict[str, Any]]) -> None:
        path = self._path(build_id)
        if not recordings:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        data: dict[str, Any] = {"schema": SCHEMA, "recordings": recordings}
        write_whole(path, json.dumps(data, separators=(",", ":")).encode("ascii"))

    def _list_files(self) -> list[tuple[int, Path]]:
        try:
            return [(path.stat().st_mtime_ns, path) for path in self._directory.glob("*.json")]
        except OSError:
            return []

    def _prune(self) -> None:
        for _time, path in sorted(self._list_files())[:-MAX_BUILDS]:
            path.unlink(missing_ok=True)


def _without_inputs(recording: dict[str, Any]) -> dict[str, Any]:
    """They are found anew when the test is run again."""
    runs = [run | {"command": run["command"] | {"inputs": []}} for run in recording["runs"]]
    return recording | {"runs": runs}


def _builds(recording: dict[str, Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run["command"]["program"]["build_id"] for run in recording["runs"]))


def _limit(recordings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as may be kept, from the first on; one that does not fit gives way to later ones that do."""
    kept: list[dict[str, Any]] = []
    room = MAX_STDIN_BYTES_PER_BUILD
    for recording in recordings:
        size = _count_stdin_bytes(recording)
        if size is not None and size <= room and len(kept) < MAX_TESTS_PER_BUILD:
            kept.append(recording)
            room -= size
    return kept


def _count_stdin_bytes(recording: dict[str, Any]) -> int | None:
    """None of what is no recording."""
    try:
        inputs: list[str] = [run["command"]["stdin"] for run in recording["runs"]]
        return sum(len(text) // 4 * 3 - text.count("=") for text in inputs)  # base64
    except (TypeError, LookupError, AttributeError):
        return None
