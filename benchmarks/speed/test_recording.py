"""What recording costs a suite of short native tests that all pass, so that nothing is diagnosed."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROUNDS = 15
TESTS = 200
# What a passing suite may take longer.
LIMIT = 1.05

PROGRAM = r"""
#include <stdio.h>

int main(int argc, char **argv)
{
    int c;
    while ((c = getchar()) != EOF)
        putchar(c + 1);
    printf(" %s\n", argv[argc - 1]);
    return 0;
}
"""
SUITE = f"""
import subprocess

import pytest


@pytest.mark.parametrize("number", range({TESTS}))
def test_shifts(number):
    run = subprocess.run(["./shift", str(number)], input="abc", capture_output=True, text=True)
    assert run.stdout == f"bcd {{number}}\\n"
"""
VARIANTS = {"without --cause-chain": [], "with it": ["--cause-chain"]}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "shift.c").write_text(PROGRAM)
    subprocess.run(["cc", "-g", "-O0", "-o", "shift", "shift.c"], cwd=tmp_path, check=True)
    (tmp_path / "test_shift.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def measure(suite: Path, options: list[str]) -> tuple[float, float]:
    """Seconds that pass, and seconds of processor time of the session and all it starts."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", *options]
    # Else all of the plugin would be compiled anew in each session.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = subprocess.run(command, cwd=suite, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert f"{TESTS} passed" in run.stdout
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_recording(suite: Path) -> None:
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    # Interleaved, so that whatever else the machine does hits both alike; the first round fills the disk's cache.
    for number in range(ROUNDS + 1):
        for name, options in VARIANTS.items():
            taken = measure(suite, options)
            if number:
                measured[name].append(taken)
    print(f"\n{f'{TESTS} native tests':<24}{'median':>10}{'fastest':>10}{'processor':>12}")
    for name, taken in measured.items():
        wall, used = zip(*taken, strict=True)
        print(f"{name:<24}{statistics.median(wall):>8.2f} s{min(wall):>8.2f} s{statistics.median(used):>10.2f} s")
    pairs = list(zip(*measured.values(), strict=True))
    ratios = [statistics.median(with_it[n] / without[n] for without, with_it in pairs) for n in (0, 1)]
    print(f"{'ratio':<24}{ratios[0]:>10.3f}{'':>10}{ratios[1]:>12.3f}")
    # Time of the processor: on a busy machine what passes tells more of the others.
    assert ratios[1] < LIMIT
