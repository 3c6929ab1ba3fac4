"""What a test says of a run, and how an oracle is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.runs import Command, Observation, Outcome, Run


@dataclass(frozen=True, slots=True)
class Value:
    """One side of a failed comparison: its repr and the elements a reader would name.

    Elements are reprs of a sequence's or set's members, "key: value" of a mapping, lines of a text with line
    breaks, words of one without; a scalar has none.
    """

    kind: Literal["sequence", "set", "mapping", "lines", "words", "scalar"]
    text: str
    elements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Verdict:
    """`outcome` is "diverged" when the replayed test started other programs than before. `trail` tells by file:line how
    the user's own code led to where `exception` (the type's name) was raised, outermost first. `crash` is the place
    that pytest reports, by its whole path. `starts` counts the programs that were started. `fails_when` is what the
    marker's function of that name said, where there is one, `judged` what the project's pytest_causechain_judge did."""

    outcome: Literal["passed", "failed", "skipped", "diverged"]
    exception: str | None = None
    message: str | None = None
    # Of the whole text of the exception: values that it shows are told apart.
    digest: str | None = None
    trail: tuple[str, ...] = ()
    comparison: Comparison | None = None
    crash: str | None = None
    starts: int = 0
    fails_when: bool | None = None
    judged: Outcome | None = None

    @property
    def where(self) -> str | None:
        """The innermost place in the user's own code."""
        return self.trail[-1] if self.trail else None


def is_later(place: str, other: str) -> bool:
    """Whether a place, given as file:line, stands behind another one of its file."""
    (file, _, line), (other_file, _, other_line) = place.rpartition(":"), other.rpartition(":")
    return file == other_file and int(line) > int(other_line)


class Oracle(Protocol):
    """Tells whether a run shows the failure in question; the rule says by which sign."""

    @property
    def rule(self) -> Rule: ...

    def judge(self, observation: Observation) -> Outcome: ...


class Witness(Protocol):
    """Says for tests what they make of a run that their program never made."""

    # For each answer; may be changed between questions.
    timeout_seconds: float

    def base(self, test: str) -> Verdict:
        """What the test says with its real programs."""
        ...

    def verdict(self, test: str, run: Run, observation: Observation, *origins: Command) -> Verdict:
        """What the test says when this run of it shows `observation`, which may also be one of the commands
        `origins`."""
        ...

    def close(self) -> None: ...


class Witnesses(Protocol):
    """Where one is to be had."""

    def borrow(self, tests: Iterable[str]) -> Witness:
        """One that knows these tests, until it is closed."""
        ...
