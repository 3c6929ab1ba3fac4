"""How many experiments a search takes: dd over groups against plain dd and ddmin, without any process."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "search"))

from simulated import CASES, Result, group, make_experiment, run_dd, run_ddmin


# A search that takes more experiments is given up: each takes longer, the more differences there are.
@pytest.mark.parametrize(("size", "most", "repetitions"), [(1_000, 2_500, 3), (100_000, 200, 1)])
def test_experiments(size: int, most: int, repetitions: int) -> None:
    print(f"\nexperiments (size of the result) among {size:,} differences, medians of {repetitions}")
    print(f"  {'':34} {'over groups':>14} {'plain dd':>14} {'ddmin':>14}")
    for causes, width in CASES:
        rows = []
        for seed in range(repetitions):
            experiment = make_experiment(size, causes, width, seed)
            rows.append(
                (
                    run_dd(group(size, width), experiment, most),
                    run_dd(group(size, 1), experiment, most),
                    run_ddmin(size, experiment, most),
                )
            )
        name = f"{causes} of single differences" if width == 1 else f"{causes} of groups of {width}, inseparable"
        cells = [show([row[way] for row in rows], most) for way in range(3)]
        print(f"  {name:34} {cells[0]:>14} {cells[1]:>14} {cells[2]:>14}")


def show(results: list[Result], most: int) -> str:
    spent, sizes = (statistics.median(column) for column in zip(*results, strict=True))
    return f"> {most}" if spent >= most else f"{spent:g} ({sizes:g})"
