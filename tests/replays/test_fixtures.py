"""Every gdb script of every program in fixtures_c, replayed in plain gdb. Run by `make replays`: it takes minutes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

PLUGIN_TESTS = Path(__file__).parents[1] / "plugin"
sys.path.insert(0, str(PLUGIN_TESTS))

from replays import find_unled, replay_all  # noqa: E402
from suites import FIXTURES, SUITE_INI, read_index, run_session  # noqa: E402

DEFECTS = json.loads((FIXTURES / "defects.json").read_text())


@pytest.mark.parametrize("name", DEFECTS)
def test_each_script_shows_what_it_should(name: str, tmp_path: Path) -> None:
    shutil.copy2(FIXTURES / "conftest.py", tmp_path)
    shutil.copytree(FIXTURES / name, tmp_path / name, ignore=shutil.ignore_patterns("build", "__pycache__"))
    (tmp_path / "pytest.ini").write_text(SUITE_INI)
    # A directory of its own for tmp_path, which no other session tidies up.
    run_session(tmp_path, "--tb=no", f"--basetemp={tmp_path / 'base'}")
    for entry in read_index(tmp_path):
        path = tmp_path / ".causechain" / entry["path"]
        for replay in replay_all(json.loads(path.read_text()), path.parent):
            assert replay.is_as_expected, f"{replay.script}: not {replay.expected!r} in\n{replay.shown}"
        assert list(find_unled(json.loads(path.read_text()), path.parent)) == []
