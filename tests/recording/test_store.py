from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from pytest_causechain.model.runs import Command, InputFile, Program, Recording, Run
from pytest_causechain.recording import store as store_module
from pytest_causechain.recording.store import RecordingStore


def recording(test, *builds, outcome="passed", stdin=b"\0\xff", argument="x\udcff"):
    changes = (("A", None), ("B", "1"))
    runs = [Run(Command(Program("/p", build), ("p", argument), "/", changes, stdin), 1) for build in builds]
    return Recording(test, outcome, tuple(runs), ("a sentence.",))


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache" / "recordings"


@pytest.fixture
def store(directory):
    return RecordingStore(directory)


def known_tests(store, build):
    return [known.test for known in store.load(build)]


class TestKeeping:
    def test_what_is_saved_is_loaded(self, store, directory):
        saved = recording("test_a", "b1")
        store.save([saved])
        assert store.load("b1") == [saved]
        assert RecordingStore(directory).load("b1") == [saved]
        assert store.load("b2") == []

    def test_a_test_with_two_programs_is_kept_for_both(self, store):
        store.save([recording("test_a", "b1", "b2", "b1")])
        assert known_tests(store, "b1") == known_tests(store, "b2") == ["test_a"]

    def test_sessions_are_merged_by_test(self, store):
        store.save([recording("test_a", "b1", argument="old"), recording("test_b", "b1")])
        store.save([recording("test_a", "b1", argument="new"), recording("test_c", "b1")])
        assert known_tests(store, "b1") == ["test_a", "test_c", "test_b"]
        assert store.load("b1")[0].runs[0].command.argv[1] == "new"

    def test_failing_tests_are_forgotten(self, store):
        store.save([recording("test_a", "b1"), recording("test_b", "b1")])
        store.save([recording("test_a", "b1", outcome="failed")])
        assert known_tests(store, "b1") == ["test_b"]
        store.save([recording("test_b", "b1", outcome="failed")])
        assert known_tests(store, "b1") == []

    def test_skipped_tests_say_nothing(self, store):
        store.save([recording("test_a", "b1")])
        store.save([recording("test_a", "b1", outcome="skipped")])
        assert known_tests(store, "b1") == ["test_a"]

    def test_other_builds_keep_what_they_have(self, store):
        store.save([recording("test_a", "b1")])
        store.save([recording("test_a", "b2", outcome="failed")])
        assert known_tests(store, "b1") == ["test_a"]

    def test_a_test_that_now_runs_something_else(self, store):
        store.save([recording("test_a", "b1")])
        store.save([recording("test_a", "b2"), recording("test_b", "b1")])
        assert known_tests(store, "b1") == ["test_b"]
        assert known_tests(store, "b2") == ["test_a"]

    def test_nothing_to_keep_makes_no_directory(self, store, directory):
        store.save([Recording("test_a", "passed"), recording("test_b", "b1", outcome="failed")])
        assert not directory.exists()

    def test_nobody_else_may_read_it(self, store, directory):
        store.save([recording("test_a", "b1")])
        (file,) = directory.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700

    def test_contents_of_files_are_not_kept(self, store, directory):
        plain = recording("test_a", "b1")
        (run,) = plain.runs
        command = run.command._replace(inputs=(InputFile("/home/somebody", "digest", b"private"),))
        store.save([plain._replace(runs=(run._replace(command=command),))])
        assert store.load("b1") == [plain]

    def test_very_long_build_ids(self, store):
        store.save([recording("test_a", "ab" * 500)])
        assert known_tests(store, "ab" * 500) == ["test_a"]


class TestLimits:
    def test_tests(self, store, monkeypatch):
        monkeypatch.setattr(store_module, "MAX_TESTS_PER_BUILD", 3)
        store.save([recording(f"test_{i}", "b1") for i in range(2)])
        store.save([recording(f"test_{i}", "b1") for i in (7, 8)])
        assert known_tests(store, "b1") == ["test_7", "test_8", "test_0"]

    def test_builds(self, store, directory, monkeypatch):
        monkeypatch.setattr(store_module, "MAX_BUILDS", 2)
        for age, build in enumerate(("newest", "newer", "old")):
            store.save([recording("test_a", build)])
            os.utime(directory / f"{build}.json", (1000 - age, 1000 - age))
        store.save([recording("test_a", "now")])
        assert [bool(store.load(build)) for build in ("now", "newest", "newer", "old")] == [True, True, False, False]

    def test_large_inputs(self, store, monkeypatch):
        monkeypatch.setattr(store_module, "MAX_BYTES_PER_BUILD", 10_000)
        sizes = {"test_a": 4000, "test_b": 4000, "test_c": 3000}
        store.save([recording(test, "b1", stdin=b"x" * size) for test, size in sizes.items()])
        assert known_tests(store, "b1") == ["test_a", "test_c"]


class TestTrouble:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff\xfe",
            b"{",
            b"\n",
            b'{"schema": "causechain-recordings/1", "recordings": []}',
            b'causechain-recordings/0\n["t", "passed", [], []]',
            b"causechain-recordings/2",
            b"causechain-recordings/2\n",
            b"causechain-recordings/2\n3",
            b"causechain-recordings/2\n[[]]",
            b'causechain-recordings/2\n["t"]',
            b'causechain-recordings/2\n["t", "fine"]',
            b'causechain-recordings/2\n["t", "passed", [], [], 1]',
            b"causechain-recordings/2\n" + b"[" * 100_000,
        ],
    )
    def test_unreadable_files_are_replaced(self, store, directory, content):
        directory.mkdir(parents=True)
        (directory / "b1.json").write_bytes(content)
        assert store.load("b1") == []
        store.save([recording("test_a", "b1")])
        assert known_tests(store, "b1") == ["test_a"]

    def test_truncated_at_any_place(self, store, directory):
        store.save([recording("test_a", "b1")])
        content = (directory / "b1.json").read_bytes()
        for size in range(0, len(content), 7):
            (directory / "b1.json").write_bytes(content[:size])
            assert store.load("b1") == []

    def test_directory_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")
        store = RecordingStore(tmp_path / "file" / "recordings")
        store.save([recording("test_a", "b1")])
        assert store.load("b1") == []

    def test_full_disk(self, store, directory, monkeypatch):
        store.save([recording("test_a", "b1")])
        before = (directory / "b1.json").read_bytes()

        def write_nothing(path, target):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", write_nothing)
        store.save([recording("test_b", "b1")])
        assert [path.name for path in directory.iterdir()] == ["b1.json"]
        assert (directory / "b1.json").read_bytes() == before
