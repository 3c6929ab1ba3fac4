"""Why there is no (or no whole) answer: always one sentence with the remedy."""

from __future__ import annotations

from typing import Literal


class Refusal(Exception):
    """Raised where a diagnosis cannot go on; its text is the sentence shown to the user."""


class Hopeless(Refusal):
    """It holds for all runs of the program here: there is no use in trying another one."""


class Unreplayable(Refusal):
    """The test cannot be asked about other output; a crash or a hang can be told without it."""


class BudgetUsedUp(Refusal):
    """The work or the time given to one failing test, or to a part of its diagnosis, is over; what is known so far
    still counts."""

    def __init__(self, seconds: float | None = None, limit: Literal["time", "work", "share"] = "time") -> None:
        whole = "the time limit" if seconds is None else f"the time limit of {seconds:g} s"
        told = {
            "time": f"{whole} was reached",
            "work": f"all the work that {whole} allows was done",
            "share": f"the share of {whole} that is for this was used up",
        }
        super().__init__(f"{told[limit]}: raise --cause-chain-timeout.")
