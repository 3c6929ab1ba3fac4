"""The programs of fixtures_c: each has the defect that defects.json tells of, and without it none."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import pytest
from suites import DEFECTS, FIXTURES, write_compilers

repair = runpy.run_path(str(FIXTURES / "manifest.py"))["repair"]


def copy_fixtures(directory: Path) -> None:
    ignored = shutil.ignore_patterns("build", "__pycache__")
    shutil.copytree(FIXTURES, directory, ignore=ignored, dirs_exist_ok=True)


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


def test_no_test_fails_without_the_defects(pytester, monkeypatch):
    copy_fixtures(pytester.path)
    for name, defect in DEFECTS.items():
        repair(pytester.path / name, defect)
    # Undefined behaviour other than the defect's would end the program.
    options = "-Werror -fsanitize=undefined -fno-sanitize-recover"
    for variable, compiler in write_compilers(pytester.path, options).items():
        monkeypatch.setenv(variable, compiler)
    assert run_suites(pytester) == set()
