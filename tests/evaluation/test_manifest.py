from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from manifests import change, write

from benchmarks.evaluation.manifest import ManifestError, read_manifest


@pytest.fixture
def plain(tmp_path: Path) -> dict[str, Any]:
    """A manifest in which all is right; its files exist."""
    for name in ("right", "wrong", "wrong.c", "input"):
        (tmp_path / name).touch()
    version = {"name": "v1", "program": "wrong", "sources": ["wrong.c"], "defects": ["wrong.c:3", "wrong.c:4"]}
    tests = [{"name": "1", "argv": ["-x"], "stdin": "input"}, {"name": "2", "argv": [], "cwd": "."}]
    program = {"name": "tool", "correct": "right", "tests": tests, "versions": [version]}
    return {"schema": "causechain-manifest/1", "name": "small", "programs": [program]}


def test_paths_are_relative_to_the_manifest(tmp_path, plain, monkeypatch):
    path = write(tmp_path, plain)
    monkeypatch.chdir("/")
    (subject,) = read_manifest(path).subjects
    assert subject.correct == tmp_path / "right"
    assert [(test.argv, test.stdin, test.cwd) for test in subject.tests] == [
        (("-x",), tmp_path / "input", tmp_path),
        ((), None, tmp_path),
    ]
    (version,) = subject.versions
    assert version.defects == {(str(tmp_path / "wrong.c"), 3), (str(tmp_path / "wrong.c"), 4)}


VERSION = ("programs", 0, "versions", 0)


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (("schema",), "2", 'the manifest has the schema "2": make it one of "causechain-manifest/1".'),
        (("programs",), [], "programs of the manifest is []: make it a list of objects."),
        (("programs", 0, "tests", 1, "argv"), None, "test 2 of program tool has no argv: add it."),
        (
            ("programs", 0, "tests", 1, "argv"),
            "-x",
            'argv of test 2 of program tool is "-x": make it a list of texts.',
        ),
        (
            ("programs", 0, "tests", 1, "name"),
            "1",
            "tests of program tool have the name 1 more than once: give each another.",
        ),
        (
            (*VERSION, "defects"),
            ["wrong.c"],
            '"wrong.c" in defects of version v1 of program tool is no line: write FILE:LINE.',
        ),
        ((*VERSION, "defects"), [], "version v1 of program tool has no defects: name at least one line."),
        (
            (*VERSION, "program"),
            "missing",
            "{tmp}/missing, the program of version v1 of program tool, does not exist: build it, or correct the path.",
        ),
        (VERSION, 5, "version number 1 of program tool is 5: make it an object."),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(tmp_path, plain, keys, value, expected):
    change(plain, keys, value)
    with pytest.raises(ManifestError) as caught:
        read_manifest(write(tmp_path, plain))
    assert str(caught.value) == expected.format(tmp=tmp_path)


def test_no_json(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text("{")
    with pytest.raises(ManifestError, match="is no JSON"):
        read_manifest(path)
