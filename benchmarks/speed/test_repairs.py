"""What it takes to find the repairs of the programs in fixtures_c in whole sessions, how often they name the defect.

Only what cannot depend on the machine is asserted: that there are suspects, and that the defect or the line beside it
is among the first three in four of five programs with a small mistake of everyday (a `kind` in defects.json)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN_TESTS = Path(__file__).parents[2] / "tests" / "plugin"
sys.path.insert(0, str(PLUGIN_TESTS))

from suites import FIXTURES, rank_defect  # noqa: E402

DEFECTS = json.loads((FIXTURES / "defects.json").read_text())
# For each failing test: a busy machine must not decide what is found.
SECONDS = 120
FIRST, SHARE = 3, 0.8

# The best rank of the defect over the failing tests of each program; None: it is no suspect.
ranks: dict[str, int | None] = {}


@pytest.mark.parametrize("program", DEFECTS)
def test_repairs(program: str, tmp_path: Path) -> None:
    shutil.copy2(FIXTURES / "conftest.py", tmp_path)
    shutil.copytree(FIXTURES / program, tmp_path / program, ignore=shutil.ignore_patterns("build", "__pycache__"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "--cause-chain", f"--cause-chain-timeout={SECONDS}"]
    subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    chains = [json.loads(path.read_bytes()) for path in sorted(tmp_path.glob(".causechain/*/chain.json"))]
    assert chains
    found = [rank_defect(chain, DEFECTS[program]) for chain in chains]
    for chain, rank in zip(chains, found, strict=True):
        statistics, seconds = chain["statistics"], chain["statistics"]["seconds"]
        experiments = statistics["experiments"]["pass"] + statistics["experiments"]["fail"]
        experiments += statistics["experiments"]["unresolved"]
        print(
            f"\n{chain['test']}: {len(chain['repairs'])} repairs in {len({r['line'] for r in chain['repairs']})} lines "
            f"by {statistics['interventions']} interventions, {rate(statistics['interventions'], seconds['repairs'])} "
            f"a second; {experiments} experiments, {rate(experiments, seconds['experiments'])} a second; "
            f"{seconds['repairs']:.1f} s for repairs, {seconds['total']:.1f} s in all; defect: suspect {rank or '-'}"
        )
        assert chain["suspects"]
    ranks[program] = min((rank for rank in found if rank is not None), default=None)


def rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.0f}" if seconds else "-"


def test_defects_are_among_the_first_suspects() -> None:
    """Of the programs that were diagnosed before."""
    print(f"\n{'program':<12}{'suspect':>8}   mistake")
    for program, rank in ranks.items():
        print(f"{program:<12}{rank or '-':>8}   {DEFECTS[program].get('kind', '')}")
    hits = {program for program, rank in ranks.items() if rank is not None and rank <= FIRST}
    everyday = {program for program in ranks if "kind" in DEFECTS[program]}
    print(f"among the first {FIRST}: {len(hits)} of {len(ranks)} programs;", end=" ")
    print(f"with a small mistake of everyday {len(hits & everyday)} of {len(everyday)}")
    assert everyday
    assert len(hits & everyday) >= SHARE * len(everyday)
