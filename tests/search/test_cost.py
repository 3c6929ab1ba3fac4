"""How many experiments dd over groups takes, against plain dd."""

from __future__ import annotations

import math

import pytest
from simulated import CASES, group, make_experiment, run_dd


@pytest.mark.parametrize(("causes", "width"), CASES)
def test_hardly_ever_more_than_plain_dd(causes: int, width: int) -> None:
    for seed in range(3):
        experiment = make_experiment(1_000, causes, width, seed)
        plain, _ = run_dd(group(1_000, 1), experiment, most=200)
        assert run_dd(group(1_000, width), experiment, most=200)[0] <= 1.1 * plain


@pytest.mark.parametrize(("causes", "width"), CASES)
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_logarithmic_where_a_group_decides(size: int, causes: int, width: int) -> None:
    spent, found = run_dd(group(size, width), make_experiment(size, causes, width, seed=1), most=100)
    assert spent <= 1.5 * math.log2(size) + 10
    # Where several are needed together, the last one decides.
    assert found == width
