"""The section under a failing test: its shape, and what it says when."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import chains
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.chain import Chain, Suspect, Transition
from pytest_causechain.report.story import make_story
from pytest_causechain.report.text import paint_span, render_text, wrap
from pytest_causechain.report.wording import Span, Style, plain, slug

ROOT = Path("/home/me/project")


def render(chain: Chain, artefacts: Path | None = None, **more: object) -> str:
    place = artefacts or ROOT / ".causechain" / slug(chain.test)
    return render_text(chains.tell(chain, root=ROOT, artefacts=place), **more)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", chains.ALL)
def test_is_printable_ascii_within_the_width(name: str, width: int) -> None:
    lines = render(chains.ALL[name], width=width).split("\n")
    assert [line for line in lines if len(line) > width] == []
    assert [line for line in lines if not line.isascii() or (line and not line.isprintable())] == []
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("name", sorted(set(chains.ALL) - {"hostile"}))
def test_fits_on_a_screen(name: str) -> None:
    assert len(render(chains.ALL[name]).split("\n")) <= 25


@pytest.mark.parametrize("name", chains.ALL)
def test_works_without_sources_and_artefacts(name: str) -> None:
    text = render_text(make_story(chains.ALL[name], root=ROOT))
    assert "Replay" not in text
    assert re.findall(r"^  [> ] +\d+ \| ", text, re.M) == []


def test_says_the_reason_when_nothing_else_is_known() -> None:
    assert render_text(make_story(Chain("t", "none"))) == "No cause-effect chain: the reason is not known."
    assert render_text(make_story(Chain("t", "partial", "Ctrl-C was pressed"))).startswith(
        "Incomplete: Ctrl-C was pressed.\n"
    )


class TestPlace:
    def test_of_a_call_without_transition_is_the_called_function(self) -> None:
        text = render(replace(chains.unmoved, suspects=()))
        assert "sample.c:20  shell_sort   so, at the call of shell_sort, a[2] was 0 (7)" in text

    def test_of_files_with_one_name_shows_their_directories(self) -> None:
        first, second, *_ = chains.unmoved.chain
        elsewhere = replace(second, moment=replace(second.moment, file="/home/me/project/lib/sample.c"))
        text = render(
            chains.arriving(replace(chains.wrong_output, chain=(first, elsewhere), transitions=(), suspects=()))
        )
        assert "src/sample.c:43" in text
        assert "lib/sample.c:20" in text


class TestSuspect:
    def test_is_the_one_of_rank_1_wherever_it_stands(self) -> None:
        text = render(replace(chains.wrong_output, suspects=chains.wrong_output.suspects[::-1]))
        assert text == render(chains.wrong_output)

    def test_is_shown_with_the_real_file_by_default(self, tmp_path: Path) -> None:
        (tmp_path / "a.c").write_bytes(b"int x;\n\tx = '\xff\x1b';\n")
        suspect = Suspect(1, "a.c", 2, "f", "it is odd")
        text = render_text(make_story(replace(chains.wrong_output, suspects=(suspect,)), root=tmp_path))
        assert "    1 | int x;\n  > 2 |     x = '\\xff\\x1b';\n" in text

    def test_beyond_the_end_of_its_file_is_not_shown(self) -> None:
        suspect = Suspect(1, chains.SAMPLE, 1000, "f", "it is odd")
        assert " | " not in render(replace(chains.wrong_output, suspects=(suspect,)))

    def test_is_pointed_at_from_the_link_whose_interval_holds_it(self) -> None:
        suspect = Suspect(1, chains.SAMPLE, 44, "main", "the interval begins there")
        assert "<- look first at sample.c:44" in render(replace(chains.gap, suspects=(suspect,)))


def test_what_was_not_seen_to_follow_is_not_given_a_reason() -> None:
    links = list(chains.wrong_output.chain)
    links[2] = replace(links[2], follows=False)
    text = render(replace(chains.wrong_output, chain=tuple(links)))
    assert "then v became 0 (7)" in text
    assert "so a[0] became 0 (6)" in text


def test_what_was_told_just_above_is_not_told_again() -> None:
    links = list(chains.wrong_output.chain)
    links[3] = replace(links[3], causes=(*links[2].causes, *links[3].causes))
    text = render(replace(chains.wrong_output, chain=tuple(links)))
    assert text.count("v became 0") == 1
    assert "so a[0] became 0 (6)" in text
    links[3] = replace(links[3], causes=links[2].causes)
    assert render(replace(chains.wrong_output, chain=tuple(links))).count("v became 0 (7)") == 2


class TestGap:
    def test_is_not_told_when_the_transition_is_one_statement(self) -> None:
        assert "between" not in render(chains.wrong_output)

    def test_lines_of_the_failing_run_alone_are_told_without_an_interval(self) -> None:
        transition = chains.wrong_output.transitions[0]
        alone = replace(transition, only_in_failing=(f"{chains.SAMPLE}:50", f"{chains.SAMPLE}:51"))
        text = " ".join(render(_with_transition(alone)).split())
        assert "(the failing run alone executes sample.c:50-51)" in text

    def test_many_lines_are_counted(self) -> None:
        lines = tuple(f"{chains.SAMPLE}:{line}" for line in range(0, 40, 4))
        transition = replace(chains.wrong_output.transitions[0], only_in_failing=lines)
        text = " ".join(render(_with_transition(transition)).split())
        assert "sample.c:0, sample.c:4, sample.c:8, sample.c:12 and 6 more lines" in text

    def test_is_that_of_each_link_where_variables_come_back(self) -> None:
        """From x to y, back to x, and to y again."""
        rows = re.split(r"^  \d  ", render(chains.swing), flags=re.M)[1:5]
        gaps = [re.findall(r"between (.*?) and (.*?)\)", " ".join(row.split())) for row in rows]
        assert gaps == [[], *([(f"sample.c:{line - 5}", f"sample.c:{line}")] for line in (20, 30, 40))]
        assert "<- look first at sample.c:35" in rows[3]
        assert "<- look" not in "".join(rows[:3])


def _with_transition(transition: Transition) -> Chain:
    transitions = (transition, *chains.wrong_output.transitions[1:])
    return chains.arriving(replace(chains.wrong_output, transitions=transitions), 1, 2, 3)


class TestProof:
    def test_in_context_counts_the_other_differences(self) -> None:
        first, second, *rest = chains.wrong_output.chain
        chain = replace(chains.wrong_output, chain=(first, replace(second, confirmed="context"), *rest))
        text = " ".join(render(chain).split())
        assert (
            "Proof: with a[2] = 0 at sample.c:48, together with up to 11 other transferred differences, "
            "the passing run fails too." in text
        )
        assert "the failing run passes" not in text

    def test_of_the_passing_run_says_nothing_of_the_failing_one(self) -> None:
        assert "Proof: with only step = 0 at loop.c:9 the passing run fails too.\n" in render(chains.hang)

    def test_is_never_called_a_defect(self) -> None:
        for chain in chains.ALL.values():
            assert "the bug" not in render(chain)
            assert "defect" not in render(chain)


class TestReplay:
    def test_of_a_link_without_stops_is_refused(self) -> None:
        bare = tuple(replace(link, moment=replace(link.moment, stops=())) for link in chains.wrong_output.chain)
        text = render(replace(chains.wrong_output, chain=bare))
        assert "Replay:" not in text
        assert text.endswith("\nNo replay in gdb: its moment has no place in the program's code to stop at.")

    def test_stands_beside_the_figures_when_there_is_room(self) -> None:
        assert "in 0.4 s.   Replay: gdb -x out/2.gdb" in render(chains.wrong_output, artefacts=ROOT / "out", width=120)

    @pytest.mark.parametrize("directory", ["d" * 200, "with space " * 20, "\\" * 200, "it's $HOME " * 20])
    def test_can_be_pasted_however_long_it_is(self, directory: str) -> None:
        text = render(chains.wrong_output, artefacts=ROOT / directory)
        command = text.partition("Replay: gdb -x ")[2]
        assert max(map(len, text.split("\n"))) <= 80
        heard = subprocess.run(["sh", "-c", f"printf %s {command}"], capture_output=True, text=True, check=True)
        assert heard.stdout == f"{directory}/2.gdb"


SPANS = st.lists(
    st.builds(Span, st.text("ab= -", max_size=12), st.sampled_from(["plain", "code", "figure", "value"])), max_size=8
)


class TestSpans:
    @given(SPANS, st.integers(8, 40))
    def test_keep_their_styles_where_lines_are_broken(self, spans: list[Span], width: int) -> None:
        lines = wrap(tuple(spans), width, 1000)
        assert max((len(plain(line)) for line in lines), default=0) <= width
        assert list_letters(span for line in lines for span in line) == list_letters(spans)

    @given(SPANS, st.integers(8, 40), st.integers(1, 3))
    def test_are_cut_with_dots(self, spans: list[Span], width: int, most: int) -> None:
        lines, whole = wrap(tuple(spans), width, most), wrap(tuple(spans), width, 1000)
        if len(whole) <= most:
            assert lines == whole
            return
        assert len(lines) <= most
        assert plain(lines[-1]).endswith("...")
        kept = [letter for letter in list_letters(span for line in lines for span in line) if letter[0] != "."]
        assert kept == list_letters(spans)[: len(kept)]

    def test_of_code_and_figures_stay_together(self) -> None:
        line = Span("with a b "), Span("x = 1", "code"), Span(" in "), Span("0.4 s", "figure"), Span(" y = 2")
        assert [plain(one) for one in wrap(line, 12, 9)] == ["with a b", "x = 1 in", "0.4 s y = 2"]

    @pytest.mark.parametrize(
        ("style", "painted"),
        [
            ("plain", "int x;"),
            ("value", "int x;"),
            ("head", "\x1b[1mint x;\x1b[0m"),
            ("source", "\x1b[36mint\x1b[0m x;"),
        ],
    )
    def test_are_painted_by_their_styles(self, style: Style, painted: str) -> None:
        assert paint_span(Span("int x;", style)) == painted


def list_letters(spans: Iterable[Span]) -> list[tuple[str, str]]:
    return [(letter, span.style) for span in spans for letter in span.text if letter != " "]


def test_headline_of_two_lines_is_painted_as_a_whole() -> None:
    story = chains.tell(chains.twin, root=ROOT)
    first, second, *_ = render_text(story, width=60, is_painted=True).split("\n")
    assert all(line.startswith("\x1b[1m") and line.endswith("\x1b[0m") for line in (first, second))
