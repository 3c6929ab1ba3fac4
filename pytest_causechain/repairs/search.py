"""Finds single interventions in the failing run after which its test passes.

Branches and changes of the code come before values, and in each the lines that the suite's coverage makes suspicious;
the first and the last visit of all places before those in between. What is known when the time is over counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, takewhile
from typing import NamedTuple, TypeVar

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.lab.laboratory import PATIENCE, RunLimits, Side, name_other
from pytest_causechain.lab.remote_lab import LabSetup, RemoteLab
from pytest_causechain.lab.starts import TEMPLATES_KEPT
from pytest_causechain.model.alteration import NOTHING, Intervention, Kind, Patch, SeenValues, Sighting
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.chain import Change, Repair
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.runs import Command, Observation
from pytest_causechain.repairs.findings import Attempt, Findings, Found, Line
from pytest_causechain.repairs.harm import Ask, Harm, PassingRun, RepairJudge
from pytest_causechain.repairs.places import REGISTERS, Places, RepairPlace, spread
from pytest_causechain.repairs.values import MOST_LIKES, classify, guess_values, show
from pytest_causechain.tracee.effects import Effect, Variant

# In one failing run, before no more values are tried: where something repairs it, they would repair the same lines.
MOST_EXPERIMENTS, ENOUGH_EXPERIMENTS = 2000, 800
BATCH = 48
# Repairs asked for whether they only change a copy of what an earlier one changes.
MOST_COMPARED = 60
BRANCH_VISITS, VALUE_VISITS, FIRST_VISITS = 9, 5, 2
# Passing runs: who is asked for coverage and given repairs, and whose values are looked at. Where nothing repairs the
# failing run, coverage decides, and so many more are asked for theirs.
MOST_COVERED, MOST_WATCHED, MORE_COVERED = 30, 5, 210
# Passing runs that execute the line of a change which harms none of them: before any values were tried, and later.
SOON_CONVINCING, CONVINCING = 10, 5
WATCHED_VISITS = 4
# Numbers at a spot that are tried before other spots have had theirs; addresses are few anyhow. Of spots that are
# passed for the first time many are looked at in one run; of others as many as the lab keeps ready.
FEW_GUESSES, SPOTS_SEEN = 6, 100
# An altered run may take longer and write more than the others, but not without end.
FIRST_SECONDS = 0.05
LEAST_CPU_SECONDS, LEAST_SECONDS = 0.02, 0.5
# The failing run and some passing ones are made this often before anything is concluded from them.
REPETITIONS = 3
OUTPUT_FACTOR, LEAST_OUTPUT = 8, 1 << 16
# What other code is, in the words of a repair; conditions among it are branches.
CHANGES: dict[str, Change] = {
    "equal": "equal values",
    "inverted": "turned round",
    "forced": "forced",
    "constant": "constant",
    "operator": "operator",
}
CONDITIONS = ("equal", "inverted", "forced")

T = TypeVar("T")
Progress = Callable[[str], None]


def find_repairs(
    failing: Command,
    *,
    passing: Sequence[Command],
    also_failing: Sequence[Command],
    ask: Ask,
    budget: Budget,
    setup: LabSetup,
    findings: Findings,
) -> None:
    """`passing`, the nearest first, and `also_failing` are other runs of the program. What is found is entered into
    `findings` at once, for whoever is interrupted. A Refusal where nothing can be learned at all; the end of the
    budget is none, but is noted there."""
    near = near_and_far(passing, MOST_COVERED)
    chosen = set(near)
    far = near_and_far([command for command in passing if command not in chosen], MORE_COVERED)
    others = [*near, *also_failing, *far]
    sides = iter([name_other(number) for number in range(len(others))])
    runs = Others(list(islice(sides, len(near))), list(islice(sides, len(also_failing))), list(sides))
    try:
        with setup.open_lab(failing, failing, budget=budget, others=others) as lab:
            search = RepairSearch(lab, runs, ask, findings, budget)
            try:
                search.run()
            finally:
                search.note_shortfall()
    except BudgetUsedUp:
        if not findings.experiments:
            budget.cut_short("repairs", 0)  # not even their number is known


class Others(NamedTuple):
    """A lab's further runs; `far` are passing ones whose coverage may be asked for, and nothing else."""

    passing: list[Side]
    also_failing: list[Side]
    far: list[Side]


class RepairSearch:
    def __init__(self, lab: RemoteLab, runs: Others, ask: Ask, findings: Findings, budget: Budget) -> None:
        self._lab, self._ask, self._findings, self._budget = lab, ask, findings, budget
        self._passing, self._also_failing, self._far = runs
        self._statements = [s.address for f in lab.program.functions for s in f.statements]
        self._covered: dict[Side, frozenset[Line]] = {}
        self._natural: dict[Side, Observation] = {}
        # At the places of the failing run, by address and register: what passing runs have there.
        self._seen: dict[tuple[int, str], dict[bytes, None]] = {}
        self._tried = 0
        self._tried_places: set[tuple[str, int]] = set()
        self._number_of_places = 0
        # Until all that is to be tried has been, or enough is known.
        self._is_cut = True

    def run(self) -> None:
        self._look_around()
        if self._try_all():
            self._is_cut = False
        if not self._is_repaired:
            self._cover_far()
        self._find_copies()

    def note_shortfall(self) -> None:
        if self._is_cut and self._number_of_places:
            self._budget.cut_short("repairs", len(self._tried_places), self._number_of_places)

    def _look_around(self) -> None:
        """What the runs do, and where the failing one could have gone on otherwise."""
        self._cover_others()
        failing, *again = self._lab.experiments("failing", (), [NOTHING] * REPETITIONS)
        if failing.ending != "timeout" and any(run.shown != failing.shown for run in again):
            raise Refusal("the failing run shows something else each time: make it independent of time and chance.")
        self._judge = RepairJudge(failing, self._ask)
        output_bytes = max(LEAST_OUTPUT, OUTPUT_FACTOR * len(failing.stdout))
        self._limits = RunLimits(self._seconds, max(LEAST_SECONDS, self._seconds), output_bytes)
        executed = self._cover("failing")
        for position in map(self._lab.program.position, sorted(executed)):
            self._findings.executed[position.file, position.line] = position.function
        self._findings.spectrum.failing.append(self._covered["failing"])
        self._places = Places(self._lab, executed)
        self._number_of_places = len(self._places.distinct())
        known = [side for side in self._passing if side in self._covered]
        runs = [PassingRun(side, self._covered[side], self._natural[side]) for side in known]
        self._harm = Harm(self._lab, runs, self._judge, self._limits, self._findings)

    def _try_all(self) -> bool:
        """Round by round, until all has been tried or a repair convinces; False when there was more to try."""
        rounds = self._rounds()
        for attempts in next(rounds):
            self._try(attempts)
        self._harm.screen()
        if self._harm.is_convincing(SOON_CONVINCING):
            self._harm.weigh()
            return True
        is_whole = True
        for attempts_of_round in rounds:
            for attempts in attempts_of_round:
                if self._has_tried_enough():
                    is_whole = self._is_repaired
                    break
                self._try(attempts)
            self._harm.weigh()
            if self._harm.is_convincing(CONVINCING):
                return True
        return is_whole

    # What the runs do

    def _cover_others(self) -> None:
        """As far as a share of the budget allows; they tell too how long a run may take."""
        part, spectrum, seconds = self._budget.part("coverage"), self._findings.spectrum, []
        sides = [*self._passing, *self._also_failing]
        for number, side in enumerate(sides):
            if part.is_over:
                self._budget.cut_short("coverage", number, len(sides))
                break
            self._budget.show("looking at what the tests execute")
            self._natural[side] = self._lab.experiment(side)
            if side in self._passing[:REPETITIONS]:
                # Once more, as the first one made all that a run needs.
                begin = time.monotonic()
                self._lab.experiment(side)
                seconds.append(time.monotonic() - begin)
            self._cover(side)
            runs = spectrum.passing if side in self._passing else spectrum.failing
            runs.append(self._covered[side])
        usual = statistics.median(seconds) if seconds else FIRST_SECONDS
        self._seconds = max(LEAST_CPU_SECONDS, PATIENCE * usual)
        self._lab.allow(usual)

    def _cover_far(self) -> None:
        part = self._budget.part("coverage")
        for number, side in enumerate(self._far):
            if part.is_over:
                self._budget.cut_short("coverage", number, len(self._far))
                break
            self._budget.show("looking at what more tests execute")
            self._cover(side, is_last=True)
            self._findings.spectrum.passing.append(self._covered[side])

    def _cover(self, side: Side, is_last: bool = False) -> frozenset[int]:
        executed = self._lab.cover(side, self._statements, is_last)
        positions = map(self._lab.program.position, executed)
        self._covered[side] = frozenset((position.file, position.line) for position in positions)
        return executed

    def _watch_values(self) -> dict[tuple[int, str], dict[bytes, None]]:
        """What the nearest passing runs store, pass and return at the places of the failing one."""
        effects = [place.effect for place in self._places.all if place.effect.kind != "branch"]
        seen: dict[tuple[int, str], dict[bytes, None]] = {}
        for side in self._passing[:MOST_WATCHED]:
            values: SeenValues = self._lab.values(side, effects, WATCHED_VISITS)
            for key, data in values.items():
                seen.setdefault(key, {}).update(dict.fromkeys(data))
        return seen

    # What to try

    def _rounds(self) -> Iterator[Iterator[list[Attempt]]]:
        """What is to be tried at once, and what where that does not convince."""
        ordered = sorted(self._places.all, key=self._rank)
        branches = [place for place in ordered if place.effect.kind == "branch"]
        values = [place for place in ordered if place.effect.kind != "branch"]
        # In a large program none of them may leave nothing to the others.
        share = MOST_EXPERIMENTS // 4
        later: list[Attempt] = []
        slips = list(islice(self._variants(0), 2 * share))
        turning = islice(self._variants(1), max(share // 4, share - len(slips)))
        yield chain(
            chunks(islice(self._flips(branches, 0, FIRST_VISITS), share), BATCH),
            chunks(slips, BATCH),
            chunks(turning, BATCH),
        )
        self._seen = self._watch_values()
        unlikely = islice(self._variants(2), share)
        yield chain(
            self._replacements(values, 0, 1, later),
            takewhile(lambda _: not self._is_repaired, chunks(unlikely, BATCH)),
            self._replacements(values, 1, FIRST_VISITS, later),
        )
        others = self._flips(branches, FIRST_VISITS, BRANCH_VISITS)
        last: list[Attempt] = []
        further = self._replacements(values, FIRST_VISITS, VALUE_VISITS, last)
        yield chain(chunks(later, BATCH), chunks(others, BATCH), further, chunks(last, BATCH))

    @property
    def _is_repaired(self) -> bool:
        return any(found.is_full for found in self._findings.found)

    def _has_tried_enough(self) -> bool:
        return self._tried >= (ENOUGH_EXPERIMENTS if self._is_repaired else MOST_EXPERIMENTS)

    def _rank(self, place: RepairPlace) -> tuple[float, int]:
        line = (place.position.file, place.position.line)
        return -self._findings.spectrum.suspicion(line), self._places.when(place.effect.watch, 1)

    def _flips(self, places: Iterable[RepairPlace], first: int, last: int) -> Iterator[Attempt]:
        for place in places:
            for visit in spread(place.visits, BRANCH_VISITS)[first:last]:
                yield self._attempt(place, visit, Intervention(place.spot(visit)), "other way")

    def _replacements(
        self, places: Iterable[RepairPlace], first: int, last: int, later: list[Attempt]
    ) -> Iterator[list[Attempt]]:
        """A few values at each spot; the others are left for `later`."""
        spots = ((place, visit) for place in places for visit in spread(place.visits, VALUE_VISITS)[first:last])
        for group in chunks(spots, SPOTS_SEEN if last == 1 else TEMPLATES_KEPT):
            sightings = self._lab.sights("failing", [place.spot(visit) for place, visit in group])
            few: list[Attempt] = []
            for (place, visit), sighting in zip(group, sightings, strict=True):
                attempts = list(self._replace(place, visit, sighting)) if sighting is not None else []
                most = MOST_LIKES + 1 if any(attempt.is_address for attempt in attempts) else FEW_GUESSES
                few += attempts[:most]
                later += attempts[most:]
            yield from chunks(few, BATCH)

    def _replace(self, place: RepairPlace, visit: int, sighting: Sighting) -> Iterator[Attempt]:
        effect, types = place.effect, self._lab.program.types
        known = types[sighting.type] if sighting.type is not None else None
        seen = tuple(self._seen.get((effect.address, effect.register), ()))
        was = show(sighting.was, classify(sighting.was, known, effect.is_float), known)
        expected, compared = self._judge.expected_numbers, self._places.compared
        for guess in guess_values(sighting, known, effect.is_float, seen, expected, compared):
            intervention = Intervention(place.spot(visit), guess.data, guess.anchor)
            attempt = self._attempt(place, visit, intervention, "value", sighting.variable, was, guess.text)
            yield replace(attempt, was=sighting.was)

    def _variants(self, surprise: int) -> Iterator[Attempt]:
        def rank(variant: Variant) -> tuple[float, int]:
            position = self._lab.program.position_of(variant.address)
            suspicion = self._findings.spectrum.suspicion((position.file, position.line))
            return -suspicion, self._places.when(variant.watch, 1)

        for variant in sorted((v for v in self._places.variants if v.surprise == surprise), key=rank):
            position = self._lab.program.position_of(variant.address)
            kind: Kind = "branch" if variant.kind in CONDITIONS else "value"
            patch = Patch(variant.address, variant.code, variant.own)
            repair = Repair(
                kind=kind,
                file=position.file,
                line=position.line,
                function=position.function,
                visit=0,
                variable=None,
                old=variant.was,
                new=variant.then,
                commands=script_patch(self._lab.program, patch),
                change=CHANGES[variant.kind],
                target=self._lab.program.position_of(variant.target).line if variant.kind == "forced" else None,
            )
            yield Attempt(patch, repair, self._places.when(variant.watch, 1), True)

    def _attempt(
        self,
        place: RepairPlace,
        visit: int,
        intervention: Intervention,
        change: Change,
        variable: str | None = None,
        old: str = "",
        new: str = "",
    ) -> Attempt:
        """At a visit of a place, told as the repair it may be."""
        program, position = self._lab.program, place.position
        name, argument = place.name or variable, None
        if place.effect.kind == "argument" and name is None:
            argument = REGISTERS.index(place.effect.register) + 1
            name = f"argument {argument}"
        repair = Repair(
            kind=place.effect.kind,
            file=position.file,
            line=position.line,
            function=position.function,
            visit=visit,
            variable=name,
            old=old,
            new=new,
            callee=place.callee,
            stops=tuple(map(program.breakpoint, intervention.spot.stops)),
            commands=script_intervention(place.effect, intervention.data),
            change=change,
            argument=argument,
        )
        return Attempt(intervention, repair, self._places.when(place.effect.watch, visit), place.visits == 1)

    # Trying

    def _try(self, attempts: Sequence[Attempt]) -> None:
        observed = self._lab.interventions("failing", [attempt.alteration for attempt in attempts], self._limits)
        self._tried += len(attempts)
        self._tried_places.update(attempt.place for attempt in attempts)
        self._findings.experiments += len(attempts)
        for attempt, observation in zip(attempts, observed, strict=True):
            judgement = self._judge(observation)
            if judgement == "touched":
                self._findings.touched.add(attempt.line)
            elif judgement != "no":
                self._findings.found.append(Found(attempt, judgement == "repaired"))
        repairs = sum(found.is_full for found in self._findings.found)
        self._budget.show(f"intervention {self._findings.experiments}, {repairs} repairs")

    def _find_copies(self) -> None:
        """What was, and is then, the same as at an earlier repair may come from there: the run tells."""
        earlier: dict[tuple[bytes, bytes], list[Attempt]] = {}
        full = [(found.attempt.when, number) for number, found in enumerate(self._findings.found) if found.is_full]
        for _, number in islice(sorted(full), MOST_COMPARED):
            found = self._findings.found[number]
            alteration = found.attempt.alteration
            if isinstance(alteration, Patch) or not alteration.data:
                continue
            same = earlier.setdefault((found.attempt.was, alteration.data), [])
            origin = next((attempt for attempt in same if self._leads_to(attempt, found.attempt)), None)
            if origin is not None:
                self._findings.found[number] = replace(found, origin=origin.line)
            if all(attempt.line != found.attempt.line for attempt in same):
                same.append(found.attempt)

    def _leads_to(self, earlier: Attempt, later: Attempt) -> bool:
        """Whether the earlier alone brings the later one's value to its spot."""
        assert isinstance(earlier.alteration, Intervention) and isinstance(later.alteration, Intervention)
        stops = self._places.stops_after(earlier.when, later.alteration.spot)
        if earlier.line == later.line or not stops:
            return False
        spot = replace(later.alteration.spot, stops=stops)
        return self._lab.follow("failing", earlier.alteration, spot) == later.alteration.data


def near_and_far(items: Sequence[T], most: int) -> list[T]:
    """The first ones, and as many again from all over the rest."""
    if len(items) <= most:
        return list(items)
    near = most // 2
    rest = len(items) - near
    return [*items[:near], *(items[near + place * rest // (most - near)] for place in range(most - near))]


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


# For gdb

GDB_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long"}


def script_intervention(effect: Effect, data: bytes) -> tuple[str, ...]:
    """Commands for where the program stands before the instruction."""
    value = hex(int.from_bytes(data, "little"))
    match effect.kind:
        case "branch":
            return (
                "set $causechain = $pc",
                "stepi",
                f"if $pc == $causechain + {effect.length}",
                f"  set $pc = $causechain + {effect.target - effect.address}",
                "else",
                f"  set $pc = $causechain + {effect.length}",
                "end",
            )
        case "value":
            store = f"set {{{GDB_TYPES[len(data)]}}} $causechain = {value}"
            return (f"set $causechain = (unsigned long) ({effect.operand})", "stepi", store)
        case _:
            return (f"set ${effect.register} = {value}",)


def script_patch(program: ProgramMap, patch: Patch) -> tuple[str, ...]:
    """Commands for where the program has been loaded."""
    place = program.breakpoint(Stop(patch.address, 1))
    start = f"(unsigned char *) &'{place.function}' + {place.offset}"
    return tuple(f"set *({start} + {number}) = {byte:#04x}" for number, byte in enumerate(patch.code))
