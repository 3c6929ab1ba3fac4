"""Whatever a program prints, reads or is called by: no report takes it for more than text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import chains
import pytest
from test_gold import REPORTERS, ROOT, github, page, place, tell

from pytest_causechain.model.chain import Chain
from pytest_causechain.report.html import render_page
from pytest_causechain.report.junit import describe_testcase, list_properties
from pytest_causechain.report.story import make_story
from pytest_causechain.report.text import BRIEF, NARROWEST, WHOLE, render_text

# All that a program has a hand in, in chains of every kind.
SPOILED = {
    "hostile": chains.hostile,
    "reason": replace(chains.none, reason=chains.HOSTILE),
    "output": replace(
        chains.wrong_output,
        failing=replace(chains.wrong_output.failing, outcome=f'printed "{chains.HOSTILE}"', stdin=chains.HOSTILE),
        failure=replace(chains.wrong_output.failure, text=f'the program printed "{chains.HOSTILE}"'),
    ),
    "values": replace(
        chains.twin,
        chain=tuple(
            replace(link, causes=tuple(replace(cause, failing=chains.HOSTILE) for cause in link.causes))
            for link in chains.twin.chain
        ),
    ),
}


@pytest.mark.parametrize("reporter", REPORTERS)
@pytest.mark.parametrize("name", SPOILED)
def test_no_character_that_is_obeyed(name: str, reporter: str) -> None:
    text = REPORTERS[reporter][0](SPOILED[name])
    # Letters of all languages may stay; "\e" stands for an escape of our own in the painted text.
    assert [c for c in text if c not in "\n\t" and not c.isprintable()] == []


@pytest.mark.parametrize("width", range(NARROWEST, 130, 7))
@pytest.mark.parametrize("name", SPOILED)
def test_no_line_of_the_text_is_a_command_to_github(name: str, width: int) -> None:
    for details in (BRIEF, WHOLE):
        lines = render_text(make_story(SPOILED[name], root=ROOT), width=width, details=details).split("\n")
        assert [line for line in lines if line.lstrip().startswith(("::", "##["))] == []
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", SPOILED)
def test_github_hears_our_annotations_only(name: str) -> None:
    commands = [line for line in github(SPOILED[name]).split("\n") if line.lstrip().startswith(("::", "##["))]
    assert all(re.match(r"::(error|notice) file=[^,:]+,line=\d+,title=cause-effect chain::", line) for line in commands)


@pytest.mark.parametrize("name", SPOILED)
def test_summary_has_no_markup_of_the_programs_making(name: str) -> None:
    # Without what is quoted as code, and what is escaped.
    summary = re.sub(r"`[^`\n]*`|\\.", "", github(SPOILED[name]).partition("## Cause-effect chains")[2])
    assert re.findall(r"[<>\[\]]|script>", summary) == []


@pytest.mark.parametrize("name", SPOILED)
def test_page_has_no_element_of_the_programs_making(name: str) -> None:
    text = page(SPOILED[name])
    assert "<script" not in text
    assert "alert(1)" in text or name == "values"
    assert 'href="https:' not in text


@pytest.mark.parametrize("name", SPOILED)
def test_junit_has_our_attachments_only(name: str) -> None:
    chain = SPOILED[name]
    testcase = describe(chain)
    read_back = ElementTree.fromstring(ElementTree.tostring(testcase))
    assert ElementTree.tostring(read_back) == ElementTree.tostring(testcase)
    attached = re.findall(r"\[\[ATTACHMENT\|(.+?)\]\]", read_back.findtext("system-out") or "")
    assert attached == [str(place(chain) / "chain.html")]


def describe(chain: Chain) -> ElementTree.Element:
    testcase = ElementTree.Element("testcase")
    text = render_text(tell(chain), details=WHOLE)
    describe_testcase(testcase, list_properties(tell(chain)), text, [f"{place(chain)}/chain.html"])
    return testcase


@pytest.mark.parametrize("name", SPOILED)
def test_sarif_has_no_links(name: str) -> None:
    results = json.loads(REPORTERS["sarif"][0](SPOILED[name]))
    texts = re.findall(r'"text": "(.*?)"', json.dumps(results))
    assert [text for text in texts if "](" in text] == []


def test_source_is_text_too(tmp_path: Path) -> None:
    (tmp_path / "evil.c").write_bytes(b"</code><script>\x1b[2J \xff \x00 ::error::x\n")
    suspect = replace(chains.wrong_output.suspects[0], file="evil.c", line=1)
    chain = replace(chains.wrong_output, suspects=(suspect,))
    story = make_story(chain, root=tmp_path)
    for text in (render_page(story), render_text(story)):
        assert "</code><script>\\x1b[2J \\xff \\x00 ::error::x" in unescape(re.sub("<[^>]*>", "", text) + text)
        assert [c for c in text if c not in "\n\t" and not c.isprintable()] == []
    assert "<script>" not in render_page(story)
