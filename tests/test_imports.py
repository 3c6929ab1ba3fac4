"""Keeps the imports of the package pointing one way, and its plugin cheap to load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "pytest_causechain"
ROOT = Path(__file__).parent.parent / PACKAGE

# From the bottom to the top: each may import what stands in an earlier row.
ROWS = (
    ("model",),
    ("kernel", "search", "report"),
    ("debugger", "tracee", "recording"),
    ("sandbox", "states"),
    ("lab", "oracle"),
    ("alignment", "repairs"),
    ("neighbours", "causes"),
    ("compare", "settings", "hookspecs"),
    ("controller",),
    ("plugin",),
)
HEIGHT = {part: height for height, row in enumerate(ROWS) for part in row}
# The standard library, and the stubs that type checkers have of it.
STANDARD = {*sys.stdlib_module_names, "_typeshed"}
# These know the data types and nothing else, of ours or of others.
PURE = ("model", "search", "report")
# But for what pytest itself cannot do without.
ALLOWED = {"report": {"pygments"}}
# Run in gdb's own Python, which has none of our packages.
INSIDE_GDB = ("debugger/agent.py", "debugger/agent_symbols.py", "debugger/agent_library.py")


def read_imports(file: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of each import; "pytest_causechain.model" for `from pytest_causechain import model`."""
    package = (root.name, *file.relative_to(root).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def find_part(module: str, root: Path) -> str | None:
    """The part of our package an import leads to; None for __init__.py and for what is not ours."""
    names = module.split(".")
    if names[0] != root.name or len(names) == 1:
        return None
    is_part = (root / names[1]).is_dir() or (root / f"{names[1]}.py").exists()
    return names[1] if is_part else None


def find_fault(name: str, part: str, module: str, target: str | None) -> str | None:
    """What is wrong with this import in the file `name` of `part`; `target` is the part of ours it leads to."""
    outermost = module.split(".")[0]
    is_foreign = outermost not in STANDARD and outermost != PACKAGE
    if name in INSIDE_GDB:
        present = {*STANDARD, "gdb", "agent_symbols", "agent_library"}
        return None if outermost in present else f"{module} does not exist inside gdb"
    if part in PURE and is_foreign and outermost not in ALLOWED.get(part, ()):
        return f"{part} must not import {module}, only the standard library"
    if target is None or target == part:
        return None
    if part == "__init__":
        return f"{PACKAGE} itself must not import {target}"
    if part in PURE and target != "model":
        return f"{part} must not import {target}, only model"
    if HEIGHT.get(target, -1) >= HEIGHT[part]:
        return f"{part} must not import {target}, which does not stand below it"
    return None


def find_violations(root: Path) -> list[str]:
    """One sentence for each import that points the wrong way."""
    violations = []
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        part = name.split("/")[0].removesuffix(".py")
        if part != "__init__" and part not in HEIGHT:
            violations.append(f"{name}: {part} has no place in the order of imports")
            continue
        for line, module in read_imports(file, root):
            target = find_part(module, root)
            if fault := find_fault(name, part, module, target):
                violations.append(f"{name}:{line}: {fault}")
    return violations


def test_imports_point_one_way():
    assert find_violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        pytest.param("plugin.py", "from pytest_causechain.controller import method", None, id="down"),
        pytest.param("lab/pool.py", "from . import queue\nfrom pytest_causechain import __version__", None, id="own"),
        pytest.param(
            "search/dd.py",
            "from pytest_causechain.tracee import tracer",
            "search/dd.py:1: search must not import tracee, only model",
            id="pure",
        ),
        pytest.param(
            "report/text.py",
            "import rich.console",
            "report/text.py:1: report must not import rich.console, only the standard library",
            id="pure-foreign",
        ),
        pytest.param(
            "model/chain.py",
            "def render():\n    from ..report import text",
            "model/chain.py:2: model must not import report, only model",
            id="relative-and-late",
        ),
        pytest.param(
            "tracee/tracer.py",
            "from pytest_causechain import states",
            "tracee/tracer.py:1: tracee must not import states, which does not stand below it",
            id="up",
        ),
        pytest.param(
            "debugger/agent.py",
            "import json, gdb\nfrom pytest_causechain.model import chain",
            "debugger/agent.py:2: pytest_causechain.model.chain does not exist inside gdb",
            id="inside-gdb",
        ),
        pytest.param(
            "__init__.py",
            "from pytest_causechain.controller import method",
            "__init__.py:1: pytest_causechain itself must not import controller",
            id="outermost",
        ),
        pytest.param(
            "helpers.py", "import os", "helpers.py: helpers has no place in the order of imports", id="unknown"
        ),
        pytest.param(
            "sandbox/files.py",
            "from pytest_causechain.states import memory",
            "sandbox/files.py:1: sandbox must not import states, which does not stand below it",
            id="aside",
        ),
    ],
)
def test_violation_is_told(tmp_path, file, source, expected):
    root = tmp_path / PACKAGE
    for part in ("model", "tracee", "states", "lab", "report", "controller"):
        (root / part).mkdir(parents=True)
    (root / file).parent.mkdir(exist_ok=True)
    (root / file).write_text(source)
    assert find_violations(root) == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(f"import {PACKAGE}.plugin", id="import"),
        pytest.param("import pytest; pytest.main(['--collect-only'])", id="pytest"),
    ],
)
def test_plugin_is_cheap_to_load(tmp_path, start):
    source = f"{start}; import sys; print(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = set(run.stderr.split())
    assert f"{PACKAGE}.plugin" in imported
    assert imported.isdisjoint({"networkx", "pygdbmi"})


def test_what_is_not_run_each_time_can_be_run():
    """Nobody would notice for long that it has fallen behind."""
    places = ["benchmarks/speed", "tests/replays", "tests/screenshots"]
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", *places]
    run = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
