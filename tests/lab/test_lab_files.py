"""Experiments leave the user's files alone, and what they write is part of what is observed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from places import PLENTY_SECONDS, find_function, find_global

from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.alteration import Transfer
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.isolation import NO_ISOLATION, USUAL, Precautions
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, InputFile, read_input
from pytest_causechain.sandbox import isolation
from pytest_causechain.sandbox.isolation import MOST_FILES, OPEN_STAGE, SCRATCH_DIRECTORIES, is_within
from pytest_causechain.states.outside import ABSENT

WRITER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char victim[256];
int number = 1;

static void put(const char *name, const char *mode, const char *text)
{
    FILE *file = fopen(name, mode);
    if (file == NULL) {
        perror(name);
        return;
    }
    fprintf(file, "%s %d\n", text, number);
    fclose(file);
}

static void amid(void) { number += 0; }

int main(int argc, char **argv)
{
    char line[100] = "";
    if (argc > 1 && strcmp(argv[1], "read") == 0) {
        amid();
        FILE *file = fopen("kept", "r");
        printf("%s", fgets(line, sizeof line, file));
        if (number > 1)
            put("late", "w", "by an altered run");
        return 0;
    }
    put("before", "w", "first");
    put("kept", "a", "more");
    mkdir("new", 0755);
    put("new/inner", "w", "inside");
    amid();
    put("before", "a", "second");
    if (victim[0] != '\0')
        printf("%d", unlink(victim));
    unlink("old");
    rename("moved", "new/moved");
    if (argc > 1)
        put(argv[1], "w", "named");
    if (argc < 3) {
        put("/tmp/causechain-test-scratch", "w", "not of interest");
        put("/etc/causechain-test", "w", "impossible");
    }
    unlink("new/inner");
    printf("%s", getcwd(line, sizeof line));
    return 0;
}
"""


@pytest.fixture
def place(tmp_path):
    """A directory in which a test has left some files."""
    directory = tmp_path / "place"
    directory.mkdir()
    for name in ("kept", "old", "moved", "precious"):
        (directory / name).write_text(f"{name}\n")
    return directory


@pytest.fixture
def open_at(kind, build, place):
    labs = []

    def open_one(*words: str, inputs: tuple[InputFile, ...] = (), **more) -> RemoteLab:
        program = build(WRITER)
        command = Command(program, (program.path, *words), str(place), inputs=inputs)
        labs.append(RemoteLab(Open(command, command, kind=kind, **more), Budget(PLENTY_SECONDS)))
        return labs[-1]

    yield open_one
    for lab in labs:
        lab.close()


def checksum(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in directory.rglob("*")
    }


def amid(lab: RemoteLab) -> tuple[Stop, ...]:
    return (Stop(find_function(lab, "amid"), 1),)


def expected(place: Path, number: int = 1) -> dict[str, bytes | None]:
    return {
        str(place / "before"): b"first 1\nsecond %d\n" % number,
        str(place / "kept"): b"kept\nmore 1\n",
        str(place / "moved"): None,
        str(place / "new/moved"): b"moved\n",
        str(place / "old"): None,
    }


def test_what_runs_write_is_observed_and_nowhere_else(open_at, place, kind):
    lab = open_at()
    before = checksum(place)
    natural = [lab.experiment("passing") for _ in range(2)]
    assert [dict(run.files) for run in natural] == [expected(place)] * 2
    assert list(natural[0].files) == sorted(natural[0].files)
    assert natural[0].stdout.decode() == str(place)
    assert b"Read-only file system" in natural[0].stderr
    writes = [Transfer(writes=((find_number(lab), (n).to_bytes(4, "little")),)) for n in (7, 8, 9)]
    altered = lab.experiments("failing", amid(lab), writes)
    assert [dict(run.files) for run in altered] == [expected(place, n) for n in (7, 8, 9)]
    assert dict(lab.experiment("passing", amid(lab)).files) == expected(place)
    assert lab.isolation.files == "view"
    lab.close()
    assert checksum(place) == before
    assert not os.path.lexists("/tmp/causechain-test-scratch")


def find_number(lab: RemoteLab, name: str = "number") -> int:
    visit = lab.visit("passing", amid(lab))
    assert visit is not None
    return visit.load_map.to_run(find_global(lab, name))


def test_an_altered_path_deletes_nothing(open_at, place, tmp_path):
    outside, own = tmp_path / "outside", Path(__file__).resolve()
    outside.write_text("untouched")
    before = checksum(tmp_path)
    lab = open_at()
    # In its own view it may; elsewhere it may not even try.
    for path, answer, told in (
        (place / "precious", b"0", True),
        (outside, b"0", False),
        (own, b"0" if is_within(str(own), SCRATCH_DIRECTORIES) else b"-1", False),
    ):
        address = find_number(lab, "victim")
        seen = lab.experiment("failing", amid(lab), Transfer(writes=((address, os.fsencode(path) + b"\0"),)))
        assert seen.stdout == answer + os.fsencode(place)
        assert ((str(path), None) in seen.files) is told
    lab.close()
    assert checksum(tmp_path) == before
    assert own.exists()


def test_the_first_to_write_is_an_altered_run(open_at, place):
    lab = open_at("read")
    address = find_number(lab)
    assert lab.experiment("passing").files == ()
    transfers = [Transfer(writes=((address, n.to_bytes(4, "little")),)) for n in (0, 2, 1, 3, 0)]
    seen = lab.experiments("failing", amid(lab), transfers)
    late = str(place / "late")
    assert [dict(run.files).get(late) for run in seen] == [
        None, b"by an altered run 2\n", None, b"by an altered run 3\n", None,
    ]  # fmt: skip
    assert {run.stdout for run in seen} == {b"kept\n"}


def test_directories_of_arguments_are_the_tests_too(open_at, place, tmp_path):
    (tmp_path / "results").mkdir()
    named = str(tmp_path / "results/out")
    seen = open_at(named).experiment("passing")
    assert dict(seen.files)[named] == b"named 1\n"
    assert not os.path.lexists(named)


class TestInputs:
    """Files that the tests have left otherwise than the programs found them."""

    def test_each_run_finds_them_as_they_were(self, open_at, place):
        before = checksum(place)
        files = (
            InputFile(str(place / "kept"), "another", b"as it was\n"),
            InputFile(str(place / "gone/for long"), "another", b"here\n"),
            InputFile(str(place / "old"), ABSENT),
            read_input(str(place / "precious")),
        )
        lab = open_at(inputs=files)
        for _ in range(2):
            told = dict(lab.experiment("passing", amid(lab)).files)
            assert told == {
                str(place / "before"): b"first 1\nsecond 1\n",
                str(place / "kept"): b"as it was\nmore 1\n",
                str(place / "moved"): None,
                str(place / "new/moved"): b"moved\n",
            }
        lab.close()
        assert checksum(place) == before

    def test_one_that_is_only_read(self, open_at, place):
        seen = open_at("read", inputs=(InputFile(str(place / "kept"), "another", b"as it was\n"),)).experiment(
            "passing"
        )
        assert (seen.stdout, seen.files) == (b"as it was\n", ())

    @pytest.mark.parametrize("content", [None, b"known, but not to be restored"])
    def test_what_cannot_be_restored_is_refused(self, open_at, place, content):
        precautions = USUAL if content is None else Precautions("off")
        lab = open_at(inputs=(InputFile(str(place / "kept"), "another", content),), precautions=precautions)
        with pytest.raises(Refusal, match=r"kept is not as program found it in its test: .*tmp_path"):
            lab.experiment("passing")


def test_an_accident_is_no_obstacle(tmp_path, monkeypatch):
    """One of the processes by which isolation is tried was killed."""
    answers = ["the user cannot be mapped", None]
    monkeypatch.setattr(isolation, "_try_stage", lambda areas, directory: answers.pop(0))
    assert isolation.try_stage((), str(tmp_path)) is None
    assert answers == []


class TestWithoutViews:
    """Where the kernel allows no namespaces."""

    @pytest.fixture(autouse=True)
    def _refused(self, monkeypatch):
        monkeypatch.setattr(isolation, "try_stage", lambda areas, directory: "not allowed")

    def test_runs_work_in_copies(self, build, place, tmp_path):
        program = build(WRITER)
        command = Command(program, (program.path, "named", "quietly"), str(place))
        stage, told = isolation.isolate(USUAL, [command], str(tmp_path))
        assert (told.files, told.elsewhere) == ("copy", "writable")
        before = checksum(place)
        with LocalLab(Open(command, command, deadline=time.monotonic() + PLENTY_SECONDS), stage) as lab:
            files = expected(place) | {str(place / "named"): b"named 1\n"}
            assert dict(lab.experiment("passing").files) == files
            writes = [Transfer(writes=((find_number(lab), n.to_bytes(4, "little")),)) for n in (7, 8)]
            altered = [dict(run.files) for run in lab.experiments("failing", amid(lab), writes)]
            assert [files[str(place / "named")] for files in altered] == [b"named 7\n", b"named 8\n"]
        assert checksum(place) == before

    def test_inputs_are_restored_in_copies(self, build, place, tmp_path):
        program = build(WRITER)
        file = InputFile(str(place / "kept"), "another", b"as it was\n")
        command = Command(program, (program.path, "read"), str(place), inputs=(file,))
        stage, _ = isolation.isolate(USUAL, [command], str(tmp_path))
        with LocalLab(Open(command, command, deadline=time.monotonic() + PLENTY_SECONDS), stage) as lab:
            seen = lab.experiment("passing")
            assert (seen.stdout, seen.files) == (b"as it was\n", ())
        assert (place / "kept").read_text() == "kept\n"

    def test_a_large_directory_is_not_copied(self, build, place, tmp_path):
        for number in range(MOST_FILES):
            (place / f"file{number}").touch()
        command = Command(build(WRITER), ("program",), str(place))
        assert isolation.isolate(USUAL, [command], str(tmp_path)) == (OPEN_STAGE, NO_ISOLATION)

    def test_the_user_requires_more(self, build, place, tmp_path):
        command = Command(build(WRITER), ("program",), str(place))
        with pytest.raises(Refusal, match=r"cannot be isolated here \(not allowed\): .*cause_chain_isolation"):
            isolation.isolate(Precautions("require"), [command], str(tmp_path))

    def test_the_user_wants_none(self, build, place, tmp_path):
        command = Command(build(WRITER), ("program",), str(place))
        assert isolation.isolate(Precautions("off"), [command], str(tmp_path)) == (OPEN_STAGE, NO_ISOLATION)
