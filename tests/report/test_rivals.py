"""How the neighbour was chosen, and why there is none: in the whole text and on the page."""

from __future__ import annotations

from dataclasses import replace

import chains
import pytest

from pytest_causechain.model.chain import Chain, Rival
from pytest_causechain.report.html import render_page
from pytest_causechain.report.story import make_story
from pytest_causechain.report.text import BRIEF, WHOLE, render_text
from pytest_causechain.report.wording import tell_rivals

FURTHER = [Rival(f"{chains.SORTS}[{name}]", 0.5, "another test, 1 of 2 calls in common") for name in ("six", "ten")]
REFUSED = [Rival(f"{chains.SORTS}[{name}]", None, "<b>", "it prints the same: add a test.") for name in ("one", "no")]


def choose(*rivals: Rival) -> Chain:
    chain = chains.ALL["wrong_output"]
    assert chain.passing is not None
    return replace(chain, passing=replace(chain.passing, rivals=rivals))


@pytest.mark.parametrize(
    ("rivals", "told"),
    [
        ([], ""),
        (FURTHER[:1], "nearer than test_sorts[six]"),
        (FURTHER, "nearer than test_sorts[six] and 1 other"),
        (REFUSED[:1], "not test_sorts[one], since it prints the same"),
        (
            FURTHER[:1] + REFUSED,
            "nearer than test_sorts[six]; not test_sorts[one] and 1 other, since it prints the same",
        ),
    ],
)
def test_in_short(rivals, told):
    passing = choose(*rivals).passing
    assert passing is not None
    assert tell_rivals(passing, beside=chains.SORTS) == told


def test_only_the_whole_text_tells_of_them():
    chain = choose(*FURTHER)
    assert "nearer than test_sorts[six] and 1 other" in " ".join(render_text(make_story(chain), details=WHOLE).split())
    assert "nearer than" not in render_text(make_story(chain), details=BRIEF)


def test_page_lists_them():
    page = render_page(make_story(choose(*FURTHER, *REFUSED)))
    assert "4 other passing tests looked at" in page
    assert "<li>test_sorts[ten] (another test, 1 of 2 calls in common)</li>" in page
    assert "<li>test_sorts[no] (&lt;b&gt;): it prints the same: add a test.</li>" in page
    assert "looked at" not in render_page(make_story(choose()))


def test_why_there_is_no_neighbour():
    chain = replace(chains.ALL["twin"], alternatives=(), without_neighbour="no passing neighbour, since <none>.")
    assert "No passing neighbour, since <none>." in render_text(make_story(chain))
    assert "No passing neighbour, since &lt;none&gt;." in render_page(make_story(chain))
