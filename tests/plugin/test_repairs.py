"""Repairs in real sessions: what several failing tests say together, C++, and a suite with nothing that passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import compile_program
from replays import replay_all
from suites import SUITE_INI, read_chain, read_section, run_session

PRICE = r"""
#include <stdio.h>
#include <stdlib.h>

static int price(int count)
{
    int sum = 3 * count;
    if (count > 5)
        sum += 1;
    return sum;
}

int main(int argc, char **argv)
{
    printf("%d\n", price(atoi(argv[argc - 1])));
    return 0;
}
"""
# Beyond five the price should rise by 2.
TEST_PRICE = """
import subprocess

import pytest


@pytest.mark.parametrize(("count", "price"), [(1, 3), (2, 6), (5, 15), (6, 20), (9, 29)])
def test_price(count, price):
    run = subprocess.run(["./price", str(count)], capture_output=True, text=True)
    assert int(run.stdout) == price
"""
# Of three words or more, the third is worth 4 instead of 3.
WORTH = r"""
#include <stdio.h>

static int add(int sum, int number)
{
    int step = 1;
    if (number == 3)
        step = 4;
    return sum + step * number;
}

int main(int argc, char **argv)
{
    int sum = 0;
    for (int i = 1; i < argc; i++)
        sum = add(sum, i);
    printf("%s is worth %d\n", argv[argc - 1], sum);
    return 0;
}
"""
TEST_WORTH = """
import subprocess

import pytest


@pytest.mark.parametrize(("words", "worth"), [("a", 1), ("b", 1), ("a b", 3), ("b c", 3), ("a b c", 12)])
def test_worth(words, worth):
    run = subprocess.run(["./worth", *words.split()], capture_output=True, text=True)
    assert int(run.stdout.split()[-1]) == worth
"""
CART = r"""
#include <cstdlib>
#include <iostream>
#include <vector>

class Cart {
public:
    void add(int price) { prices.push_back(price); }
    int total() const
    {
        int sum = 0;
        for (int price : prices)
            sum += price;
        if (sum > limit)
            sum -= 10;
        return sum;
    }

private:
    std::vector<int> prices;
    int limit = 100;
};

int main(int argc, char **argv)
{
    Cart cart;
    for (int i = 1; i < argc; i++)
        cart.add(std::atoi(argv[i]));
    std::cout << cart.total() << "\n";
    return 0;
}
"""
TEST_CART = """
import subprocess

import pytest


@pytest.mark.parametrize(("prices", "total"), [("50 50", 90), ("60 60", 110), ("10", 10)])
def test_total(prices, total):
    run = subprocess.run(["./cart", *prices.split()], capture_output=True, text=True)
    assert int(run.stdout) == total
"""


def find_line(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def list_first_causes(chain: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each link."""
    return [link["causes"][0] for link in chain["chain"]]


def list_lines(chain: dict[str, Any]) -> list[int]:
    return [suspect["line"] for suspect in chain["suspects"]]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    directory = tmp_path / "suite"
    directory.mkdir()
    (directory / "pytest.ini").write_text(SUITE_INI)
    return directory


class TestSeveralFailures:
    def test_they_vote(self, suite):
        compile_program(suite / "price", PRICE)
        (suite / "test_price.py").write_text(TEST_PRICE)
        run_session(suite, "-n", "0")
        for test in ("test_price[6-20]", "test_price[9-29]"):
            chain = read_chain(suite, f"test_price.py::{test}")
            first = chain["suspects"][0]
            assert first["line"] == find_line(PRICE, "sum += 1")
            assert first["why"].endswith("here the test passes, as does 1 other failing test of the program")
            # Both know of each other's coverage, too.
            assert chain["peer"]["kind"] == "twin"

    def test_each_alone_without_any_that_passes(self, suite):
        compile_program(suite / "price", PRICE)
        (suite / "test_price.py").write_text(TEST_PRICE.replace("(1, 3), (2, 6), (5, 15), (6, 20), ", ""))
        session = run_session(suite, "-n", "0")
        chain = read_chain(suite)
        assert (chain["status"], chain["peer"]["kind"], chain["alternatives"]) == ("complete", "twin", [])
        assert find_line(PRICE, "sum += 1") in list_lines(chain)
        assert "its twin, the same run with this repair" in "\n".join(read_section(session.output))


def test_a_change_of_the_code_is_where_its_twins_chain_begins(suite):
    compile_program(suite / "worth", WORTH)
    (suite / "test_worth.py").write_text(TEST_WORTH)
    run_session(suite, "-n", "0")
    chain = read_chain(suite)
    line = find_line(WORTH, "step = 4")
    assert (chain["repairs"][0]["line"], chain["repairs"][0]["visit"]) == (line, 0)
    told = [(cause["variable"], cause["failing"], cause["passing"]) for cause in list_first_causes(chain)]
    assert told[0] == (f"the constant in worth.c:{line}", "4", "3")
    assert told[1] == ("step", "4", "3")
    assert told[-1][1:] == ("15", "12")
    kinds = [cause["kind"] for cause in list_first_causes(chain)]
    assert kinds == ["code", *["value"] * (len(kinds) - 1)]
    # What is there from the beginning is undone by plain gdb as well.
    (place,) = (suite / ".causechain").glob("test_worth*/")
    replays = list(replay_all(chain, place))
    assert len(replays) >= 2 * len(kinds) - 1
    assert [replay.script.name for replay in replays if not replay.is_as_expected] == []


def test_program_in_cpp(suite):
    compile_program(suite / "cart", CART, compiler="c++")
    (suite / "test_cart.py").write_text(TEST_CART)
    run_session(suite, "-n", "0")
    chain = read_chain(suite)
    # A limit of 99 would do as well; the compiler sets it where the class begins.
    assert set(list_lines(chain)[:2]) == {find_line(CART, "sum > limit"), find_line(CART, "class Cart")}
    repairs = {(repair["line"], repair["with"]) for repair in chain["repairs"]}
    assert (find_line(CART, "sum > limit"), "equal values the other way") in repairs
