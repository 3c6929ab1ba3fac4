"""What it takes to find the repairs of the programs in fixtures_c, in whole sessions.

Only what cannot depend on the machine is asserted: that there are repairs, and a first suspect."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures_c"
PROGRAMS = sorted(path.parent.name for path in FIXTURES.glob("*/test_*.py"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_repairs(program: str, tmp_path: Path) -> None:
    shutil.copy2(FIXTURES / "conftest.py", tmp_path)
    shutil.copytree(FIXTURES / program, tmp_path / program, ignore=shutil.ignore_patterns("build", "__pycache__"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "--cause-chain"]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False)
    chains = [json.loads(path.read_bytes()) for path in sorted(tmp_path.glob(".causechain/*/chain.json"))]
    assert chains
    for chain in chains:
        statistics, seconds = chain["statistics"], chain["statistics"]["seconds"]
        print(
            f"\n{chain['test']}: {len(chain['repairs'])} repairs in {len({r['line'] for r in chain['repairs']})} lines "
            f"by {statistics['interventions']} interventions, {statistics['interventions'] / seconds['repairs']:.0f} "
            f"a second; twin's chain by {statistics['experiments']['pass'] + statistics['experiments']['fail']} "
            f"experiments; {seconds['repairs']:.1f} s for repairs, {seconds['total']:.1f} s in all"
        )
        assert chain["repairs"] and chain["suspects"]
