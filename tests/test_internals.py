"""What docs/internals.md says of the packages, files and names is so."""

from __future__ import annotations

import re
from pathlib import Path

from test_imports import ROWS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "internals.md").read_text()


def read_table(title: str) -> list[list[str]]:
    """The cells of the rows, without the head, of the table in the section of this title."""
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_all_packages_are_in_the_table_in_the_order_of_imports():
    listed = [name for row in read_table("Packages") for name in row[0].split(", ")]
    height = {name: number for number, row in enumerate(ROWS) for name in row}
    assert sorted(listed) == sorted(height)
    assert [height[name] for name in listed] == sorted(height[name] for name in listed)


def test_files_exist():
    named = set(re.findall(r"[\w/]+\.py\b|\b(?:tests|benchmarks)/[\w/]+", TEXT))
    assert len(named) > 20
    assert [
        name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "pytest_causechain"))
    ] == []


def test_names_exist():
    """Those in code type that look like a class, a constant or a function."""
    sources = "\n".join(
        file.read_text() for top in ("pytest_causechain", "tests") for file in (ROOT / top).rglob("*.py")
    )
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    names = {word for code in re.findall(r"`([^`\n]+)`", prose) for word in re.findall(r"[A-Za-z_]\w+", code)}
    places = {word for code in re.findall(r"`([\w/]+(?:/|\.py))`", prose) for word in re.findall(r"\w+", code)}
    unknown = {name for name in names - places if not re.search(rf"\b{name}\b", sources)}
    assert unknown - {"evaluate"} == set()
