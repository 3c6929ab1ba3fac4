import subprocess

import pytest


def run_postage(program, arguments):
    return subprocess.run([program, *arguments.split()], capture_output=True, text=True)


def read_prices(run):
    assert run.returncode == 0
    return [line.split()[-1] for line in run.stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "price"),
    [
        pytest.param("1200", "3.90", id="plain"),
        pytest.param("-e 1200", "5.85", id="express"),
        pytest.param("-i 1200", "5.40", id="insured"),
        pytest.param("-e -i 1200", "7.35", id="both"),
        pytest.param("-z 3 1200", "16.00", id="overseas"),
        pytest.param("-z 3 -i 1200", "17.60", id="overseas-insured"),
        pytest.param("-z 2 -e 300", "6.30", id="light"),
    ],
)
def test_price_of_one_parcel(program, arguments, price):
    assert read_prices(run_postage(program, arguments)) == [price, price]


def test_sum_of_parcels(program):
    assert read_prices(run_postage(program, "-z 2 500 501 20000")) == ["4.20", "8.50", "24.00", "36.70"]


@pytest.mark.parametrize("grams", [0, 20001])
def test_cannot_be_sent(program, grams):
    run = run_postage(program, f"-e {grams}")
    assert (run.returncode, run.stderr) == (1, f"postage: cannot be sent: {grams} g\n")


@pytest.mark.parametrize("arguments", ["", "-z 4 100", "-x 100"])
def test_usage(program, arguments):
    assert run_postage(program, arguments).returncode == 2
