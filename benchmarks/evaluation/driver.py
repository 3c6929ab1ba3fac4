"""Diagnoses faulty versions the way a user's failing tests are diagnosed, several at a time.

Each result is a Record, one line of JSON in results.jsonl, so that an interrupted evaluation can go on."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.evaluation.manifest import Example, Manifest, Subject, Version
from benchmarks.evaluation.suite import Expectations, Shown, Suite, make_command, measure_suite, show_all
from pytest_causechain.controller.failing_test import FailingTest
from pytest_causechain.controller.strategy import Investigation
from pytest_causechain.lab.pool import Share, open_pool
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.chain import Chain, Statistics
from pytest_causechain.model.codec import decode, encode
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Program, Recording, Run
from pytest_causechain.neighbours.ranking import explain_absence, rank_neighbours
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.repairs.findings import Line


@dataclass(frozen=True, slots=True)
class Record:
    """Of the diagnosis of `tests[0]`, with the repairs of the other ones; none of them: no test fails.

    `ranking` are the suspects in order, those of equal rank together; `repaired` are the lines with a repair,
    `transitions` the lines that the chain against the neighbour blames. `reason` is set where there is no chain, or no
    whole one."""

    program: str
    version: str
    tests: tuple[str, ...] = ()
    status: str = "none"
    reason: str | None = None
    peer: str | None = None
    ranking: tuple[tuple[Line, ...], ...] = ()
    transitions: tuple[Line, ...] = ()
    repaired: tuple[Line, ...] = ()
    statistics: Statistics = field(default_factory=Statistics)

    @property
    def key(self) -> str:
        return f"{self.program}/{self.version}"


def read_records(path: Path) -> list[Record]:
    """A last line that was cut off when the run was ended is left out."""
    records = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record: Record = decode(Record, json.loads(line))
        except (ValueError, TypeError):
            continue
        records[record.key] = record
    return list(records.values())


def append_record(path: Path, record: Record) -> None:
    with path.open("a") as file:
        file.write(json.dumps(encode(record)) + "\n")


def write_whole(path: Path, value: Any) -> None:
    """Never half of it, whenever the run is ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(encode(value)))
    unfinished.replace(path)


Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """`directory` gets all results, `suites` what the tests do, which stays true when the diagnosis changes. `failing`
    tests of each version are diagnosed, `covered` failing and passing ones have their lines recorded. Each version has
    `workers` for itself, as a session of pytest has."""

    directory: Path
    suites: Path
    failing: int = 1
    covered: int = 200
    timeout_seconds: float = 60.0
    seed: int = 1
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    subject: Subject
    version: Version
    plan: Plan

    @property
    def key(self) -> str:
        return f"{self.subject.name}/{self.version.name}"


def shuffle_versions(manifest: Manifest, seed: int) -> list[tuple[Subject, Version]]:
    """In an order that only the seed decides: every second one belongs to the same half."""
    pairs = [(subject, version) for subject in manifest.subjects for version in subject.versions]
    random.Random(seed).shuffle(pairs)
    return pairs


def results_file(plan: Plan) -> Path:
    return plan.directory / "results.jsonl"


def evaluate(tasks: Sequence[Task], plan: Plan, jobs: int, progress: Progress) -> list[Record]:
    """The records of all tasks; those of an earlier run are taken as they are."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    known = {record.key: record for record in read_records(results_file(plan))}
    open_tasks = [task for task in tasks if task.key not in known]
    for number, record in enumerate(work(open_tasks, jobs), start=1):
        append_record(results_file(plan), record)
        known[record.key] = record
        seconds = record.statistics.seconds.total
        progress(f"{number} of {len(open_tasks)}: {record.key} {record.status}, {seconds:.1f} s")
    return [known[task.key] for task in tasks]


def work(tasks: Sequence[Task], jobs: int) -> Iterator[Record]:
    """As they are finished."""
    # Fresh processes: what a fork of this one would inherit is none of a diagnosis's business.
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures = [pool.submit(evaluate_version, task) for task in tasks]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def evaluate_version(task: Task) -> Record:
    subject, version, plan = task.subject, task.version, task.plan
    record = Record(subject.name, version.name)
    try:
        suite = know_suite(task)
        if not suite.failing:
            return replace(record, reason="no test fails.")
        with open_share(plan.workers) as share:
            investigations = open_investigations(task, suite, suite.failing[: plan.failing], share)
            record = replace(record, tests=tuple(one.failing.test for one in investigations))
            first, *others = investigations
            first.also_failing += others
            chain = first.find_chain()
            transitions = know_transitions(task, first)
    except Refusal as refusal:
        return replace(record, reason=str(refusal))
    except Exception as error:  # of one version; the others are worth their results
        return replace(record, reason=f"an internal error came up ({error!r}): please report it.")
    write_whole(plan.directory / "chains" / f"{subject.name}-{version.name}.json", chain)
    return conclude(record, chain, first, transitions)


@contextlib.contextmanager
def open_share(workers: int | None = None) -> Iterator[Share]:
    """For one diagnosis, of workers that it has for itself; None: as many as processors."""
    with open_pool(jobs=workers) as pool, pool.diagnosing():
        yield Share(pool)


def know_suite(task: Task) -> Suite:
    """Measured once for each build."""
    path = name_file(task, "")
    if not path.exists():
        write_whole(path, measure_suite(task.subject, task.version, task.plan.covered, task.plan.seed))
    suite: Suite = decode(Suite, json.loads(path.read_bytes()))
    return suite


def know_transitions(task: Task, investigation: Investigation) -> tuple[Line, ...]:
    """The lines at which the cause moves, between the first failing run and its neighbour. Found once for each build,
    since it takes longer than a diagnosis, which tells of the neighbour in brief where it has a twin."""
    path = name_file(task, "-transitions")
    if not path.exists():
        chain = investigation.find_neighbours_chain()
        blamed = ((t.file, t.line) for t in chain.transitions) if chain is not None else ()
        write_whole(path, tuple(dict.fromkeys(blamed)))
    transitions: tuple[Line, ...] = decode(tuple[Line, ...], json.loads(path.read_bytes()))
    return transitions


def name_file(task: Task, what: str) -> Path:
    """For what stays true of a build."""
    build = identify_program(str(task.version.program)).build_id
    return task.plan.suites / f"{task.subject.name}-{task.version.name}-{build[:12]}{what}.json"


def open_investigations(task: Task, suite: Suite, names: Sequence[str], share: Share) -> list[Investigation]:
    """As a session does, whose other tests all pass."""
    program = identify_program(str(task.version.program))
    tests = {test.name: test for test in task.subject.tests}
    passing = [record_test(program, tests[name], "passed") for name in suite.passing]
    expected = show_all(task.subject.correct, task.subject.tests)
    cache = task.plan.directory / "cache"
    setup = LabSetup(cache=cache, share=share)
    witnesses = ExpectedOutputs(expected)
    failing = [open_failing_test(program, tests[name], passing) for name in names]
    timeout_seconds = task.plan.timeout_seconds
    return [Investigation(one, timeout_seconds=timeout_seconds, setup=setup, replays=witnesses) for one in failing]


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """Tests that pass where the correct program's output is shown."""

    expected: dict[str, Shown]

    def borrow(self, tests: Iterable[str]) -> Expectations:
        return Expectations(self.expected)


def open_failing_test(program: Program, test: Example, passing: list[Recording]) -> FailingTest:
    failing = record_test(program, test, "failed")
    run = failing.runs[0]
    neighbours = rank_neighbours(failing, run, passing)
    absence = None if neighbours else explain_absence(failing, run, passing)
    return FailingTest(failing, run, tuple(neighbours), absence)


def record_test(program: Program, test: Example, outcome: str) -> Recording:
    return Recording(test.name, "passed" if outcome == "passed" else "failed", (Run(make_command(program, test)),))


def conclude(record: Record, chain: Chain, investigation: Investigation, transitions: tuple[Line, ...]) -> Record:
    assert investigation.ranking is not None  # made with the chain
    repaired = dict.fromkeys(found.attempt.line for found in investigation.ranking.repairs())
    moments = replace(chain.statistics.moments, refused=())
    return replace(
        record,
        status=chain.status,
        reason=chain.reason,
        peer=chain.peer.kind if chain.peer is not None else None,
        ranking=tuple(investigation.ranking.groups()),
        transitions=transitions,
        repaired=tuple(repaired),
        statistics=replace(chain.statistics, moments=moments),
    )
