"""A small program, two runs of it and a judge: everything the search for causes needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType

from pytest_causechain.alignment.timeline import Timeline
from pytest_causechain.causes.explanation import Explanation
from pytest_causechain.causes.inquiry import Inquiry, Isolated, Likelihood
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.chain import Rule
from pytest_causechain.model.moment import Moment
from pytest_causechain.model.runs import Command, Observation, Outcome, Program
from pytest_causechain.search.cts import TransitionSearch

# No test here comes near it on a machine that is not broken.
PLENTY_SECONDS = 300.0
Changes = tuple[tuple[str, str | None], ...]
RULE = Rule("output", "it prints what the failing run printed")


@dataclass(frozen=True, slots=True)
class OutputJudge:
    """FAIL for the failing run's output and ending, PASS for the passing run's, UNRESOLVED for any other."""

    passing: Observation
    failing: Observation
    rule: Rule = RULE

    def judge(self, observation: Observation) -> Outcome:
        shown = (observation.stdout, observation.ending, observation.code)
        if shown == (self.failing.stdout, self.failing.ending, self.failing.code):
            return Outcome.FAIL
        if shown == (self.passing.stdout, self.passing.ending, self.passing.code):
            return Outcome.PASS
        return Outcome.UNRESOLVED


class Case:
    """Use as a context manager. Lines are named by a comment at their end: `/* here */`."""

    def __init__(
        self,
        program: Program,
        source: str,
        passing: Sequence[str],
        failing: Sequence[str],
        stdin: tuple[bytes, bytes] = (b"", b""),
        directories: tuple[Path, Path] | None = None,
        environment: tuple[Changes, Changes] = ((), ()),
    ) -> None:
        self._source = source
        where = directories or (Path(program.path).parent,) * 2
        commands = [
            Command(program, (program.path, *arguments), str(directory), changes, text)
            for arguments, directory, changes, text in zip((passing, failing), where, environment, stdin, strict=True)
        ]
        self.lab = LocalLab(Open(*commands, deadline=time.monotonic() + PLENTY_SECONDS))
        self.budget = Budget(PLENTY_SECONDS)
        seen = self.lab.experiment("passing"), self.lab.experiment("failing")
        self.timeline = Timeline(self.lab)
        self.likelihood = Likelihood(self.lab.program, *seen)
        self.inquiry = Inquiry(self.lab, self.timeline, OutputJudge(*seen), self.likelihood, self.budget)

    def __enter__(self) -> Case:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.lab.__exit__(kind, error, traceback)

    def line(self, mark: str) -> int:
        return next(n for n, text in enumerate(self._source.splitlines(), 1) if text.rstrip().endswith(f"/* {mark} */"))

    def call(self, function: str, number: int = 1) -> Moment:
        return [m for m in self.timeline.calls() if m.position.function == function][number - 1]

    def at(self, mark: str, visit: int = 1, since: str = "main") -> Moment:
        """The moment at a line, traced from a call on."""
        moments = self.timeline.statements(self.call(since))
        return [m for m in moments if m.position.line == self.line(mark)][visit - 1]

    def isolate(self, moment: Moment, hints: Sequence[Isolated] = ()) -> Isolated:
        cause = self.inquiry.isolate(moment, hints)
        assert cause is not None
        return cause

    @cached_property
    def search(self) -> TransitionSearch[Moment, Isolated]:
        """All transitions, among calls first, then among the statements from the first call on."""
        search: TransitionSearch[Moment, Isolated] = TransitionSearch(
            self.inquiry, order=lambda m: m.time, is_call=lambda m: m.is_entry
        )
        search.add(self.timeline.calls())
        search.run()
        calls = sorted(search.known, key=lambda m: m.time)
        windows: list[tuple[Moment, Moment | None]] = [(t.before, t.after) for t in search.transitions()]
        for before, after in [*windows, (calls[-1], None)]:
            search.add(self.timeline.statements(before, after))
            search.run()
        return search

    def explain(self) -> Explanation:
        return Explanation(self.lab.program, self.timeline, self.search, set(), set(), self.inquiry, {})


OpenCase = Callable[..., Case]


def told(cause: Isolated) -> list[tuple[str, str, str]]:
    return [(delta.name, delta.passing, delta.failing) for delta in cause.deltas]
