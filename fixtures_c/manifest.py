"""Describes these programs for the evaluation: python fixtures_c/manifest.py DIRECTORY.

In the directory each program is built twice, as it is and without its defect. The runs of its suite become the tests
of the manifest."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_causechain.model.runs import Command
from pytest_causechain.recording.recorder import Recorder

HERE = Path(__file__).parent
build_program = runpy.run_path(str(HERE / "conftest.py"))["build_program"]
FAULTY, CORRECT = "faulty", "correct"


def repair(directory: Path, defect: dict[str, Any]) -> None:
    """Take the defect out of the source in `directory`."""
    source = directory / defect["file"]
    lines = source.read_text().splitlines()
    first = defect["line"] - 1
    lines[first : first + len(defect["was"])] = defect["repaired"]
    source.write_text("\n".join(lines) + "\n")


class Commands:
    """A plugin for pytest: how tests start their programs."""

    def __init__(self) -> None:
        self.started: list[tuple[str, Command]] = []
        self._recorder = Recorder()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._recorder.begin(item.nodeid)
        result = yield
        for number, run in enumerate(self._recorder.finish("passed").runs, start=1):
            name = item.nodeid.rpartition("/")[2].partition("::")[2]
            self.started.append((name if number == 1 else f"{name} {number}", run.command))
        return result


def describe(directory: Path, name: str, defect: dict[str, Any]) -> dict[str, Any]:
    """One program of the manifest, whose tests are yet to be found."""
    programs = {}
    for version in (FAULTY, CORRECT):
        # The program is named like its directory.
        place = directory / name / version / name
        shutil.copytree(HERE / name, place, ignore=shutil.ignore_patterns("build", "__pycache__"))
        shutil.copy(HERE / "conftest.py", place.parent)
        if version == CORRECT:
            repair(place, defect)
        programs[version] = str(build_program(place).relative_to(directory))
    place = Path(name, FAULTY, name)
    suffixes = (".c", ".h", ".cpp", ".hpp")
    sources = sorted(str(place / path.name) for path in (directory / place).iterdir() if path.suffix in suffixes)
    lines = range(defect["line"], defect["line"] + len(defect["was"]))
    defects = [f"{place / defect['file']}:{line}" for line in lines]
    faulty = {"name": "seeded", "program": programs[FAULTY], "sources": sources, "defects": defects}
    return {"name": name, "correct": programs[CORRECT], "tests": [], "versions": [faulty]}


def write_manifest(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    defects = json.loads((HERE / "defects.json").read_text())
    programs = {name: describe(directory, name, defect) for name, defect in defects.items()}
    commands = Commands()
    options = ["-q", "--tb=no", "-p", "no:cacheprovider", f"--rootdir={directory}", f"--basetemp={directory / 'tmp'}"]
    options += ["-o", "tmp_path_retention_policy=all", "--import-mode=importlib"]
    pytest.main([*options, *(str(directory / name / FAULTY) for name in programs)], plugins=[commands])
    (directory / "stdin").mkdir()
    for number, (test, command) in enumerate(commands.started):
        stdin = directory / "stdin" / str(number)
        stdin.write_bytes(command.stdin)
        entry = {"name": test, "argv": list(command.argv[1:]), "stdin": f"stdin/{number}", "cwd": command.cwd}
        programs[Path(command.program.path).name]["tests"].append(entry)
    manifest = {"schema": "causechain-manifest/1", "name": "fixtures_c", "programs": list(programs.values())}
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    write_manifest(Path(sys.argv[1]).resolve())
