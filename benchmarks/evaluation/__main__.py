"""The command: python -m benchmarks.evaluation MANIFEST."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evaluation.dependence import make_graph
from benchmarks.evaluation.driver import Plan, Record, Task, evaluate, know_suite, shuffle_versions
from benchmarks.evaluation.manifest import ManifestError, read_manifest
from benchmarks.evaluation.measures import Measure, measure
from benchmarks.evaluation.tables import draw_picture, table_hits, table_statements, tell_all


def count(text: str) -> int:
    """ValueError for what is none."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evaluation",
        description="Diagnose programs whose defects are known, and tell how good the suspects are. A run that was "
        "ended goes on where it was when it is started again.",
    )
    parser.add_argument("manifest", type=Path, help="programs, tests and defects (benchmarks/evaluation/manifest.py)")
    parser.add_argument("--output", type=Path, default=Path("build/evaluation"), help="directory for the results")
    parser.add_argument("--suites", type=Path, help="directory for what the tests do (default: suites in OUTPUT)")
    parser.add_argument("--failing", type=count, default=1, metavar="N", help="failing tests of each version (1)")
    parser.add_argument("--covered", type=count, default=200, metavar="N", help="of each outcome, for coverage (200)")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for each failing test (60)")
    parser.add_argument("--jobs", type=count, default=1, metavar="N", help="versions at a time (1)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is chosen by lot (1)")
    parser.add_argument("--half", choices=["first", "second"], help="only this half of the versions")
    parser.add_argument("--sample", type=count, metavar="N", help="only so many versions, chosen by lot")
    parser.add_argument("--only", action="append", default=[], metavar="PROGRAM[/VERSION]", help="only these")
    return parser.parse_args(arguments)


def choose_tasks(options: argparse.Namespace, every: list[Task]) -> list[Task]:
    tasks = every
    if options.half:
        tasks = tasks[0 if options.half == "first" else 1 :: 2]
    if options.only:
        tasks = [task for task in tasks if {task.key, task.subject.name} & set(options.only)]
    return tasks[: options.sample]


def measure_all(tasks: Sequence[Task], records: Sequence[Record]) -> list[Measure]:
    """Of the versions that some test fails on."""
    measures = []
    for task, record in zip(tasks, records, strict=True):
        if record.tests:
            suite = know_suite(task)
            graph = make_graph(task.version.sources, frozenset(suite.lines))
            measures.append(measure(record, suite, task.version.defects, graph))
    return measures


def halve(tasks: Sequence[Task], measures: Sequence[Measure]) -> dict[str, list[Measure]]:
    """What was decided by looking at one half is measured on the other; nothing where only one of them was looked at.
    `tasks` are all there are, in order."""
    number = {task.key: place % 2 for place, task in enumerate(tasks)}
    halves = {
        title: [one for one in measures if number[one.record.key] == half]
        for half, title in enumerate(("First", "Second"))
    }
    return halves if all(halves.values()) else {}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    suites = options.suites or options.output / "suites"
    covered = max(options.covered, options.failing)  # what is diagnosed must be known, too
    workers = max(1, len(os.sched_getaffinity(0)) // options.jobs)
    plan = Plan(options.output, suites, options.failing, covered, options.timeout, options.seed, workers)
    try:
        every = [Task(*pair, plan) for pair in shuffle_versions(read_manifest(options.manifest), plan.seed)]
    except ManifestError as error:
        print(error, file=sys.stderr)
        return 2
    tasks = choose_tasks(options, every)
    if not tasks:
        print("No version of the manifest is chosen: check --only, --half and --sample.", file=sys.stderr)
        return 2
    records = evaluate(tasks, plan, options.jobs, lambda text: print(text, flush=True))
    measures = measure_all(tasks, records)
    text = tell_all(measures, [record for record in records if not record.tests])
    for title, own in halve(every, measures).items():
        text += f"\n## {title} half\n\n{len(own)} versions\n\n{table_statements(own)}\n{table_hits(own)}"
    print(text)
    (plan.directory / "tables.md").write_text(text)
    (plan.directory / "picture.svg").write_text(draw_picture(measures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
