import subprocess

import pytest


def run_tickets(program, *plans):
    run = subprocess.run([program, *plans], capture_output=True, text=True)
    assert run.returncode == 0
    return run.stdout.splitlines()


@pytest.mark.parametrize(
    ("count", "waiting"),
    [
        pytest.param(1000, ["ticket 01001", "ticket 01002"], id="morning"),
        pytest.param(99990, ["ticket 99991", "ticket 99992"], id="year"),
        pytest.param(99998, ["ticket 99999", "ticket 00001"], id="next-year"),
    ],
)
def test_two_customers_after_many(program, count, waiting):
    output = run_tickets(program, f"{count}xes", "1xee")
    assert output == [f"served {count}, sent away 0, waiting 2", *waiting]


def test_all_are_served(program):
    assert run_tickets(program, "500xeess") == ["served 1000, sent away 0, waiting 0"]


def test_nobody_to_serve(program):
    assert run_tickets(program, "1xsse") == ["served 0, sent away 0, waiting 1", "ticket 00001"]


def test_full_waiting_room(program):
    output = run_tickets(program, "8xe", "2xs")
    assert output == ["served 2, sent away 2, waiting 4", *(f"ticket {number:05}" for number in range(3, 7))]


def test_no_plan(program):
    run = subprocess.run([program, "3xabc"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (2, "tickets: no plan: 3xabc\n")
