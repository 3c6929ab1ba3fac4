"""Turns a failing run and the recordings of other tests into its neighbours, nearest first.

Near is what few edits turn into the failing run's command. They are counted exactly (Levenshtein) where that is quick;
beyond WORK_LIMIT only as far as can be told without aligning the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Recording, Run

T = TypeVar("T", bound=Hashable)

# Comparisons of two elements for one result: a few milliseconds, and dozens of candidates are compared.
WORK_LIMIT = 20_000
# So many are compared edit by edit; those that are further away by a rough count would hardly be tried, but tell
# what else the program does.
MAX_COMPARED = 64
# With so many passing tests of this session those of earlier ones are left alone.
ENOUGH_KNOWN = 10


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A run of a passing test, how far it is from the failing one, and the phrase that tells a reader why it.

    `distance` weighs the edits between the commands; where the runs were traced it is the share of calls, 0 to 1, that
    only one of the two makes."""

    recording: Recording
    run: Run
    distance: float
    why: str
    # By the user.
    is_asked_for: bool = False


def rank_neighbours(failing: Recording, run: Run, candidates: Iterable[Recording]) -> list[Neighbour]:
    """Ranks the passing tests that run the same build with another command, nearest first.

    Tests of the same function come before all others; then the edits of arguments, input and environment
    count, then the node id. Of several recordings of a test the first counts. Each test has its nearest run.
    """
    screened = []
    for recording in _other_passing(failing.test, candidates):
        relation = "same test function" if _is_same_function(recording, failing) else "another test"
        runs = [
            Neighbour(recording, other, _sum_up(other.command, run.command, estimate_edits), relation)
            for other in _comparable_runs(recording, run)
        ]
        screened += [min(runs, key=lambda near: near.distance)] if runs else []

    def nearness(near: Neighbour) -> tuple[bool, float, str]:
        return not _is_same_function(near.recording, failing), near.distance, near.recording.test

    screened.sort(key=nearness)
    measured = [_measure_neighbour(near.why, run, near.recording) for near in screened[:MAX_COMPARED]]
    return sorted(measured, key=nearness) + screened[MAX_COMPARED:]


def find_named(nodeid: str, candidates: Iterable[Recording], run: Run) -> Neighbour:
    """Finds the neighbour the user asked for, by node id or by the end of one; Refusal when it cannot serve."""
    known = list(candidates)
    named = [recording for recording in known if recording.test == nodeid]
    named = named or [recording for recording in known if recording.test.endswith(f"::{nodeid}")]
    passing = [recording for recording in named if recording.outcome == "passed"]
    if not passing:
        if named:
            raise Refusal(f"The neighbour asked for, {nodeid}, does not pass: name a test that passes.")
        raise Refusal(f"No passing test {nodeid} is known: run it in the same session, or check its name.")
    if len({recording.test for recording in passing}) > 1:
        raise Refusal(f"Several passing tests are called {nodeid}: give the whole node id.")
    chosen = next((recording for recording in passing if _comparable_runs(recording, run)), None)
    if chosen is None:
        raise Refusal(_explain_unusable(passing[0], run))
    return replace(_measure_neighbour("asked for", run, chosen), is_asked_for=True)


def choose_recalled(
    failing: Recording, run: Run, known: Iterable[Recording], recalled: Iterable[Recording], named: str | None = None
) -> list[str]:
    """Chooses passing tests of earlier sessions to run again, nearest first, if few are `known` from this one; or the
    one that is `named`, if that is not known. They may have run an earlier build."""
    present = _other_passing(failing.test, known)
    older = [_rebuild(recording, run) for recording in recalled]
    if named is not None:
        wanted = [recording.test for recording in older if recording.test.endswith(named)]
        return [] if any(recording.test.endswith(named) for recording in present) else wanted
    if len([recording for recording in present if _comparable_runs(recording, run)]) >= ENOUGH_KNOWN:
        return []
    return [near.recording.test for near in rank_neighbours(failing, run, older)]


def _rebuild(recording: Recording, run: Run) -> Recording:
    """Returns the recording as if it had run the program as it is now."""
    program = run.command.program
    runs = tuple(
        other._replace(command=other.command._replace(program=program)) if _is_same_path(other, run) else other
        for other in recording.runs
    )
    return recording._replace(runs=runs)


def take_selected(select: Callable[..., object], candidates: list[Neighbour]) -> list[Neighbour]:
    """Returns the one that the project's hook selects, else all of them; Refusal when it selects something else."""
    try:
        selected = select(candidates=tuple(candidates))
    except Exception as error:
        raise Refusal(f"pytest_causechain_select_neighbour raised {error!r}: fix it in your conftest.py.") from error
    if selected is None:
        return candidates
    chosen = [replace(near, why=f"selected, {near.why}") for near in candidates if near.recording.test == selected]
    if not chosen:
        raise Refusal(
            f"pytest_causechain_select_neighbour returned {selected!r}: return the node id of one of the candidates "
            "or None."
        )
    return chosen


def explain_absence(failing: Recording, run: Run, candidates: Iterable[Recording]) -> str:
    """Says why there is no neighbour: what came closest, and what to do."""
    name = Path(run.command.program.path).name
    known = list(candidates)
    passing = _other_passing(failing.test, known)
    same_build = [recording for recording in passing if _runs_of(recording, run)]
    same_path = [recording for recording in passing if any(_is_same_path(other, run) for other in recording.runs)]
    for near in (same_build, same_path):
        if near:
            return f"no passing neighbour, since {_explain_unusable(_pick_closest(failing, near), run)}"
    failed = {recording.test for recording in known if recording.outcome == "failed" and _runs_of(recording, run)}
    if others := len(failed - {failing.test}):
        tests = "the only other test that runs it fails" if others == 1 else f"{others} other tests that run it fail"
        return f"no passing neighbour for {name}, since {tests} too: add a passing test that runs the same program."
    refused = [recording for recording in passing if any(name in sentence for sentence in recording.refusals)]
    if refused:
        closest = _pick_closest(failing, refused)
        sentence = next(sentence for sentence in closest.refusals if name in sentence)
        return f"no passing neighbour for {name}; {closest.test} passes, but {sentence}"
    elsewhere = [recording for recording in passing if recording.runs]
    if elsewhere:
        return f"no passing neighbour, since {_explain_unusable(_pick_closest(failing, elsewhere), run)}"
    return f"no passing neighbour, since no other test runs {name}: add a passing test that runs the same program."


def _explain_unusable(recording: Recording, run: Run) -> str:
    """Says why none of its runs can be compared with `run`."""
    path = run.command.program.path
    name = Path(path).name
    if _runs_of(recording, run):
        return (
            f"{recording.test} runs exactly the same command as the failing test: "
            f"use a passing test that gives {name} other arguments or input."
        )
    if any(_is_same_path(other, run) for other in recording.runs):
        return f"{recording.test} ran another build of {name}: run both tests with the same build."
    if recording.runs:
        other = recording.runs[-1].command.program.path
        return (
            f"{recording.test} runs another program ({other}) than the failing test ({path}): "
            f"use a passing test that runs {name}."
        )
    if recording.refusals:
        return recording.refusals[-1]
    return f"{recording.test} starts no program: use a passing test that runs {name}."


def _measure_neighbour(relation: str, run: Run, recording: Recording) -> Neighbour:
    """Measures the nearest of the recording's comparable runs, of which there must be one."""
    measured = [(_sum_up(other.command, run.command, weigh_edits), other) for other in _comparable_runs(recording, run)]
    distance, nearest = min(measured, key=lambda pair: pair[0])
    edits = _tell_edits(nearest.command, run.command)
    return Neighbour(recording, nearest, round(distance, 3), f"{relation}, {edits}")


def _sum_up(passing: Command, failing: Command, measure: Callable[[Sequence[str], Sequence[str]], float]) -> float:
    """Adds up the edits of arguments, input and environment."""
    edits = sum(measure(part(passing), part(failing)) for part in (_words, _lines))
    return edits + _count_environment_edits(passing, failing)


def _tell_edits(passing: Command, failing: Command) -> str:
    counted = (
        (count_edits(_words(passing), _words(failing)), "the arguments"),
        (count_edits(_lines(passing), _lines(failing)), "the input"),
        (_count_environment_edits(passing, failing), "the environment"),
    )
    edits = [f"{count} {'edit' if count == 1 else 'edits'} in {where}" for count, where in counted if count]
    return ", ".join(edits) or "the same command in another place"


def _words(command: Command) -> tuple[str, ...]:
    # The program is the same, whatever path led to it; its name may matter, as busybox's does.
    return (Path(command.argv[0]).name, *command.argv[1:]) if command.argv else ()


def _lines(command: Command) -> list[str]:
    return [line.decode("latin-1") for line in command.stdin.splitlines(keepends=True)]


def _count_environment_edits(passing: Command, failing: Command) -> int:
    return len({name for name, _ in set(passing.environment) ^ set(failing.environment)})


def _other_passing(test: str, candidates: Iterable[Recording]) -> list[Recording]:
    first: dict[str, Recording] = {}
    for recording in candidates:
        if recording.outcome == "passed" and recording.test != test:
            first.setdefault(recording.test, recording)
    return list(first.values())


def _runs_of(recording: Recording, run: Run) -> list[Run]:
    return [other for other in recording.runs if other.command.program.build_id == run.command.program.build_id]


def _comparable_runs(recording: Recording, run: Run) -> list[Run]:
    """Runs of the same build; those with the same command cannot differ but by chance."""
    return [other for other in _runs_of(recording, run) if not _is_same_command(other.command, run.command)]


def _is_same_command(one: Command, other: Command) -> bool:
    return (one.argv, one.cwd, one.environment, one.stdin) == (other.argv, other.cwd, other.environment, other.stdin)


def _is_same_path(one: Run, other: Run) -> bool:
    return one.command.program.path == other.command.program.path


def _is_same_function(one: Recording, other: Recording) -> bool:
    return one.test.partition("[")[0] == other.test.partition("[")[0]


def _pick_closest(failing: Recording, recordings: list[Recording]) -> Recording:
    return min(recordings, key=lambda recording: (not _is_same_function(recording, failing), recording.test))


# Edits


def count_edits(passing: Sequence[T], failing: Sequence[T]) -> int:
    """Counts the fewest insertions, deletions and replacements between the two.

    Takes at most WORK_LIMIT steps: where that is too few it gives the lower bound of `count_bag_edits`.
    """
    passing, failing = trim_common_ends(passing, failing)
    if len(passing) * len(failing) > WORK_LIMIT:
        return estimate_edits(passing, failing)
    return round(_align(passing, failing, lambda _one, _other: 1.0))


def weigh_edits(passing: Sequence[str], failing: Sequence[str]) -> float:
    """Counts like `count_edits`, but a replacement weighs only as much as the share of characters it changes.

    Characters are looked at when all pairs of them fit into WORK_LIMIT.
    """
    passing, failing = trim_common_ends(passing, failing)
    characters = sum(map(len, passing)) * sum(map(len, failing))
    if characters <= WORK_LIMIT and len(passing) * len(failing) <= WORK_LIMIT:
        return _align(passing, failing, _share_changed)
    if len(passing) == len(failing) == 1:
        return _share_changed(passing[0], failing[0])
    return float(count_edits(passing, failing))


def count_bag_edits(passing: Counter[T], failing: Counter[T]) -> int:
    """Counts the edits needed even if the order did not matter: never more than `count_edits`, in linear time."""
    return max((passing - failing).total(), (failing - passing).total())


def estimate_edits(passing: Sequence[T], failing: Sequence[T]) -> int:
    """Counts the edits without looking at order or characters."""
    return count_bag_edits(Counter(passing), Counter(failing))


def trim_common_ends(passing: Sequence[T], failing: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Strips what they begin and end with in common: some cheapest alignment always pairs those elements."""
    shorter = min(len(passing), len(failing))
    first = 0
    while first < shorter and passing[first] == failing[first]:
        first += 1
    last = 0
    while last < shorter - first and passing[-1 - last] == failing[-1 - last]:
        last += 1
    return passing[first : len(passing) - last], failing[first : len(failing) - last]


def _share_changed(one: str, other: str) -> float:
    """Returns the share of characters that differ, 0 to 1; it is 0 for equal texts only."""
    return count_edits(one, other) / max(len(one), len(other), 1) if one != other else 0.0


def _align(passing: Sequence[T], failing: Sequence[T], weigh: Callable[[T, T], float]) -> float:
    """Returns the cost of the cheapest alignment, where an unpaired element costs 1 and a pair of different ones
    `weigh`."""
    # row[j]: the cheapest alignment of the elements of `passing` seen so far with the first j of `failing`.
    row = [float(j) for j in range(len(failing) + 1)]
    for i, one in enumerate(passing, 1):
        diagonal, row[0] = row[0], float(i)
        for j, other in enumerate(failing, 1):
            paired = diagonal if one == other else diagonal + weigh(one, other)
            diagonal = row[j]
            row[j] = min(paired, row[j] + 1, row[j - 1] + 1)
    return row[-1]
