"""Measures how good suspects are, for programs whose defects are known: `python -m benchmarks.evaluation`."""
