"""Temporary directories that do not outlive us: what a process that was killed has left, the next one removes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX, LOCK = "causechain-", "lock"
REMOVE_SECONDS = 2.0


class OwnDirectory:
    """Locked as long as this process lives; made in `parent`."""

    def __init__(self, parent: str | None = None) -> None:
        remove_orphaned(Path(parent or tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Under another name until it is locked: nobody must find it unlocked while we live.
        new = self.path / f"{LOCK}.new"
        try:
            self._lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            new.rename(self.path / LOCK)
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """What we have started ends a little later, and may write one file more."""
        deadline = time.monotonic() + REMOVE_SECONDS
        while True:
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists() or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        os.close(self._lock)


def remove_orphaned(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
