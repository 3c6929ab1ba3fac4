"""A program of fixtures_c with a small mistake, diagnosed beside workers: suspects, and the choice of the neighbour.

`make bench` counts the suspects of all programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from suites import FIXTURES, Session, ShareSession, find_alternative, rank_defect, read_chain, read_section, run_session
from test_fixture_chains import copy_fixture

DEFECTS = json.loads((FIXTURES / "defects.json").read_text())
FAILING = "rooms/test_rooms.py::test_second_booking[right-after]"


def run_rooms(directory: Path) -> Session:
    copy_fixture("rooms", directory)
    return run_session(directory, "-v", "-n", "2", "-k", "not right-before", "--cause-chain-timeout=120")


@pytest.fixture
def rooms(share_session: ShareSession) -> Session:
    return share_session("rooms", run_rooms)


def test_wrong_operator_is_among_the_first_suspects(rooms):
    chain = read_chain(rooms.directory, FAILING)
    assert chain["peer"]["kind"] == "twin"
    rank = rank_defect(chain, DEFECTS["rooms"])
    assert rank is not None and rank <= 3


def test_neighbours_that_print_the_same_take_no_try(rooms):
    """The four nearest by their input do."""
    passing = find_alternative(read_chain(rooms.directory, FAILING))["passing"]
    assert passing["test"] == "rooms/test_rooms.py::test_second_booking[other-room]"
    assert passing["why"] == "same test function, 1 edit in the input, 12 of 14 calls in common"
    rivals = {rival["test"].partition("::")[2]: rival for rival in passing["rivals"]}
    same = {name for name, rival in rivals.items() if "shows the same as the failing run" in (rival["refused"] or "")}
    assert same == {f"test_second_booking[{name}]" for name in ("same-time", "within", "around", "last-minute")}
    further = [rival["distance"] for rival in passing["rivals"] if rival["refused"] is None]
    assert len(further) == 5
    assert passing["distance"] < further[0] and further == sorted(further)


def test_choice_is_told(rooms):
    section = " ".join(" ".join(read_section(rooms.output)).split())
    assert "12 of 14 calls in common) (nearer than test_bookings_are_shown_in_order and 4 others; not" in section
    (page,) = (rooms.directory / ".causechain").glob("*/chain.html")
    assert "9 other passing tests looked at" in page.read_text()
