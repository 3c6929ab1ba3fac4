"""Leads the failing tests of a session through their diagnoses, side by side, and hands the chains out in their order.

collect -> failing test -> strategy -> method -> outputs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from pytest_causechain.controller.failing_test import CollectedFailure, choose_failing_test
from pytest_causechain.controller.method import Interrupted
from pytest_causechain.controller.outputs import Outputs
from pytest_causechain.controller.progress import Progress
from pytest_causechain.controller.strategy import Investigation
from pytest_causechain.kernel.companion import termination_interrupts
from pytest_causechain.lab.pool import Node, Pool, Share, open_pool
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.chain import Chain
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Recording
from pytest_causechain.neighbours.ranking import choose_recalled
from pytest_causechain.oracle.replay import Replay, Replays, ReplaySetup, files_of
from pytest_causechain.recording.store import RecordingStore
from pytest_causechain.settings import Settings, find_cache

# Tests diagnosed side by side. A third of a diagnosis is work of this process: more would wait for each other. Further
# workers make the experiments of these.
ABREAST = 3
# Failing tests beyond those diagnosed that are asked for what they know; with thousands of them one must stop.
MOST_VOTING = 20
# Between two looks at what the diagnoses are at.
WATCH_SECONDS = 0.1


class Conductor:
    """Of those tests that fail and have started programs."""

    def __init__(self, config: pytest.Config, settings: Settings, nodes: Sequence[Node]) -> None:
        """`nodes` are the workers of pytest-xdist, if there are any."""
        self._config, self._settings, self._nodes = config, settings, nodes
        # By test: pytest-xdist can run each on every worker.
        self._failures: dict[str, CollectedFailure] = {}
        self._recordings: dict[str, Recording] = {}
        # In which tests of earlier sessions were run again.
        self._recall: Replay | None = None
        # Of all failing tests that there can be one for; for others why not.
        self._investigations: dict[str, Investigation | Refusal] = {}
        self.outputs = Outputs(config, settings)
        self._notes = self.outputs.notes
        self._progress = Progress(config)
        # Ctrl-C reaches the main thread only, which tells all others by this.
        self._cancelled = threading.Event()

    def expect(self, failure: CollectedFailure, last: pytest.TestReport) -> None:
        """Called with the test's `last` report, before others see it."""
        self._failures[failure.test] = failure
        self.outputs.expect(last)

    def diagnose_all(self, recordings: Sequence[Recording]) -> None:
        """`recordings` are those of all tests. Whatever goes wrong here becomes a note: the session's own results must
        not suffer."""
        self._recordings = {recording.test: recording for recording in recordings}
        with termination_interrupts():
            try:
                self.outputs.write_results()
                self._diagnose()
            except KeyboardInterrupt:
                self._notes.append("interrupted; the tests' own results are complete.")
            except Exception as error:
                self._notes.append(f"gave up after an internal error, please report it: {error!r}")
            finally:
                if self._recall is not None:
                    self._recall.close()
                self._progress.clear()
            self.outputs.finish()

    def _diagnose(self) -> None:
        native = [failure for failure in self._failures.values() if not failure.marker.is_skipped]
        chosen = native[: self._settings.most_tests]
        if not chosen:
            return
        self._recall_passing(chosen)
        with (
            open_pool(self._nodes, jobs=self._settings.jobs, cancelled=self._cancelled) as pool,
            Replays(self._set_up_replay()) as replays,
        ):
            self._open_investigations(native[: len(chosen) + MOST_VOTING], pool, replays)
            self._diagnose_side_by_side([failure for failure in chosen if failure.marker.is_parallel], pool)
            for failure in chosen:
                if not failure.marker.is_parallel:
                    self._diagnose_side_by_side([failure], pool)
            self._notes += pool.notes
        left = len(native) - len(chosen)
        if left > 0:
            tests = "1 more failing test was" if left == 1 else f"{left} more failing tests were"
            self._notes.append(f"{tests} not diagnosed: raise --cause-chain-max.")

    def _recall_passing(self, failures: Sequence[CollectedFailure]) -> None:
        """Passing tests of earlier sessions are candidates, too, where there are few: they are run again."""
        directory = find_cache(self._config)
        if directory is None:
            return
        paths = {run.command.program.path for failure in failures for run in failure.recording.runs}
        recalled = [
            recording for recording in RecordingStore(directory).recall(paths) if recording.test not in self._recordings
        ]
        if not recalled:
            return
        known, tests = list(self._recordings.values()), dict[str, None]()
        for failure in failures:
            if failure.recording.runs:
                named = failure.marker.neighbour or self._settings.neighbour
                last = failure.recording.runs[-1]
                tests.update(dict.fromkeys(choose_recalled(failure.recording, last, known, recalled, named)))
        if tests:
            self._recall = Replay(self._set_up_replay(), files_of(tests))
            budget = Budget(self._settings.timeout_seconds, cancelled=self._cancelled).part("recall")
            for recording in self._recall.rerun(tests, budget.seconds_left):
                self._recordings[recording.test] = recording

    def _open_investigations(self, failures: Sequence[CollectedFailure], pool: Pool, replays: Replays) -> None:
        """Also of some that are not diagnosed, since what is learned of one is of use to the others of its program."""
        recordings = list(self._recordings.values())
        for failure in failures:
            budget = Budget(self._settings.timeout_seconds, cancelled=self._cancelled)
            try:
                failing = choose_failing_test(failure, recordings, self._settings, replays, self._config, budget)
            except Refusal as refusal:
                self._investigations[failure.test] = refusal
                continue
            setup = LabSetup(
                libraries=self._settings.libraries,
                cache=find_cache(self._config),
                precautions=self._settings.precautions,
                share=Share(pool, failing.is_parallel),
            )
            self._investigations[failure.test] = Investigation(
                failing,
                timeout_seconds=self._settings.timeout_seconds,
                spent_seconds=budget.seconds_spent,
                setup=setup,
                replays=replays,
                cancelled=self._cancelled,
            )
        opened = [one for one in self._investigations.values() if isinstance(one, Investigation)]
        for one in opened:
            one.also_failing += [
                other for other in opened if other is not one and other.failing.may_vote_for(one.failing)
            ]

    def _diagnose_side_by_side(self, failures: Sequence[CollectedFailure], pool: Pool) -> None:
        """Handed out in the order of the tests."""
        if not failures:
            return
        threads = ThreadPoolExecutor(min(ABREAST, len(pool.workers), len(failures)), "causechain-diagnosis")
        futures: dict[Future[Chain], CollectedFailure] = {}
        waiting: list[Future[Chain]] = []
        try:
            for failure in failures:
                future = threads.submit(self._find_chain, failure, pool)
                futures[future] = failure
                waiting.append(future)
            while waiting:
                self._watch(waiting[0], futures, pool)
                self.outputs.publish(futures[waiting[0]].report, waiting[0].result())
                waiting.pop(0)
        except KeyboardInterrupt:
            self._cancelled.set()
            # Pending diagnoses are cancelled; running ones return their partial chain.
            for future in waiting:
                if not future.cancel():
                    self.outputs.publish(futures[future].report, future.result())
            raise
        finally:
            # What a thread has opened it closes itself.
            threads.shutdown(cancel_futures=True)

    def _watch(self, first: Future[Chain], futures: dict[Future[Chain], CollectedFailure], pool: Pool) -> None:
        """Until the first one is done, tell what all are at."""
        while True:
            begun = [future for future in futures if future.running() or future.done()]
            activities = {futures[future].test: self._tell_activity(future, futures[future]) for future in begun}
            self._progress.show(activities, pool.busy, len(pool.workers))
            if wait([first], WATCH_SECONDS).done:
                break

    def _tell_activity(self, future: Future[Chain], failure: CollectedFailure) -> str:
        investigation = self._investigations[failure.test]
        return investigation.activity if future.running() and isinstance(investigation, Investigation) else ""

    def _find_chain(self, failure: CollectedFailure, pool: Pool) -> Chain:
        """In a thread of its own."""
        test, investigation = failure.test, self._investigations[failure.test]
        try:
            if isinstance(investigation, Refusal):
                raise investigation
            with pool.diagnosing():
                return investigation.find_chain()
        except Refusal as refusal:
            return Chain(test, "none", str(refusal))
        except Interrupted as interruption:
            return interruption.chain
        except Exception as error:
            return Chain(test, "none", f"an internal error came up ({error!r}): please report it.")

    def _set_up_replay(self) -> ReplaySetup:
        return ReplaySetup(
            self._config.rootpath,
            tuple(list_own_arguments(self._config)),
            self._config.invocation_params.dir,
            self._settings.timeout_seconds,
            inifile=self._config.inipath,
            cancelled=self._cancelled,
            isolation=self._settings.precautions.isolation,
        )


def list_own_arguments(config: pytest.Config) -> list[str]:
    """The user's arguments without the paths."""
    paths = list(config.option.file_or_dir or [])
    arguments = []
    for argument in config.invocation_params.args:
        if argument in paths:
            paths.remove(str(argument))
        else:
            arguments.append(str(argument))
    return arguments
