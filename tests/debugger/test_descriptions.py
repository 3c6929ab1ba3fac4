"""What gdb told of a program is known again in the next session, or else asked for again: never an error."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from pytest_causechain.debugger import debugger as descriptions
from pytest_causechain.debugger.debugger import Debugger, DescriptionStore
from pytest_causechain.lab.laboratory import Open
from pytest_causechain.lab.local_lab import LocalLab
from pytest_causechain.lab.remote_lab import RemoteLab
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Command, Program

SOURCE = """
struct point { int x, y; };
struct line { struct point from, to; };
static int calls;

static int measure(int number)
{
    struct line line = {{0, 0}, {number, number}};
    calls++;
    return line.to.x - line.from.x;
}

static int descend(int depth)
{
    struct point here = {depth, depth};
    if (depth == 0)
        return 0;
    return here.x + descend(depth - 1);
}

int main(int argc, char **argv)
{
    struct point point = {argc, 0};
    return measure(point.x) + descend(3) - 7;
}
"""
PLENTY_SECONDS = 300.0


@pytest.fixture
def program(compiled) -> str:
    return str(compiled({"main.c": SOURCE}))


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The programs that gdb has been asked to describe."""
    programs: list[str] = []

    describe = Debugger._describe

    def count(debugger, libraries):
        programs.append(debugger._path)
        return describe(debugger, libraries)

    monkeypatch.setattr(Debugger, "_describe", count)
    return programs


def files(cache: Path) -> list[Path]:
    return sorted((cache / "programs").glob("*"))


def describe(path: str, cache: Path | None):
    with Debugger(path, (), cache) as debugger:
        return debugger.program


def open_lab(path: str, cache: Path | None) -> LocalLab:
    command = Command(Program(path, ""), (path,), "/")
    return LocalLab(Open(command, command, deadline=time.monotonic() + PLENTY_SECONDS, cache=cache))


def body(lab, name: str, visit: int = 1) -> tuple[Stop]:
    return (Stop(next(f.body for f in lab.program.functions if f.name == name), visit),)


def tell(visit) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Frames with the variables' names, types and places."""
    return [
        (frame.function, [(v.name, visit.types[v.type].name, v.address) for v in frame.variables])
        for frame in visit.frames
    ]


class TestSecondOpening:
    def test_gdb_is_not_even_started(self, program, cache, asked):
        first = describe(program, cache)
        with Debugger(program, (), cache) as debugger:
            assert debugger.program == first
            assert debugger._gdb is None
        assert asked == [program]

    def test_without_a_cache_it_is_asked_each_time(self, program, asked):
        assert describe(program, None) == describe(program, None)
        assert len(asked) == 2

    def test_visits_of_known_functions_need_no_gdb(self, program, cache):
        with open_lab(program, cache) as lab:
            expected = [tell(lab.visit("passing", body(lab, name))) for name in ("measure", "main")]
        with open_lab(program, cache) as lab:
            assert [tell(lab.visit("passing", body(lab, name))) for name in ("measure", "main")] == expected
            assert lab._debugger._gdb is None

    def test_types_learned_later_keep_their_numbers(self, program, cache):
        """The second gdb knows none of the types that the first one numbered."""
        with open_lab(program, None) as lab:
            expected = [tell(lab.visit("passing", body(lab, name))) for name in ("main", "measure")]
        with open_lab(program, cache) as lab:
            lab.visit("passing", body(lab, "main"))
            before = list(lab.program.types)
            assert "struct point" in {row.name for row in before}
            assert "struct line" not in {row.name for row in before}
        with open_lab(program, cache) as lab:
            seen = [tell(lab.visit("passing", body(lab, name))) for name in ("main", "measure")]
            assert lab._debugger._gdb is not None
            assert seen == expected
            assert lab.program.types[: len(before)] == before
            assert [row.name for row in lab.program.types[len(before) :]] == ["struct line"]

    def test_a_function_that_calls_itself_is_known_too(self, program, cache):
        with open_lab(program, cache) as lab:
            expected = tell(lab.visit("passing", body(lab, "descend", 3)))
            assert [function for function, _ in expected] == ["descend", "descend", "descend", "main"]
        with open_lab(program, cache) as lab:
            assert tell(lab.visit("passing", body(lab, "descend", 3))) == expected
            assert lab._debugger._gdb is None

    def test_in_an_engine(self, program, cache):
        command = Command(Program(program, ""), (program,), "/")
        programs = []
        for kind in ("fork", "rerun", "fork"):
            with RemoteLab(Open(command, command, kind=kind, cache=cache), Budget(PLENTY_SECONDS)) as lab:
                visit = lab.visit("passing", body(lab, "measure"))
                assert [name for name, _ in tell(visit)] == ["measure", "main"]
                programs.append(lab.program)
        assert programs[0].functions == programs[1].functions == programs[2].functions
        assert len(files(cache)) == 1


class TestWhatIsTaken:
    def test_another_build_is_another_program(self, program, compiled, cache, asked, tmp_path):
        other = str(compiled({"main.c": SOURCE.replace("measure", "reckon")}))
        moving = tmp_path / "program"
        names = []
        for source in (program, other):
            shutil.copy(source, moving)
            names.append({f.name for f in describe(str(moving), cache).functions})
        assert names[0] ^ names[1] == {"measure", "reckon"}
        assert len(asked) == len(files(cache)) == 2

    def test_one_build_in_two_places_is_one_program(self, program, cache, asked, tmp_path):
        copy = shutil.copy(program, tmp_path / "copy")
        describe(program, cache)
        assert describe(str(copy), cache).path == str(copy)
        assert asked == [program]

    def test_a_program_without_build_id_is_not_kept(self, compiled, cache, asked):
        path = str(compiled({"main.c": SOURCE}, "-Wl,--build-id=none"))
        describe(path, cache)
        describe(path, cache)
        assert len(asked) == 2
        assert files(cache) == []

    def test_other_libraries_other_gdb_other_directory(self, program, cache, tmp_path, monkeypatch):
        other_gdb = tmp_path / "gdb"
        other_gdb.write_text("")
        gdb = str(shutil.which("gdb"))
        stores = [
            DescriptionStore(cache, [program], gdb),
            DescriptionStore(cache, [program, program], gdb),
            DescriptionStore(cache, [program], str(other_gdb)),
        ]
        monkeypatch.chdir(tmp_path)
        stores.append(DescriptionStore(cache, [program], gdb))
        stores[0].save({"types": []})
        assert [store.load() for store in stores] == [{"types": []}, None, None, None]

    def test_a_library_is_a_part_of_it(self, compiled, cache, asked):
        library = str(
            compiled({"part.c": "static int kept; int part(int a) { kept = a; return a; }"}, "-shared", "-fPIC")
        )
        main = "int part(int); int main(int argc, char **argv) { return part(argc); }"
        program = str(compiled({"main.c": main}, "-Wl,--no-as-needed", library))
        expected = []
        for _ in range(2):
            with Debugger(program, [library], cache) as debugger:
                expected.append(debugger.program)
        assert expected[0] == expected[1]
        assert {row.name for row in expected[1].globals} == {"kept"}
        assert asked == [program]
        assert {f.name for f in describe(program, cache).functions} == {"main"}


class TestTrouble:
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda content: b"", id="empty"),
            pytest.param(lambda content: content[:-100], id="cut"),
            pytest.param(lambda content: content[:200] + b"\0" + content[201:], id="changed"),
            pytest.param(lambda content: b"[]", id="something else"),
        ],
    )
    def test_a_damaged_file_is_written_anew(self, program, cache, asked, damage):
        expected = describe(program, cache)
        (file,) = files(cache)
        file.write_bytes(damage(file.read_bytes()))
        assert describe(program, cache) == expected
        assert describe(program, cache) == expected
        assert len(asked) == 2

    def test_a_directory_that_cannot_be_written(self, program, tmp_path, asked):
        """Root may write everywhere, but not below a file."""
        place = tmp_path / "file"
        place.write_text("")
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        expected = describe(program, None)
        for cache in (place, closed):
            with open_lab(program, cache) as lab:
                assert lab.visit("passing", body(lab, "main")) is not None
                assert lab.program.functions == expected.functions

    def test_a_read_only_cache_is_read(self, program, cache, asked):
        describe(program, cache)
        (file,) = files(cache)
        file.chmod(0o400)
        file.parent.chmod(0o500)
        try:
            describe(program, cache)
        finally:
            file.parent.chmod(0o700)
        assert len(asked) == 1

    def test_a_full_disk(self, program, cache, monkeypatch, asked):
        def fail(path, target):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", fail)
        describe(program, cache)
        assert files(cache) == []


class TestBounds:
    @pytest.fixture
    def stores(self, cache, program, tmp_path) -> list[DescriptionStore]:
        gdb = str(shutil.which("gdb"))
        return [DescriptionStore(cache, [program] * count, gdb) for count in range(1, 6)]

    def fill(self, stores: list[DescriptionStore], text: str = "") -> None:
        for number, store in enumerate(stores):
            store.save({"number": number, "text": text})
            os.utime(store._path, (number, number))

    def test_the_oldest_go_first(self, stores, monkeypatch):
        monkeypatch.setattr(descriptions, "MOST_FILES", 3)
        self.fill(stores[:-1])
        assert stores[1].load() == {"number": 1, "text": ""}  # and is the newest now
        stores[-1].save({"number": 4})
        assert [store.load() is not None for store in stores] == [False, True, False, True, True]

    def test_all_together(self, stores, monkeypatch):
        monkeypatch.setattr(descriptions, "MOST_BYTES", 500)
        noise = os.urandom(75).hex()
        self.fill(stores, noise)
        kept = [store.load() is not None for store in stores]
        assert kept[-1] and not all(kept)

    def test_one_that_is_too_large(self, stores, cache, monkeypatch):
        monkeypatch.setattr(descriptions, "MOST_BYTES", 100)
        stores[0].save({"text": os.urandom(200).hex()})
        assert files(cache) == []


class TestTwoAtOnce:
    def test_the_last_one_wins_and_is_whole(self, program, cache):
        """Each learns a type of its own, which both give the same number."""
        with open_lab(program, None) as lab:
            expected = {name: tell(lab.visit("passing", body(lab, name))) for name in ("measure", "descend")}
        with open_lab(program, cache) as one, open_lab(program, cache) as two:
            one.visit("passing", body(one, "measure"))
            two.visit("passing", body(two, "descend"))
        with open_lab(program, cache) as lab:
            assert {name: tell(lab.visit("passing", body(lab, name))) for name in expected} == expected

    def test_engines(self, program, cache):
        command = Command(Program(program, ""), (program,), "/")
        seen: list[object] = []

        def use(name: str) -> None:
            with RemoteLab(Open(command, command, kind="fork", cache=cache), Budget(PLENTY_SECONDS)) as lab:
                seen.append(tell(lab.visit("passing", body(lab, name))))

        threads = [threading.Thread(target=use, args=(name,)) for name in ("measure", "descend") * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 4
        assert [file.suffix for file in files(cache)] == [".bin"]
