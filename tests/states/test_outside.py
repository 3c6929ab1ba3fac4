"""What two runs have outside their memory: what differs, how it is told, and any part of it changed."""

from __future__ import annotations

from pytest_causechain.debugger.visit import Visit
from pytest_causechain.model.alteration import OpenFile
from pytest_causechain.model.load_map import NOWHERE
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.outside import OtherCode, OutsideDelta, OutsidePart, OutsideState


def visit(*files: OpenFile, directory: str = "/", **more) -> Visit:
    return Visit(NOWHERE, (), (), [], 0, files=files, directory=directory, **more)


def compare(passing: Visit, failing: Visit) -> OutsideState:
    return OutsideState(passing, failing, (Memory(passing), Memory(failing)))


def told(outside: OutsideState) -> list[tuple[str, str, str, str]]:
    return [(d.kind, d.name, d.passing, d.failing) for d in (*outside.inputs(), *outside.past())]


def notes(content: bytes, position: int = 0, **more) -> OpenFile:
    return OpenFile(3, "/home/notes.txt", "input", content, position, **more)


class TestCode:
    def test_it_is_a_difference_that_lies_ahead(self):
        delta = OutsideDelta("the constant in a.c:3", "the constant in a.c:3", "code", "1", "2")
        runs = visit(), visit()
        outside = OutsideState(*runs, tuple(map(Memory, runs)), OtherCode(0x1000, b"one", b"two", delta))
        assert list(outside.inputs()) == [delta]
        part = delta.part
        assert part == OutsidePart("code")
        assert outside.change({part}, is_forwards=True).code == (0x1000, b"two")
        assert outside.change({part}, is_forwards=False).code == (0x1000, b"one")
        assert outside.change((), is_forwards=True).code is None

    def test_most_pairs_execute_the_same(self):
        assert told(compare(visit(), visit())) == []


class TestInputs:
    def test_line_by_line_from_where_the_runs_are(self):
        outside = compare(
            visit(notes(b"a\nb\nc\n", 2), directory="/home"), visit(notes(b"x\nb\nd\n", 2), directory="/home")
        )
        assert told(outside) == [
            ("input", "file notes.txt line 3", '"c"', '"d"'),
            ("position", "what was read of notes.txt", '"a\\n"', '"x\\n"'),
        ]

    def test_position_in_the_same_file(self):
        outside = compare(visit(notes(b"a\nb\n", 2)), visit(notes(b"a\nb\n", 4)))
        assert told(outside) == [("position", "position in /home/notes.txt", "2", "4")]
        (part,) = (delta.part for delta in outside.past())
        assert outside.change({part}, True).files == (notes(b"a\nb\n", 4),)
        assert outside.change({part}, False).files == (notes(b"a\nb\n", 2),)

    def test_any_subset_in_either_direction(self):
        passing, failing = notes(b"a\nb\nc\n", 2, modified_ns=1), notes(b"xx\nb\nd", 3, modified_ns=2)
        outside = compare(visit(passing), visit(failing))
        line, past = [delta.part for delta in (*outside.inputs(), *outside.past())]

        def change(*parts: OutsidePart, forwards: bool = True) -> list[tuple[bytes, int]]:
            return [(file.content, file.position) for file in outside.change(set(parts), forwards).files]

        assert change() == change(forwards=False) == []
        assert change(line) == [(b"a\nb\nd", 2)]
        assert change(past) == [(b"xx\nb\nc\n", 3)]
        assert change(line, past) == [(b"xx\nb\nd", 3)]
        assert change(line, forwards=False) == [(b"xx\nb\nc\n", 3)]
        assert change(line, past, forwards=False) == [(b"a\nb\nc\n", 2)]

    def test_end_is_not_seen_when_more_follows(self):
        outside = compare(visit(notes(b"a\n", 2, is_at_end=True)), visit(notes(b"a\nb\n", 2)))
        (part,) = (delta.part for delta in outside.inputs())
        assert [file.is_at_end for file in outside.change({part}, True).files] == [False]


class TestOthers:
    def test_equal_ones_are_not_told(self):
        same = visit(notes(b"a"), OpenFile(-1, "stdout", "output", b"x"), directory="/", umask=0o22)
        assert told(compare(same, same)) == []
        assert compare(same, same).obstacle is None

    def test_directory_and_umask(self):
        outside = compare(visit(directory="/one", umask=0o22), visit(directory="/other", umask=0o77))
        assert told(outside) == [
            ("directory", "working directory", '"/one"', '"/other"'),
            ("umask", "umask", "0o22", "0o77"),
        ]
        assert outside.change({OutsidePart("directory")}, True).directory == "/other"
        assert outside.change({OutsidePart("directory")}, False).directory == "/one"
        assert outside.change({OutsidePart("directory")}, True).umask is None
        assert outside.change({OutsidePart("umask")}, True).umask == 0o77

    def test_an_unknown_umask_is_no_difference(self):
        assert told(compare(visit(umask=0o22), visit())) == []

    def test_output_and_what_waits_of_it(self):
        passing = visit(OpenFile(-1, "stdout", "output", b"a\n", 2, b"b"))
        failing = visit(OpenFile(-1, "stdout", "output", b"a\nc", 3))
        assert told(compare(passing, failing)) == [("output", "stdout so far", '"a\\nb"', '"a\\nc"')]

    def test_output_that_only_waits_differs(self):
        passing = visit(OpenFile(-1, "stdout", "output", b"", 0, b"ab"))
        failing = visit(OpenFile(-1, "stdout", "output", b"ab", 2))
        assert told(compare(passing, failing)) == [("output", "stdout so far", "0 bytes written", "2 bytes written")]


class TestObstacles:
    def test_pipe(self):
        pipe = OpenFile(4, "pipe", "other")
        assert compare(visit(pipe), visit(pipe)).obstacle == "pipe is open, which no other run can be given"

    def test_file_of_one_run(self):
        assert compare(visit(), visit(notes(b""))).obstacle == "only the failing run has /home/notes.txt open"
        assert compare(visit(notes(b"")), visit()).obstacle == "only the passing run has /home/notes.txt open"
