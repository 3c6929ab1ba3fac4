"""Small native programs with their pytest suites, and what a pytest session over one leaves to look at."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures_c"
DEFECTS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "defects.json").read_text())

# The smallest chain there is: one link, an exit status.
COUNT = """
int main(int argc, char **argv)
{
    (void)argv;
    return argc > 2;
}
"""
TEST_COUNT = """
import subprocess

import pytest


@pytest.mark.parametrize("number", [0, 1, 2])
def test_count(number):
    run = subprocess.run(["./count", *"x" * number])
    assert run.returncode == 0
"""
# The largest part of a session's time would be the import of plugins that hardly any suite of ours uses.
UNUSED_PLUGINS = ("hypothesispytest", "html", "metadata", "allure_pytest", "reportlog")
# For the tests of how we get on with them.
OTHER_PLUGINS = ("pytest_cov", "rerunfailures", "timeout", "randomly")
# One worker each: the processors have other tests to run.
SUITE_INI = f"""\
[pytest]
addopts = {" ".join(f"-p no:{name}" for name in (*UNUSED_PLUGINS, *OTHER_PLUGINS))}
cause_chain_jobs = 1
"""
FAILING = "test_count.py::test_count[2]"
# Repairs have tests of their own, and take longer than all the rest.
NEIGHBOURS_ONLY = """
from pytest_causechain.controller import strategy

strategy.find_repairs = lambda *arguments, **keywords: None
"""
# Nothing waits that long unless it is broken.
PATIENCE_SECONDS = 60.0

# A named variable of the environment tells all processes that a session has started, whoever their parent is now.
TOKEN = "CAUSECHAIN_TESTED_BY"


def write_compilers(directory: Path, options: str) -> dict[str, str]:
    """Compilers with further options, as variables of the environment by which the suites of fixtures_c find them."""
    for compiler in ("cc", "c++"):
        script = directory / f"strict-{compiler}"
        script.write_text(f'#!/bin/sh\nexec {compiler} {options} "$@"\n')
        script.chmod(0o755)
    return {"CC": str(directory / "strict-cc"), "CXX": str(directory / "strict-c++")}


@dataclass(frozen=True, slots=True)
class Session:
    """A finished pytest session in `directory`."""

    directory: Path
    returncode: int
    output: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    def outcomes(self) -> dict[str, str]:
        """Needs -rA and a wide terminal: node id to outcome."""
        ended = re.findall(r"^(PASSED|FAILED|ERROR) (.+?)(?: - .*)?$", self.output, re.M)
        return {test: outcome for outcome, test in ended}


# share_session(name, run) and diagnosed(name), see conftest.py.
ShareSession = Callable[[str, Callable[[Path], Session]], Session]
Diagnosed = Callable[[str], Session]


def run_session(directory: Path, *arguments: str, **environment: str) -> Session:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--cause-chain", *arguments],
        cwd=directory,
        env=user_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Session(directory, run.returncode, run.stdout)


def user_environment(changes: Mapping[str, str] = {}) -> dict[str, str]:
    """Nothing of the session that the tests themselves run in."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**own, "COLUMNS": "80", **changes}


# Which repairs are found in the usual time depends on how busy the machine is.
PATIENTLY = "--cause-chain-timeout=900"


def copy_fixture(name: str, directory: Path) -> None:
    shutil.copy2(FIXTURES / "conftest.py", directory)
    shutil.copytree(FIXTURES / name, directory / name, ignore=shutil.ignore_patterns("build", "__pycache__"))
    (directory / "pytest.ini").write_text(SUITE_INI)


def run_fixture(name: str, directory: Path) -> Session:
    copy_fixture(name, directory)
    compilers = write_compilers(directory.parent, "-Werror")
    return run_session(directory, "-n", "0", "-rA", PATIENTLY, **compilers)


_TITLE = re.compile(r"-+ cause-effect chain(?:: (?P<test>.+?))? -+")
_END = re.compile(r"={4,}|_{4,} |!{4,}|-{4,} |cause-chain: ")


def read_sections(output: str) -> Iterator[list[str]]:
    """The sections about chains, each with its title."""
    section: list[str] | None = None
    for line in output.splitlines():
        title = _TITLE.fullmatch(line)
        if section is not None and (title or _END.match(line)):
            yield section
            section = None
        if title:
            section = []
        if section is not None:
            section.append(line)
    if section is not None:
        yield section


def read_section(output: str, test: str = "") -> list[str]:
    """The only section, or the one whose title, with --tb=no, has the test's name."""
    sections = [section for section in read_sections(output) if test in section[0]]
    assert len(sections) == 1, output
    return sections[0]


def read_sentence(output: str, test: str = "") -> str:
    """The section of a refusal as one line."""
    _title, *lines = read_section(output, test)
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(lines)
    assert text.startswith("No cause-effect chain: ")
    return text.removeprefix("No cause-effect chain: ")


def read_index(directory: Path, place: str = ".causechain") -> list[dict[str, Any]]:
    index = json.loads((directory / place / "index.json").read_text())
    assert index["schema"] == "causechain-index/1"
    chains: list[dict[str, Any]] = index["chains"]
    return chains


def read_chain(directory: Path, test: str = "", place: str = ".causechain") -> dict[str, Any]:
    """The chain of the only test listed in the index, or of the test with this node id."""
    listed = [entry for entry in read_index(directory, place) if test in ("", entry["test"])]
    assert len(listed) == 1
    chain: dict[str, Any] = json.loads((directory / place / listed[0]["path"]).read_text())
    return chain


def find_alternative(chain: dict[str, Any]) -> dict[str, Any]:
    """The chain against the neighbour, behind that of the twin."""
    (alternative,) = chain["alternatives"]
    assert alternative["peer"]["kind"] == "neighbour"
    found: dict[str, Any] = alternative
    return found


def rank_defect(chain: dict[str, Any], defect: dict[str, Any]) -> int | None:
    """The place among the suspects of the defect, its line or one beside it, as defects.json tells of it."""
    first, count = defect["line"], len(defect["was"])
    suspects = (s["rank"] for s in chain["suspects"] if is_beside(s, defect["file"], first - 1, first + count))
    return next(suspects, None)


def is_beside(suspect: dict[str, Any], file: str, first: int, last: int) -> bool:
    return Path(suspect["file"]).name == file and first <= suspect["line"] <= last


def find_processes(token: str) -> list[str]:
    """Command lines of the living processes that have the token; those just killed get a moment to vanish."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := list(list_processes(token).values())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def list_processes(token: str) -> dict[int, str]:
    """The living processes that have the token, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{TOKEN}={token}".encode() in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes()
                found[int(process.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # not ours, or gone
            continue
    return found
