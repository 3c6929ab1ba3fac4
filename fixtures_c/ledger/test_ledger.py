import subprocess

import pytest

DEPOSITS = {"rent": 900, "food": 300, "books": 50, "tools": 80, "music": 20}


def run_ledger(program, *lines):
    run = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True)
    return run.stdout.splitlines()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_transfer_to_a_new_account(program, count):
    deposits = [f"deposit {name} {amount}" for name, amount in list(DEPOSITS.items())[:count]]
    output = run_ledger(program, *deposits, "transfer food gifts 40", "balance food", "balance gifts")
    assert output == ["food has 260 after 2 bookings", "gifts has 40 after 1 bookings"]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_transfer_to_a_known_account(program, count):
    deposits = [f"deposit {name} {amount}" for name, amount in list(DEPOSITS.items())[:count]]
    output = run_ledger(program, *deposits, "transfer food rent 100", "balance food", "balance rent")
    assert output == ["food has 200 after 2 bookings", "rent has 1000 after 2 bookings"]


def test_many_accounts(program):
    output = run_ledger(program, *(f"deposit account{i} {i}" for i in range(30)), "balance account17", "total")
    assert output == ["account17 has 17 after 1 bookings", "30 accounts have 435"]


def test_cannot_overdraw(program):
    output = run_ledger(program, "deposit rent 10", "transfer rent food 11", "total")
    assert output == ["refused: transfer rent food 11", "1 accounts have 10"]


def test_unknown_account(program):
    assert run_ledger(program, "balance nobody") == ["refused: balance nobody"]
