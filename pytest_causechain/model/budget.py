"""What a diagnosis may spend: work first, wall time last.

Work is counted in nominal seconds: what an experiment, a captured byte or a compared value takes on an ordinary
machine with nothing else to do. A slower or busier machine does the same work later, and gives the same answer; only
where the time is over before the work is done does the clock decide. Whatever is left out for lack of either is noted,
so that the report can say it."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pytest_causechain.model.refusal import BudgetUsedUp

Purpose = Literal["recall", "guilt", "repairs", "coverage", "twin", "traces"]
# Of the work that is left, what each purpose gets. What it does not use, the next ones have.
SHARES: dict[Purpose, float] = {
    # Running passing tests of earlier sessions again, for all failing tests together.
    "recall": 0.1,
    # Finding out which of a test's runs is guilty.
    "guilt": 0.25,
    # The search for repairs, and of that, learning what other runs execute.
    "repairs": 0.5,
    "coverage": 0.25,
    # The chain against the repaired run; the neighbour's comes after it.
    "twin": 0.5,
    # Finding the nearest neighbour by traces.
    "traces": 0.1,
}
# A purpose may take so many times its share of the wall time: a machine slower than the nominal one by up to
# SLACK / WORK_PER_SECOND is given the time to do the same work.
SLACK = 1.5
# Nominal seconds of work for each second of the user's limit, by one worker; each further one does half as much again.
WORK_PER_SECOND, MORE_BY_WORKER = 0.4, 0.5

Work = Literal["experiment", "run second", "question", "event", "byte", "value"]
# In nominal seconds: an experiment beside the program's own time, that time itself, a test asked about a run, an
# executed instruction that was traced, a byte of captured memory, a value of a state unfolded and compared.
PRICES: dict[Work, float] = {
    "experiment": 1e-3,
    "run second": 1.0,
    "question": 4e-3,
    "event": 1e-6,
    "byte": 4e-9,
    "value": 2e-6,
}

# Of items that take some microseconds each.
CHECKED_EVERY = 1024

T = TypeVar("T")
Activity = Literal["guilt", "repairs", "coverage", "neighbours", "twin", "neighbour"]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What was not tried for lack of work or time: so many of `total` (None: nobody knows how many) were `done`."""

    activity: Activity
    done: int
    total: int | None = None


@dataclass(slots=True)
class _Account:
    """What all parts of one budget have in common."""

    limit_seconds: float
    # What one of them may do at the most.
    work: float
    cancelled: threading.Event
    shortfalls: dict[Activity, Shortfall] = field(default_factory=dict)
    # What is being done, for whoever watches.
    activity: str = ""


class Budget:
    """Of one diagnosis, or of a part of it. Every loop that can be long asks it: `check` raises when it is over, or
    when the user has interrupted."""

    def __init__(
        self,
        seconds: float,
        *,
        spent: float = 0.0,
        workers: int = 1,
        cancelled: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """It begins to run at once, less the seconds `spent` already. So many `workers` help at the most. `cancelled`
        is set when the user interrupts."""
        pace = WORK_PER_SECOND * (1 + MORE_BY_WORKER * (workers - 1))
        self._account = _Account(seconds, pace * seconds, cancelled or threading.Event())
        self._clock = clock
        self._begin = clock() - spent
        self.deadline = self._begin + seconds
        self._work = pace * max(0.0, seconds - spent)
        self._spent = 0.0
        self._above: Budget | None = None

    # What is left

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.deadline - self._clock())

    @property
    def seconds_spent(self) -> float:
        """Since it began to run."""
        return self._clock() - self._begin

    @property
    def work_spent(self) -> float:
        return self._spent

    @property
    def is_over(self) -> bool:
        return self._spent >= self._work or self._clock() >= self.deadline

    @property
    def cancelled(self) -> threading.Event:
        return self._account.cancelled

    def check(self) -> None:
        """Raise KeyboardInterrupt when the user has interrupted, BudgetUsedUp when nothing is left."""
        if self._account.cancelled.is_set():
            raise KeyboardInterrupt
        if self.is_over:
            raise self.used_up()

    def watch(self, items: Iterable[T]) -> Iterator[T]:
        """The items, which may be many and grow in number, as long as something is left."""
        for number, item in enumerate(items):
            if not number % CHECKED_EVERY:
                self.check()
            yield item

    def used_up(self) -> BudgetUsedUp:
        """The exception that says which limit was met."""
        if self._above is not None and not self._above.is_over:
            return BudgetUsedUp(self._account.limit_seconds, "share")
        return BudgetUsedUp(self._account.limit_seconds, "work" if self._spent >= self._work else "time")

    # Spending

    def charge(self, work: Work, amount: float = 1.0) -> None:
        """Enter work that was done, also into the budgets that this one is a part of."""
        cost = PRICES[work] * amount
        budget: Budget | None = self
        while budget is not None:
            budget._spent += cost
            budget = budget._above

    def part(self, purpose: Purpose) -> Budget:
        """The share of what is left that goes to a purpose."""
        share = SHARES[purpose]
        part = self._make(share * max(0.0, self._work - self._spent), min(1.0, SLACK * share) * self.seconds_left)
        part._above = self
        return part

    def beside(self) -> Budget:
        """As much work again, for what is done while this one is used for something else; the clock is the same."""
        return self._make(self._account.work, self.seconds_left)

    def _make(self, work: float, seconds: float) -> Budget:
        other = Budget(seconds, cancelled=self._account.cancelled, clock=self._clock)
        other._account, other._work = self._account, work
        return other

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time that somebody else's budget pays for."""
        begin = self._clock()
        try:
            yield
        finally:
            paused = self._clock() - begin
            self._begin += paused
            self.deadline += paused

    # What is told of it

    def show(self, activity: str) -> None:
        """Say what is done now."""
        self._account.activity = activity

    @property
    def activity(self) -> str:
        return self._account.activity

    def cut_short(self, activity: Activity, done: int, total: int | None = None) -> None:
        """Note that something was not done to its end; the last word on an activity counts."""
        self._account.shortfalls[activity] = Shortfall(activity, done, total)

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        """In the order in which they were noted first."""
        return tuple(self._account.shortfalls.values())


# Where nobody waits.
UNLIMITED = Budget(math.inf)
