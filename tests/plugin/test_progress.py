"""The line that tells what the diagnoses are at."""

from __future__ import annotations

from pytest_causechain.controller.progress import describe_progress

TEXTS = {"t.py::test_a": "experiment 5, at sort()", "t.py::test_b[2]": "repeating both runs", "t.py::test_c": ""}


def test_one_test():
    texts = {"t.py::test_a": "experiment 5, at sort()"}
    line = "cause-chain: t.py::test_a: experiment 5, at sort()"
    assert describe_progress(texts, 1, 2, 80) == f"{line} (1 of 2 workers busy)"
    assert describe_progress(texts, 1, 1, 80) == line
    assert describe_progress(texts, 1, 2, len(line)) == line
    assert describe_progress(texts, 1, 2, 30) == line[:30]


def test_several_tests_get_equal_parts():
    """Those that have not said anything yet get none."""
    wide, narrow = (describe_progress(TEXTS, 2, 2, width) for width in (120, 80))
    parts = "test_a: experiment 5, at sort() | test_b[2]: repeating both runs"
    assert wide == f"cause-chain: {parts} (2 of 2 workers busy)"
    assert narrow == "cause-chain: test_a: experiment  | test_b[2]: repeatin (2 of 2 workers busy)"
    assert len(narrow) <= 80
