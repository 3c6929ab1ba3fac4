"""Why there is no (or no whole) answer: always one sentence with the remedy."""

from __future__ import annotations


class Refusal(Exception):
    """Raised where a diagnosis cannot go on; its text is the sentence shown to the user."""


class Hopeless(Refusal):
    """It holds for all runs of the program here: there is no use in trying another one."""


class Unreplayable(Refusal):
    """The test cannot be asked about other output; a crash or a hang can be told without it."""


class BudgetUsedUp(Refusal):
    """The time given to one failing test is over; what is known so far still counts."""

    def __init__(self) -> None:
        super().__init__("the time budget is used up: raise --cause-chain-timeout.")
