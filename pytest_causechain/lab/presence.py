"""Notices when what a run needs has gone, or has become another: a view of it would hide that."""

from __future__ import annotations

from pathlib import Path

from pytest_causechain.model.command import Command
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.sandbox.stage import Stage


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

    def settle(self, command: Command) -> Command:
        """The same, with those of its input files that are to be restored for its run."""
        changed = tuple(file for file in command.inputs if file.has_changed(self._find(file.path)))
        for file in changed:
            if self._stage is None or not self._stage.can_restore(file):
                name = Path(command.program.path).name
                raise Refusal(
                    f"{file.path} is not as {name} found it in its test: let each test have files of its own, in "
                    "tmp_path for instance."
                )
        return command._replace(inputs=changed)

    def _find(self, path: str) -> str:
        return path if self._stage is None else self._stage.find_original(path)


LEAVE_ALONE = "build it before the tests run, and leave it alone while they do."
