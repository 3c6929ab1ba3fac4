"""Notices when what a run needs has gone, or has become another: a view of it would hide that."""

from __future__ import annotations

from pathlib import Path

from pytest_causechain.model.command import Command
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.process.stage import Stage


class Presence:
    def __init__(self, stage: Stage | None) -> None:
        self._stage = stage
        # By path: which file it was when it was first needed.
        self._programs: dict[str, tuple[int, int, int]] = {}

    def require(self, command: Command) -> None:
        """A Refusal when its directory or program is not as it was."""
        command.require_directory(self._find(command.cwd))
        path = command.program.path
        try:
            status = Path(self._find(path)).stat()
        except OSError:
            raise Refusal(f"{path} is gone: {LEAVE_ALONE}") from None
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._programs.setdefault(path, identity) != identity:
            raise Refusal(f"{path} was replaced by another one during the diagnosis: {LEAVE_ALONE}")

    def _find(self, path: str) -> str:
        return path if self._stage is None else self._stage.find_original(path)


LEAVE_ALONE = "build it before the tests run, and leave it alone while they do."
