"""A whole evaluation of one small program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from building import compile_program

from benchmarks.evaluation.__main__ import halve, main
from benchmarks.evaluation.driver import Plan, Task, shuffle_versions
from benchmarks.evaluation.manifest import Manifest, Subject, Version, read_manifest
from benchmarks.evaluation.suite import Expectations, Shown, run_test
from pytest_causechain.model.runs import Command, Observation, Program, Run

SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
static int price(int count)
{
    int each = 10;
    if (count > 5)
        each = 8;
    return count * each;
}
int main(int argc, char **argv)
{
    printf("%d\\n", price(atoi(argv[1])));
    return argc > 2;
}
"""
DEFECT = 6


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    for name, condition in (("right", "count >= 5"), ("wrong", "count > 5")):
        compile_program(tmp_path / name, SOURCE.replace("count > 5", condition))
    tests = [{"name": number, "argv": [number]} for number in ("5", "4", "6", "0")]
    versions = [
        {"name": "strict", "program": "wrong", "sources": ["wrong.c"], "defects": [f"wrong.c:{DEFECT}"]},
        {"name": "none", "program": "right", "sources": ["right.c"], "defects": [f"right.c:{DEFECT}"]},
    ]
    program = {"name": "price", "correct": "right", "tests": tests, "versions": versions}
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"schema": "causechain-manifest/1", "name": "prices", "programs": [program]}))
    return path


def run_main(arguments: list[str]) -> str:
    """Its output; in a process of its own, since those that it starts beside itself last as long as it does."""
    command = [sys.executable, "-m", "benchmarks.evaluation", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_evaluation(manifest, tmp_path):
    output = tmp_path / "results"
    arguments = [str(manifest), "--output", str(output), "--timeout", "300"]
    assert "2 of 2: price/" in run_main(arguments)
    records = {record["version"]: record for record in map(json.loads, (output / "results.jsonl").open())}
    assert records["none"]["reason"] == "no test fails."
    strict = records["strict"]
    assert (strict["tests"], strict["status"], strict["peer"]) == (["5"], "complete", "twin")
    assert [str(tmp_path / "wrong.c"), DEFECT] in strict["repaired"]
    assert strict["ranking"][0] == [[str(tmp_path / "wrong.c"), DEFECT]]
    assert json.loads((output / "chains" / "price-strict.json").read_bytes())["test"] == "5"

    tables = (output / "tables.md").read_text()
    assert tables.startswith("1 version; no test fails on 1 more\n")
    assert "| repairs and chains | 100.0 | 100.0 | 100.0 |" in tables
    assert "| first 1 | 100.0 | 14.3 |" in tables
    assert (output / "picture.svg").read_text().startswith("<svg ")

    # What is known is not done again: a second run only tells it.
    (output / "chains" / "price-strict.json").unlink()
    run_main(arguments)
    assert not (output / "chains" / "price-strict.json").exists()
    assert (output / "tables.md").read_text() == tables


def test_wrong_manifest_is_told(tmp_path, capfd):
    assert main([str(tmp_path / "missing.json")]) == 2
    assert capfd.readouterr().err.endswith("give the path of a manifest.\n")


def test_nothing_chosen_is_told(manifest, capfd):
    assert main([str(manifest), "--only", "cost"]) == 2
    assert "No version of the manifest is chosen" in capfd.readouterr().err


def test_tests_expect_what_the_correct_program_shows(manifest):
    (subject,) = read_manifest(manifest).subjects
    shown = {test.name: run_test(subject.correct, test) for test in subject.tests}
    assert shown["5"] == Shown(0, b"40\n")
    expectations = Expectations(shown)
    run = Run(Command(Program("x", "1"), ("x",), "/"))
    assert expectations.verdict("5", run, Observation("exit", 0, b"40\n", b"ignored")).outcome == "passed"
    verdict = expectations.verdict("5", run, Observation("exit", 0, b"50\n"))
    assert (verdict.outcome, verdict.where, verdict.comparison.left.elements) == ("failed", "5:2", ("50",))
    for ended in (Observation("exit", 1, b"40\n"), Observation("signal", 11, b"40\n"), Observation("timeout", 9)):
        assert expectations.verdict("5", run, ended).where == "5:1"


def test_halves_depend_on_the_seed_alone():
    version = [Version(f"v{number}", Path("x"), (), frozenset()) for number in range(9)]
    manifest = Manifest("m", (Subject("p", Path("x"), (), tuple(version)),))
    order = [one.name for _, one in shuffle_versions(manifest, 1)]
    assert order == [one.name for _, one in shuffle_versions(manifest, 1)] != sorted(order)
    assert sorted(order) == [f"v{number}" for number in range(9)]
    plan = Plan(Path("x"), Path("x"))
    tasks = [Task(*pair, plan) for pair in shuffle_versions(manifest, 1)]
    assert halve(tasks, []) == {}
