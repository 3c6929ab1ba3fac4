"""Suspicion from coverage."""

from __future__ import annotations

from pytest_causechain.repairs.findings import Spectrum

ALL, SOME, ALONE, NEVER = [("a.c", line) for line in (1, 2, 3, 4)]
SPECTRUM = Spectrum(passing=[{ALL, SOME}, {ALL}, {ALL}], failing=[{ALL, SOME, ALONE}])


def test_order_of_suspicion():
    assert sorted([ALL, SOME, ALONE, NEVER], key=SPECTRUM.suspicion, reverse=True) == [ALONE, SOME, ALL, NEVER]
    assert (SPECTRUM.suspicion(ALONE), SPECTRUM.suspicion(SOME)) == (1.0, 0.75)


def test_what_all_execute_tells_nothing():
    assert [SPECTRUM.tells(line) for line in (ALL, SOME, ALONE)] == [False, True, True]


def test_told():
    assert SPECTRUM.tell(SOME) == "1 of 1 failing and 1 of 3 passing tests of the program execute this line"
