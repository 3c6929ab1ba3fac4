"""What a Replay and its session tell each other."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_causechain.model.isolation import Wish
from pytest_causechain.model.runs import Command, Observation, Run
from pytest_causechain.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Task:
    """What the session is started with."""

    arguments: tuple[str, ...]
    basetemp: str
    rootdir: str
    isolation: Wish = "auto"


@dataclass(frozen=True, slots=True)
class Ready:
    """Collection is over; questions are welcome."""


@dataclass(frozen=True, slots=True)
class Question:
    """What does the test say when this run of it shows this observation? Without one: of the real programs.

    `origins` are the commands of which it may be an observation: they tell where it wrote its files."""

    test: str
    run: Run | None = None
    observation: Observation | None = None
    origins: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict, or the sentence that says why there is none; `unreplayable` when that is about the test itself.

    `shown` is what the real programs showed, as far as the test has seen it.
    """

    verdict: Verdict | None = None
    refusal: str = ""
    unreplayable: bool = False
    shown: tuple[Observation, ...] = ()
