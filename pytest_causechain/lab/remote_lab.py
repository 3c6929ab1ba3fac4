"""A lab in an engine process of its own, and in more of them where workers have nothing else to do.

What is found out about the runs, the first engine tells. Experiments and interventions are the same wherever they are
made, as long as the program lies in memory as it does there, and go to all.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from pytest_causechain.debugger.gdb import unusable
from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.kernel.companion import Closing, Companion, CompanionLost, uninterrupted
from pytest_causechain.lab.flights import LEAST_PATIENCE_SECONDS
from pytest_causechain.lab.laboratory import (
    FIRST_RUN_SECONDS,
    LEAST_CPU_SECONDS,
    LEAST_SECONDS,
    PATIENCE,
    RECORDABLE,
    Call,
    EngineAnswer,
    Laboratory,
    Open,
    Opened,
    RunLimits,
    Side,
    Trace,
    make_proxy,
)
from pytest_causechain.lab.pool import Channel, Share
from pytest_causechain.lab.relay import CLOSING_SECONDS, ENGINE
from pytest_causechain.model.alteration import NOTHING, Intervention, Patch, Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.isolation import NO_ISOLATION, USUAL, Isolation, Precautions
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.model.runs import Command, Observation

# Beyond the user's time limit: for the engine to notice by itself that it is over.
GRACE_SECONDS = 1.0
# Spent on experiments before others are asked to help: about as long as it takes them to get ready.
WORTHWHILE_SECONDS = 0.5
# A part of a batch that takes less is not worth asking for; no experiment is shorter than that.
LEAST_PART_SECONDS, SHORTEST_SECONDS = 0.008, 0.0005
# Beyond what its experiments may take: for a part of a batch, which can be given to another engine.
PART_SECONDS = 10.0

T = TypeVar("T")
Item = TypeVar("Item")
# What a part of a batch is made of, asked of any engine.
Work = Callable[[Laboratory, Sequence[Item]], list[Observation]]


class _Trouble(Exception):
    """The engine or its gdb is lost."""

    def __init__(self, text: str, is_gdb: bool = False) -> None:
        super().__init__(text)
        self.is_gdb = is_gdb


# Where a run stands.
Key = tuple[Side, tuple[Stop, ...]]
ROOTS: tuple[Key, ...] = (("passing", ()), ("failing", ()))


@dataclass(slots=True, eq=False)
class BorrowedChannel:
    """A channel to an engine that makes experiments and nothing else, with the limits and the layouts it has.
    `is_alike`: its runs begin with everything where the first engine has it."""

    channel: Channel
    limits: tuple[float, float] | None = None
    layouts: dict[Key, str] = field(default_factory=dict)
    is_alike: bool = True
    is_busy: bool = False


class RemoteLab(Closing):
    """A Lab for two runs, until the budget is over. With a `share` of the session's pool its engines are on workers,
    else it has one here."""

    recordable = RECORDABLE

    def __init__(self, opening: Open, budget: Budget, share: Share | None = None) -> None:
        self.budget = budget
        self.name, self.begins_inside = opening.kind, opening.begins_inside
        self._opening = replace(opening, deadline=budget.deadline)
        self._limits = (FIRST_RUN_SECONDS, math.inf)
        self._channel: Companion | Channel | None = None
        self._share = share
        self._lock = threading.Lock()
        # All that were borrowed, and those that are ready.
        self._channels: list[Channel] = []
        self._helping: tuple[BorrowedChannel, ...] = ()
        self._told_width = 0
        self._layouts: dict[Key, str] = {}
        self._batch_seconds = 0.0
        # How long one experiment of the last batch took.
        self._item_seconds = LEAST_PART_SECONDS
        self._next_invitation = WORTHWHILE_SECONDS
        self._threads = ThreadPoolExecutor(share.size if share is not None else 1, "causechain-helper")
        self.program: ProgramMap
        self.notes: tuple[str, ...] = ()
        self.isolation: Isolation = NO_ISOLATION
        # Of workers each does one thing at a time.
        self.width = 1
        # What the first engine answers alone.
        self._first = first = make_proxy(self._call)
        self.trace, self.layout, self.find_writer = first.trace, first.layout, first.find_writer
        self.observe, self.cover, self.count = first.observe, first.cover, first.count
        self.signatures, self.effects, self.values = first.signatures, first.effects, first.values
        self.sights, self.follow, self.widen = first.sights, first.follow, first.widen
        try:
            self._call(self._opening)
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close(CLOSING_SECONDS)
            self._channel = None
        for channel in self._channels:
            channel.close()
        self._threads.shutdown()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """It will not be asked anything for a while: its worker may help others."""
        with self._channel.resting() if isinstance(self._channel, Channel) else contextlib.nullcontext():
            yield

    @property
    def run_seconds(self) -> float:
        """How long one run may take."""
        return self._limits[0]

    @run_seconds.setter
    def run_seconds(self, seconds: float) -> None:
        self.limit_runs(seconds, math.inf)

    def allow(self, usual: float) -> None:
        """By the seconds that the original runs take."""
        self.limit_runs(max(LEAST_SECONDS, PATIENCE * usual), max(LEAST_CPU_SECONDS, PATIENCE * usual))

    def limit_runs(self, run_seconds: float, run_cpu_seconds: float) -> None:
        self._limits = (run_seconds, run_cpu_seconds)
        self._first.limit_runs(run_seconds, run_cpu_seconds)

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        visit = self._first.visit(side, stops, transfer, then)
        return None if visit is None else replace(visit, types=self.program.types)

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        return self.experiments(side, stops, (transfer,))[0]

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        return self._share_out(transfers, lambda lab, part: lab.experiments(side, stops, part), (side, tuple(stops)))

    def interventions(
        self, side: Side, interventions: Sequence[Intervention | Patch], limits: RunLimits
    ) -> list[Observation]:
        # They hold wherever the program lies in memory.
        return self._share_out(interventions, lambda lab, part: lab.interventions(side, part, limits))

    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        """The first engine makes the one that is asked for, each helping one of the others. Those that are not back
        when the first has been waited for twice as long as it took are cancelled; they cost nothing, since how many
        there are says how many can be made at a time."""
        self.budget.charge("experiment")
        key = (side, tuple(stops))
        self._invite()
        self._tell_width()
        helping = self._find_idle(len(transfers) - self._told_width)
        if not helping:
            return self._first.speculate(side, stops, transfers)
        begin = time.monotonic()
        self._learn_layout(key)
        own, rest = transfers[: self._told_width], transfers[self._told_width :]
        futures = [
            self._send(one, self._trying(one, key, transfer)) for one, transfer in zip(helping, rest, strict=False)
        ]
        seen = self._first.speculate(side, stops, own)
        took = time.monotonic() - begin
        wait(futures, max(took, LEAST_PATIENCE_SECONDS))
        for one, future in zip(helping, futures, strict=False):
            if not future.done():
                one.channel.cancel()
            seen.append(future.result() if future.done() else None)
        self._batch_seconds += time.monotonic() - begin
        return seen + [None] * (len(transfers) - len(seen))

    # The first engine

    def _call(self, message: Open | Call) -> object:
        """A lost engine is replaced once, since that may be an accident; a second loss at the same work is not. What
        has not answered when the budget is over is not asked again."""
        trouble = _Trouble("")
        for _ in range(2):
            self.budget.check()
            try:
                return self._attempt(message)
            except _Trouble as met:
                self._abandon()
                trouble = met
        self.budget.check()
        if trouble.is_gdb:
            raise unusable(str(trouble))
        raise Refusal(f"the engine failed twice at the same work ({trouble}): please report this.")

    def _attempt(self, message: Open | Call) -> object:
        if self._channel is None:
            with uninterrupted():
                self._channel = self._open_channel()
            # A new engine numbers types anew: earlier visits keep the table that they came with.
            opened = self._exchange(self._opening)
            assert isinstance(opened, Opened)
            self.program, self.notes, self.isolation = opened.program, opened.notes, opened.isolation
            self.width = opened.width
            self._layouts.clear()
            self._told_width = 0
            fresh = make_proxy(self._exchange)
            self._tell_width(fresh)
            fresh.limit_runs(*self._limits)
        return None if isinstance(message, Open) else self._exchange(message)

    def _open_channel(self) -> Companion | Channel:
        try:
            if self._share is None:
                return Companion(ENGINE)
            return self._share.pool.lease(self._opening.failing, self._patience())
        except Refusal:
            self.budget.check()  # else nobody could answer in what was left of it
            raise
        except OSError as error:
            raise Refusal(
                f"the engine cannot be started ({error}): it needs some room for temporary files, or let TMPDIR name "
                "a directory that has it."
            ) from None

    def _exchange(self, message: Open | Call) -> object:
        assert self._channel is not None
        answer = self._ask(self._channel, message, self._patience())
        self.name = answer.lab
        if not isinstance(message, Open):
            self.program.types.extend(answer.types)
        match answer.value:
            case Visit(regions=regions):
                self.budget.charge("experiment")
                self.budget.charge("byte", sum(len(region.data) for region in regions))
            case Trace() as trace:
                self.budget.charge("event", len(trace))
        return answer.value

    def _abandon(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _patience(self) -> float:
        return self.budget.seconds_left + GRACE_SECONDS

    def _tell_width(self, first: Laboratory | None = None) -> None:
        """The first engine does the part of those that cannot make its experiments."""
        if self._share is None:
            return
        self.width = 1 + len(self._helping)
        own = 1 + sum(not one.is_alike for one in self._helping)
        if self._told_width != own:
            self._told_width = own
            (first or self._first).widen(own)

    # Borrowed ones

    def _share_out(self, items: Sequence[Item], work: Work[Item], key: Key | None = None) -> list[Observation]:
        """The results in the order of the items, whoever made them. With a `key` only engines are asked that have
        everything in the same places there."""
        begin = time.monotonic()
        self._invite()
        self._tell_width()
        helping = self._find_idle(len(items) - 1)
        if helping and key is not None:
            self._learn_layout(key)
        batch = Batch[Item, Observation](items, len(helping) + 1, math.ceil(LEAST_PART_SECONDS / self._item_seconds))
        futures = [self._send(one, self._taking_parts(one, batch, work, key)) for one in helping]
        try:
            while (part := batch.take()) is not None:
                batch.fill(part, work(self._first, batch.items_of(part)))
                self.budget.charge("experiment", len(part))
        finally:
            batch.stop()
            for future in futures:
                future.result()
        took = time.monotonic() - begin
        self._batch_seconds += took
        self._item_seconds = max(SHORTEST_SECONDS, took * (len(helping) + 1) / max(1, len(items)))
        return batch.results()

    def _find_idle(self, most: int) -> list[BorrowedChannel]:
        return [one for one in self._helping if not one.is_busy][: max(0, most)]

    def _send(self, one: BorrowedChannel, work: Callable[[], T | None]) -> Future[T | None]:
        """Have it work in a thread of its own. One that fails, however it does, is not asked again."""

        def attempt() -> T | None:
            try:
                if one.limits != self._limits:
                    self._reach(one, self._patience()).limit_runs(*self._limits)
                    one.limits = self._limits
                return work()
            except (_Trouble, Refusal, KeyboardInterrupt):
                with self._lock:
                    self._helping = tuple(other for other in self._helping if other is not one)
                one.channel.close()
                return None
            finally:
                one.is_busy = False

        one.is_busy = True
        return self._threads.submit(attempt)

    def _taking_parts(
        self, one: BorrowedChannel, batch: Batch[Item, Observation], work: Work[Item], key: Key | None
    ) -> Callable[[], None]:
        """Part by part; what it fails at goes to another engine."""

        def take_parts() -> None:
            if key is not None and not self._is_alike(one, key):
                return
            while (part := batch.take()) is not None:
                try:
                    patience = min(self._patience(), PART_SECONDS + len(part) * self.run_seconds)
                    batch.fill(part, work(self._reach(one, patience), batch.items_of(part)))
                    self.budget.charge("experiment", len(part))
                finally:
                    batch.give_back(part)

        return take_parts

    def _trying(self, one: BorrowedChannel, key: Key, transfer: Transfer) -> Callable[[], Observation | None]:
        def try_one() -> Observation | None:
            if not self._is_alike(one, key):
                return None
            patience = min(self._patience(), PART_SECONDS + self.run_seconds)
            return self._reach(one, patience).speculate(*key, (transfer,))[0]

        return try_one

    def _ask(self, channel: Companion | Channel, message: Open | Call, patience_seconds: float) -> EngineAnswer:
        """What the channel answers, paid for."""
        try:
            answer: EngineAnswer = channel.exchange(message, patience_seconds)
        except CompanionLost as lost:
            raise _Trouble("it does not answer in time" if lost.is_late else last_line(lost.log)) from None
        if answer.trouble:
            raise _Trouble(answer.trouble, answer.is_hopeless)
        if answer.refusal:
            raise (Hopeless if answer.is_hopeless else Refusal)(answer.refusal)
        self.budget.charge("run second", answer.cpu_seconds)
        if answer.is_used_up:
            raise self.budget.used_up()
        return answer

    def _reach(self, one: BorrowedChannel, patience_seconds: float) -> Laboratory:
        return make_proxy(lambda call: self._ask(one.channel, call, patience_seconds).value)

    def _invite(self) -> None:
        """Those who have nothing else to do, when it is worth it. They get ready while the first engine goes on."""
        if self._batch_seconds < self._next_invitation or self._share is None:
            return
        channels = self._share.borrow()
        if not channels:
            return
        self._next_invitation = self._batch_seconds + WORTHWHILE_SECONDS
        self._channels += channels
        for key in ROOTS:
            self._learn_layout(key)
        expected = [] if all(channel.worker.is_local for channel in channels) else show_runs(self._first)
        for channel in channels:
            self._threads.submit(self._admit, channel, self._share, expected)

    def _admit(self, channel: Channel, share: Share, expected: list[Observation]) -> None:
        """Have it help, unless it is on another machine where the runs are not the same."""
        pool, one = share.pool, BorrowedChannel(channel)
        is_admitted = False
        try:
            pool.check(channel, self._opening.failing, self._patience())
            self._ask(channel, self._opening, self._patience())
            lab = self._reach(one, self._patience())
            lab.widen(1)
            one.is_alike = all(self._is_alike(one, key) for key in ROOTS)
            if not channel.worker.is_local:
                if not one.is_alike:
                    raise Refusal("the program does not lie in memory as on the others (another kernel or C library).")
                if show_runs(lab) != expected:
                    raise Refusal("the program does not show the same as on the others: bring its files up to date.")
            with self._lock:
                self._helping = (*self._helping, one)
            is_admitted = True
        except (_Trouble, CompanionLost, BudgetUsedUp, KeyboardInterrupt):
            pass
        except Refusal as refusal:
            pool.refuse(channel.worker, self._opening.failing, str(refusal))
        finally:
            if not is_admitted:
                channel.close()

    def _is_alike(self, one: BorrowedChannel, key: Key) -> bool:
        if key not in one.layouts:
            one.layouts[key] = self._reach(one, self._patience()).layout(*key)
        return one.layouts[key] == self._layouts.get(key)

    def _learn_layout(self, key: Key) -> None:
        if key not in self._layouts:
            self._layouts[key] = self._first.layout(*key)


@dataclass(frozen=True, slots=True)
class LabSetup:
    """`libraries` are patterns for shared libraries that count as the program's own code; `cache` is a directory for
    what should be known again in later sessions; `share` is what a diagnosis has of the session's workers: without
    one, a lab has an engine of its own."""

    libraries: tuple[str, ...] = ()
    cache: Path | None = None
    precautions: Precautions = USUAL
    share: Share | None = None

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self.share.size if self.share is not None else 1

    def open_lab(
        self,
        passing: Command,
        failing: Command,
        *,
        budget: Budget,
        others: Sequence[Command] = (),
        repair: Intervention | Patch | None = None,
    ) -> RemoteLab:
        """For these two runs and some others, until the budget is over. With a `repair` the passing run is the twin of
        the failing one."""
        budget.check()
        opening = Open(
            passing,
            failing,
            libraries=self.libraries,
            cache=self.cache,
            others=tuple(others),
            repair=repair,
            precautions=self.precautions,
        )
        return RemoteLab(opening, budget, self.share)


def show_runs(lab: Laboratory) -> list[Observation]:
    """Both original runs."""
    return [observation for key in ROOTS for observation in lab.experiments(*key, (NOTHING,))]


def last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it ended without a word"


class Batch(Generic[Item, T]):
    """Parts are taken from the front, smaller ones towards the end, so that all engines are through at about the same
    time; neighbouring items, which often begin at the same moment, stay together. A part that is given back is taken by
    another engine."""

    def __init__(self, items: Sequence[Item], engines: int, least: int = 1) -> None:
        """Parts of fewer than `least` are not worth asking for."""
        self._items = items
        self._engines, self._least = engines, least
        self._results: dict[int, T] = {}
        self._waiting: list[range] = [range(len(items))] if items else []
        self._taken = 0
        self._is_over = False
        self._changed = threading.Condition()

    def take(self) -> range | None:
        """Waits while a part may yet be given back; None when nothing is left to do."""
        with self._changed:
            while not self._waiting and self._taken and not self._is_over:
                self._changed.wait()
            if not self._waiting or self._is_over:
                return None
            rest = self._waiting.pop()
            size = len(rest) if self._engines == 1 else max(self._least, -(-len(rest) // (2 * self._engines)))
            if len(rest) > size:
                self._waiting.append(rest[size:])
            self._taken += 1
            return rest[:size]

    def items_of(self, part: range) -> Sequence[Item]:
        return self._items[part.start : part.stop]

    def fill(self, part: range, results: Sequence[T]) -> None:
        with self._changed:
            self._results.update(zip(part, results, strict=True))
            self._taken -= 1
            self._changed.notify_all()

    def give_back(self, part: range) -> None:
        """What has not been filled in the meantime."""
        with self._changed:
            if part.start not in self._results:
                self._waiting.append(part)
                self._taken -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Nobody takes anything any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def results(self) -> list[T]:
        return [self._results[number] for number in range(len(self._items))]
