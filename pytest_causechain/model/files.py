"""Writes files so that whoever reads them finds them whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file; what is there until then can still be read. It belongs to its owner alone."""
    handle, name = tempfile.mkstemp(prefix=".causechain-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
