"""The programs of fixtures_c: each has the defect that defects.json tells of, and no other."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures_c"
DEFECTS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "defects.json").read_text())
repair = runpy.run_path(str(FIXTURES / "manifest.py"))["repair"]


def copy_fixtures(directory: Path) -> None:
    ignored = shutil.ignore_patterns("build", "__pycache__")
    shutil.copytree(FIXTURES, directory, ignore=ignored, dirs_exist_ok=True)


def set_compilers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    for variable, compiler in (("CC", "cc"), ("CXX", "c++")):
        script = pytester.path / f"strict-{compiler}"
        script.write_text(f'#!/bin/sh\nexec {compiler} {options} "$@"\n')
        script.chmod(0o755)
        monkeypatch.setenv(variable, str(script))


def run_suites(pytester: pytest.Pytester) -> set[str]:
    """The tests that failed, as PROGRAM::TEST."""
    result = pytester.runpytest_subprocess("-n", "0", "-rA", "--tb=no")
    ended = re.findall(r"^(PASSED|FAILED|ERROR) (\w+)/\w+\.py(::.+?)(?: - .*)?$", result.stdout.str(), re.M)
    assert {program for _, program, _ in ended} == DEFECTS.keys()
    return {f"{program}{test}" for outcome, program, test in ended if outcome != "PASSED"}


def test_each_program_is_listed():
    assert DEFECTS.keys() == {path.parent.name for path in FIXTURES.glob("*/test_*.py")}


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_where_it_is_said_to_be(name):
    defect = DEFECTS[name]
    lines = (FIXTURES / name / defect["file"]).read_text().splitlines()
    first = defect["line"] - 1
    assert lines[first : first + len(defect["was"])] == defect["was"]


def test_only_the_listed_tests_fail(pytester, monkeypatch):
    copy_fixtures(pytester.path)
    set_compilers(pytester, monkeypatch, "-Werror")
    assert run_suites(pytester) == {f"{name}::{test}" for name, defect in DEFECTS.items() for test in defect["fails"]}


def test_no_test_fails_without_the_defects(pytester, monkeypatch):
    copy_fixtures(pytester.path)
    for name, defect in DEFECTS.items():
        repair(pytester.path / name, defect)
    # Undefined behaviour other than the defect's would end the program.
    set_compilers(pytester, monkeypatch, "-Werror -fsanitize=undefined -fno-sanitize-recover")
    assert run_suites(pytester) == set()
