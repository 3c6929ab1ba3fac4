import subprocess

import pytest

DELIVERIES = ["deliver bolt 100 5", "deliver nut 80 3"]


def run_warehouse(program, *commands):
    run = subprocess.run([program], input="\n".join(commands) + "\n", capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param("bolt 10", ["Ada pays 50", "bolt 90", "nut 80", "2 articles, 0 orders waiting"], id="enough"),
        pytest.param("bolt 101", ["Ada waits", "bolt 100", "nut 80", "2 articles, 1 orders waiting"], id="too-few"),
        pytest.param("nail 10", ["Ada waits", "bolt 100", "nut 80", "2 articles, 1 orders waiting"], id="unknown"),
        pytest.param("bolt 9 nut 99", ["Ada waits", "bolt 100", "nut 80", "2 articles, 1 orders waiting"], id="two"),
    ],
)
def test_inventory_after_order(program, order, expected):
    assert run_warehouse(program, *DELIVERIES, f"order Ada {order}", "inventory") == expected


def test_price_of_two_articles(program):
    assert run_warehouse(program, *DELIVERIES, "order Ada bolt 10 nut 10") == ["Ada pays 80"]


def test_waiting_order_is_sent_when_articles_come(program):
    output = run_warehouse(program, *DELIVERIES, "order Ada nut 81", "order Bob nail 5", "deliver nut 1 3")
    assert output == ["Ada waits", "Bob waits", "sent to Ada"]


def test_oldest_order_first(program):
    orders = ["order Ada nut 100", "order Bob nut 90", "order Cleo nut 95"]
    output = run_warehouse(program, *DELIVERIES, *orders, "deliver nut 110 3", "inventory")
    assert output[3:] == ["sent to Ada", "sent to Bob", "bolt 100", "nut 0", "2 articles, 1 orders waiting"]


def test_unknown_command(program):
    run = subprocess.run([program], input="steal bolt\n", capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (1, "warehouse: cannot obey: steal bolt\n")
