"""The answer: the cause-effect chain, field for field as in chain.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_causechain.model.alteration import Kind
from pytest_causechain.model.budget import Shortfall
from pytest_causechain.model.isolation import NO_ISOLATION, Isolation
from pytest_causechain.model.moment import Breakpoint, Place
from pytest_causechain.model.runs import Frame, Program


@dataclass(frozen=True, slots=True)
class Rival:
    """Another passing test that was looked at. `distance` is as in Party, None where it was not traced; `refused` tells
    why it was of no use, if not for its distance."""

    test: str
    distance: float | None
    why: str
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Party:
    """One of the two runs, as told to the reader; `distance`, `why` and `rivals` tell how the neighbour was chosen: by
    the edits between the commands or, where the runs were traced, by the share of calls that only one of them makes.
    `is_made`: its command was made from that of the test and the failing one."""

    test: str
    argv: tuple[str, ...]
    cwd: str
    stdin: str
    outcome: str
    distance: float | None = None
    why: str | None = None
    is_made: bool = False
    rivals: tuple[Rival, ...] = ()
    # What the test changed in the environment (None: removed), for replay in plain gdb.
    environment: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """When a run counts as the failure in question: "A run fails when ..." goes on with `fails_when`."""

    kind: Literal["symptom", "crash", "exit", "hang", "assertion", "output", "user"]
    fails_when: str


@dataclass(frozen=True, slots=True)
class Tally:
    """Experiments by outcome; `cached` counts those answered without a run."""

    pass_: int = 0
    fail: int = 0
    unresolved: int = 0
    cached: int = 0

    @property
    def total(self) -> int:
        return self.pass_ + self.fail + self.unresolved


@dataclass(frozen=True, slots=True)
class When:
    """The moment of a link."""

    function: str
    file: str
    line: int
    visit: int
    event: int
    backtrace: tuple[str, ...]
    # A call just begun, or the function that the statement about to be executed calls.
    is_entry: bool = False
    calls: str | None = None
    # How to get there in the passing run, for replay in plain gdb; and in the failing one.
    stops: tuple[Breakpoint, ...] = ()
    failing_stops: tuple[Breakpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Cause:
    """One variable of a cause. `frame` numbers the backtrace's frame it lives in; None: it is global.

    `assignment` is a C statement that makes this change when it can be written as one, `undo` one that makes the
    failing run's variable as it was in the passing run. `lines` are the first and last one, of an input that has been
    given others; `is_returned`: it is what a function returns, on its way to a variable.
    """

    variable: str
    type: str
    passing: str
    failing: str
    kind: Literal[
        "value",
        "repoint",
        "create",
        "delete",
        "alias",
        "code",
        "input",
        "position",
        "output",
        "directory",
        "umask",
        "environment",
    ]
    frame: int | None = None
    assignment: str | None = None
    undo: str | None = None
    lines: tuple[int, int] | None = None
    is_returned: bool = False


@dataclass(frozen=True, slots=True)
class Vertex:
    """A value of a state, or an object that holds some; `differs`: the other run has another value there, or none."""

    name: str
    type: str
    value: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """`operation` leads from one vertex to another, both by number: "->next", "[2]", "*"."""

    source: int
    target: int
    operation: str


@dataclass(frozen=True, slots=True)
class Scene:
    """The part of a state around a cause, in one of the two runs."""

    vertices: tuple[Vertex, ...] = ()
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    passing: Scene
    failing: Scene


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment at a moment: `count` differences were transferred, the first ones to `variables`."""

    variables: tuple[str, ...]
    count: int
    outcome: Literal["pass", "fail", "unresolved"]


@dataclass(frozen=True, slots=True)
class Script:
    """How plain gdb makes a change that is no single statement in a run that stands at a moment: by `commands`, and,
    unless it is None, by another `stdin`, of which so many bytes have been read. `obstacle`: why it cannot. The
    commands causechain-call and causechain-text are defined by report/gdb.py."""

    commands: tuple[str, ...] = ()
    stdin: str | None = None
    position: int = 0
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """The cause moves from some variables to others: at the statement that both runs execute between, else where the
    failing run writes to the new ones, else before file and line. `earliest` is where the interval begins; it equals
    file and line when the transition is down to one statement."""

    from_: tuple[str, ...]
    to: tuple[str, ...]
    file: str
    line: int
    function: str
    earliest: Place
    only_in_failing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A cause at a moment. `confirmed`: "passing" - alone it makes the passing run fail; "both" - and undoing it
    alone makes the failing run pass; "context" - only together with other transferred differences."""

    moment: When
    causes: tuple[Cause, ...]
    differences: int
    experiments: Tally
    confirmed: Literal["both", "passing", "context"]
    # Where the cause became so: the statement executed just before, when both runs executed it.
    made_by: Place | None = None
    # Where the failing run last wrote to the variable since the link before.
    written_by: Place | None = None
    # Whether the cause of the link before was seen to make this one appear.
    follows: bool = True
    # How the cause moved to these variables from others.
    arrived_by: Transition | None = None
    picture: Picture | None = None
    # The first experiments at this moment; `experiments` counts those that this cause took.
    trials: tuple[Trial, ...] = ()
    # How gdb makes the change in the passing run, and takes it back in the failing one; None: by the statement of the
    # one cause.
    replay: Script | None = None
    undo: Script | None = None

    @property
    def origin(self) -> Place | None:
        """The statement that made the cause so. What a function is called with was made so by its caller."""
        return self.made_by or (None if self.moment.is_entry else self.written_by)


@dataclass(frozen=True, slots=True)
class Suspect:
    rank: int
    file: str
    line: int
    function: str
    why: str


# What a repair does otherwise. Of a branch: at one visit it goes the other way, or in its condition, at each of them,
# equal values do, or all, or it always leads to one line. Else what is changed: a value at one visit, or the code.
Change = Literal["other way", "equal values", "turned round", "forced", "value", "constant", "operator"]


@dataclass(frozen=True, slots=True)
class Repair:
    """One intervention after which the failing test passes. `visit` counts the executions of this place; 0: at each
    of them. `callee` is the function that an argument is passed to. `stops` and `commands` repeat it in gdb."""

    kind: Kind
    file: str
    line: int
    function: str
    visit: int
    variable: str | None
    # Values, constants or operators, as in C; both are empty for a branch, `new` for one operand alone.
    old: str = ""
    new: str = ""
    callee: str | None = None
    stops: tuple[Breakpoint, ...] = ()
    commands: tuple[str, ...] = ()
    change: Change = "value"
    # The line that a forced branch leads to.
    target: int | None = None
    # Of one that has no name, its number.
    argument: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """How the failing run ended, in words."""

    kind: str
    text: str
    backtrace: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Peer:
    """The passing run of a chain; a twin is the failing run with this `repair`."""

    kind: Literal["neighbour", "twin"]
    test: str
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """The chain against another peer; `reason` tells why there is none, or no whole one."""

    peer: Peer
    passing: Party | None = None
    oracle: Rule | None = None
    chain: tuple[Link, ...] = ()
    transitions: tuple[Transition, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A moment that did not pass the self-check, and why."""

    function: str
    file: str
    line: int
    visit: int
    reason: str


@dataclass(frozen=True, slots=True)
class Moments:
    """`matched` in both traces; of the `tried` ones, `transferable` passed the self-check, all others are `refused`.
    By `late` ones among the transferable the failure had begun to show in what the run had written."""

    matched: int = 0
    tried: int = 0
    transferable: int = 0
    late: int = 0
    refused: tuple[Refused, ...] = ()


@dataclass(frozen=True, slots=True)
class Seconds:
    trace: float = 0.0
    capture: float = 0.0
    experiments: float = 0.0
    total: float = 0.0
    # For the search for repairs.
    repairs: float = 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    experiments: Tally = Tally()
    moments: Moments = Moments()
    vertices: int = 0
    deltas: int = 0
    seconds: Seconds = Seconds()
    workers: int = 1
    lab: str = ""
    # Runs with one thing done otherwise, in search of repairs.
    interventions: int = 0
    # Bytes of a state, at most, that could not be read or were too many.
    unreadable: int = 0
    isolation: Isolation = NO_ISOLATION


@dataclass(frozen=True, slots=True)
class Chain:
    """Everything known about one failing test; `reason` is set unless the status is "complete"."""

    test: str
    status: Literal["complete", "partial", "none"]
    reason: str | None = None
    program: Program | None = None
    failing: Party | None = None
    passing: Party | None = None
    oracle: Rule | None = None
    chain: tuple[Link, ...] = ()
    # In time order: those by which the links arrive, and those that lead to what is not told as a link.
    transitions: tuple[Transition, ...] = ()
    peer: Peer | None = None
    alternatives: tuple[Alternative, ...] = ()
    repairs: tuple[Repair, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    failure: Failure | None = None
    # Why no passing test could be compared with: what came closest, and what is wrong with it.
    without_neighbour: str | None = None
    statistics: Statistics = field(default_factory=Statistics)
    # What was not tried to its end, for lack of work or time.
    cut_short: tuple[Shortfall, ...] = ()
