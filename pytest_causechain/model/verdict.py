"""What a test says of a run, and how an oracle is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_causechain.model.chain import Rule
from pytest_causechain.model.observation import Observation, Outcome


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
    """`outcome` is "diverged" when the replayed test started other programs than before. `where` is the
    file:line in the test's file at which `exception` (the type's name) was raised. `fails_when` is what the
    marker's function of that name said, where there is one, `judged` what the project's pytest_causechain_judge did."""

    outcome: Literal["passed", "failed", "skipped", "diverged"]
    exception: str | None = None
    message: str | None = None
    where: str | None = None
    comparison: Comparison | None = None
    fails_when: bool | None = None
    judged: Outcome | None = None


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
        """What the test says with its real program."""
        ...

    def verdict(self, test: str, observation: Observation) -> Verdict:
        """What the test says when its last start of the program shows `observation`."""
        ...

    def close(self) -> None: ...
