from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from building import compile_program
from manifests import change, write

from benchmarks.evaluation.manifest import ManifestError
from benchmarks.evaluation.studies import Sign, SignOracle, main, read_studies
from pytest_causechain.model.runs import Observation, Outcome

SOURCE = """\
#include <stdio.h>
#include <string.h>
static int is_loud;
static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-l") == 0)
            is_loud = 1;
}
int main(int argc, char **argv)
{
    read_options(argc, argv);
    fprintf(stderr, is_loud ? "ready!\\n" : "ready\\n");
    return 0;
}
"""
QUESTION = {
    "name": "why is it loud",
    "program": "bell",
    "passing": {"name": "quiet", "argv": ["-q"]},
    "failing": {"name": "loud", "argv": ["-l"]},
    "fails_when": {"stderr": "!$"},
}


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, Any]:
    """Studies in which all is right; the program is built by whom it concerns."""
    (tmp_path / "bell").touch()
    return {"schema": "causechain-studies/1", "questions": [json.loads(json.dumps(QUESTION))]}


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (("schema",), "2", 'the manifest has the schema "2": make it one of "causechain-studies/1".'),
        (("questions", 0), 5, "question number 1 is 5: make it an object."),
        (("questions", 0, "failing"), None, "question why is it loud has no failing: add it."),
        (
            ("questions", 0, "passing", "argv"),
            None,
            "passing of question why is it loud has no argv: add it.",
        ),
        (
            ("questions", 0, "fails_when"),
            {"stdout": "a", "status": 1},
            'fails_when of question why is it loud is not one sign: give it one of "stdout", "stderr" and "status".',
        ),
        (
            ("questions", 0, "fails_when", "stderr"),
            "(",
            "stderr of fails_when of question why is it loud is no regular expression (missing ), unterminated "
            "subpattern at position 0): mend it.",
        ),
        (
            ("questions", 0, "fails_when"),
            {"status": True},
            "status of fails_when of question why is it loud is no whole number: write the exit status.",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(tmp_path, plain, keys, value, expected):
    change(plain, keys, value)
    with pytest.raises(ManifestError) as caught:
        read_studies(write(tmp_path, plain))
    assert str(caught.value) == expected


PASSING, FAILING = Observation("exit", 0, b"same\n"), Observation("exit", 1, b"1c1\n< a\n")


@pytest.mark.parametrize("sign", [Sign(status=1), Sign(output="stdout", pattern="^<")])
def test_runs_that_end_unlike_both_are_unresolved(sign):
    oracle = SignOracle(sign, PASSING, FAILING)
    assert oracle.judge(PASSING) is Outcome.PASS
    assert oracle.judge(FAILING) is Outcome.FAIL
    assert oracle.judge(Observation("exit", 2, b"< a\n")) is Outcome.UNRESOLVED
    assert oracle.judge(Observation("timeout", 1, b"< a\n")) is Outcome.UNRESOLVED


def test_a_study(tmp_path, plain, capsys):
    compile_program(tmp_path / "bell", SOURCE)
    without = {**QUESTION, "name": "why not", "program": "manifest.json"}
    plain["questions"].append(without)
    assert main([str(write(tmp_path, plain)), "--output", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert (tmp_path / "out" / "studies.md").exists()
    (data,) = (json.loads(path.read_bytes()) for path in (tmp_path / "out").glob("why-is-it-loud*/chain.json"))
    assert [(cause["variable"], cause["failing"]) for link in data["chain"] for cause in link["causes"]] == [
        ("argv[1]", '"-l"'),
        ("is_loud", "1"),
    ]
    assert "A run fails when '!$' is found in what it writes to stderr." in told
    assert 'passes   bell -q   wrote "ready" to stderr' in told
    head, _, row, _ = (line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("|"))
    assert dict(zip(head, row, strict=True))["links"] == "2"
    assert "No cause-effect chain:" in told


def test_a_file_that_cannot_be_read(tmp_path, capsys):
    assert main([str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
