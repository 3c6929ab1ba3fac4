from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import chains
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.chain import Chain
from pytest_causechain.model.codec import decode
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.report.artefacts import ArtefactsReporter, write_artefacts
from pytest_causechain.report.story import make_story
from pytest_causechain.report.wording import SLUG_LIMIT, slug


def read_chain(place: Path) -> dict:
    return json.loads((place / "chain.json").read_text(encoding="ascii"))


def write_index(told: Sequence[Chain], directory: Path) -> Path:
    ArtefactsReporter(directory).finish([make_story(chain) for chain in told])
    return directory / "index.json"


class TestSlug:
    def test_can_be_read(self) -> None:
        assert slug("tests/unit/test_sample.py::test_sorts[a/b]").startswith("test_sample-test_sorts-a-b-")

    def test_of_a_safe_name_is_the_name(self) -> None:
        assert slug("sample.one") == "sample.one"

    @given(st.text(st.characters()))
    def test_is_a_short_safe_name(self, test: str) -> None:
        name = slug(test)
        assert 0 < len(name) <= SLUG_LIMIT
        assert name.isascii()
        assert "/" not in name
        assert not name.startswith((".", "-"))

    @given(st.sets(st.text("ab/:[]. -", max_size=8).map("x/test.py::t".__add__), min_size=2))
    def test_differs_for_different_tests(self, tests: set[str]) -> None:
        assert len({slug(test) for test in tests}) == len(tests)


class TestChainJson:
    @pytest.mark.parametrize("name", chains.ALL)
    def test_can_be_decoded_to_the_same_chain(self, name: str, tmp_path: Path) -> None:
        data = read_chain(write_artefacts(chains.ALL[name], tmp_path / "out"))
        assert next(iter(data)) == "schema"
        assert data["schema"] == "causechain/1"
        assert decode(Chain, data) == chains.ALL[name]

    def test_has_the_keys_of_the_contract(self, tmp_path: Path) -> None:
        data = read_chain(write_artefacts(chains.gap, tmp_path / "out"))
        outcomes = {"pass", "fail", "unresolved"}
        assert set(data) >= {
            *("schema", "test", "status", "reason", "program", "failing", "passing", "oracle", "chain", "transitions"),
            *("peer", "alternatives", "repairs", "suspects", "failure", "statistics"),
        }
        assert set(data["program"]) >= {"path", "build_id"}
        assert set(data["failing"]) >= {"test", "argv", "stdin", "outcome"}
        assert set(data["passing"]) >= {"test", "argv", "stdin", "outcome", "distance", "why"}
        assert set(data["oracle"]) >= {"kind", "fails_when"}
        link = data["chain"][0]
        assert set(link) >= {"moment", "causes", "differences", "experiments", "confirmed"}
        assert set(link["moment"]) >= {"function", "file", "line", "visit", "event", "backtrace"}
        assert set(link["causes"][0]) >= {"variable", "type", "passing", "failing", "kind"}
        assert set(link["experiments"]) >= outcomes
        transition = data["transitions"][0]
        assert set(transition) >= {"from", "to", "file", "line", "function", "earliest", "only_in_failing"}
        assert set(transition["earliest"]) >= {"file", "line"}
        assert data["peer"]["kind"] == "neighbour"
        assert set(data["suspects"][0]) >= {"rank", "file", "line", "function", "why"}
        assert set(data["failure"]) >= {"kind", "text", "backtrace"}
        assert set(data["statistics"]) >= {"experiments", "moments", "vertices", "deltas", "seconds", "workers"}
        assert set(data["statistics"]["experiments"]) >= outcomes | {"cached"}
        assert set(data["statistics"]["moments"]) >= {"matched", "tried", "transferable"}
        assert set(data["statistics"]["seconds"]) >= {"trace", "capture", "experiments", "total"}


class TestFiles:
    def test_are_the_scripts_that_can_be_written_and_their_inputs(self, tmp_path: Path) -> None:
        place = write_artefacts(chains.crash, tmp_path / "out")
        assert place == tmp_path / "out" / slug(chains.crash.test)
        assert {path.name for path in place.iterdir()} == {
            *("chain.json", "chain.html", "1.gdb", "1.stdin", "2.gdb", "passing.stdin"),
        }
        assert (place / "passing.stdin").read_bytes() == b"+1\n+2\n"
        assert str(place / "passing.stdin") in (place / "2.gdb").read_text()
        assert (place / "1.stdin").read_bytes() == b"+1\n+2\n-1\n"
        assert f'open("{place / "1.stdin"}", 0)' in (place / "1.gdb").read_text()
        links = read_chain(place)["chain"]
        assert [link["script"] for link in links] == ["1.gdb", "2.gdb", None, None]
        assert [link["unscripted"] for link in links] == [None, None, *["no statement makes this change"] * 2]

    def test_undo_what_was_confirmed_both_ways(self, tmp_path: Path) -> None:
        place = write_artefacts(chains.two_variables, tmp_path / "out")
        assert {path.name for path in place.glob("*.gdb")} == {f"{n}{end}.gdb" for n in "123" for end in ("", "-undo")}
        assert read_chain(place)["chain"][1]["undo_script"] == "2-undo.gdb"

    def test_in_a_place_that_no_script_can_name_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refusal, match="has a line break in its name: name another place by --cause-chain-dir"):
            write_artefacts(chains.crash, tmp_path / "a\nb")

    def test_keep_input_that_is_no_text(self, tmp_path: Path) -> None:
        raw = b"\xff\x00\xc3\xa9\r\n"
        passing = replace(chains.crash.passing, stdin=raw.decode("utf-8", "surrogateescape"))
        place = write_artefacts(replace(chains.crash, passing=passing), tmp_path / "out")
        assert (place / "passing.stdin").read_bytes() == raw

    def test_of_an_earlier_session_go_but_not_the_users(self, tmp_path: Path) -> None:
        place = write_artefacts(chains.crash, tmp_path / "out")
        (place / "notes.txt").write_text("mine")
        write_artefacts(replace(chains.none, test=chains.crash.test), tmp_path / "out")
        assert {path.name for path in place.iterdir()} == {"chain.json", "chain.html", "notes.txt"}
        assert read_chain(place)["status"] == "none"

    def test_are_the_users_alone(self, tmp_path: Path) -> None:
        place = write_artefacts(chains.crash, tmp_path / "deep" / "out")
        write_index([chains.crash], tmp_path / "deep" / "out")
        for path in (place.parent, place, *place.parent.glob("index.*"), *place.iterdir()):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path

    def test_are_hidden_from_git_in_a_directory_of_our_own(self, tmp_path: Path) -> None:
        write_artefacts(chains.none, tmp_path / "out")
        assert (tmp_path / "out" / ".gitignore").read_text().splitlines()[-1] == "*"

    def test_never_hide_the_users_sources_from_git(self, tmp_path: Path) -> None:
        (tmp_path / "sources").mkdir()
        write_artefacts(chains.none, tmp_path / "sources")
        write_index([chains.none], tmp_path / "sources")
        assert not (tmp_path / "sources" / ".gitignore").exists()

    def test_that_cannot_be_written_are_refused_in_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("a file")
        with pytest.raises(Refusal, match=r"could not be written to .*out \(.*\): name another place by"):
            write_artefacts(chains.crash, tmp_path / "out")
        with pytest.raises(Refusal):
            write_index([], tmp_path / "out")

    def test_of_a_hostile_chain_stay_in_their_directory(self, tmp_path: Path) -> None:
        write_artefacts(replace(chains.hostile, test="../../../x::/../y"), tmp_path / "a" / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


class TestIndex:
    def test_lists_the_chains_of_the_session(self, tmp_path: Path) -> None:
        for chain in (chains.wrong_output, chains.none):
            write_artefacts(chain, tmp_path / "out")
        path = write_index([chains.wrong_output, chains.none], tmp_path / "out")
        data = json.loads(path.read_text())
        first, second = data["chains"]
        assert first["test"] == chains.wrong_output.test
        assert (first["status"], first["reason"]) == ("complete", None)
        assert (first["suspect"]["line"], first["suspect"]["function"]) == (48, "main")
        assert (path.parent / first["path"]).is_file()
        assert (second["status"], second["suspect"]) == ("none", None)
        assert second["reason"] == chains.none.reason

    def test_forgets_the_earlier_session(self, tmp_path: Path) -> None:
        write_index([chains.wrong_output], tmp_path / "out")
        path = write_index([], tmp_path / "out")
        assert json.loads(path.read_text())["chains"] == []
