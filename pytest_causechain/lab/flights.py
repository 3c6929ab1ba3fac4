"""Experiments under way, several at a time: each an altered run, from its start to its end."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_causechain.kernel.processes import (
    PROCESSORS,
    await_writers,
    cpu_seconds,
    find_members,
    is_waiting,
    list_children,
    resident_bytes,
    roam,
)
from pytest_causechain.lab.captures import Captures, is_returned_to
from pytest_causechain.lab.laboratory import RunLimits, Side
from pytest_causechain.lab.relay import CANCEL
from pytest_causechain.lab.starts import Starts, apply
from pytest_causechain.model.alteration import NOTHING, Intervention, Patch, Transfer
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp
from pytest_causechain.model.runs import Command, Frame, Observation
from pytest_causechain.sandbox.isolation import NOTHING_USED, Usage, allow, limit_run
from pytest_causechain.sandbox.subject import OUTPUT, Subject
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import End, Finish, NotReached, is_crash, wait_for_any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pytest_causechain.lab.laboratory import EngineAnswer, Message

# How often experiments are looked after: at most, and as a part of the time that one may take.
LOOK_UP_SECONDS, LOOK_UP_FRACTION = 0.02, 0.25
# An experiment that ends this soon is not worth being cancelled.
LEAST_PATIENCE_SECONDS = 0.05
OUTPUT_LINK = Path(f"/memfd:{OUTPUT} (deleted)")
# The side of a command that is run once.
OTHERWISE: Side = "otherwise"


@dataclass(frozen=True, slots=True)
class Job:
    stops: Sequence[Stop]
    alteration: Transfer | Intervention | Patch
    limits: RunLimits | None = None
    # Whether others begin at the same stops.
    is_one_of_many: bool = True

    @property
    def is_natural(self) -> bool:
        return not self.stops and self.alteration == NOTHING


@dataclass(slots=True, eq=False)
class Flight:
    """An experiment that is on its way; without `finish` the program was gone before it could be resumed. For longer
    than `cpu_seconds` it may neither compute nor wait for what does not come; it may keep `memory` bytes, and be
    `processes` at most."""

    number: int
    job: Job
    subject: Subject
    deadline: float
    cpu_seconds: float
    memory: int
    processes: int
    finish: Finish | None
    spent: float = -1.0
    idle_since: float = 0.0

    def is_late(self) -> bool:
        now, spent = time.monotonic(), cpu_seconds(self.subject.pid)
        if spent != self.spent or not is_waiting(self.subject.pid):
            self.spent, self.idle_since = spent, now
        is_overdue = max(spent, now - self.idle_since) > self.cpu_seconds or now >= self.deadline
        return is_overdue or resident_bytes(self.subject.pid) > self.memory or self.has_multiplied()

    def has_multiplied(self) -> bool:
        pid = self.subject.pid
        return bool(list_children(pid)) and len(find_members(pid)) > self.processes


class Flights:
    """Makes experiments, `width` of them at a time. What was begun without being asked for ends when CANCEL comes by
    `orders`."""

    def __init__(self, starts: Starts, captures: Captures) -> None:
        self._starts, self._captures = starts, captures
        self.width = len(PROCESSORS)
        self.run_cpu_seconds = math.inf
        self.orders: Connection[EngineAnswer, Message] | None = None
        # By the original runs.
        self._used = NOTHING_USED
        self._backtraces: dict[tuple[Side, tuple[int, ...]], tuple[Frame, ...]] = {}
        self._outputs: dict[Side, bytes] = {}

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        return self.experiments(side, stops, (transfer,))[0]

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        return self.fly(side, [Job(stops, transfer) for transfer in transfers])

    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        jobs = [Job(stops, transfer, is_one_of_many=is_returned_to(side)) for transfer in transfers]
        return self._fly_some(side, jobs, is_speculative=True)

    def interventions(
        self, side: Side, interventions: Sequence[Intervention | Patch], limits: RunLimits
    ) -> list[Observation]:
        return self.fly(side, [make_job(side, intervention, limits) for intervention in interventions])

    def observe(self, command: Command) -> Observation:
        self._starts.commands[OTHERWISE] = command
        try:
            return self.experiment(OTHERWISE)
        finally:
            self.forget(OTHERWISE)

    def natural_output(self, side: Side) -> bytes:
        """What the run prints when it is left alone."""
        if side not in self._outputs:
            self._outputs[side] = self.experiment(side).stdout
        return self._outputs[side]

    def forget(self, side: Side) -> None:
        """What is known of runs that are not made again."""
        self._starts.forget(side)
        self._backtraces = {key: frames for key, frames in self._backtraces.items() if key[0] != side}
        self._outputs.pop(side, None)

    def fly(self, side: Side, jobs: Sequence[Job]) -> list[Observation]:
        return [seen for seen in self._fly_some(side, jobs) if seen is not None]

    def _fly_some(self, side: Side, jobs: Sequence[Job], is_speculative: bool = False) -> list[Observation | None]:
        """Of speculative ones the first is asked for; the others get as long again as it took, and are None when they
        are not back by then. Speculation therefore costs at most twice the time of the needed experiment. Experiments
        that wrote to what was not their own are repeated."""
        seen: dict[int, Observation] = {}
        waiting = deque(enumerate(jobs))
        flights: list[Flight] = []
        begin, until = time.monotonic(), math.inf
        try:
            while waiting or flights:
                if waiting and len(flights) < self.width:
                    flights.append(self._take_off(side, *waiting.popleft()))
                    continue
                landed = self._land_first(flights, until, is_speculative)
                if landed is None:
                    break
                flight, end = landed
                flights.remove(flight)
                observation = self._observe(side, flight, end)
                if observation is None:
                    waiting.appendleft((flight.number, jobs[flight.number]))
                    continue
                seen[flight.number] = observation
                if is_speculative and flight.number == 0:
                    waiting.clear()
                    now = time.monotonic()
                    until = now + max(now - begin, LEAST_PATIENCE_SECONDS)
        finally:
            for flight in flights:
                flight.subject.kill()
        return [seen.get(number) for number in range(len(jobs))]

    def _land_first(self, flights: Sequence[Flight], until: float, may_be_cancelled: bool) -> tuple[Flight, End] | None:
        """None when none has landed by then, or is wanted."""
        for flight in flights:
            if flight.finish is None:
                return flight, End("timeout", signal.SIGKILL)
        by_pid = {flight.subject.pid: flight for flight in flights}
        soonest = min(flight.deadline for flight in flights)
        interval = min(LOOK_UP_SECONDS, *(LOOK_UP_FRACTION * flight.cpu_seconds for flight in flights))
        while time.monotonic() < until and not (may_be_cancelled and self._is_cancelled()):
            look_up = min(soonest, until, time.monotonic() + interval)
            found = wait_for_any([flight.subject for flight in flights], look_up)
            late = [flight for flight in flights if found is None and flight.is_late()]
            if found is None and not late:
                continue
            flight, status = (by_pid[found[0].pid], found[1]) if found is not None else (late[0], None)
            assert flight.finish is not None
            if (end := flight.finish.take(status)) is not None:
                return flight, end
        return None

    def _is_cancelled(self) -> bool:
        return self.orders is not None and self.orders.poll() and self.orders.recv() == CANCEL

    def _take_off(self, side: Side, number: int, job: Job) -> Flight:
        starts = self._starts
        deadline, cpu_limit = starts.begin(), starts.bounds.cpu or self.run_cpu_seconds
        if job.limits is not None:
            deadline = min(deadline, time.monotonic() + job.limits.seconds)
            cpu_limit = min(cpu_limit, job.limits.cpu_seconds)
        try:
            subject = starts.reach(side, job.stops, deadline, job.is_one_of_many)
        except NotReached:
            job = replace(job, stops=(), alteration=NOTHING)
            subject = starts.start(side, deadline)
        memory, output, processes = allow(NOTHING_USED if job.is_natural else self._used, starts.bounds)
        if job.limits is not None:
            output = min(output, job.limits.output_bytes)
        with subject.ended_by_errors():
            try:
                apply(subject, job.alteration)
                if self.width > 1 and not starts.roams:
                    roam(subject.pid)  # beside the others
                most = limit_run(subject.pid, memory, output, cpu_limit)
                return Flight(number, job, subject, deadline, cpu_limit, most, processes, Finish(subject))
            except ProcessGone:
                return Flight(number, job, subject, deadline, cpu_limit, 0, processes, None)

    def _observe(self, side: Side, flight: Flight, end: End) -> Observation | None:
        """None: it wrote to what it had not for itself, and now would."""
        with flight.subject as subject:
            if self._starts.is_doubtful(subject):
                return None
            backtrace: tuple[Frame, ...] = ()
            if flight.finish is not None and (end.kind, end.code) == ("timeout", signal.SIGKILL):
                if time.monotonic() >= self._starts.deadline:
                    raise BudgetUsedUp  # it might have ended, given more time
                if flight.job.limits is None:
                    backtrace = self._captures.see(subject)
            else:
                await_writers(subject.pid, [OUTPUT_LINK], flight.deadline, flight.processes)
            files = subject.stage.collect(subject.command, subject.view)
            observation = Observation(end.kind, end.code, *subject.outputs(), backtrace, files)
            if flight.job.is_natural and end.kind != "timeout":
                self._learn_usage(subject, observation)
                self._outputs.setdefault(side, observation.stdout)
        if end.kind != "signal" or flight.job.limits is not None:
            return observation
        if (side, end.frames) not in self._backtraces:  # once for each place to crash at
            self._backtraces[side, end.frames] = self._see_crash(side, flight, end.frames)
        return replace(observation, backtrace=self._backtraces[side, end.frames])

    def _learn_usage(self, subject: Subject, observation: Observation) -> None:
        texts = (observation.stdout, observation.stderr, *(content or b"" for _, content in observation.files))
        memory = max(self._used.memory, subject.threads.peak_bytes)
        self._used = Usage(memory, max(self._used.output, *map(len, texts)))

    def _see_crash(self, side: Side, flight: Flight, frames: tuple[int, ...]) -> tuple[Frame, ...]:
        """The same run again, for gdb to see where it got its last signal."""
        deadline = self._starts.begin()
        with self._starts.reach(side, flight.job.stops, deadline) as subject:
            apply(subject, flight.job.alteration)
            finish = Finish(subject)
            while True:
                status = subject.wait(deadline)
                if is_crash(status) and subject.backtrace() == frames:
                    return self._captures.see(subject)
                if finish.take(status) is not None:
                    return ()


def make_job(side: Side, intervention: Intervention | Patch, limits: RunLimits) -> Job:
    if isinstance(intervention, Patch):
        return Job((), intervention, limits)
    # A branch has only one other way, a value has many others; passing runs are asked about few of them.
    is_one_of_many = side == "failing" and intervention.spot.kind != "branch"
    return Job(intervention.spot.stops, intervention, limits, is_one_of_many)
