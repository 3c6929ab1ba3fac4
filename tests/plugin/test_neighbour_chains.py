"""All programs of fixtures_c, diagnosed against their neighbours: what some of the chains must say, and what must hold
of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leading import find_unled
from suites import (
    DEFECTS,
    FIXTURES,
    NEIGHBOURS_ONLY,
    PATIENTLY,
    Diagnosed,
    Session,
    ShareSession,
    copy_fixture,
    find_alternative,
    read_chain,
    run_session,
    write_compilers,
)
from test_fixture_chains import find_line, name_place

# These are diagnosed in sessions of their own, with repairs.
REPAIRED = ("sample", "jukebox", "tidy", "spool", "glossary", "ledger", "roster", "library", "tariffs")
OTHERS = [name for name in DEFECTS if name not in REPAIRED]
# Diagnosed in one session: most of the time of one alone would be its beginning; for all in one the workers of
# pytest-xdist would wait.
ABREAST = 3


def run_others(directory: Path, names: Sequence[str]) -> Session:
    for name in names:
        copy_fixture(name, directory)
    (directory / "neighbours_only.py").write_text(NEIGHBOURS_ONLY)
    limits = (PATIENTLY, "--cause-chain-max=99")
    # A directory of its own for tmp_path, which no other session tidies up.
    base = f"--basetemp={directory.parent / 'base'}"
    compilers = write_compilers(directory.parent, "-Werror")
    return run_session(directory, "-n", "0", "-rA", "--tb=no", "-p", "neighbours_only", *limits, base, **compilers)


@pytest.fixture
def find_session(diagnosed: Diagnosed, share_session: ShareSession) -> Diagnosed:
    def find(name: str) -> Session:
        if name in REPAIRED:
            return diagnosed(name)
        first = OTHERS.index(name) // ABREAST * ABREAST
        return share_session(f"others-{first}", partial(run_others, names=OTHERS[first : first + ABREAST]))

    return find


@pytest.fixture
def diagnose(find_session: Diagnosed) -> Callable[[str], dict[str, Any]]:
    """The neighbour's chain, of the first failing test of a program."""

    def diagnose(name: str) -> dict[str, Any]:
        test = f"{name}/test_{name}.py::{DEFECTS[name]['fails'][0]}"
        chain = read_chain(find_session(name).directory, test)
        return chain if chain["peer"]["kind"] == "neighbour" else {**chain, **find_alternative(chain)}

    return diagnose


@pytest.mark.parametrize("name", DEFECTS)
def test_only_the_listed_tests_fail(find_session, name):
    outcomes = {
        test.partition("::")[2]: outcome
        for test, outcome in find_session(name).outcomes().items()
        if test.startswith(f"{name}/")
    }
    assert "PASSED" in outcomes.values()
    assert [test for test, outcome in outcomes.items() if outcome != "PASSED"] == DEFECTS[name]["fails"]


@pytest.mark.parametrize("name", DEFECTS)
def test_each_cause_leads_to_the_next(find_session, diagnose, name):
    chain = diagnose(name)
    if not chain["chain"]:
        assert "nothing tells them apart" in chain["reason"]
        return
    assert (chain["status"], chain["reason"], chain["peer"]["kind"]) == ("complete", None, "neighbour")
    cache = find_session(name).directory / ".pytest_cache" / "d" / "causechain"
    assert find_unled(chain, cache) == []


def list_causes(chain: dict[str, Any]) -> list[list[tuple[str, str, str]]]:
    """Of each link variables, with the values in the passing and in the failing run."""
    return [[(c["variable"], c["passing"], c["failing"]) for c in link["causes"]] for link in chain["chain"]]


def test_a_hundred_thousand_rounds(diagnose):
    """Tickets have five digits: the number behind the highest one is 0, which is an empty seat."""
    chain = diagnose("tickets")
    told = [cause for causes in list_causes(chain) for cause in causes]
    way = [
        ("argv[1]", '"99990xes"', '"99998xes"'),
        ("count", "99990", "99998"),
        ("office.last_ticket", "99990", "99998"),
        ("office.last_ticket", "99992", "100000"),
        ("office.last_ticket", "99992", "0"),
        ("ticket", "99992", "0"),
        ("waiting", "2", "1"),
    ]
    assert [cause for cause in dict.fromkeys(told) if cause in way] == way
    wrap = find_line(FIXTURES / "tickets" / "office.c", "office->last_ticket = 0;")
    alone = {Path(place).name for t in chain["transitions"] for place in t["only_in_failing"]}
    assert wrap in alone


def test_a_million_calls(diagnose):
    chain = diagnose("colony")
    assert chain["statistics"]["moments"]["matched"] > 800_000
    argument, generations, cells = list_causes(chain)
    assert argument == [("argv[3]", '"68"', '"88"')]
    assert generations == [("generations", "68", "88")]
    assert [name.partition(" ")[0] for name, _, _ in cells] == ["world.cells"]
    assert [link["follows"] for link in chain["chain"]] == [True, True, True]
    copying = find_line(FIXTURES / "colony" / "colony.c", "memcpy(world->cells")
    assert name_place(chain["chain"][-1]["written_by"]) == copying


def test_two_variables_together(diagnose):
    """A further argument is nothing without the count of them."""
    chain = diagnose("postage")
    first, *rest = list_causes(chain)
    assert [name for name, _, _ in first] == ["argc", "argv"]
    assert rest == [
        [("shipment.insured", "0", "1")],
        [("extra", "195", "150")],
        [("price", "585", "540")],
        [("shipment.cents", "585", "540")],
    ]
    assert all(link["follows"] for link in chain["chain"])
    overwriting = find_line(FIXTURES / "postage" / "postage.c", "            extra = 150;")
    assert overwriting in [name_place(suspect) for suspect in chain["suspects"]]


def test_code_that_the_passing_run_never_executes(diagnose):
    chain = diagnose("csvcut")
    causes = list_causes(chain)
    assert causes[0] == [("stdin line 2", r'"\"Dombey, and Son\",1850"', r'"\"The \"\"Genius\"\" and more\",1850"')]
    assert causes[-1] == [("record.text", '"Dombey, and Son"', '"The Genius and more"')]
    assert all(link["follows"] for link in chain["chain"])
    skipping = f"reader.c:{DEFECTS['csvcut']['line']}"
    alone = {Path(place).name for t in chain["transitions"] for place in t["only_in_failing"]}
    writers = [name_place(link["written_by"]) for link in chain["chain"] if link["written_by"]]
    assert skipping in alone
    assert skipping in writers
