"""Which passing tests a failing one is compared with, and in which order; all that takes runs is put on."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from pytest_causechain.case import TELLS_LITTLE, Case
from pytest_causechain.diagnosis import Interrupted

from pytest_causechain import case, diagnosis
from pytest_causechain.model.chain import Chain, Link, Party, Peer, Tally, Transition, When
from pytest_causechain.model.command import Command, Program
from pytest_causechain.model.place import Place
from pytest_causechain.model.recording import Recording, Run
from pytest_causechain.neighbours.ranking import Neighbour
from pytest_causechain.neighbours.traces import SHOWS_THE_SAME, Ranked
from pytest_causechain.repairs.findings import Findings
from pytest_causechain.settings import Settings

LINK = Link(When("f", "f.c", 1, 1, 1, ("f",)), (), 1, Tally(), "both")
MOVE = Transition(("a",), ("b",), "f.c", 1, "f", Place("f.c", 1))
# What comes of comparing with each test, by the end of its name.
WHOLE = {"status": "complete", "chain": (LINK, LINK), "transitions": (MOVE,)}
SHORT = {"status": "complete", "chain": (LINK,)}
NONE = {"status": "none", "reason": "no moment fits."}


def neighbour(name: str) -> Neighbour:
    run = Run(Command(Program("/program", "b1"), ("/program", name), "/"), 0)
    return Neighbour(Recording(name, "passed", (run,)), run, 0.5, "another test")


class Stage:
    """A case whose ranking and diagnoses are given; `tried` are the passing tests compared with, `brief` those of them
    that need not be looked at closely, `asked_for` the one that the user wants."""

    def __init__(self, patch: pytest.MonkeyPatch, results: dict[str, dict[str, object]]) -> None:
        self.results = results
        self.tried: list[str] = []
        self.brief: list[str] = []
        self.asked_for = ""
        self.ranked: list[str] = []
        self.refused: dict[str, str] = {}
        patch.setattr(diagnosis, "diagnose_pair", self.diagnose)
        patch.setattr(case, "rank_by_traces", self.rank)
        patch.setattr(Case, "find_repairs", lambda self, deadline: None)
        patch.setattr(Case, "_hear", lambda self, make, deadline, *more: make(*[None] * 6, *more))

    def diagnose(self, pair: diagnosis.Pair, *more: object) -> Chain:
        self.tried.append(pair.passing_test)
        is_told = dict(enumerate(more)).get(3)
        self.brief += [pair.passing_test] * (callable(is_told) and is_told())
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
        recording = Recording("fails", "failed", (run,))
        settings = Settings(share=share)  # type: ignore[arg-type]
        opened = Case(recording, run, neighbours, None, settings, None, lambda text: None)  # type: ignore[arg-type]
        return opened.find_chain()


class TestTries:
    def test_nearest_is_enough_when_its_chain_moves(self, monkeypatch):
        stage = Stage(monkeypatch, {"a": WHOLE, "b": WHOLE})
        chain = stage.find_chain()
        assert stage.tried == ["a"]
        assert chain.passing is not None
        assert [(rival.test, rival.refused) for rival in chain.passing.rivals] == [("b", None)]

    def test_next_are_tried_without_a_chain_or_without_transitions(self, monkeypatch):
        stage = Stage(monkeypatch, {"a": NONE, "b": SHORT, "c": WHOLE, "d": WHOLE})
        chain = stage.find_chain()
        assert stage.tried == ["a", "b", "c"]
        assert chain.passing is not None and chain.passing.test == "c"
        rivals = {rival.test: rival.refused for rival in chain.passing.rivals}
        assert rivals == {"a": "no moment fits.", "b": TELLS_LITTLE, "d": None}

    def test_three_at_most_and_the_first_of_the_best_is_told(self, monkeypatch):
        stage = Stage(monkeypatch, {"a": NONE, "b": SHORT, "c": SHORT, "d": WHOLE})
        chain = stage.find_chain()
        assert stage.tried == ["a", "b", "c"]
        assert chain.passing is not None and chain.passing.test == "b"

    def test_those_of_no_use_cost_no_try(self, monkeypatch):
        stage = Stage(monkeypatch, {"a": WHOLE, "b": WHOLE, "c": WHOLE, "d": WHOLE})
        stage.refused = dict.fromkeys("abc", SHOWS_THE_SAME)
        chain = stage.find_chain()
        assert stage.tried == ["d"]
        assert chain.passing is not None
        assert [(rival.test, rival.distance, rival.refused) for rival in chain.passing.rivals] == [
            (name, None, SHOWS_THE_SAME) for name in "abc"
        ]

    def test_a_single_one_is_not_ranked(self, monkeypatch):
        stage = Stage(monkeypatch, {"a": SHORT})
        chain = stage.find_chain()
        assert (stage.ranked, stage.tried) == ([], ["a"])
        assert chain.passing is not None and chain.passing.rivals == ()


def test_where_all_are_of_no_use_the_closest_is_named(monkeypatch):
    stage = Stage(monkeypatch, {"a": WHOLE, "b": WHOLE})
    stage.refused = dict.fromkeys("ab", SHOWS_THE_SAME)
    chain = stage.find_chain()
    assert stage.tried == []
    assert (chain.status, chain.reason) == ("none", f"no passing neighbour; a comes closest, but {SHOWS_THE_SAME}")


def test_what_it_took_is_told_without_a_chain_too():
    chain = case.add_effort(Chain("fails", "none", "no moment fits."), Findings(experiments=7, seconds=1.5), 2.25)
    known = chain.statistics
    assert (known.interventions, known.seconds.repairs, known.seconds.total) == (7, 1.5, 2.25)


def tell_twin(_case: Case, chains: list[Chain], _deadline: float) -> None:
    chains.append(Chain("fails", peer=Peer("twin", "fails"), **WHOLE))  # type: ignore[arg-type]


class Room:
    """A share of workers that has one left, or none."""

    def __init__(self, has_room: bool) -> None:
        self.has_room = has_room


class TestSideBySide:
    @pytest.mark.parametrize("has_room", [True, False])
    def test_neighbour_is_compared_while_repairs_are_looked_for(self, monkeypatch, has_room):
        stage, begun = Stage(monkeypatch, {"a": WHOLE}), threading.Event()
        seen = []

        def diagnose(*arguments: object) -> Chain:
            begun.set()
            return stage.diagnose(*arguments)  # type: ignore[arg-type]

        def find_repairs(_case: Case, _deadline: float) -> None:
            seen.append(begun.wait(10 * has_room))

        monkeypatch.setattr(diagnosis, "diagnose_pair", diagnose)
        monkeypatch.setattr(Case, "find_repairs", find_repairs)
        monkeypatch.setattr(Case, "_compare_twins", tell_twin)
        chain = stage.find_chain(Room(has_room))
        assert seen == [has_room]
        assert (chain.status, stage.tried, stage.brief) == ("complete", ["a"], ["a"])

    @pytest.mark.parametrize("has_room", [True, False])
    def test_without_a_twin_the_whole_of_it_is_told(self, monkeypatch, has_room):
        stage = Stage(monkeypatch, {"a": WHOLE})
        chain = stage.find_chain(Room(has_room))
        assert chain.peer is not None and chain.peer.kind == "neighbour"
        assert (stage.tried, stage.brief) == (["a"], [])

    def test_one_that_the_user_asked_for_is_told_whole(self, monkeypatch):
        stage = Stage(monkeypatch, {"a": WHOLE})
        stage.asked_for = "a"
        monkeypatch.setattr(Case, "_compare_twins", tell_twin)
        stage.find_chain(Room(False))
        assert (stage.tried, stage.brief) == (["a"], [])

    def test_what_both_know_is_kept_when_the_user_interrupts(self, monkeypatch):
        stage, begun = Stage(monkeypatch, {"a": WHOLE}), threading.Event()

        def diagnose(*arguments: object) -> Chain:
            begun.set()
            raise Interrupted(stage.diagnose(*arguments))  # type: ignore[arg-type]

        def find_repairs(_case: Case, _deadline: float) -> None:
            assert begun.wait(10)
            raise KeyboardInterrupt

        monkeypatch.setattr(diagnosis, "diagnose_pair", diagnose)
        monkeypatch.setattr(Case, "find_repairs", find_repairs)
        with pytest.raises(Interrupted) as interrupted:
            stage.find_chain(Room(True))
        chain = interrupted.value.chain
        assert (chain.status, chain.reason, chain.chain) == ("partial", "interrupted.", WHOLE["chain"])
