"""Keeps what gdb told of programs between sessions, one file for each build.

It is only ever a saving of time: whatever cannot be read or written is done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_causechain.kernel.elf import find_build_id, read_sections
from pytest_causechain.model.files import write_whole

# A developer goes back to one of the last few builds, if at all; the cache of a suite must not be felt on the disk.
MOST_FILES, MOST_BYTES = 20, 100 << 20
# Level 1 takes a tenth of the time of the default one, and makes files a fifth larger.
COMPRESSION = 1


class DescriptionStore:
    """The description of one program with its libraries, in a file below the directory `cache`."""

    def __init__(self, cache: Path, modules: Sequence[str], gdb: str) -> None:
        """`modules` are the paths of the program and its libraries. One without a build id is never kept."""
        self._directory = cache / "programs"
        self._path: Path | None = None
        with contextlib.suppress(OSError, ValueError, LookupError, zlib.error):
            builds = [read_build_id(module) for module in modules]
            if all(builds):
                self._path = self._directory / f"{make_key([*map(str, builds), *modules[1:]], gdb)}.bin"

    def load(self) -> dict[str, Any] | None:
        """None when there is none that can be read."""
        if self._path is None:
            return None
        try:
            content = self._path.read_bytes()
            size = hashlib.sha256().digest_size
            if hashlib.sha256(content[size:]).digest() != content[:size]:
                return None
            description: dict[str, Any] = json.loads(zlib.decompress(content[size:]))
            os.utime(self._path)  # the ones used last are kept
        except (OSError, ValueError, zlib.error):
            return None
        return description

    def save(self, description: dict[str, Any]) -> None:
        if self._path is None:
            return
        text = json.dumps(description, separators=(",", ":")).encode("ascii")
        content = zlib.compress(text, COMPRESSION)
        if len(content) > MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path, hashlib.sha256(content).digest() + content)
            self._prune()

    def _prune(self) -> None:
        files = [(path.stat(), path) for path in self._directory.glob("*.bin")]
        room = MOST_BYTES
        for number, (status, path) in enumerate(sorted(files, key=lambda file: -file[0].st_mtime_ns)):
            room -= status.st_size
            if number >= MOST_FILES or room < 0:
                path.unlink(missing_ok=True)


def read_build_id(path: str) -> str | None:
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return find_build_id(content, read_sections(content))


def make_key(builds: Sequence[str], gdb: str) -> str:
    """Of all that decides what a description says: this code and gdb too, and the directory in which gdb looks for
    sources that are not where the debug information says."""
    status = Path(gdb).stat()
    parts = [*builds, gdb, str(status.st_size), str(status.st_mtime_ns), str(Path.cwd())]
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape"))
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
