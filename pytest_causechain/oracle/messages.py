"""What a Replay and its session tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_causechain.model.command import Program
from pytest_causechain.model.isolation import Wish
from pytest_causechain.model.observation import Observation
from pytest_causechain.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Task:
    """What the session is started for: the tests by node id, the program whose runs will be replaced in them."""

    arguments: tuple[str, ...]
    tests: tuple[str, ...]
    program: Program
    basetemp: str
    rootdir: str
    isolation: Wish = "auto"


@dataclass(frozen=True, slots=True)
class Ready:
    """Collection is over; questions are welcome."""


@dataclass(frozen=True, slots=True)
class Question:
    """What does the test say of this run? Without one: of the real program's."""

    test: str
    observation: Observation | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict, or the sentence that says why there is none; `unreplayable` when that is about the test itself."""

    verdict: Verdict | None = None
    refusal: str = ""
    unreplayable: bool = False
