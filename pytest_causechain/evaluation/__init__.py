"""Measures how good suspects are, on programs whose defects are known: `python -m pytest_causechain.evaluation`."""
