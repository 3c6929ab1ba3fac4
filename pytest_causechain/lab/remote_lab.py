"""A lab in an engine process of its own, and in more of them where workers have nothing else to do.

What is found out about the runs, the first engine tells. Experiments and interventions are the same wherever they are
made, as long as the program lies in memory as it does there, and go to all.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pytest_causechain.debugger.gdb import unusable
from pytest_causechain.debugger.program import ProgramMap, Signature
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.lab.batch import Batch
from pytest_causechain.lab.crew import Share
from pytest_causechain.lab.engine import Answer, Call, Open
from pytest_causechain.lab.flights import LEAST_PATIENCE_SECONDS, Limits
from pytest_causechain.lab.laboratory import (
    FIRST_RUN_SECONDS,
    LEAST_CPU_SECONDS,
    LEAST_SECONDS,
    PATIENCE,
    Lab,
    Side,
    Trace,
)
from pytest_causechain.lab.worker import ENGINE
from pytest_causechain.lab.workers import Engine
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch, SeenValues, Sighting, Spot
from pytest_causechain.model.isolation import USUAL, Precautions
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.place import Place
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.process.companion import Companion, CompanionLost, uninterrupted
from pytest_causechain.process.effects import Effect
from pytest_causechain.process.variants import Compared, Variant

# Beyond the user's time limit: for what has begun to come to its end.
GRACE_SECONDS = 10.0
CLOSING_SECONDS = 5.0
# Spent on experiments before others are asked to help: about as long as it takes them to get ready.
WORTHWHILE_SECONDS = 0.5
# A part of a batch that takes less is not worth asking for; no experiment is shorter than that.
LEAST_PART_SECONDS, SHORTEST_SECONDS = 0.008, 0.0005
# Beyond what its experiments may take: for a part of a batch, which can be given to another engine.
PART_SECONDS = 10.0

T = TypeVar("T")
R = TypeVar("R")


class _Trouble(Exception):
    """The engine or its gdb is lost."""

    def __init__(self, text: str, is_gdb: bool = False) -> None:
        super().__init__(text)
        self.is_gdb = is_gdb


class AnyEngine(Protocol):
    """A Companion, or one on a worker."""

    def exchange(self, message: object, timeout_seconds: float) -> Any: ...
    def close(self, patience_seconds: float = 0.0) -> None: ...


# Where a run stands.
Key = tuple[Side, tuple[Stop, ...]]
ROOTS: tuple[Key, ...] = (("passing", ()), ("failing", ()))


@dataclass(slots=True, eq=False)
class Helper:
    """An engine that makes experiments and nothing else, with the limits it was told and the layouts it has.
    `is_alike`: its runs begin with everything where the first engine has it."""

    engine: Engine
    limits: tuple[float, ...] = ()
    layouts: dict[Key, str] = field(default_factory=dict)
    is_alike: bool = True
    is_busy: bool = False


class RemoteLab(Lab):
    """`kind`, `libraries` and `cache` are as in Open. `others` are further runs,
    known by `name_other`. With a `repair` the passing run is the twin of the failing one. With a `share` of the
    session's workers its engines are there, else it has one here."""

    def __init__(
        self,
        passing: Command,
        failing: Command,
        deadline: float,
        kind: str = "fork",
        libraries: tuple[str, ...] = (),
        cache: Path | None = None,
        others: Sequence[Command] = (),
        repair: Intervention | Patch | None = None,
        precautions: Precautions = USUAL,
        share: Share | None = None,
    ) -> None:
        self.deadline = deadline
        self.name = kind
        self.begins_inside = isinstance(repair, Intervention)
        self._opening = Open(passing, failing, deadline, kind, libraries, cache, tuple(others), repair, precautions)
        self._limits: tuple[float, ...] = (FIRST_RUN_SECONDS, math.inf)
        self._engine: AnyEngine | None = None
        self._share = share
        self._lock = threading.Lock()
        # All that were borrowed, and those that are ready.
        self._engines: list[Engine] = []
        self._helpers: tuple[Helper, ...] = ()
        self._told_width = 0
        self._layouts: dict[Key, str] = {}
        self._batch_seconds = 0.0
        # How long one experiment of the last batch took.
        self._item_seconds = LEAST_PART_SECONDS
        self._next_invitation = WORTHWHILE_SECONDS
        self._hands = ThreadPoolExecutor(share.size if share is not None else 1, "causechain-helper")
        self.program: ProgramMap
        # Of workers each does one thing at a time.
        self.width: int
        try:
            self._call(self._opening)
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close(CLOSING_SECONDS)
            self._engine = None
        for engine in self._engines:
            engine.close()
        self._hands.shutdown()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """It will not be asked anything for a while: its worker may help others."""
        with self._engine.resting() if isinstance(self._engine, Engine) else contextlib.nullcontext():
            yield

    @property
    def run_seconds(self) -> float:
        """How long one run may take."""
        return self._limits[0]

    @run_seconds.setter
    def run_seconds(self, seconds: float) -> None:
        self._limit_runs(seconds, math.inf)

    def allow(self, usual: float) -> None:
        """By the seconds that the original runs take."""
        self._limit_runs(max(LEAST_SECONDS, PATIENCE * usual), max(LEAST_CPU_SECONDS, PATIENCE * usual))

    def _limit_runs(self, *limits: float) -> None:
        self._limits = limits
        self._call(Call("limit_runs", limits))

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        key = (side, tuple(stops))
        return self._share_out(transfers, lambda part: Call("experiments", (*key, tuple(part))), key)

    def speculate(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation | None]:
        """The first engine makes the one that is asked for, each helper one of the others. Those that are not back when
        the first has been waited for twice as long as it took are cancelled."""
        key = (side, tuple(stops))
        self._invite()
        self._tell_width(self._call)
        helpers = self._find_idle(len(transfers) - self._told_width)
        if not helpers:
            some: list[Observation | None] = self._call(Call("speculate", (*key, tuple(transfers))))
            return some
        begin = time.monotonic()
        self._learn_layout(key)
        own, rest = transfers[: self._told_width], transfers[self._told_width :]
        hands = [self._send(h, self._try_one, key, transfer) for h, transfer in zip(helpers, rest, strict=False)]
        seen: list[Observation | None] = self._call(Call("speculate", (*key, tuple(own))))
        took = time.monotonic() - begin
        wait(hands, max(took, LEAST_PATIENCE_SECONDS))
        for helper, hand in zip(helpers, hands, strict=False):
            if not hand.done():
                helper.engine.cancel()
            seen.append(hand.result() if hand.done() else None)
        self._batch_seconds += time.monotonic() - begin
        return seen + [None] * (len(transfers) - len(seen))

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        visit: Visit | None = self._call(Call("visit", (side, tuple(stops), transfer, tuple(then))))
        return None if visit is None else replace(visit, types=self.program.types)

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = 10_000,
    ) -> Trace:
        trace: Trace = self._call(Call("trace", (side, tuple(stops), tuple(addresses), until, limit)))
        return trace

    # Interventions

    def observe(self, command: Command) -> Observation:
        observation: Observation = self._call(Call("observe", (command,)))
        return observation

    def find_writer(
        self, side: Side, stops: Sequence[Stop], then: Sequence[Stop], address: int, size: int
    ) -> Place | None:
        place: Place | None = self._call(Call("find_writer", (side, tuple(stops), tuple(then), address, size)))
        return place

    def signatures(self) -> dict[int, Signature]:
        signatures: dict[int, Signature] = self._call(Call("signatures"))
        return signatures

    def effects(self, functions: Sequence[int]) -> tuple[list[Effect], list[Variant], Compared]:
        effects: tuple[list[Effect], list[Variant], Compared] = self._call(Call("effects", (tuple(functions),)))
        return effects

    def cover(self, side: Side, addresses: Collection[int], is_last: bool = False) -> frozenset[int]:
        covered: frozenset[int] = self._call(Call("cover", (side, tuple(addresses), is_last)))
        return covered

    def count(self, addresses: Collection[int], most: int) -> dict[int, int]:
        counts: dict[int, int] = self._call(Call("count", (tuple(addresses), most)))
        return counts

    def values(self, side: Side, effects: Sequence[Effect], most: int) -> SeenValues:
        values: SeenValues = self._call(Call("values", (side, tuple(effects), most)))
        return values

    def sights(self, side: Side, spots: Sequence[Spot]) -> list[Sighting | None]:
        sights: list[Sighting | None] = self._call(Call("sights", (side, tuple(spots))))
        return sights

    def follow(self, side: Side, intervention: Intervention, spot: Spot) -> bytes | None:
        value: bytes | None = self._call(Call("follow", (side, intervention, spot)))
        return value

    def interventions(
        self, side: Side, interventions: Sequence[Intervention | Patch], limits: Limits
    ) -> list[Observation]:
        # They hold wherever the program lies in memory.
        return self._share_out(interventions, lambda part: Call("interventions", (side, tuple(part), limits)))

    def _call(self, message: Open | Call) -> Any:
        """A lost engine is replaced once, since that may be an accident; a second loss at the same work is not."""
        try:
            return self._attempt(message)
        except _Trouble:
            self._abandon()
        try:
            return self._attempt(message)
        except _Trouble as trouble:
            self._abandon()
            if trouble.is_gdb:
                raise unusable(str(trouble)) from None
            raise Refusal(f"the engine failed twice at the same work ({trouble}): please report this.") from None

    def _attempt(self, message: Open | Call) -> Any:
        if self._engine is None:
            with uninterrupted(), refusing():
                self._engine = self._open_engine()
            # A new engine numbers types anew: earlier visits keep the table that they came with.
            opened = self._exchange(self._opening)
            self.program, self.width, self.notes, self.isolation = opened
            self._layouts.clear()
            self._told_width = 0
            self._tell_width(self._exchange)
            self._exchange(Call("limit_runs", self._limits))
        return None if isinstance(message, Open) else self._exchange(message)

    def _open_engine(self) -> AnyEngine:
        if self._share is not None:
            return self._share.lease(self._opening.failing)
        return Companion(ENGINE)

    def _exchange(self, message: Open | Call) -> Any:
        assert self._engine is not None
        answer = ask(self._engine, message, self._patience())
        self.name = answer.lab
        if not isinstance(message, Open):
            self.program.types.extend(answer.types)
        return answer.value

    def _abandon(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _patience(self) -> float:
        return max(0.0, self.deadline - time.monotonic()) + GRACE_SECONDS

    # Helpers

    def _share_out(
        self, items: Sequence[T], make_call: Callable[[Sequence[T]], Call], key: Key | None = None
    ) -> list[Observation]:
        """The results in the order of the items, whoever made them. With a `key` only helpers are asked that have
        everything in the same places there."""
        begin = time.monotonic()
        self._invite()
        self._tell_width(self._call)
        helpers = self._find_idle(len(items) - 1)
        if helpers and key is not None:
            self._learn_layout(key)
        batch = Batch[T, Observation](items, len(helpers) + 1, math.ceil(LEAST_PART_SECONDS / self._item_seconds))
        hands = [self._send(helper, self._help, batch, make_call, key) for helper in helpers]
        try:
            while (part := batch.take()) is not None:
                batch.fill(part, self._call(make_call(batch.items_of(part))))
        finally:
            batch.stop()
            for hand in hands:
                hand.result()
        took = time.monotonic() - begin
        self._batch_seconds += took
        self._item_seconds = max(SHORTEST_SECONDS, took * (len(helpers) + 1) / max(1, len(items)))
        return batch.results()

    def _tell_width(self, tell: Callable[[Call], Any]) -> None:
        """The first engine does the part of those that cannot make its experiments."""
        if self._share is None:
            return
        self.width = 1 + len(self._helpers)
        own = 1 + sum(not helper.is_alike for helper in self._helpers)
        if self._told_width != own:
            self._told_width = own
            tell(Call("widen", (own,)))

    def _find_idle(self, most: int) -> list[Helper]:
        return [helper for helper in self._helpers if not helper.is_busy][: max(0, most)]

    def _send(self, helper: Helper, work: Callable[..., R | None], *arguments: Any) -> Future[R | None]:
        """Have it work in a thread of its own. One that fails, however it does, is not asked again."""

        def attempt() -> R | None:
            try:
                if helper.limits != self._limits:
                    ask(helper.engine, Call("limit_runs", self._limits), self._patience())
                    helper.limits = self._limits
                return work(helper, *arguments)
            except (_Trouble, Refusal, KeyboardInterrupt):
                with self._lock:
                    self._helpers = tuple(other for other in self._helpers if other is not helper)
                helper.engine.close()
                return None
            finally:
                helper.is_busy = False

        helper.is_busy = True
        return self._hands.submit(attempt)

    def _help(
        self, helper: Helper, batch: Batch[T, Observation], make_call: Callable[[Sequence[T]], Call], key: Key | None
    ) -> None:
        """Part by part; what it fails at goes to another engine."""
        if key is not None and not self._is_alike(helper, key):
            return
        while (part := batch.take()) is not None:
            try:
                patience = min(self._patience(), PART_SECONDS + len(part) * self.run_seconds)
                batch.fill(part, ask(helper.engine, make_call(batch.items_of(part)), patience).value)
            finally:
                batch.give_back(part)

    def _try_one(self, helper: Helper, key: Key, transfer: Transfer) -> Observation | None:
        if not self._is_alike(helper, key):
            return None
        patience = min(self._patience(), PART_SECONDS + self.run_seconds)
        (observation,) = ask(helper.engine, Call("speculate", (*key, (transfer,))), patience).value
        seen: Observation | None = observation
        return seen

    def _invite(self) -> None:
        """Those who have nothing else to do, when it is worth it. They get ready while the first engine goes on."""
        if self._batch_seconds < self._next_invitation or self._share is None:
            return
        engines = self._share.borrow()
        if not engines:
            return
        self._next_invitation = self._batch_seconds + WORTHWHILE_SECONDS
        self._engines += engines
        for key in ROOTS:
            self._learn_layout(key)
        expected = [] if all(engine.worker.is_local for engine in engines) else self._show_runs(self._call)
        for engine in engines:
            self._hands.submit(self._admit, engine, expected)

    def _admit(self, engine: Engine, expected: list[Observation]) -> None:
        """Make it a helper, unless it is on another machine where the runs are not the same."""
        assert self._share is not None
        is_admitted = False
        try:
            self._share.check(engine, self._opening.failing)
            ask(engine, self._opening, self._patience())
            ask(engine, Call("widen", (1,)), self._patience())
            helper = Helper(engine)
            helper.is_alike = all(self._is_alike(helper, key) for key in ROOTS)
            if not engine.worker.is_local:
                if not helper.is_alike:
                    raise Refusal("the program does not lie in memory as on the others (another kernel or C library).")
                if self._show_runs(lambda call: ask(engine, call, self._patience()).value) != expected:
                    raise Refusal("the program does not show the same as on the others: bring its files up to date.")
            with self._lock:
                self._helpers = (*self._helpers, helper)
            is_admitted = True
        except (_Trouble, CompanionLost, BudgetUsedUp, KeyboardInterrupt):
            pass
        except Refusal as refusal:
            self._share.refuse(engine.worker, self._opening.failing, str(refusal))
        finally:
            if not is_admitted:
                engine.close()

    def _is_alike(self, helper: Helper, key: Key) -> bool:
        if key not in helper.layouts:
            helper.layouts[key] = ask(helper.engine, Call("layout", key), self._patience()).value
        return helper.layouts[key] == self._layouts.get(key)

    def _learn_layout(self, key: Key) -> None:
        if key not in self._layouts:
            self._layouts[key] = self._call(Call("layout", key))

    def _show_runs(self, call: Callable[[Call], Any]) -> list[Observation]:
        """Both original runs."""
        return [observation for key in ROOTS for observation in call(Call("experiments", (*key, (NOTHING,))))]


def ask(engine: AnyEngine, message: Open | Call, patience_seconds: float) -> Answer:
    try:
        answer: Answer = engine.exchange(message, patience_seconds)
    except CompanionLost as lost:
        raise _Trouble("it does not answer in time" if lost.is_late else last_line(lost.log)) from None
    if answer.trouble:
        raise _Trouble(answer.trouble, answer.is_hopeless)
    if answer.is_used_up:
        raise BudgetUsedUp
    if answer.refusal:
        raise (Hopeless if answer.is_hopeless else Refusal)(answer.refusal)
    return answer


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(
            f"the engine cannot be started ({error}): it needs some room for temporary files, or let TMPDIR name a "
            "directory that has it."
        ) from None


def last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it ended without a word"
