"""Finds out by asking the failing test what its failure is: the rule that tells it from any other failure, and which of
the test's runs decides it.

`learn_symptom` tries rules in the order in which they stand. One is taken only when it separates the two original runs:
the failing one must be a FAIL by it and the passing one a PASS.

`find_guilty` gives each run another output in turn, while all others are real. The one by which the failure changes
where it came up, or goes away, is guilty. Outputs of the test's other runs come first: they have a form that the test
can read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from string import ascii_letters
from typing import TYPE_CHECKING

from pytest_causechain.model.budget import Budget
from pytest_causechain.model.refusal import Refusal, Unreplayable
from pytest_causechain.model.runs import Observation, Outcome, Recording, Run, Shown
from pytest_causechain.model.verdict import Comparison, Oracle, Value, Verdict, is_later
from pytest_causechain.oracle.facts import derive_symptoms
from pytest_causechain.oracle.oracles import (
    Ask,
    Side,
    find_report,
    is_changed,
    is_same_failure,
    judge_by_assertion,
    judge_by_crash,
    judge_by_facts,
    judge_by_hang,
    judge_by_output,
    judge_by_report,
    judge_by_status,
    judge_by_user,
    shape,
    take_side,
)

if TYPE_CHECKING:
    from pytest_causechain.oracle.replay import Replay

# With these the other side of a comparison tells what is right; with the others, what is wrong or a limit.
EXPECTING_OPERATORS = frozenset({"==", "in", "is"})

_WORD = re.compile(rb"\w+")
_CHANGES: tuple[Callable[[bytes], bytes], ...] = (
    lambda text: b"",
    lambda text: text * 2,
    lambda text: _WORD.sub(rb"\g<0>\g<0>", text),
)

# The next digit or letter; no number begins with 0 then.
_FOLLOWING = bytes.maketrans(b"0123456789" + ascii_letters.encode(), b"1234567891" + (ascii_letters[1:] + "a").encode())

_MARKER = "@pytest.mark.cause_chain(fails_when=...)"

_INDIFFERENT = (
    "the test says the same of every output it was asked about (that of the passing run, none, made-up ones), so that "
    f"nothing tells what it looks at: add a passing test that expects the same, or tell the failure by {_MARKER}."
)


def learn_symptom(passing: Observation, failing: Observation, ask: Ask) -> Oracle:
    """Returns the first oracle that separates the two runs; `ask` has the failing test judge a run.

    A crash or a hang is known without asking, so that there `ask` may refuse as Unreplayable.
    """
    memory = _Memory(ask)
    for oracle in _propose_oracles(passing, failing, memory):
        if oracle.judge(failing) is Outcome.FAIL and oracle.judge(passing) is Outcome.PASS:
            return oracle
    raise Refusal(
        "the failing and the passing run end alike and print the same, so nothing tells them apart: choose another "
        f"passing test by --cause-chain-neighbour, or tell the failure by {_MARKER}."
    )


@dataclass(slots=True)
class _Memory:
    """Asks about each run once. What a run showed decides: where it crashed makes no difference to a test."""

    ask: Ask
    verdicts: dict[Shown, Verdict] = field(default_factory=dict)

    def __call__(self, observation: Observation) -> Verdict:
        if observation.shown not in self.verdicts:
            self.verdicts[observation.shown] = self.ask(observation)
        return self.verdicts[observation.shown]


def _propose_oracles(passing: Observation, failing: Observation, ask: Ask) -> Iterator[Oracle]:
    try:
        users = judge_by_user(failing, ask)
    except Unreplayable:
        if failing.ending == "exit":
            raise
    else:
        if users is not None:
            yield users
            raise Refusal(_blame_user(users, passing, failing, ask(failing).fails_when is not None))
    report = find_report(failing)
    if report is not None and report.is_fatal:
        yield judge_by_report(report)
    if failing.ending == "signal":
        yield judge_by_crash(failing)
    if failing.ending == "timeout":
        yield judge_by_hang()
    yield from _propose_by_replay(passing, failing, ask)


def _blame_user(users: Oracle, passing: Observation, failing: Observation, is_marker: bool) -> str:
    is_failing = users.judge(failing) is not Outcome.FAIL
    run, said = ("failing", users.judge(failing)) if is_failing else ("passing", users.judge(passing))
    if is_marker:
        answer = "true" if said is Outcome.FAIL else "false"
        return (
            f"fails_when of the marker cause_chain is {answer} for the {run} run: make it true for failing runs only."
        )
    wanted = "fail" if is_failing else "pass"
    return f'pytest_causechain_judge says "{said.value}" of the {run} run: make it say "{wanted}" there.'


def _propose_by_replay(passing: Observation, failing: Observation, ask: Ask) -> Iterator[Oracle]:
    failure = ask(failing)
    if failure.outcome != "failed":
        raise Refusal(_tell_no_failure(failure))
    if not any(is_changed(ask(other), failure) for other in (passing, *_make_up_runs(passing, failing))):
        raise Refusal(_INDIFFERENT)
    report = find_report(failing)
    if report is not None and is_changed(ask(replace(failing, code=passing.code, stderr=b"")), failure):
        yield judge_by_report(report)
    if failing.ending == passing.ending == "exit" and failing.code != passing.code:
        changed = ask(replace(failing, code=passing.code))
        # A test that looks at the output next fails there then: the status is what it stumbled over.
        if changed.outcome in ("passed", "failed") and not is_same_failure(changed, failure):
            yield judge_by_status(passing, failing, ask)
    side = _find_side(passing, failing, ask)
    if side is not None:
        yield from _propose_by_facts(passing, failing, side, ask)
    if ask(passing).outcome == "passed":
        yield judge_by_assertion(passing, failing, failure, side, ask)
    yield judge_by_output(passing, failing, ask)


def _tell_no_failure(verdict: Verdict) -> str:
    what = {
        "passed": "the test passes when replayed on the output of its own failing run",
        "skipped": "the test is skipped when replayed on the output of its own failing run",
        "diverged": "the test starts other programs when replayed on the output of its own failing run",
    }[verdict.outcome]
    because = "so more than the program's output and exit status makes it fail (a file, the time, an earlier test)"
    return f"{what}, {because}: tell the failure by {_MARKER}."


def _find_side(passing: Observation, failing: Observation, ask: Ask) -> Side | None:
    """Finds the side of the failed comparison that depends on the run; None where that is not known."""
    failure, other = ask(failing), ask(passing)
    if failure.comparison is None or failure.where is None:
        return None
    if is_same_failure(other, failure) and other.comparison is not None:
        return _find_observed_side(failure.comparison, other.comparison)
    return _probe_observed_side(passing, failing, ask) if other.outcome == "passed" else None


def _propose_by_facts(passing: Observation, failing: Observation, side: Side, ask: Ask) -> Iterator[Oracle]:
    failure, other = ask(failing), ask(passing)
    assert failure.comparison is not None
    if other.comparison is None and failure.comparison.operator != "==":
        return  # what a passing test has compared is not known then
    observed = take_side(failure.comparison, side)
    expected = _take_expectation(failure.comparison, side)
    # A passing test compares silently, but what is equal to the expectation is known without a word.
    seen = take_side(other.comparison, side) if other.comparison is not None else expected
    shapes = frozenset({shape(observed), shape(seen)})
    status = failing.code if failing.code == passing.code else None
    for symptom in derive_symptoms(seen, observed, expected):
        yield judge_by_facts(symptom, failure, side, shapes, status, ask)


def _find_observed_side(one: Comparison, other: Comparison) -> Side | None:
    """Finds the side of what the program printed, by its being different in the two runs. By habit the left one."""
    if one.operator != other.operator:
        return None
    if one.left.text != other.left.text:
        return "left"
    return "right" if one.right.text != other.right.text else None


def _probe_observed_side(passing: Observation, failing: Observation, ask: Ask) -> Side | None:
    """Finds the side by made-up runs, where the passing run leaves no comparison, as long as the test gets as far as
    its assertion."""
    failure = ask(failing)
    assert failure.comparison is not None
    for run in chain(_alter_compared(failing, failure.comparison), _make_up_runs(passing, failing)):
        verdict = ask(run)
        if verdict.comparison is not None and is_same_failure(verdict, failure):
            side = _find_observed_side(failure.comparison, verdict.comparison)
            if side is not None:
                return side
    return None


def _alter_compared(failing: Observation, comparison: Comparison) -> Iterator[Observation]:
    """Yields the failing run with another number or word of the same form where it shows a compared one: a test that
    picks it out of much else gets as far as before."""
    for value in (comparison.left, comparison.right):
        shown = value.text.strip("'\"").encode(errors="surrogateescape")
        other = shown.translate(_FOLLOWING)
        if other != shown:
            files = tuple((path, (content or b"").replace(shown, other)) for path, content in failing.files)
            yield replace(
                failing,
                stdout=failing.stdout.replace(shown, other),
                stderr=failing.stderr.replace(shown, other),
                files=files,
            )


def _make_up_runs(passing: Observation, failing: Observation) -> Iterator[Observation]:
    """Runs that nobody made, in forms that tests often can read: nothing, everything twice, each word twice, another
    exit status."""
    for run in (failing, passing):
        for change in _CHANGES:
            files = tuple((path, change(content or b"")) for path, content in run.files)
            yield replace(run, stdout=change(run.stdout), stderr=change(run.stderr), files=files)
            # Of a test that looks at several of them, the last assertion is reached by right ones only.
            yield replace(run, stdout=change(run.stdout))
            yield replace(run, stderr=change(run.stderr))
            yield replace(run, files=files)
    yield replace(failing, ending="exit", code=0 if failing.returncode else 1)


def _take_expectation(comparison: Comparison, side: Side) -> Value:
    other = take_side(comparison, "right" if side == "left" else "left")
    return other if comparison.operator in EXPECTING_OPERATORS else Value("scalar", other.text)


# Of several runs

# Of those before a failure, the last ones count: a test that fails at its hundredth run has looked at the others.
MAX_RUNS = 20
# The outputs of so many other runs are tried in the place of each.
MAX_OTHERS = 3
MADE_UP = (Observation("exit", 0), Observation("exit", 1), Observation("exit", 0, b"0\n", b"0\n"))

AskRun = Callable[[Run, Observation], Verdict]


def guilty_run(recording: Recording) -> Run:
    """Returns the last run of a failing test: a test stops at the first thing wrong.

    Refusal when the test started no program that can be diagnosed.
    """
    if recording.runs:
        return recording.runs[-1]
    if recording.refusals:
        raise Refusal(recording.refusals[-1])
    raise Refusal(f"{recording.test} starts no program: start the compiled program with subprocess.run.")


def ask_for_guilty(replay: Replay, recording: Recording, budget: Budget) -> Run:
    """Finds the guilty run by asking the test; of one that cannot be asked, the last run that was killed, else the
    last."""
    test = recording.test
    try:
        failure = replay.base(test)
        if failure.outcome == "failed":
            return find_guilty(test, recording.runs, failure, replay.shown(test), partial(replay.verdict, test), budget)
    except Unreplayable:
        pass  # whether that matters will turn out
    killed = [run for run in recording.runs if run.returncode is not None and run.returncode < 0]
    return (killed or recording.runs)[-1]


def find_guilty(
    test: str, runs: Sequence[Run], failure: Verdict, shown: Sequence[Observation], ask: AskRun, budget: Budget
) -> Run:
    """Finds the last run by which the failure can be changed; Refusal when there is none.

    `failure` is what the test says of its real runs, which have `shown` this. Where several runs change it, as when two
    outputs are compared with each other, the last one is what the test was about to look at."""
    moved: Run | None = None
    last = runs[-MAX_RUNS:]
    for number, run in enumerate(reversed(last)):
        effects = set()
        for observation in (*shown[-MAX_OTHERS:], *MADE_UP):
            if budget.is_over:
                budget.cut_short("guilt", number, len(last))
                return moved or runs[-1]
            budget.charge("question")
            effects.add(tell_effect(ask(run, observation), failure))
            if "decides" in effects:
                return run
        if "moves" in effects and moved is None:
            moved = run
    if moved is None:
        raise Refusal(
            f"{test} fails in the same way whatever its {len(runs)} runs print and return, so that none of them "
            "explains it: let it look at their output, exit status or files."
        )
    return moved


def tell_effect(verdict: Verdict, failure: Verdict) -> str:
    """Tells whether another output "decides" over the failure, only "moves" it to an earlier place, or does
    "nothing"."""
    if verdict.outcome == "passed":
        return "decides"
    if verdict.outcome != "failed":
        return "moves"
    if is_same_failure(verdict, failure):
        if not is_changed(verdict, failure):
            return "nothing"
        # In a loop an earlier run may have become the one that fails there.
        return "decides" if verdict.starts >= failure.starts else "moves"
    return "decides" if verdict.starts >= failure.starts and _is_later(verdict, failure) else "moves"


def _is_later(verdict: Verdict, failure: Verdict) -> bool:
    """Tells whether the test came further: in the first place where the two ways part, it is at a later line."""
    ways = zip(verdict.trail, failure.trail, strict=False)
    parting = next(((one, other) for one, other in ways if one != other), None)
    return parting is not None and is_later(*parting)
