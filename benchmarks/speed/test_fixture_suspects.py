"""Guards the quality of suspects: where the defect's line stands for some programs of fixtures_c."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from benchmarks.evaluation.driver import Plan, Task, evaluate, know_suite, shuffle_versions
from benchmarks.evaluation.manifest import read_manifest
from benchmarks.evaluation.measures import measure

FIXTURES = Path(__file__).parents[2] / "fixtures_c"
# The place that the defect's line had among the suspects when this was written.
RANKS = {
    "codepoints": 1,
    "confcheck": 1,
    "csvcut": 1,
    "payroll": 1,
    "postage": 1,
    "rooms": 1,
    "sample": 1,
    "seating": 1,
}
# Time must not decide.
PLENTY_SECONDS = 600.0


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    directory = tmp_path_factory.mktemp("evaluation")
    runpy.run_path(str(FIXTURES / "manifest.py"))["write_manifest"](directory / "fixtures")
    manifest = read_manifest(directory / "fixtures" / "manifest.json")
    plan = Plan(directory, directory / "suites", timeout_seconds=PLENTY_SECONDS)
    tasks = [Task(*pair, plan) for pair in shuffle_versions(manifest, plan.seed) if pair[0].name in RANKS]
    records = evaluate(tasks, plan, 2, lambda text: print(f"\n{text}", end=""))
    return {
        task.subject.name: measure(record, know_suite(task), task.version.defects, None).rank
        for task, record in zip(tasks, records, strict=True)
    }


@pytest.mark.parametrize("program", RANKS)
def test_defect_stands_where_it_stood(program: str, ranks: dict[str, int]) -> None:
    print(f"\n{program}: the defect's line is suspect {ranks[program]}")
    assert ranks[program] <= RANKS[program]
