"""Keeps names telling: one class for each, data with types, and the shares of the budget in one place."""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "pytest_causechain"
# JSON that is only passed on, and what others give no type to.
MOST_ANY = 30


def read_modules() -> Iterator[tuple[str, str]]:
    for file in sorted(ROOT.rglob("*.py")):
        yield file.relative_to(ROOT).as_posix(), file.read_text()


def test_no_public_class_name_means_two_things():
    where = collections.defaultdict(set)
    for name, text in read_modules():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(name)
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_data_have_types():
    count = collections.Counter(
        {
            name: sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(text)))
            for name, text in read_modules()
        }
    )
    assert count.total() < MOST_ANY, count.most_common(10)


def test_shares_of_the_budget_stand_in_one_place():
    shares = {name for name, text in read_modules() if re.search(r"^(?=\w).*\b\w*SHARES?\b.* = ", text, re.MULTILINE)}
    assert shares == {"model/budget.py"}
