"""Tells how a run ended."""

from __future__ import annotations

import signal
from pathlib import Path

from pytest_causechain.model.chain import Failure, Rule
from pytest_causechain.model.runs import Observation

# As much of an output as fits on a line of the report.
OUTPUT_SHOWN = 200


def describe_failure(observation: Observation, rule: Rule | None) -> Failure:
    return Failure(observation.ending, f"the program {describe_outcome(observation, rule)}", observation.backtrace)


def describe_outcome(observation: Observation, rule: Rule | None) -> str:
    """How a run ended: `printed "0 11"`, `wrote words.c`, `wrote "late" to stderr`, `exited with status 3`, `was killed
    by SIGSEGV in next()`."""
    if observation.ending == "timeout":
        return "did not end in time"
    if observation.ending == "signal":
        try:
            name = signal.Signals(observation.code).name
        except ValueError:
            name = f"signal {observation.code}"
        own = next((f.function for f in observation.backtrace if f.file is not None), None)
        return f"was killed by {name}" + (f" in {own}()" if own else "")
    text = observation.stdout.decode("utf-8", "surrogateescape").strip()
    if not (text or observation.stderr) and observation.files and rule is not None and rule.kind == "output":
        more = len(observation.files) - 1
        return f"wrote {Path(observation.files[0][0]).name}" + (
            f" and {more} more file{'s' * (more > 1)}" if more else ""
        )
    if rule is not None and rule.kind == "exit":
        return f"exited with status {observation.code}"
    complaint = observation.stderr.decode("utf-8", "surrogateescape").strip()
    if complaint and not text and not observation.code:  # or nothing would tell it from others that end well
        return f'wrote "{complaint[:OUTPUT_SHOWN]}" to stderr'
    return f'printed "{text[:OUTPUT_SHOWN]}"' if text else f"exited with status {observation.code}"
