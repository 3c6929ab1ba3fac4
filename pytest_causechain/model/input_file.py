"""A file that a program was started with, as it was then."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

# What is read of a file, and so what can be brought back; of larger ones size and time must tell.
MOST_BYTES = 1 << 20
# So much is kept even where the run left it as it was: later tests may not.
ALWAYS_KEPT_BYTES = 4096
# What stands for a file that is not there, and for what is none.
ABSENT, NO_FILE = "", "none"


class InputFile(NamedTuple):
    """`digest` tells whether it still is as it was; `content`, where it is known, what it was."""

    path: str
    digest: str
    content: bytes | None = None

    @property
    def can_be_restored(self) -> bool:
        return self.content is not None or self.digest == ABSENT

    def has_changed(self, place: str | None = None) -> bool:
        """Where it is to be found at another place now."""
        return read_input(place or self.path).digest != self.digest

    def keep(self) -> InputFile:
        """By its own name, and without what need not be kept, once the run is over."""
        is_kept = self.content is not None and (len(self.content) <= ALWAYS_KEPT_BYTES or self.has_changed())
        return InputFile(os.path.realpath(self.path), self.digest, self.content if is_kept else None)

    def is_as(self, content: bytes | None) -> bool:
        """Whether a run that left this behind has not changed it; None: no file."""
        return content == self.content if self.content is not None else self.digest == ABSENT and content is None

    def restore(self, root: str = "") -> None:
        """Below another root: as somebody else sees it."""
        place = Path(f"{root}{self.path}")
        if self.content is None:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(self.content)


def read_input(path: str) -> InputFile:
    try:
        # Most arguments name no file, and every start passes through here: an exception takes longer than all the rest.
        if not os.access(path, os.F_OK):
            return InputFile(path, ABSENT)
        status = os.stat(path)  # noqa: PTH116, a quarter of the time
        if not stat.S_ISREG(status.st_mode):
            return InputFile(path, NO_FILE)
        if status.st_size > MOST_BYTES:
            return InputFile(path, f"{status.st_size} {status.st_mtime_ns}")
        content = Path(path).read_bytes()
    except (OSError, ValueError):
        return InputFile(path, ABSENT)
    return InputFile(path, hashlib.blake2b(content, digest_size=16).hexdigest(), content)
