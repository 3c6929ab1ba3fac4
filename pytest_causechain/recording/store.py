"""Keeps the recordings of passing tests between sessions, one file for each build of a program.

A neighbour is run again before it is used, so what is kept is only a hint: whatever cannot be read or written
is done without. Each recording is a line of its own: every session writes those of others again, few look into them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path

from pytest_causechain.model.codec import decode, write_json, write_whole
from pytest_causechain.model.runs import Recording

# The first line of a file.
SCHEMA = "causechain-recordings/2"

# Every rebuild makes a new file; a developer goes back to one of the last few builds, if at all.
MAX_BUILDS = 20

# Ranking looks at all of them; beyond this a suite has a near neighbour anyway.
MAX_TESTS_PER_BUILD = 1000

# Of all tests of a build together, most of it standard input: reading it again must not be felt.
MAX_BYTES_PER_BUILD = 24 * 1024 * 1024

_DECODER = json.JSONDecoder()


class RecordingStore:
    """Keeps recordings below `directory`, which is made when there is something to keep."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, build_id: str) -> list[Recording]:
        """Returns the passing tests that ran this build, latest first; what cannot be read is left out."""
        found = []
        for line in self._read(build_id).values():
            with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
                found.append(decode(Recording, json.loads(line)))
        return [recording for recording in found if recording.outcome == "passed"]

    def recall(self, paths: Collection[str]) -> list[Recording]:
        """Returns the passing tests that ran a program at one of these paths, whatever its build was; latest first."""
        known: dict[str, Recording] = {}
        for _time, file in sorted(self._list_files(), reverse=True):
            for recording in self.load(file.stem):
                if any(run.command.program.path in paths for run in recording.runs):
                    known.setdefault(recording.test, recording)
        return list(known.values())

    def save(self, recordings: Iterable[Recording]) -> None:
        """Merges in what a session recorded: all that is known of a test is replaced by its latest run.

        A test that failed, or ran another build, is forgotten for the builds this session ran.
        """
        latest = {recording.test: recording for recording in recordings if recording.outcome != "skipped"}
        by_build: dict[str, dict[str, Recording]] = {}
        for test, recording in latest.items():
            for run in recording.runs:
                by_build.setdefault(run.command.program.build_id, {})[test] = recording
        for build_id, ran in by_build.items():
            lines = [write_json(_without_inputs(known)) for known in ran.values() if known.outcome == "passed"]
            lines += [line for test, line in self._read(build_id).items() if test not in latest]
            with contextlib.suppress(OSError):
                self._write(build_id, _limit(lines))
        with contextlib.suppress(OSError):
            self._prune()

    def _read(self, build_id: str) -> dict[str, str]:
        """Returns the recordings by test, as they were written."""
        try:
            schema, *lines = self._path(build_id).read_text("ascii").splitlines()
            # A recording begins with its test.
            return {_DECODER.raw_decode(line, 1)[0]: line for line in lines} if schema == SCHEMA else {}
        except (OSError, ValueError, TypeError, RecursionError):
            return {}

    def _path(self, build_id: str) -> Path:
        # A build id is hexadecimal; --build-id=0x... may make it too long for a file name.
        name = build_id if len(build_id) <= 64 else hashlib.sha256(build_id.encode()).hexdigest()
        return self._directory / f"{name}.json"

    def _write(self, build_id: str, lines: list[str]) -> None:
        path = self._path(build_id)
        if not lines:
            path.unlink(missing_ok=True)
            return
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, "\n".join([SCHEMA, *lines]).encode("ascii"))

    def _list_files(self) -> list[tuple[int, Path]]:
        try:
            return [(path.stat().st_mtime_ns, path) for path in self._directory.glob("*.json")]
        except OSError:
            return []

    def _prune(self) -> None:
        for _time, path in sorted(self._list_files())[:-MAX_BUILDS]:
            path.unlink(missing_ok=True)


def _without_inputs(recording: Recording) -> Recording:
    """Drops the input files, which are read anew when the test is run again."""
    if not any(run.command.inputs for run in recording.runs):
        return recording
    runs = tuple(run._replace(command=run.command._replace(inputs=())) for run in recording.runs)
    return recording._replace(runs=runs)


def _limit(lines: list[str]) -> list[str]:
    """Returns as many as may be kept, from the first on; one that does not fit gives way to later ones that do."""
    kept: list[str] = []
    room = MAX_BYTES_PER_BUILD
    for line in lines:
        if len(line) <= room and len(kept) < MAX_TESTS_PER_BUILD:
            kept.append(line)
            room -= len(line)
    return kept
