import subprocess

import pytest


@pytest.mark.parametrize(
    "given",
    [
        pytest.param([9, 8, 7], id="three"),
        pytest.param([11, 14], id="two"),
        pytest.param([4, 2, 4], id="repeated"),
        pytest.param([25, 3, 8, 41, 16], id="five"),
        pytest.param([70, 60, 50, 40, 30, 20, 10], id="seven"),
    ],
)
def test_sorts(program, given):
    run = subprocess.run([program, *map(str, given)], capture_output=True, text=True)
    numbers = [int(word) for word in run.stdout.split()]
    assert numbers == sorted(given)
