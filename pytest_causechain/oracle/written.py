"""Files that an observed run wrote, while a test is replayed on it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pytest_causechain.kernel.companion import Closing


class WrittenFiles(Closing):
    """Puts files in place and, when closed, back what was there: the test's own directories may be the user's."""

    def __init__(self) -> None:
        # Content before; None: there was no file.
        self._before: dict[Path, bytes | None] = {}
        self._made: list[Path] = []

    def write(self, files: tuple[tuple[str, bytes | None], ...]) -> None:
        for name, content in files:
            path = Path(name)
            if path not in self._before:
                self._before[path] = path.read_bytes() if path.is_file() else None
            self._put(path, content)

    def close(self) -> None:
        while self._before:
            path, content = self._before.popitem()
            with contextlib.suppress(OSError):  # a directory that the test has removed itself
                self._put(path, content)
        while self._made:
            with contextlib.suppress(OSError):
                self._made.pop().rmdir()

    def _put(self, path: Path, content: bytes | None) -> None:
        if content is None:
            path.unlink(missing_ok=True)
            return
        missing = [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._made += reversed(missing)
        path.write_bytes(content)
