"""What the plugin costs a pytest session that does not use it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

REPETITIONS = 15
# Far above what is measured, so that only a heavy import fails here.
LIMIT = 1.5

VARIANTS = {"without the plugin": ["-p", "no:causechain"], "with it, unused": []}


def measure_start(directory: Path, options: list[str]) -> tuple[float, str]:
    """Seconds of a session that collects nothing, and what it prints."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    begin = time.perf_counter()
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    assert run.returncode == 5  # no tests
    return seconds, run.stdout.partition(" in ")[0]


def test_startup(tmp_path):
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    printed = set()
    # Interleaved, so that whatever else the machine does hits both alike; the first round fills the disk's cache.
    for repetition in range(REPETITIONS + 1):
        for name, options in VARIANTS.items():
            taken, output = measure_start(tmp_path, options)
            printed.add(output)
            if repetition:
                seconds[name].append(taken)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    ratio = medians["with it, unused"] / medians["without the plugin"]
    print(f"\n{'pytest --collect-only':<24}{'median':>10}{'fastest':>10}")
    for name, values in seconds.items():
        print(f"{name:<24}{medians[name] * 1000:>7.0f} ms{min(values) * 1000:>7.0f} ms")
    print(f"{'ratio':<24}{ratio:>10.3f}{min(seconds['with it, unused']) / min(seconds['without the plugin']):>10.3f}")
    assert len(printed) == 1
    assert ratio < LIMIT
