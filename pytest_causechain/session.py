"""Diagnoses the failing tests of a session, and puts the chains into the report."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_causechain.kernel.companion import termination_interrupts
from pytest_causechain.model.recording import Recording, Run
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.progress import Progress
from pytest_causechain.publishing import Publisher
from pytest_causechain.settings import Settings, find_cache

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pytest_causechain.case import Case
    from pytest_causechain.lab.pool import Pool
    from pytest_causechain.model.chain import Chain
    from pytest_causechain.neighbours.ranking import Neighbour
    from pytest_causechain.oracle.replay import Replay, Replays, ReplaySetup

# Of the time for a failing test, for all of them together: for running passing tests of earlier sessions again.
RECALL_SHARE = 0.2


# Tests diagnosed side by side. A third of a diagnosis is work of this process: more would wait for each other. Further
# workers make the experiments of these.
ABREAST = 3
# Of the time for a failing test, for finding out which of its runs is guilty.
GUILT_SHARE = 0.25
# Failing tests beyond those diagnosed that are asked for what they know; with thousands of them one must stop.
MOST_VOTING = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed test: its report, what it started, and what its marker says."""

    report: pytest.TestReport
    recording: Recording
    marker: dict[str, Any]


class SessionDiagnosis:
    """Of those tests that fail and have started programs."""

    def __init__(self, config: pytest.Config, settings: Settings, nodes: Sequence[Any]) -> None:
        """`nodes` are the workers of pytest-xdist, if there are any."""
        self._config, self._settings, self._nodes = config, settings, nodes
        self._failures: dict[str, Failure] = {}
        self._recordings: dict[str, Recording] = {}
        # In which tests of earlier sessions were run again.
        self._recall: Replay | None = None
        # Of all failing tests that there can be one for; for others why not.
        self._cases: dict[str, Case | Refusal] = {}
        self.publisher = Publisher(config, settings)
        self._notes = self.publisher.notes
        self._pool: Pool | None = None
        self._progress = Progress(config, self._count_workers)
        # Ctrl-C reaches the main thread only, which tells the others by this.
        self._interrupted = threading.Event()

    def expect(
        self, report: pytest.TestReport, last: pytest.TestReport, recording: Recording, marker: dict[str, Any]
    ) -> None:
        """Called with the test's `last` report, before others see it."""
        self._failures[report.nodeid] = Failure(report, recording, marker)
        self.publisher.expect(last)

    def diagnose_all(self, recordings: Mapping[str, Recording]) -> None:
        """`recordings` are those of all tests."""
        with termination_interrupts():
            self._diagnose_each(recordings)

    def _diagnose_each(self, recordings: Mapping[str, Recording]) -> None:
        """Whatever goes wrong here becomes a note: the session's own results must not suffer."""
        try:
            self.publisher.write_results()
            self._recordings = dict(recordings)
            native = [f for f in self._failures.values() if not skipped(f)]
            chosen = native[: self._settings.most_tests]
            self._recall_passing(chosen)
            if chosen:
                from pytest_causechain.lab.pool import open_pool
                from pytest_causechain.oracle.replay import Replays

                with (
                    open_pool(self._nodes, jobs=self._settings.jobs, cancelled=self._interrupted) as self._pool,
                    Replays(self._set_up_replay()) as replays,
                ):
                    self._open_cases(native[: len(chosen) + MOST_VOTING], self._pool, replays)
                    self._diagnose_side_by_side([f for f in chosen if is_parallel(f)], self._pool)
                    for failure in (f for f in chosen if not is_parallel(f)):
                        self._diagnose_side_by_side([failure], self._pool)
                    self._notes += self._pool.notes
            left = len(native) - len(chosen)
            if left > 0:
                tests = "1 more failing test was" if left == 1 else f"{left} more failing tests were"
                self._notes.append(f"{tests} not diagnosed: raise --cause-chain-max.")
        except KeyboardInterrupt:
            self._notes.append("interrupted; the tests' own results are complete.")
        except Exception as error:
            self._notes.append(f"gave up after an internal error, please report it: {error!r}")
        finally:
            if self._recall is not None:
                self._recall.close()
            self._progress.clear()
        self.publisher.finish()

    def _recall_passing(self, failures: Sequence[Failure]) -> None:
        """Passing tests of earlier sessions are candidates, too, where there are few: they are run again."""
        directory = find_cache(self._config)
        if directory is None:
            return
        from pytest_causechain.recording.store import RecordingStore

        paths = {run.command.program.path for failure in failures for run in failure.recording.runs}
        recalled = [
            recording for recording in RecordingStore(directory).recall(paths) if recording.test not in self._recordings
        ]
        if not recalled:
            return
        from pytest_causechain.neighbours.ranking import choose_recalled
        from pytest_causechain.oracle.replay import Replay, files_of

        known, tests = list(self._recordings.values()), dict[str, None]()
        for failure in failures:
            if failure.recording.runs:
                named = failure.marker.get("neighbour") or self._settings.neighbour
                chosen = choose_recalled(failure.recording, failure.recording.runs[-1], known, recalled, named)
                tests.update(dict.fromkeys(chosen))
        if tests:
            self._recall = Replay(self._set_up_replay(), files_of(tests))
            for recording in self._recall.rerun(tests, RECALL_SHARE * self._settings.timeout_seconds):
                self._recordings[recording.test] = recording

    # Cases

    def _open_cases(self, failures: Sequence[Failure], workers: Pool, replays: Replays) -> None:
        """Also of some that are not diagnosed, since what is learned of one is of use to the others of its program."""
        for failure in failures:
            try:
                self._cases[failure.report.nodeid] = self._open_case(failure, workers, replays)
            except Refusal as refusal:
                self._cases[failure.report.nodeid] = refusal
        cases = {test: case for test, case in self._cases.items() if not isinstance(case, Refusal)}
        for test, case in cases.items():
            case.also_failing += [cases[other] for other in cases if other != test and self._may_vote(other, test)]

    def _may_vote(self, other: str, test: str) -> bool:
        """One that must have its program for itself is left alone while others are diagnosed."""
        case = self._cases[test]
        assert not isinstance(case, Refusal)
        build = case.command.program.build_id
        is_same = any(run.command.program.build_id == build for run in self._failures[other].recording.runs)
        return is_same and (is_parallel(self._failures[other]) or not is_parallel(self._failures[test]))

    def _open_case(self, failure: Failure, workers: Pool, replays: Replays) -> Case:
        from pytest_causechain.case import Case
        from pytest_causechain.lab.pool import Share
        from pytest_causechain.oracle.facts import locate_crash

        recording, run = self._choose_run(failure, replays)
        neighbours, absence = self._choose_neighbours(failure, recording, run)
        share = Share(workers, is_parallel(failure))
        settings = replace(self._settings, cache=find_cache(self._config), share=share)
        tell = partial(self._tell, failure.report.nodeid)
        crash = locate_crash(failure.report)
        return Case(recording, run, neighbours, absence, settings, replays.borrow, tell, crash)

    def _diagnose_side_by_side(self, failures: Sequence[Failure], workers: Pool) -> None:
        """Published in the order of the tests."""
        if not failures:
            return
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(min(ABREAST, len(workers.workers), len(failures)), "causechain-diagnosis")
        futures: list[Future[Chain]] = []
        published = 0
        try:
            for failure in failures:
                futures.append(pool.submit(self._diagnose, failure, workers))
            for failure, future in zip(failures, futures, strict=True):
                self.publisher.publish(failure.report, future.result())
                published += 1
        except KeyboardInterrupt:
            self._interrupted.set()
            # What has not begun does not begin any more, what has tells what it knows.
            for failure, future in list(zip(failures, futures, strict=False))[published:]:
                if not future.cancel():
                    self.publisher.publish(failure.report, future.result())
            raise
        finally:
            # What a thread has opened it closes itself.
            pool.shutdown(cancel_futures=True)

    def _diagnose(self, failure: Failure, workers: Pool) -> Chain:
        """In a thread of its own."""
        from pytest_causechain.diagnosis import Interrupted
        from pytest_causechain.model.chain import Chain

        test = failure.report.nodeid
        self._progress.begin(test)
        case = self._cases[test]
        try:
            with workers.diagnosing():
                return Chain(test, "none", str(case)) if isinstance(case, Refusal) else case.find_chain()
        except Refusal as refusal:
            return Chain(test, "none", str(refusal))
        except Interrupted as interruption:
            return interruption.chain
        except Exception as error:
            return Chain(test, "none", f"an internal error came up ({error!r}): please report it.")
        finally:
            self._progress.end(test)

    def _choose_run(self, failure: Failure, replays: Replays) -> tuple[Recording, Run]:
        """The guilty one."""
        from pytest_causechain.oracle.symptom import guilty_run
        from pytest_causechain.recording.programs import require_same_build

        recording = failure.recording
        if is_unexpected_pass(failure.report):
            raise Refusal(f"{recording.test} passes although it is marked xfail(strict=True): remove the mark.")
        wanted = failure.marker.get("program")
        if wanted:
            runs = tuple(run for run in recording.runs if is_program(run, wanted))
            if recording.runs and not runs:
                raise Refusal(f"{recording.test} does not start {wanted}: mend program= of its marker cause_chain.")
            recording = recording._replace(runs=runs)
        run = guilty_run(recording) if len(recording.runs) < 2 else self._find_guilty(recording, replays)
        require_same_build(run.command.program)
        return recording, run

    def _find_guilty(self, recording: Recording, replays: Replays) -> Run:
        from pytest_causechain.oracle.symptom import ask_for_guilty

        self._tell(recording.test, f"looking for the guilty one of {len(recording.runs)} runs")
        seconds = GUILT_SHARE * self._settings.timeout_seconds
        with replays.borrow([recording.test]) as borrowed:
            return ask_for_guilty(borrowed.replay, recording, seconds)

    def _choose_neighbours(
        self, failure: Failure, recording: Recording, run: Run
    ) -> tuple[list[Neighbour], str | None]:
        """The nearest first; or why there is none."""
        from pytest_causechain.neighbours.ranking import explain_absence, find_named, rank_neighbours, take_selected

        candidates = list(self._recordings.values())
        named = failure.marker.get("neighbour") or self._settings.neighbour
        if named:
            return [find_named(named, candidates, run)], None
        ranked = rank_neighbours(recording, run, candidates)
        if not ranked:
            return [], explain_absence(recording, run, candidates)
        ask = self._config.hook.pytest_causechain_select_neighbour
        return take_selected(partial(ask, config=self._config, test=recording.test, run=run), ranked), None

    def _set_up_replay(self) -> ReplaySetup:
        from pytest_causechain.oracle.replay import ReplaySetup

        return ReplaySetup(
            self._config.rootpath,
            tuple(own_arguments(self._config)),
            self._config.invocation_params.dir,
            self._settings.timeout_seconds,
            inifile=self._config.inipath,
            isolation=self._settings.precautions.isolation,
            cancelled=self._interrupted,
        )

    def _tell(self, test: str, text: str) -> None:
        self._check_wanted()
        self._progress.show(test, text)

    def _check_wanted(self) -> None:
        if self._interrupted.is_set():
            raise KeyboardInterrupt

    def _count_workers(self) -> tuple[int, int]:
        return (self._pool.busy, len(self._pool.workers)) if self._pool is not None else (0, 0)


def is_unexpected_pass(report: pytest.TestReport) -> bool:
    return isinstance(report.longrepr, str) and report.longrepr.startswith("[XPASS(strict)]")


def skipped(failure: Failure) -> bool:
    return bool(failure.marker.get("skip"))


def is_parallel(failure: Failure) -> bool:
    return bool(failure.marker.get("parallel", True))


def is_program(run: Run, wanted: str) -> bool:
    path = Path(run.command.program.path)
    return wanted in (str(path), path.name) or Path(run.command.cwd, wanted).resolve() == path


def own_arguments(config: pytest.Config) -> list[str]:
    """The user's arguments without the paths."""
    paths = list(config.option.file_or_dir or [])
    arguments = []
    for argument in config.invocation_params.args:
        if argument in paths:
            paths.remove(str(argument))
        else:
            arguments.append(str(argument))
    return arguments
