import subprocess

import pytest


def run_payroll(program, *lines):
    return subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True)


@pytest.mark.parametrize(
    ("line", "slip"),
    [
        pytest.param(
            "Kim 50 1500 0",
            "gross 750.00  taxable 750.00  tax 0.00  contributions 150.00  net 600.00",
            id="part-time",
        ),
        pytest.param(
            "Kim 160 1500 0",
            "gross 2400.00  taxable 2400.00  tax 210.00  contributions 480.00  net 1710.00",
            id="full-time",
        ),
        pytest.param(
            "Kim 170 2000 0",
            "gross 3500.00  taxable 3500.00  tax 475.00  contributions 700.00  net 2325.00",
            id="overtime",
        ),
        pytest.param(
            "Kim 160 1500 40000",
            "gross 2400.00  taxable 2000.00  tax 150.00  contributions 480.00  net 1770.00",
            id="allowance",
        ),
        pytest.param(
            "Kim 100 900 90000",
            "gross 900.00  taxable 0.00  tax 0.00  contributions 180.00  net 720.00",
            id="all-free-of-tax",
        ),
        pytest.param(
            "Kim 160 5000 0",
            "gross 8000.00  taxable 8000.00  tax 1940.00  contributions 1000.00  net 5060.00",
            id="well-paid",
        ),
    ],
)
def test_payslip(program, line, slip):
    run = run_payroll(program, line)
    assert (run.returncode, run.stdout) == (0, f"Kim:  {slip}\n")


def test_one_payslip_per_line(program):
    run = run_payroll(program, "Kim 50 1500 0", "Lee 10 1000 0")
    assert [line.split(":")[0] for line in run.stdout.splitlines()] == ["Kim", "Lee"]


def test_line_cannot_be_read(program):
    run = run_payroll(program, "Kim many 1500 0")
    assert (run.returncode, run.stderr) == (1, "payroll: cannot read: Kim many 1500 0\n")
