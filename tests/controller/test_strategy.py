"""Which passing tests a failing one is compared with, and in which order; all that takes runs is put on."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from pytest_causechain.controller import method, strategy
from pytest_causechain.controller.failing_test import FailingTest
from pytest_causechain.controller.method import Interrupted, Pair
from pytest_causechain.controller.strategy import TELLS_LITTLE, Investigation
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.alteration import Patch
from pytest_causechain.model.budget import Budget, Shortfall
from pytest_causechain.model.chain import Chain, Link, Party, Peer, Repair, Tally, Transition, When
from pytest_causechain.model.moment import Place
from pytest_causechain.model.runs import Command, Program, Recording, Run
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.neighbours.ranking import Neighbour
from pytest_causechain.neighbours.traces import SHOWS_THE_SAME, Ranked
from pytest_causechain.repairs.findings import Attempt, Findings
from pytest_causechain.repairs.findings import Found as RepairFound

LINK = Link(When("f", "f.c", 1, 1, 1, ("f",)), (), 1, Tally(), "both")
MOVE = Transition(("a",), ("b",), "f.c", 1, "f", Place("f.c", 1))
# What comes of comparing with each test, by the end of its name.
WHOLE = {"status": "complete", "chain": (LINK, LINK), "transitions": (MOVE,)}
SHORT = {"status": "complete", "chain": (LINK,)}
NONE = {"status": "none", "reason": "no moment fits."}


def neighbour(name: str) -> Neighbour:
    run = Run(Command(Program("/program", "b1"), ("/program", name), "/"), 0)
    return Neighbour(Recording(name, "passed", (run,)), run, 0.5, "another test")


class Witness:
    """Of tests that fail as they did; nobody asks it for more here."""

    timeout_seconds = 0.0

    def base(self, test: str) -> Verdict:
        return Verdict("failed")

    def close(self) -> None: ...


class Witnesses:
    def borrow(self, tests: Iterable[str]) -> Witness:
        return Witness()


class Bench:
    """An investigation whose ranking, repairs and chains are given; `tried` are the passing tests compared with,
    `brief` those of them that need not be looked at closely, `asked_for` the one that the user wants."""

    def __init__(self, patch: pytest.MonkeyPatch, results: dict[str, dict[str, object]]) -> None:
        self.results = results
        self.tried: list[str] = []
        self.brief: list[str] = []
        self.asked_for = ""
        self.ranked: list[str] = []
        self.refused: dict[str, str] = {}
        patch.setattr(method, "find_chain", self.find_chain_of)
        patch.setattr(strategy, "rank_by_traces", self.rank)
        patch.setattr(strategy, "find_repairs", lambda failing, **known: None)

    def find_chain_of(self, pair: Pair, judge: object, budget: Budget, setup: object, is_told: object = None) -> Chain:
        if pair.repair is not None:
            return Chain("fails", peer=Peer("twin", "fails"), **WHOLE)  # type: ignore[arg-type]
        self.tried.append(pair.passing_test)
        self.brief += [pair.passing_test] * (isinstance(is_told, Future) and is_told.result(10))
        passing = Party(pair.passing_test, (), "/", "", "", pair.distance, pair.why)
        peer = Peer("neighbour", pair.passing_test)
        return Chain("fails", passing=passing, peer=peer, **self.results[pair.passing_test])  # type: ignore[arg-type]

    def rank(self, _failing: Command, candidates: tuple[Neighbour, ...], *_: object) -> Ranked:
        self.ranked = [near.recording.test for near in candidates]
        refused = [(near, self.refused[near.recording.test]) for near in candidates if self.is_refused(near)]
        usable = [near for near in candidates if not self.is_refused(near)]
        return Ranked(tuple(usable), len(usable), tuple(refused))

    def is_refused(self, near: Neighbour) -> bool:
        return near.recording.test in self.refused

    def find_chain(self, share: object = None) -> Chain:
        run = neighbour("fails").run
        neighbours = [replace(neighbour(name), is_asked_for=name == self.asked_for) for name in self.results]
        failing = FailingTest(Recording("fails", "failed", (run,)), run, tuple(neighbours))
        setup = LabSetup(share=share)  # type: ignore[arg-type]
        opened = Investigation(failing, timeout_seconds=60, setup=setup, replays=Witnesses())  # type: ignore[arg-type]
        return opened.find_chain()


class TestTries:
    def test_nearest_is_enough_when_its_chain_moves(self, monkeypatch):
        bench = Bench(monkeypatch, {"a": WHOLE, "b": WHOLE})
        chain = bench.find_chain()
        assert bench.tried == ["a"]
        assert chain.passing is not None
        assert [(rival.test, rival.refused) for rival in chain.passing.rivals] == [("b", None)]

    def test_next_are_tried_without_a_chain_or_without_transitions(self, monkeypatch):
        bench = Bench(monkeypatch, {"a": NONE, "b": SHORT, "c": WHOLE, "d": WHOLE})
        chain = bench.find_chain()
        assert bench.tried == ["a", "b", "c"]
        assert chain.passing is not None and chain.passing.test == "c"
        rivals = {rival.test: rival.refused for rival in chain.passing.rivals}
        assert rivals == {"a": "no moment fits.", "b": TELLS_LITTLE, "d": None}

    def test_three_at_most_and_the_first_of_the_best_is_told(self, monkeypatch):
        bench = Bench(monkeypatch, {"a": NONE, "b": SHORT, "c": SHORT, "d": WHOLE})
        chain = bench.find_chain()
        assert bench.tried == ["a", "b", "c"]
        assert chain.passing is not None and chain.passing.test == "b"

    def test_those_of_no_use_cost_no_try(self, monkeypatch):
        bench = Bench(monkeypatch, {"a": WHOLE, "b": WHOLE, "c": WHOLE, "d": WHOLE})
        bench.refused = dict.fromkeys("abc", SHOWS_THE_SAME)
        chain = bench.find_chain()
        assert bench.tried == ["d"]
        assert chain.passing is not None
        assert [(rival.test, rival.distance, rival.refused) for rival in chain.passing.rivals] == [
            (name, None, SHOWS_THE_SAME) for name in "abc"
        ]

    def test_a_single_one_is_not_ranked(self, monkeypatch):
        bench = Bench(monkeypatch, {"a": SHORT})
        chain = bench.find_chain()
        assert (bench.ranked, bench.tried) == ([], ["a"])
        assert chain.passing is not None and chain.passing.rivals == ()


def test_where_all_are_of_no_use_the_closest_is_named(monkeypatch):
    bench = Bench(monkeypatch, {"a": WHOLE, "b": WHOLE})
    bench.refused = dict.fromkeys("ab", SHOWS_THE_SAME)
    chain = bench.find_chain()
    assert bench.tried == []
    assert (chain.status, chain.reason) == ("none", f"no passing neighbour; a comes closest, but {SHOWS_THE_SAME}")


def test_what_it_took_is_told_without_a_chain_too():
    findings, budget = Findings(experiments=7, seconds=1.5), Budget(60, clock=iter([0.0, 2.25]).__next__)
    before = Shortfall("guilt", 1, 3)
    chain = strategy.add_effort(Chain("fails", "none", "no moment fits."), findings, budget, [before])
    assert chain.cut_short == (before,)
    known = chain.statistics
    assert (known.interventions, known.seconds.repairs, known.seconds.total) == (7, 1.5, 2.25)


REPAIR = Repair("value", "f.c", 1, "f", 1, "a", "1", "2")
ATTEMPT = Attempt(Patch(1, b"", b""), REPAIR, 1, True)


def find_one(_failing: Command, *, findings: Findings, **_known: object) -> None:
    findings.found.append(RepairFound(ATTEMPT, is_full=True))


class Room:
    """A share of workers that has one left, or none."""

    size = 2

    def __init__(self, has_room: bool) -> None:
        self.has_room = has_room


class TestSideBySide:
    @pytest.mark.parametrize("has_room", [True, False])
    def test_neighbour_is_compared_while_repairs_are_looked_for(self, monkeypatch, has_room):
        bench, begun = Bench(monkeypatch, {"a": WHOLE}), threading.Event()
        seen = []

        def find_chain(pair: Pair, *more: object) -> Chain:
            begun.set()
            return bench.find_chain_of(pair, *more)  # type: ignore[arg-type]

        def find_repairs(failing: Command, **known: object) -> None:
            seen.append(begun.wait(10 * has_room))
            find_one(failing, **known)  # type: ignore[arg-type]

        monkeypatch.setattr(method, "find_chain", find_chain)
        monkeypatch.setattr(strategy, "find_repairs", find_repairs)
        chain = bench.find_chain(Room(has_room))
        assert seen == [has_room]
        assert (chain.status, bench.tried, bench.brief) == ("complete", ["a"], ["a"])

    @pytest.mark.parametrize("has_room", [True, False])
    def test_without_a_twin_the_whole_of_it_is_told(self, monkeypatch, has_room):
        bench = Bench(monkeypatch, {"a": WHOLE})
        chain = bench.find_chain(Room(has_room))
        assert chain.peer is not None and chain.peer.kind == "neighbour"
        assert (bench.tried, bench.brief) == (["a"], [])

    def test_one_that_the_user_asked_for_is_told_whole(self, monkeypatch):
        bench = Bench(monkeypatch, {"a": WHOLE})
        bench.asked_for = "a"
        monkeypatch.setattr(strategy, "find_repairs", find_one)
        bench.find_chain(Room(False))
        assert (bench.tried, bench.brief) == (["a"], [])

    def test_what_both_know_is_kept_when_the_user_interrupts(self, monkeypatch):
        bench, begun = Bench(monkeypatch, {"a": WHOLE}), threading.Event()

        def find_chain(pair: Pair, judge: object, budget: Budget, setup: object, is_told: object) -> Chain:
            begun.set()
            raise Interrupted(bench.find_chain_of(pair, judge, budget, setup))

        def find_repairs(_failing: Command, **_known: object) -> None:
            assert begun.wait(10)
            raise KeyboardInterrupt

        monkeypatch.setattr(method, "find_chain", find_chain)
        monkeypatch.setattr(strategy, "find_repairs", find_repairs)
        with pytest.raises(Interrupted) as interrupted:
            bench.find_chain(Room(True))
        chain = interrupted.value.chain
        assert (chain.status, chain.reason, chain.chain) == ("partial", "interrupted.", WHOLE["chain"])
