"""Experiments that are on their way, several at a time."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_causechain.kernel.processes import cpu_seconds, find_members, is_waiting, list_children, resident_bytes
from pytest_causechain.model.intervention import Intervention, Patch
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.sandbox.subject import Subject
from pytest_causechain.tracee.tracee import End, Finish, wait_for_any

# How often experiments are looked after: at most, and as a part of the time that one may take.
LOOK_UP_SECONDS, LOOK_UP_SHARE = 0.02, 0.25
# An experiment that ends this soon is not worth being cancelled.
LEAST_PATIENCE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """For one of very many experiments: those that get out of hand end soon, and nobody looks where they were."""

    cpu_seconds: float
    seconds: float
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    stops: Sequence[Stop]
    alteration: Transfer | Intervention | Patch
    limits: Limits | None = None
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


def fly(
    jobs: Sequence[Job],
    width: int,
    take_off: Callable[[int, Job], Flight],
    observe: Callable[[Flight, End], Observation | None],
    is_speculative: bool,
    is_wanted: Callable[[], bool],
) -> list[Observation | None]:
    """`width` of them at a time. Of speculative ones the first is asked for; the others get as long again as it took,
    and are None when they are not back by then. So neither going on in vain nor doing it again, should it be asked
    for, costs more than twice the time; and none is waited for that is not wanted any more. One of which nothing can be
    observed is made again."""
    seen: dict[int, Observation] = {}
    waiting = deque(enumerate(jobs))
    flights: list[Flight] = []
    begin, until = time.monotonic(), math.inf
    try:
        while waiting or flights:
            if waiting and len(flights) < width:
                flights.append(take_off(*waiting.popleft()))
                continue
            landed = land_first(flights, until, is_wanted if is_speculative else always)
            if landed is None:
                break
            flight, end = landed
            flights.remove(flight)
            observation = observe(flight, end)
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


def always() -> bool:
    return True


def land_first(
    flights: Sequence[Flight], until: float = math.inf, is_wanted: Callable[[], bool] = always
) -> tuple[Flight, End] | None:
    """None when none has landed by then, or is wanted."""
    for flight in flights:
        if flight.finish is None:
            return flight, End("timeout", signal.SIGKILL)
    by_pid = {flight.subject.pid: flight for flight in flights}
    soonest = min(flight.deadline for flight in flights)
    interval = min(LOOK_UP_SECONDS, *(LOOK_UP_SHARE * flight.cpu_seconds for flight in flights))
    while time.monotonic() < until and is_wanted():
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
