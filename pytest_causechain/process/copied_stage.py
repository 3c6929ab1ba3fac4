"""Where no view can be had: each run works in a copy of the directory it was started in, under another name."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_causechain.model.runs import Command, InputFile
from pytest_causechain.process.injection import inject
from pytest_causechain.process.stage import FILES_TOLD, Stage, View, is_within, leave_out, list_files, read_content
from pytest_causechain.process.tracee import Tracee

# For each run: what takes longer than the run itself is no help.
MOST_BYTES, MOST_FILES = 16 << 20, 500


class CopiedStage(Stage):
    """What a run writes elsewhere, by an absolute path, it writes to the user's files."""

    def __init__(self, commands: Sequence[Command], directory: str) -> None:
        """An OSError when a directory is too large to be copied each time."""
        self._areas = sorted({os.path.realpath(command.cwd) for command in commands})
        self._own = Path(directory, "copies")
        self._own.mkdir(exist_ok=True)
        self._made = 0
        for area in self._areas:
            require_small(area)

    def admit_self(self) -> None:
        pass

    def admit(self, process: Tracee) -> None:
        pass

    def is_doubtful(self, view: View) -> bool:
        return False

    def enter(self, process: Tracee, before: View) -> View:
        here = os.readlink(f"/proc/{process.pid}/cwd")
        for number, area in enumerate(self._areas):
            source = before.upper.get(number, area)
            if here == source or here.startswith(os.path.join(source, "")):
                copy = self._copy(source, Path(area).name)
                inject(process, "chdir", os.path.normpath(os.path.join(copy, os.path.relpath(here, source))))
                return View(upper={number: copy})
        return before

    def _copy(self, source: str, name: str) -> str:
        self._made += 1
        copy = str(self._own / f"{self._made}" / name)
        shutil.copytree(source, copy, symlinks=True, ignore_dangling_symlinks=True)
        return copy

    def lend_directory(self, command: Command) -> str:
        return self._copy(command.cwd, Path(command.cwd).name)

    def reserve(self, files: Iterable[InputFile]) -> None:
        pass

    def restore(self, process: Tracee, view: View, files: Iterable[InputFile]) -> None:
        for number, copy in view.upper.items():
            for file in files:
                if is_within(file.path, (self._areas[number],)):
                    path = os.path.join(copy, os.path.relpath(file.path, self._areas[number]))
                    file._replace(path=path).restore()

    def find_original(self, path: str) -> str:
        return path

    def collect(self, command: Command, view: View) -> tuple[tuple[str, bytes | None], ...]:
        told: dict[str, bytes | None] = {}
        for number, copy in view.upper.items():
            area = Path(self._areas[number])
            now, then = set(list_files(Path(copy), ".")), set(list_files(area, "."))
            changed = {name for name in now & then if not filecmp.cmp(Path(copy, name), area / name)}
            told |= {str(area / name): read_content(Path(copy, name)) for name in (now - then) | changed}
            told |= {str(area / name): None for name in then - now}
        return leave_out(command.inputs, told)[:FILES_TOLD]


def require_small(directory: str) -> None:
    size = number = 0
    for place, _, names in os.walk(directory):
        for name in names:
            number, size = number + 1, size + os.lstat(os.path.join(place, name)).st_size
            if number > MOST_FILES or size > MOST_BYTES:
                raise OSError(f"{directory} is too large to be copied for each run")
