"""Finds the run of a test that its failing assertion depends on.

Each run is given another output in turn, while all others are real. The one by which the failure changes where it came
up, or goes away, is guilty. Outputs of the test's other runs come first: they have a form that the test can read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Observation, Recording, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.oracle.answers import is_changed, is_same_failure
from pytest_causechain.oracle.replay import Replay
from pytest_causechain.oracle.unreplayable import Unreplayable

# Of those before a failure, the last ones count: a test that fails at its hundredth run has looked at the others.
MAX_RUNS = 20
# The outputs of so many other runs are tried in the place of each.
MAX_OTHERS = 3
MADE_UP = (Observation("exit", 0), Observation("exit", 1), Observation("exit", 0, b"0\n", b"0\n"))

Ask = Callable[[Run, Observation], Verdict]


def ask_for_guilty(replay: Replay, recording: Recording, seconds: float) -> Run:
    """By asking the test; of one that cannot be asked, the last run that was killed, else the last."""
    test = recording.test
    try:
        failure = replay.base(test)
        if failure.outcome == "failed":
            deadline = time.monotonic() + seconds
            return find_guilty(
                test, recording.runs, failure, replay.shown(test), partial(replay.verdict, test), deadline
            )
    except Unreplayable:
        pass  # whether that matters will turn out
    killed = [run for run in recording.runs if run.returncode is not None and run.returncode < 0]
    return (killed or recording.runs)[-1]


def find_guilty(
    test: str, runs: Sequence[Run], failure: Verdict, shown: Sequence[Observation], ask: Ask, deadline: float
) -> Run:
    """The last run by which the failure can be changed; Refusal when there is none.

    `failure` is what the test says of its real runs, which have `shown` this. Where several runs change it, as when two
    outputs are compared with each other, the last one is what the test was about to look at."""
    moved: Run | None = None
    for run in reversed(runs[-MAX_RUNS:]):
        effects = set()
        for observation in _choose_probes(shown):
            if time.monotonic() >= deadline:
                return moved or runs[-1]
            effects.add(tell_effect(ask(run, observation), failure))
            if "decides" in effects:
                return run
        if "moves" in effects and moved is None:
            moved = run
    if moved is None:
        raise Refusal(
            f"{test} fails in the same way whatever its {len(runs)} runs print and return, so that none of them "
            "explains it: let it look at their output, exit status or files."
        )
    return moved


def _choose_probes(shown: Sequence[Observation]) -> Iterator[Observation]:
    yield from shown[-MAX_OTHERS:]
    yield from MADE_UP


def tell_effect(verdict: Verdict, failure: Verdict) -> str:
    """Whether another output "decides" over the failure, only "moves" it to an earlier place, or does "nothing"."""
    if verdict.outcome == "passed":
        return "decides"
    if verdict.outcome != "failed":
        return "moves"
    if is_same_failure(verdict, failure):
        if not is_changed(verdict, failure):
            return "nothing"
        # In a loop an earlier run may have become the one that fails there.
        return "decides" if verdict.starts >= failure.starts else "moves"
    return "decides" if verdict.starts >= failure.starts and _is_later(verdict, failure) else "moves"


def _is_later(verdict: Verdict, failure: Verdict) -> bool:
    """Whether the test came further: in the first place where the two ways part, it is at a later line."""
    for one, other in zip(verdict.trail, failure.trail, strict=False):
        if one != other:
            file, _, line = one.rpartition(":")
            before, _, earlier = other.rpartition(":")
            return file == before and int(line) > int(earlier)
    return False
