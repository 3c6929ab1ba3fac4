"""The page without a browser: whole, safe, accessible. `make screenshots` looks at it in one."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import chains
import pytest

from pytest_causechain.model.chain import Edge, Scene, Vertex
from pytest_causechain.report.html import PageTemplate, render_index, render_page, render_scene
from pytest_causechain.report.sources import split_words
from pytest_causechain.report.story import make_story
from pytest_causechain.report.text import render_text
from pytest_causechain.report.wording import slug

ROOT = Path("/home/me/project")
VOID = {"meta", "br", "img", "input", "link"}


class Reader(HTMLParser):
    """Notes elements and their nesting; an end tag that closes something else is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def render(name: str) -> str:
    chain = chains.ALL[name]
    return render_page(chains.tell(chain, root=ROOT, artefacts=ROOT / "out" / slug(chain.test)))


@pytest.mark.parametrize("name", chains.ALL)
class TestEveryPage:
    def test_is_well_formed_with_unique_anchors(self, name: str) -> None:
        reader = read(render(name))
        anchors = Counter(attrs["id"] for _, attrs in reader.elements if "id" in attrs)
        assert [anchor for anchor, count in anchors.items() if count > 1] == []
        for _, attrs in reader.elements:
            if (target := attrs.get("href") or "").startswith("#"):
                assert target[1:] in anchors
            if "aria-labelledby" in attrs:
                assert attrs["aria-labelledby"] in anchors

    def test_needs_nothing_else(self, name: str) -> None:
        reader = read(render(name))
        tags = {tag for tag, _ in reader.elements}
        assert tags.isdisjoint({"script", "img", "link", "iframe", "object", "form"})
        assert all(not key.startswith("on") for _, attrs in reader.elements for key in attrs)
        assert {attrs.get("href") for tag, attrs in reader.elements if tag == "a"} <= {
            *("../index.html", "chain.json", "#chain")
        }
        assert "url(" not in render(name)

    def test_has_landmarks_and_headings_in_order(self, name: str) -> None:
        tags = [tag for tag, _ in read(render(name)).elements]
        assert tags.count("h1") == tags.count("main") == tags.count("header") == tags.count("footer") == 1
        levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))

    def test_has_labelled_pictures_and_table_heads(self, name: str) -> None:
        elements = read(render(name)).elements
        assert all(attrs.get("aria-label") and attrs["role"] == "img" for tag, attrs in elements if tag == "svg")
        assert all(attrs.get("scope") in ("col", "row") for tag, attrs in elements if tag == "th")

    def test_is_in_the_index(self, name: str) -> None:
        page = render_index([chains.tell(chains.ALL[name], root=ROOT)])
        links = [attrs["href"] for tag, attrs in read(page).elements if tag == "a"]
        assert links == [f"{slug(chains.ALL[name].test)}/chain.html"]


def test_what_a_program_printed_stays_text() -> None:
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
    failing = replace(chains.wrong_output.failing, stdin=evil, outcome=evil)
    reader = read(render_page(make_story(replace(chains.wrong_output, failing=failing, reason=evil, test=evil))))
    assert "script" not in {tag for tag, _ in reader.elements}
    assert reader.text.count("alert(1)") > 2


def test_letters_stay_and_what_turns_the_writing_does_not() -> None:
    failing = replace(chains.wrong_output.failing, outcome='printed "Gr\xfc\xdfe \u202e\x1b[2J"')
    page = render_page(make_story(replace(chains.wrong_output, failing=failing)))
    assert "Gr\xfc\xdfe \\u202e\\x1b[2J" in page


def test_both_chains_are_there_the_twins_first() -> None:
    page = render("twin")
    assert page.index('id="link-1"') < page.index('id="c2-link-1"')
    assert '<details class="alternative">\n<summary>Beside test_sorts[four]: 4 links</summary>' in page


def test_contrast_of_all_text_is_sufficient() -> None:
    """4.5:1 as WCAG asks for, by day and by night."""
    css = (Path(chains.__file__).parents[2] / "pytest_causechain" / "report" / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", part))
        for part in css.split("@media print")[0].split("@media (prefers-color-scheme: dark)")
    )
    for colours in (light, dark):
        assert colours.keys() == light.keys()
        for ink in ("ink", "soft", "fail", "pass", "link", "keyword", "type", "string", "number", "comment", "pre"):
            for paper in ("paper", "card", "faint"):
                assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
        for ink in ("ink", "keyword", "type", "string", "number", "comment", "pre"):
            assert contrast(colours[ink], colours["mark"]) >= 4.5, (ink, "mark")
        assert contrast(colours["ink"], colours["fail-soft"]) >= 4.5


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class TestTemplate:
    @pytest.mark.parametrize("name", ["page.html", "index.html"])
    def test_is_a_page_by_itself(self, name: str) -> None:
        file = Path(chains.__file__).parents[2] / "pytest_causechain" / "report" / name
        reader = read(file.read_text(encoding="utf-8"))
        (style,) = [attrs["href"] for tag, attrs in reader.elements if tag == "link"]
        assert style is not None and (file.parent / style).is_file()

    def test_repeats_shows_once_or_leaves_out(self, tmp_path: Path) -> None:
        template = make_template("<!-- each a -->[<!-- each b -->{{c}}<!-- end b -->]<!-- end a -->{{d}}", tmp_path)
        assert template.render({"a": [{"b": True, "c": "1"}, {"b": None, "c": "2"}], "d": "<"}) == "[1][]&lt;"
        assert template.render({"a": [], "d": 3}) == "3"

    def test_uses_a_part_again(self, tmp_path: Path) -> None:
        template = make_template(
            "<!-- each a -->({{b}})<!-- end a --><!-- each c --><!-- use a --><!-- end c -->", tmp_path
        )
        assert template.render({"a": {"b": "1"}, "c": {"a": [{"b": "2"}, {"b": "3"}]}}) == "(1)(2)(3)"

    def test_with_a_name_that_nobody_gives_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError, match="unknown"):
            make_template("{{unknown}}", tmp_path).render({})


def make_template(text: str, directory: Path) -> PageTemplate:
    (directory / "page.css").write_text("")
    (directory / "template.html").write_text(text)
    return PageTemplate(directory / "template.html")


class TestPicture:
    def test_marks_what_differs_by_its_shape(self) -> None:
        picture = render_scene(chains.array("1", "2", "3", "4"), "failing", "label")
        assert picture.count("<polygon") == 1
        assert picture.count("<rect") == 5

    def test_of_a_cycle_ends(self) -> None:
        scene = Scene((Vertex("a", "node", ""), Vertex("b", "node", "")), (Edge(0, 1, "->next"), Edge(1, 0, "->next")))
        assert render_scene(scene, "passing", "").count("<rect") == 2

    def test_of_nothing_is_empty(self) -> None:
        assert "<rect" not in render_scene(Scene(), "passing", "")


class TestColours:
    def test_words_make_up_the_lines_again(self) -> None:
        lines = ["#include <x.h>", "/* a", "", "b */ int f(char c) { return 'x'; }", '\tg("s");', ""]
        assert ["".join(text for _, text in words) for words in split_words(lines)] == lines

    def test_comment_over_several_lines_is_one(self) -> None:
        assert split_words(["/* a", "b */"])[1] == [("comment", "b */")]

    @pytest.mark.parametrize("name", chains.ALL)
    def test_without_them_the_text_is_the_same(self, name: str) -> None:
        story = chains.tell(chains.ALL[name], root=ROOT, artefacts=ROOT / "out")
        painted = render_text(story, is_painted=True)
        assert re.sub(r"\x1b\[[\d;]*m", "", painted) == render_text(story)
