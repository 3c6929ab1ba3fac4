"""Interventions do what they say, in copies as in fresh runs, and change nothing else."""

from __future__ import annotations

import pytest
from places import open_remote_lab

from pytest_causechain.lab.laboratory import RunLimits
from pytest_causechain.model.intervention import Intervention, Patch, Spot
from pytest_causechain.model.moment import Stop

SHOP = r"""
#include <stdio.h>
#include <stdlib.h>

enum colour { RED, GREEN, BLUE };
struct item { int price; struct item *next; enum colour colour; };
static int limit = 10;

static int twice(int n, const char *why)
{
    (void)why;
    return n * 2;
}

static int choose(struct item *item, int most)
{
    if (item->price < most)
        return 1;
    return 7;
}

int main(int argc, char **argv)
{
    struct item spare = {3, NULL, BLUE};
    struct item first = {5, NULL, RED};
    struct item *item = &first;
    int sum = 0;

    (void)argv;
    for (int i = 0; i < 6; i++)
        sum += twice(i, "why");
    item->next = &spare;
    item->colour = GREEN;
    limit = sum;
    while (limit > 1000000)
        sum++;
    printf("%d %d %d %d\n", sum, limit, item->colour, choose(item, argc + 3));
    return 0;
}
"""
LIMITS = RunLimits(0.2, 20.0, 1 << 16)


@pytest.fixture
def lab(build, kind):
    with open_remote_lab(kind, build(SHOP)) as lab:
        yield lab


def find_line(text: str) -> int:
    return next(number for number, line in enumerate(SHOP.splitlines(), 1) if text in line)


def find_effects(lab, kind: str, text: str):
    """Of the line that contains the text."""
    found = []
    for effect in lab.effects([f.address for f in lab.program.functions])[0]:
        statements = lab.program.function_at(effect.statement).statements
        line = max((s for s in statements if s.address <= effect.statement), key=lambda s: s.address, default=None)
        if effect.kind == kind and line is not None and line.line == find_line(text):
            found.append(effect)
    return found


def find_spot(lab, kind: str, text: str, visit: int = 1, register: str = "") -> Spot:
    effect = next(e for e in find_effects(lab, kind, text) if e.register == register or not register)
    return Spot(kind, (Stop(effect.address, visit),), effect.register, effect.size)


def run(lab, *interventions):
    observed = lab.interventions("failing", interventions, LIMITS)
    assert all(o.ending == "exit" for o in observed)
    return [o.stdout.decode().strip() for o in observed]


class TestIntervention:
    def test_nothing(self, lab):
        assert lab.experiment("failing").stdout == b"30 30 1 7\n"

    def test_branch(self, lab):
        spot = find_spot(lab, "branch", "item->price < most")
        assert run(lab, Intervention(spot)) == ["30 30 1 1"]

    def test_value_at_a_visit(self, lab):
        values = [(100).to_bytes(4, "little"), (0).to_bytes(4, "little")]
        spot = find_spot(lab, "value", "sum += twice", visit=3)
        # After the third time i goes on from 3.
        assert run(lab, *(Intervention(spot, data) for data in values)) == ["124 124 1 7", "24 24 1 7"]

    def test_global_variable(self, lab):
        spot = find_spot(lab, "value", "limit = sum")
        assert run(lab, Intervention(spot, (4).to_bytes(4, "little"))) == ["30 4 1 7"]

    def test_argument(self, lab):
        spot = find_spot(lab, "argument", "sum += twice", visit=6, register="rdi")
        assert run(lab, Intervention(spot, (50).to_bytes(4, "little"))) == ["120 120 1 7"]

    def test_returned_value(self, lab):
        spot = find_spot(lab, "return", "return n * 2", visit=2)
        assert run(lab, Intervention(spot, (9).to_bytes(4, "little"))) == ["37 37 1 7"]

    def test_variant_throughout_the_run(self, lab):
        _, variants, _ = lab.effects([f.address for f in lab.program.functions])
        less = next(v for v in variants if v.kind == "equal")
        assert lab.program.function_at(less.address).name == "choose"
        # 5 < 4 becomes 5 <= 4.
        patch = Patch(less.address, less.code, less.own)
        assert run(lab, patch) == ["30 30 1 7"]
        inverted = next(v for v in variants if v.kind == "inverted" and v.address == less.address)
        assert run(lab, Patch(inverted.address, inverted.code, inverted.own)) == ["30 30 1 1"]

    def test_what_is_compared(self, lab):
        *_, compared = lab.effects([f.address for f in lab.program.functions])
        assert (compared[30], compared[1000000]) == ((1000000,), (30,))
        # The price with the most; the counter, from its first to its last value, with the end of the loop.
        assert set(compared[5]) == {4, 0, 1, 2, 3, 5, 6}

    def test_end_without_end_is_found_soon(self, lab):
        spot = find_spot(lab, "value", "limit = sum")
        endless = Intervention(spot, (2_000_000).to_bytes(4, "little"))
        (observed,) = lab.interventions("failing", [endless], LIMITS)
        assert (observed.ending, observed.backtrace) == ("timeout", ())


class TestSight:
    def test_variable_with_its_likes(self, lab):
        (seen,) = lab.sights("failing", [find_spot(lab, "value", "sum += twice", visit=4)])
        assert (seen.variable, int.from_bytes(seen.was, "little")) == ("sum", 12)
        likes = {like.name: int.from_bytes(like.data, "little") for like in seen.likes}
        assert (likes["argc"], likes["i"], likes["limit"]) == (1, 3, 10)

    def test_member_behind_a_pointer(self, lab):
        pointer, colour = lab.sights(
            "failing",
            [find_spot(lab, "value", "item->next = &spare"), find_spot(lab, "value", "item->colour = GREEN")],
        )
        # The shortest name: the struct is a variable of its own.
        assert pointer.variable == "first.next"
        assert lab.program.types[pointer.type]["kind"] == "pointer"
        assert [like.name for like in pointer.likes if like.name == "item"] == ["item"]
        assert lab.program.types[colour.type]["values"] == {"RED": 0, "GREEN": 1, "BLUE": 2}
        assert {like.name for like in colour.likes} == {"spare.colour"}

    def test_all_first_visits_in_one_run(self, lab):
        places = ("limit = sum", "item->colour = GREEN", "item->next = &spare")
        spots = [find_spot(lab, "value", text) for text in places]
        assert lab.sights("failing", spots) == [one for spot in spots for one in lab.sights("failing", [spot])]

    def test_what_is_not_reached(self, lab):
        assert lab.sights("failing", [find_spot(lab, "value", "limit = sum", visit=2)]) == [None]


class TestLastInstruction:
    """The one by which the failing run ends."""

    SOURCE = r"""
int main(int argc, char **argv)
{
    int *place = argc > 9 ? &argc : (int *)argv[argc];
    WHAT
    return 0;
}
"""

    @pytest.mark.parametrize(
        "what", ["*place = 7;", '__asm__ volatile("cmpl $7, (%0)" : : "r"(place) : "cc");'], ids=["store", "compare"]
    )
    def test_all_before_it_is_seen(self, build, what):
        with open_remote_lab("fork", build(self.SOURCE.replace("WHAT", what))) as lab:
            effects, _, compared = lab.effects([f.address for f in lab.program.functions])
            stores = [e for e in effects if e.kind == "value"]
            spots = [Spot("value", (Stop(e.address, 1),), "", e.size) for e in stores]
            seen = lab.sights("failing", spots)
            assert compared[1] == (9,)
            assert "place" in [one.variable for one in seen if one is not None]
            assert (seen[-1] is None) == (what == "*place = 7;")
            (observed,) = lab.interventions("failing", [Intervention(spots[-1], b"\1\0\0\0")], LIMITS)
            assert observed.ending == "signal"


class TestFollowing:
    def test_value_that_comes_of_it(self, lab):
        spot = find_spot(lab, "value", "sum += twice", visit=3)
        intervention = Intervention(spot, (100).to_bytes(4, "little"))
        later = find_spot(lab, "value", "limit = sum")
        assert lab.follow("failing", intervention, later) == (124).to_bytes(4, "little")

    def test_spot_that_is_not_reached_any_more(self, lab):
        spot = find_spot(lab, "branch", "item->price < most")
        assert lab.follow("failing", Intervention(spot), find_spot(lab, "value", "limit = sum")) is None


class TestLearning:
    def test_coverage(self, lab):
        statements = {s.address: s.line for f in lab.program.functions for s in f.statements}
        covered = {statements[address] for address in lab.cover("failing", list(statements))}
        assert find_line("return 7;") in covered
        assert covered.isdisjoint({find_line("return 1;"), find_line("sum++")})

    def test_values(self, lab):
        (effect,) = find_effects(lab, "value", "sum += twice")
        values = lab.values("failing", [effect], 4)
        seen = [int.from_bytes(data, "little") for data in values[effect.address, ""]]
        assert seen == [0, 2, 6, 12]

    def test_counts(self, lab):
        (effect,) = find_effects(lab, "value", "sum += twice")
        assert lab.count([effect.address], 100) == {effect.address: 6}

    def test_signatures(self, lab):
        names = {f.address: f.name for f in lab.program.functions}
        told = {names[entry]: signature for entry, signature in lab.signatures().items()}
        assert [name for name, _ in told["twice"].parameters] == ["n", "why"]
        assert lab.program.types[told["twice"].returns]["name"] == "int"
