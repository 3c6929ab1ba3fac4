"""The workers of a session, and what each of its diagnoses has of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from pytest_causechain.lab.engine import Fitness
from pytest_causechain.lab.worker import CLOSING_SECONDS
from pytest_causechain.lab.workers import Engine, Worker
from pytest_causechain.model.command import Command
from pytest_causechain.model.refusal import Hopeless, Refusal
from pytest_causechain.process.closing import Closing
from pytest_causechain.process.companion import CompanionLost
from pytest_causechain.process.directories import OwnDirectory

# Makes a worker that has its temporary files in this directory.
MakeWorker = Callable[[str], Worker]


class Crew(Closing):
    """All workers of a session. `check` raises when the user has interrupted."""

    def __init__(self, make_workers: Sequence[MakeWorker], check: Callable[[], None] = lambda: None) -> None:
        self._check_wanted = check
        # What a worker that is killed would leave behind.
        self._temporary = OwnDirectory()
        self.workers = [make(str(self._temporary.path)) for make in make_workers]
        self._diagnoses = 0
        self._lock = threading.Lock()
        # What keeps a worker from a program that another one deals with.
        self._obstacles: dict[tuple[str, str], str] = {}
        with contextlib.suppress(OSError):  # which is told of when an engine is really needed
            self._prepare_next()

    def close(self) -> None:
        deadline = time.monotonic() + CLOSING_SECONDS
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.join(deadline)
        self._temporary.remove()

    @property
    def notes(self) -> list[str]:
        """Sentences about workers that were of no use, though others were."""
        lost = [f"worker {worker.name} was lost: {worker.why_lost}." for worker in self.workers if worker.is_lost]
        refused = [f"worker {name} takes no part: {why}" for (name, _), why in self._obstacles.items()]
        return list(dict.fromkeys([*lost, *refused]))

    @contextlib.contextmanager
    def diagnosing(self) -> Iterator[None]:
        """Free workers are divided among the diagnoses that are under way."""
        with self._lock:
            self._diagnoses += 1
        try:
            yield
        finally:
            with self._lock:
                self._diagnoses -= 1

    @property
    def has_room(self) -> bool:
        """Whether each diagnosis that is under way can have two workers."""
        return 2 * self._diagnoses <= sum(not worker.is_lost for worker in self.workers)

    @property
    def busy(self) -> int:
        return sum(worker.leases > 0 for worker in self.workers)

    def lease(self, command: Command) -> Engine:
        """For all that a lab asks: on the worker that has least to do. A Refusal when there is none."""
        refused: list[tuple[Worker, Fitness]] = []
        for worker in self._living():
            engine = worker.open_engine(self._check_wanted)
            self._prepare_next()
            try:
                fitness = worker.check(command, engine)
            except CompanionLost:
                engine.close()
                continue
            if not fitness.obstacle:
                for other, why in refused:
                    self.refuse(other, command, why.obstacle)
                return engine
            refused.append((worker, fitness))
            engine.close()
        if not refused:
            raise Refusal(self._why_none())
        _, first = refused[0]
        raise (Hopeless if first.is_hopeless else Refusal)(first.obstacle)

    def borrow(self) -> list[Engine]:
        """On workers that have nothing to do; others may want some of them too."""
        with self._lock:
            idle = [worker for worker in self.workers if not worker.is_lost and not worker.leases]
            fair = -(-len(idle) // max(1, self._diagnoses))
            return [worker.open_engine(self._check_wanted) for worker in idle[:fair]]

    def check(self, engine: Engine, command: Command) -> None:
        """A Refusal when it cannot help with a program, CompanionLost when it is not there any more."""
        fitness = engine.worker.check(command, engine)
        if fitness.obstacle:
            raise Refusal(fitness.obstacle)

    def refuse(self, worker: Worker, command: Command, why: str) -> None:
        self._obstacles.setdefault((worker.name, command.program.build_id), why)

    def _prepare_next(self) -> None:
        """An engine takes as long to start as hundreds of experiments."""
        idle = (worker for worker in self.workers if not worker.is_lost and not worker.leases)
        if (following := next(idle, None)) is not None:
            following.prepare()

    def _living(self) -> list[Worker]:
        with self._lock:
            return sorted((w for w in self.workers if not w.is_lost), key=lambda worker: worker.leases)

    def _why_none(self) -> str:
        lost = next((worker for worker in reversed(self.workers) if worker.is_lost), None)
        last = f" (the last one, {lost.name}: {lost.why_lost})" if lost is not None else ""
        return f"all workers are lost{last}: run the failing test alone."


class Share:
    """What one diagnosis has of the crew: unless it `is_parallel`, a single worker."""

    def __init__(self, crew: Crew, is_parallel: bool = True) -> None:
        self._crew, self._is_parallel = crew, is_parallel
        self.lease, self.check, self.refuse = crew.lease, crew.check, crew.refuse

    @property
    def size(self) -> int:
        return len(self._crew.workers) if self._is_parallel else 1

    @property
    def has_room(self) -> bool:
        return self._is_parallel and self._crew.has_room

    def borrow(self) -> list[Engine]:
        return self._crew.borrow() if self._is_parallel else []
