"""Runs of the program in copies of one that stands where they begin, or at a moment; else from its start."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pytest_causechain.lab.laboratory import FIRST_RUN_SECONDS, Lab, Side
from pytest_causechain.lab.presence import Presence
from pytest_causechain.model.command import Command
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.process.copies import CannotCopy, Template
from pytest_causechain.process.footholds import Watched
from pytest_causechain.process.maps import read_mappings
from pytest_causechain.process.processors import PROCESSORS, needs_processors
from pytest_causechain.process.stage import Stage
from pytest_causechain.process.subject import Subject, launch
from pytest_causechain.process.tracer import Tracer

# Each is a stopped process; a search returns to the last few moments again and again.
TEMPLATES_KEPT = 8
# A breakpoint costs some 0.2 ms each time it is passed, preparing a stub about as much as eight of these.
MANY_VISITS = 10


class StartingLab(Lab):
    """`stage` is where the runs work; without one, where the tests did."""

    # The addresses at which lines begin.
    _rows: frozenset[int]

    def __init__(
        self, passing: Command, failing: Command, deadline: float, use_copies: bool, stage: Stage | None
    ) -> None:
        # "rerun" as soon as there was a moment at which the program could not be copied.
        self.name = "fork" if use_copies else "rerun"
        self._use_copies = use_copies
        self.deadline = deadline
        self.run_seconds = FIRST_RUN_SECONDS
        self.width = len(PROCESSORS)
        self._commands: dict[Side, Command] = {"passing": passing, "failing": failing}
        self._stage = stage
        self._presence = Presence(stage)
        # Whether the program may be on any processor, or stays where we are; not known before its first start.
        self._roams: bool | None = None
        # Stopped at the entry point: what all other runs are copies of. None where there can be none.
        self._roots: dict[Side, Template | None] = {}
        self._templates: OrderedDict[tuple[Side, tuple[Stop, ...]], Template] = OrderedDict()
        # Where there can be no template; at other moments there may be.
        self._uncopied: set[tuple[Side, tuple[Stop, ...]]] = set()

    def close(self) -> None:
        while self._templates:
            self._templates.popitem()[1].close()
        for root in self._roots.values():
            if root is not None:
                root.close()

    def processes(self) -> list[int]:
        """Those that it keeps between two calls."""
        templates = [*self._templates.values(), *(root for root in self._roots.values() if root is not None)]
        return [template.subject.pid for template in templates]

    def _begin(self) -> float:
        now = time.monotonic()
        if now >= self.deadline:
            raise BudgetUsedUp
        return min(self.deadline, now + (self.bounds.seconds or self.run_seconds))

    def _start(self, side: Side, deadline: float) -> Subject:
        """The program at its entry point. A copy, as a rule: that is faster, and all its addresses are the same each
        time, whatever the kernel thinks of that."""
        self._presence.require(self._commands[side])
        if side not in self._roots:
            self._roots[side] = self._make_root(side, deadline)
        root = self._roots[side]
        return root.copy() if root is not None else self._launch(side, deadline)

    def _launch(self, side: Side, deadline: float) -> Subject:
        """The program where its runs begin."""
        program, command = self.program, self._presence.settle(self._commands[side])
        more = (program.libraries, self._stage, self.bounds, self._roams is not False)
        subject = launch(command, program.relocated, deadline, *more)
        if self._roams is None:
            files = {m.name for m in read_mappings(subject.pid) if m.name.startswith("/")}
            self._roams = needs_processors(files)
        return subject

    def _make_root(self, side: Side, deadline: float) -> Template | None:
        command = self._commands[side]
        subject = self._make_sure(partial(self._launch, side, deadline))
        try:
            return Template(subject, not self.begins_inside, self._roams is not False)
        except CannotCopy:
            subject.kill()
        except BaseException:
            subject.kill()
            raise
        if find_addresses(command, deadline) != find_addresses(command, deadline):
            raise Refusal(
                f"the addresses of {command.program.path} change from run to run, since this container forbids "
                "personality(): start it with --security-opt seccomp=unconfined."
            )
        return None

    def _forget(self, side: Side) -> None:
        """What is known of runs that are not made again."""
        if (root := self._roots.pop(side, None)) is not None:
            root.close()

    def _reach(self, side: Side, stops: Sequence[Stop], deadline: float, keep: bool = True) -> Subject:
        """A run that stands at the stops: a copy of one that does, where that is possible. `keep` that one: there
        will be more copies."""
        template = self._template(side, tuple(stops), deadline) if stops and keep and self._use_copies else None
        return template.copy() if template is not None else self._run_anew(side, stops, deadline)

    def _run_anew(self, side: Side, stops: Sequence[Stop], deadline: float) -> Subject:
        subject = self._start(side, deadline)
        try:
            self._run_to(subject, stops, deadline)
        except BaseException:
            subject.kill()
            raise
        return subject

    def _make_sure(self, run: Callable[[], Subject]) -> Subject:
        """A run of which there will be copies: again, where it has written to what it had not for itself."""
        subject = run()
        while self._is_doubtful(subject):
            subject.kill()
            subject = run()
        return subject

    def _is_doubtful(self, subject: Subject) -> bool:
        return self._stage is not None and self._stage.is_doubtful(subject.view)

    def _run_to(self, process: Subject, stops: Sequence[Stop], deadline: float) -> None:
        """By breakpoint; by stub where that would have to be passed often."""
        for stop in stops:
            if stop.visit < MANY_VISITS:
                process.run_to([stop], deadline)
            else:
                tracer = Tracer(process, [self._watch(stop.address)], self._rows)
                tracer.stop_before(stop.visit, deadline)

    def _template(self, side: Side, stops: tuple[Stop, ...], deadline: float) -> Template | None:
        """None when the program cannot be copied at this moment."""
        key = (side, stops)
        if key in self._uncopied:
            return None
        if key in self._templates:
            self._templates.move_to_end(key)
            return self._templates[key]
        subject = self._make_sure(partial(self._run_anew, side, stops, deadline))
        try:
            self._templates[key] = Template(subject, roams=self._roams is not False)
        except CannotCopy:
            self.name = "rerun"
            self._uncopied.add(key)
            subject.kill()
            return None
        except BaseException:
            subject.kill()
            raise
        if len(self._templates) > TEMPLATES_KEPT:
            self._templates.popitem(last=False)[1].close()
        return self._templates[key]

    def _watch(self, address: int) -> Watched:
        function = self.program.function_at(address)
        assert function is not None  # only the program's own code is watched
        return Watched(address, address == function.address, function.address, function.end)


@contextlib.contextmanager
def ending(subject: Subject) -> Iterator[Subject]:
    try:
        yield subject
    finally:
        subject.kill()


def find_addresses(command: Command, deadline: float) -> list[tuple[int, str]]:
    """Where the parts of the program are; what is written to an address must hold for all its runs."""
    with ending(launch(command, False, deadline)) as subject:
        return [(mapping.start, mapping.name) for mapping in read_mappings(subject.pid)]
