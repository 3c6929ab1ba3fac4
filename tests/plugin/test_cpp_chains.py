"""C++ programs of fixtures_c, diagnosed in real sessions: containers and members go by the names of the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from suites import FIXTURES, Diagnosed, Session, read_chain, read_section
from test_fixture_chains import find_line, list_variables, name_place


@pytest.fixture
def library(diagnosed: Diagnosed) -> Session:
    return diagnosed("library")


@pytest.fixture
def tariffs(diagnosed: Diagnosed) -> Session:
    return diagnosed("tariffs")


def all_chains(chain: dict[str, Any]) -> list[dict[str, Any]]:
    return [chain, *chain["alternatives"]]


def find_causes(chain: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Of all chains, the values of each variable where it was a cause last."""
    return {
        cause["variable"]: (cause["passing"], cause["failing"])
        for told in all_chains(chain)
        for link in told["chain"]
        for cause in link["causes"]
    }


class TestLibrary:
    def test_waiting_list_in_the_map_of_books_is_a_cause(self, library):
        chain = read_chain(library.directory)
        assert (chain["test"], chain["status"]) == (
            "library/test_library.py::test_return_after_a_reader_left[twice-in-a-row]",
            "complete",
        )
        causes = find_causes(chain)
        lists = [values for name, values in causes.items() if name.endswith('books_["K1"].waiting')]
        assert ('{"Cleo"}', '{"Bob", "Cleo"}') in lists
        assert causes["next"] == ('"Cleo"', '"Bob"')

    def test_loop_that_skips_a_place_is_the_first_suspect(self, library):
        chain = read_chain(library.directory)
        loop = find_line(FIXTURES / "library" / "catalogue.cpp", "place < book.waiting.size()")
        assert name_place(chain["suspects"][0]) == loop


class TestTariffs:
    def test_tariff_of_the_second_customer_is_the_cause(self, tariffs):
        chain = read_chain(tariffs.directory)
        assert (chain["test"], chain["status"]) == (
            "tariffs/test_tariffs.py::test_bills_after_the_tariff_was_replaced[two]",
            "complete",
        )
        causes = find_causes(chain)
        kept = [values for name, values in causes.items() if name.endswith('customers_["Bob"].tariff')]
        assert kept == [("Flat{40}", "Flat{30}")]

    def test_change_of_what_is_compared_is_among_the_first_suspects(self, tariffs):
        chain = read_chain(tariffs.directory)
        change = find_line(FIXTURES / "tariffs" / "tariffs.cpp", "            known = tariff;")
        assert change in [name_place(suspect) for suspect in chain["suspects"][:3]]


@pytest.fixture(params=["library", "tariffs"])
def session(request: pytest.FixtureRequest) -> Session:
    fixture: Session = request.getfixturevalue(request.param)
    return fixture


def test_nothing_tells_of_the_library_of_cpp(session):
    section = "\n".join(read_section(session.output))
    assert "_M_" not in section
    assert "allocator" not in section
    assert "_GLOBAL_" not in section
    assert "(anonymous" not in section
    names = {name for told in all_chains(read_chain(session.directory)) for name in list_variables(told)}
    assert not [name for name in names if "_M_" in name or "this->" in name]


def test_all_places_are_the_programs_own(session):
    chain = read_chain(session.directory)
    places = [link["made_by"] for told in all_chains(chain) for link in told["chain"] if link["made_by"]]
    places += [link["moment"] for told in all_chains(chain) for link in told["chain"]]
    assert {Path(place["file"]).parent for place in places} == {Path(chain["program"]["path"]).parent.parent}
