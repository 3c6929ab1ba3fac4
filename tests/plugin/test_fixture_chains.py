"""The programs of fixtures_c, diagnosed in real sessions: what their chains must say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from replays import find_unled, replay_all
from suites import FIXTURES, Diagnosed, Session, find_alternative, read_chain, read_index, read_section

SAMPLE = "sample/test_sample.py::test_sorts[two]"
JUKEBOX = "jukebox/test_jukebox.py::test_next_after_drop[last]"
TIDY = "tidy/test_tidy.py::test_exit_status[three-blank-lines]"


@pytest.fixture
def sample(diagnosed: Diagnosed) -> Session:
    return diagnosed("sample")


@pytest.fixture
def jukebox(diagnosed: Diagnosed) -> Session:
    return diagnosed("jukebox")


@pytest.fixture
def tidy(diagnosed: Diagnosed) -> Session:
    return diagnosed("tidy")


def list_variables(chain: dict[str, Any]) -> list[str]:
    """Of each link all variables of its cause."""
    return [", ".join(cause["variable"] for cause in link["causes"]) for link in chain["chain"]]


def name_place(place: dict[str, Any]) -> str:
    return f"{Path(place['file']).name}:{place['line']}"


def find_line(source: Path, text: str) -> str:
    numbers = [number for number, line in enumerate(source.read_text().splitlines(), start=1) if text in line]
    assert len(numbers) == 1
    return f"{source.name}:{numbers[0]}"


def replay_in_gdb(session: Session, link: int) -> str:
    """What plain gdb shows for the script of a link."""
    script = Path(read_index(session.directory)[0]["path"]).with_name(f"{link}.gdb")
    command = ["gdb", "-nx", "-batch", "-x", script]
    place = session.directory / ".causechain"
    run = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return run.stdout


class TestSample:
    def test_session_fails_as_without_us(self, sample):
        assert sample.returncode == 1
        assert sample.lines[-1].strip("= ").startswith("1 failed, 4 passed")

    def test_size_begins_the_twins_chain(self, sample):
        chain = read_chain(sample.directory)
        assert (chain["test"], chain["status"], chain["reason"]) == (SAMPLE, "complete", None)
        assert chain["peer"]["kind"] == "twin"
        assert chain["passing"]["argv"] == chain["failing"]["argv"]
        first = chain["chain"][0]
        assert [(c["variable"], c["passing"], c["failing"]) for c in first["causes"]] == [("size", "2", "3")]
        assert first["confirmed"] == "both"
        assert "a[0]" in list_variables(chain)[-1]
        assert all(link["follows"] for link in chain["chain"])

    def test_causes_of_the_neighbour_in_order(self, sample):
        chain = find_alternative(read_chain(sample.directory))
        assert list_variables(chain) == ["argc", "a[2]", "v", "a[0]"]
        # With another count of arguments alone the failing run reads an argument that is not there.
        assert [link["confirmed"] for link in chain["chain"]] == ["passing", "both", "both", "both"]
        assert [link["causes"][0]["failing"] for link in chain["chain"]] == ["3", "0", "0", "0"]
        assert all(link["follows"] for link in chain["chain"])

    def test_wrong_call_is_the_first_suspect(self, sample):
        chain = read_chain(sample.directory)
        call = find_line(FIXTURES / "sample" / "sample.c", "shell_sort(a, argc);")
        moves = {(*t["from"], *t["to"]): name_place(t) for t in find_alternative(chain)["transitions"]}
        assert moves["argc", "a[2]"] == call
        repair = chain["repairs"][0]
        assert (repair["kind"], repair["variable"], repair["was"], repair["with"]) == ("argument", "size", "3", "2")
        assert (repair["callee"], name_place(repair)) == ("shell_sort", call)
        first = chain["suspects"][0]
        assert (first["rank"], first["function"], name_place(first)) == (1, "main", call)
        assert name_place(read_index(sample.directory)[0]["suspect"]) == call

    def test_symptom_is_the_zero(self, sample):
        oracle = find_alternative(read_chain(sample.directory))["oracle"]
        assert oracle["kind"] == "symptom"
        assert re.fullmatch(r"the list compared at test_sample\.py:\d+ contains 0", oracle["fails_when"])

    def test_section_tells_the_chain(self, sample):
        section = "\n".join(read_section(sample.output))
        call = find_line(FIXTURES / "sample" / "sample.c", "shell_sort(a, argc);")
        told = rf"With size = 2 instead of 3 passed to shell_sort at \S*{re.escape(call)} the test passes\."
        assert re.match(told, " ".join(section.split("\n")[1:]))
        assert re.search(r'^fails    sample 11 14 +printed "0 11"$', section, re.M)
        assert 'passes   its twin, the same run with this repair   printed "11 14"' in section
        assert re.search(r"^  1  \S+ +shell_sort +at the call of shell_sort, size was 3 \(2 in the", section, re.M)
        assert 'so the program printed "0 11". The test fails.' in section
        assert re.search(r"^Proof: with only size = 3 at \S+ the twin fails too; with size = 2 the", section, re.M)
        assert re.search(
            r"^Beside test_sorts\[repeated\] \(sample 4 2 4\): argc was 3 \(4\), so a\[2\] was 0", section, re.M
        )
        assert re.search(r"^\d+ interventions, \d+ experiments \(\d+ passed, \d+ failed, ", section, re.M)
        assert "Replay: gdb -x .causechain/test_sample-test_sorts-two-" in section

    def test_replay_in_plain_gdb_shows_the_wrong_output(self, sample):
        shown = replay_in_gdb(sample, 1)
        assert "size: 3 instead of 2" in shown
        printed = [line.split() for line in shown.splitlines() if re.fullmatch(r"(-?\d+ )+", line)]
        assert len(printed) == 1 and printed[0][0] == "0"


class TestJukebox:
    def test_null_pointer_and_where_it_became_so(self, jukebox):
        whole = read_chain(jukebox.directory)
        assert (whole["test"], whole["status"]) == (JUKEBOX, "complete")
        chain = find_alternative(whole)
        assert chain["oracle"]["kind"] == "crash"
        link = chain["chain"][-1]
        assert link["causes"][0]["variable"] in ("player.current", "player->current")
        assert (link["causes"][0]["failing"], link["causes"][0]["kind"]) == ("NULL", "repoint")
        # The passing run's value is told by what it points to.
        assert "Ballad" in link["causes"][0]["passing"]
        assert link["confirmed"] == "both"
        assignment = find_line(FIXTURES / "jukebox" / "player.c", "player->current = dropped->next;")
        assert name_place(link["made_by"]) == assignment
        assert assignment in {name_place(transition) for transition in chain["transitions"]}
        assert name_place(whole["suspects"][0]) == assignment

    def test_first_track_would_have_repaired_it(self, jukebox):
        chain = read_chain(jukebox.directory)
        repair = chain["repairs"][0]
        assert name_place(repair) == find_line(FIXTURES / "jukebox" / "player.c", "player->current = dropped->next;")
        assert (repair["kind"], repair["variable"], repair["was"]) == ("value", "player->current", "NULL")
        assert repair["with"] == "player->list.first"
        # Between the run and its twin nothing else differs.
        (link,) = chain["chain"]
        assert (link["causes"][0]["failing"], link["differences"]) == ("NULL", 1)

    def test_failure_is_the_crash(self, jukebox):
        failure = read_chain(jukebox.directory)["failure"]
        assert "SIGSEGV" in failure["text"]
        assert failure["backtrace"][0]["function"] == "player_next"
        assert "SIGSEGV" in "\n".join(read_section(jukebox.output))

    def test_input_begins_the_chain(self, jukebox):
        first = find_alternative(read_chain(jukebox.directory))["chain"][0]["causes"][0]
        assert (first["variable"], first["kind"]) == ("stdin line 4", "input")
        assert (first["passing"], first["failing"]) == ('"play 1"', '"play 3"')

    def test_replay_in_plain_gdb_crashes(self, jukebox):
        link = len(read_chain(jukebox.directory)["chain"])
        assert "SIGSEGV, Segmentation fault" in replay_in_gdb(jukebox, link)


class TestTidy:
    def test_global_configuration_decides_the_status(self, tidy):
        chain = read_chain(tidy.directory)
        assert (chain["test"], chain["status"]) == (TIDY, "complete")
        chain = find_alternative(chain)
        assert chain["oracle"]["kind"] == "exit"
        assert chain["oracle"]["fails_when"] == "it exits with status 0 (1 in the passing run)"
        variables = list_variables(chain)
        assert variables.index("config.max_blank") < variables.index("config.max_warnings")
        # Global: it lives in no frame.
        link = chain["chain"][variables.index("config.max_warnings")]
        assert link["causes"][0]["frame"] is None
        assert link["made_by"]["function"] == "set_limit"

    def test_limit_that_was_raised_is_the_first_suspect(self, tidy):
        chain = read_chain(tidy.directory)
        raised = find_line(FIXTURES / "tidy" / "config.c", "config.max_warnings = config.max_blank;")
        assert name_place(chain["suspects"][0]) == raised
        assert list_variables(chain)[0] == "config.max_warnings"
        assert chain["oracle"]["fails_when"] == "it exits with status 0 (1 in its twin)"


def list_causes(chain: dict[str, Any]) -> list[dict[str, Any]]:
    """Of all links, against the twin and against the neighbour."""
    chains = [chain, *chain["alternatives"]]
    return [cause for one in chains for link in one["chain"] for cause in link["causes"]]


class TestLinkedStructures:
    """Lists, trees, tables and pools: the pointer that is wrong is found, and told as what it leads to."""

    @pytest.fixture
    def diagnose(self, diagnosed: Diagnosed) -> Callable[[str], dict[str, Any]]:
        def diagnose(name: str) -> dict[str, Any]:
            chain = read_chain(diagnosed(name).directory)
            assert (chain["status"], chain["reason"]) == ("complete", None)
            return chain

        return diagnose

    def test_list_that_is_empty_at_one_end_only(self, diagnose):
        chain = diagnose("spool")
        last = find_alternative(chain)["chain"][-1]
        (cause,) = last["causes"]
        assert (cause["variable"], cause["failing"], cause["kind"]) == ("queue.first", "NULL", "delete")
        assert '"poster"' in cause["passing"]
        assert last["confirmed"] == "both"
        unlinking = find_line(FIXTURES / "spool" / "queue.c", "queue->first = job->next;")
        assert unlinking in [name_place(suspect) for suspect in chain["suspects"][:5]]

    def test_tree_that_leads_back_into_itself(self, diagnose):
        chain = diagnose("glossary")
        assert chain["failure"]["backtrace"][0]["function"] == "tree_walk"
        loops = {
            (c["variable"], c["failing"], c["kind"]) for c in list_causes(chain) if c["failing"].endswith("itself")
        }
        assert ("top->right->left", "top->right itself", "repoint") in loops
        wrong = find_line(FIXTURES / "glossary" / "tree.c", "top->left = pivot->right;")
        assert wrong in [name_place(suspect) for suspect in chain["suspects"][:3]]

    def test_table_that_has_moved(self, diagnose):
        """The pointer still leads to where the account was: to one of its own, with the same name."""
        # Where it is looked up, or where it is handed on to.
        causes = [c for c in list_causes(diagnose("ledger")) if c["variable"] in ("from", "account")]
        assert ("&accounts.slots[5]", '{"food", 1, 300} of its own') in [(c["passing"], c["failing"]) for c in causes]

    def test_pool_that_gave_too_little(self, diagnose):
        chain = diagnose("roster")
        used = [c for c in chain["chain"][1]["causes"] if c["variable"] == "block->used"]
        assert [(c["passing"], c["failing"]) for c in used] == [("32", "24")]
        asking = find_line(FIXTURES / "roster" / "arena.c", "char *copy = arena_alloc(arena, length);")
        assert asking in [name_place(suspect) for suspect in chain["suspects"][:5]]


@pytest.fixture(params=["sample", "jukebox", "tidy"])
def session(request: pytest.FixtureRequest) -> Session:
    fixture: Session = request.getfixturevalue(request.param)
    return fixture


# Keys of chain.json that keep their meaning, with the types of their values.
TEXT, NUMBER = str, (int, float)
PARTY = {"test": TEXT, "argv": list, "stdin": TEXT, "outcome": TEXT}
TALLY = {"pass": int, "fail": int, "unresolved": int}
LINKS = [
    {
        "moment": {"function": TEXT, "file": TEXT, "line": int, "visit": int, "event": int, "backtrace": [TEXT]},
        "causes": [{"variable": TEXT, "type": TEXT, "passing": TEXT, "failing": TEXT, "kind": TEXT}],
        "differences": int,
        "experiments": TALLY,
        "confirmed": TEXT,
    }
]
TRANSITIONS = [
    {
        "from": [TEXT],
        "to": [TEXT],
        "file": TEXT,
        "line": int,
        "function": TEXT,
        "earliest": {"file": TEXT, "line": int},
        "only_in_failing": list,
    }
]
CONTRACT = {
    "schema": TEXT,
    "test": TEXT,
    "status": TEXT,
    "reason": type(None),
    "program": {"path": TEXT, "build_id": TEXT},
    "failing": PARTY,
    "passing": PARTY | {"distance": NUMBER, "why": TEXT},
    "oracle": {"kind": TEXT, "fails_when": TEXT},
    "chain": LINKS,
    "transitions": list,
    "peer": {"kind": TEXT},
    "alternatives": [{"peer": {"kind": TEXT}, "chain": LINKS, "transitions": TRANSITIONS}],
    "repairs": [
        {
            "kind": TEXT,
            "file": TEXT,
            "line": int,
            "function": TEXT,
            "visit": int,
            "variable": (TEXT, type(None)),
            "was": TEXT,
            "with": TEXT,
        }
    ],
    "suspects": [{"rank": int, "file": TEXT, "line": int, "function": TEXT, "why": TEXT}],
    "failure": {"kind": TEXT, "text": TEXT, "backtrace": list},
    "statistics": {
        "experiments": TALLY | {"cached": int},
        "moments": {"matched": int, "tried": int, "transferable": int},
        "vertices": int,
        "deltas": int,
        "seconds": {"trace": NUMBER, "capture": NUMBER, "experiments": NUMBER, "total": NUMBER},
        "workers": int,
    },
}


def find_breaches(expected: Any, value: Any, path: str = "chain") -> list[str]:
    """Where a value of chain.json is not as the contract has it."""
    if isinstance(expected, dict):
        if not isinstance(value, dict):
            return [f"{path} is no object"]
        missing = [f"{path}.{key} is missing" for key in expected if key not in value]
        present = [key for key in expected if key in value]
        return missing + [b for key in present for b in find_breaches(expected[key], value[key], f"{path}.{key}")]
    if isinstance(expected, list):
        if not isinstance(value, list) or not value:
            return [f"{path} is no list with anything in it"]
        return [b for i, item in enumerate(value) for b in find_breaches(expected[0], item, f"{path}[{i}]")]
    return [] if isinstance(value, expected) else [f"{path} is {value!r}"]


class TestArtefacts:
    def test_chain_keeps_the_contract(self, session):
        chain = read_chain(session.directory)
        assert find_breaches(CONTRACT, chain) == []
        assert chain["schema"] == "causechain/1"
        assert chain["peer"] == {"kind": "twin", "test": chain["test"], "repair": chain["repairs"][0]}
        neighbour = find_alternative(chain)
        assert neighbour["peer"]["test"] == neighbour["passing"]["test"] != chain["failing"]["test"] == chain["test"]
        statistics = chain["statistics"]
        assert statistics["moments"]["transferable"] <= statistics["moments"]["tried"]
        assert statistics["experiments"]["pass"] > 0 and statistics["experiments"]["fail"] > 0
        assert 0 < statistics["seconds"]["experiments"] < statistics["seconds"]["total"]

    def test_index_lists_the_chain(self, session):
        (entry,) = read_index(session.directory)
        chain = read_chain(session.directory)
        assert {key: entry[key] for key in ("test", "status", "reason")} == {
            key: chain[key] for key in ("test", "status", "reason")
        }
        assert entry["suspect"] == chain["suspects"][0]

    def test_each_link_has_a_script(self, session):
        place = (session.directory / ".causechain" / read_index(session.directory)[0]["path"]).parent
        links = range(1, len(read_chain(session.directory)["chain"]) + 1)
        assert {path.name for path in place.glob("*[0-9].gdb")} == {f"{link}.gdb" for link in links}

    def test_each_script_shows_what_it_should(self, session):
        """Those of all fixtures are replayed by `make replays`."""
        chain = read_chain(session.directory)
        place = (session.directory / ".causechain" / read_index(session.directory)[0]["path"]).parent
        replays = list(replay_all(chain, place))
        assert {replay.script.name for replay in replays} >= {"1.gdb", "1-undo.gdb"}
        for replay in replays:
            assert replay.is_as_expected, f"{replay.script}: not {replay.expected!r} in\n{replay.shown}"

    def test_each_link_leads_to_the_next_in_plain_gdb(self, session):
        chain = read_chain(session.directory)
        place = (session.directory / ".causechain" / read_index(session.directory)[0]["path"]).parent
        assert list(find_unled(chain, place)) == []

    def test_section_fits_into_80_columns(self, session):
        section = read_section(session.output)
        assert len(section) > 10
        assert [line for line in section if len(line) > 80] == []

    def test_nothing_else_is_written(self, session):
        tree = {path.name for path in session.directory.iterdir()}
        own = {path.name for path in session.directory.glob("*") if (path / ".gitignore").exists()}
        assert own == {".causechain", ".pytest_cache"}
        assert tree - own - {"conftest.py", "pytest.ini", "__pycache__"} == {read_index_name(session)}


def read_index_name(session: Session) -> str:
    """The directory of the program under test."""
    return read_index(session.directory)[0]["test"].partition("/")[0]
