import subprocess

import pytest

OFFERS = ["flat day 30", "flat night 20", "stepped family 10 25 day"]


def run_tariffs(program, *commands):
    run = subprocess.run([program], input="\n".join([*OFFERS, *commands]) + "\n", capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    "customers",
    [
        pytest.param(["Ada"], id="one"),
        pytest.param(["Bob"], id="another"),
        pytest.param(["Ada", "Bob"], id="two"),
    ],
)
def test_bills_after_the_tariff_was_replaced(program, customers):
    signed = [f"sign {customer} day" for customer in customers]
    readings = [f"read {customer} 100" for customer in customers]
    bills = [f"bill {customer}" for customer in customers]
    output = run_tariffs(program, *signed, *readings, "replace day 40", *bills)
    assert output == [f"{customer} pays 4000" for customer in customers]


def test_others_keep_their_tariff(program):
    output = run_tariffs(
        program,
        "sign Ada day",
        "sign Bob night",
        "read Ada 10",
        "read Bob 10",
        "replace day 40",
        "bill Ada",
        "bill Bob",
    )
    assert output == ["Ada pays 400", "Bob pays 200"]


@pytest.mark.parametrize(("units", "cents"), [(5, 125), (10, 250), (30, 850)])
def test_steps(program, units, cents):
    assert run_tariffs(program, "sign Ada family", f"read Ada {units}", "bill Ada") == [f"Ada pays {cents}"]


def test_raised_tariff(program):
    output = run_tariffs(program, "sign Ada family", "read Ada 30", "raise family 5", "bill Ada")
    assert output == ["Ada pays 1000"]


def test_several_readings(program):
    assert run_tariffs(program, "sign Ada night", "read Ada 10", "read Ada 25", "bill Ada") == ["Ada pays 500"]


def test_unknown_command(program):
    run = subprocess.run([program], input="steal power\n", capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (1, "tariffs: cannot obey: steal power\n")
