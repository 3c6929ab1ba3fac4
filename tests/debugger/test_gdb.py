"""A living gdb answers, refuses and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from pytest_causechain.debugger.gdb import Gdb, GdbFailure, GdbLost
from pytest_causechain.debugger.program import ask_description
from pytest_causechain.model.refusal import Refusal

SOURCE = {"program.c": "int main(void) { return 0; }\n"}


@pytest.fixture
def program(compiled) -> str:
    return str(compiled(SOURCE))


def find_children() -> set[int]:
    """Of this process, also those that have ended and were not waited for."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == os.getpid():
                    found.add(int(process.name))
    return found


def write_gdb(directory: Path, *lines: str) -> None:
    """A program called gdb, alone on the PATH."""
    script = directory / "gdb"
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)


@pytest.fixture
def only_path(tmp_path, monkeypatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


class TestCommands:
    def test_replies(self, program):
        with Gdb(program) as gdb:
            values = [gdb.command(f"-data-evaluate-expression {n}*{n}")["value"] for n in range(50)]
        assert values == [str(n * n) for n in range(50)]

    def test_a_late_reply_is_not_taken_for_the_next_one(self, program):
        with Gdb(program) as gdb:
            with pytest.raises(GdbFailure, match="no reply to -data-evaluate-expression"):
                gdb.command("-data-evaluate-expression 1+1", timeout_seconds=0)
            assert gdb.command("-data-evaluate-expression 2+2")["value"] == "4"

    def test_error_replies(self, program):
        with Gdb(program) as gdb:
            with pytest.raises(GdbFailure, match='No symbol "nobody" in current context'):
                gdb.command("-data-evaluate-expression nobody")
            with pytest.raises(GdbFailure, match="Undefined MI command"):
                gdb.command("-no-such-command")
            assert gdb.command("-data-evaluate-expression 1")["value"] == "1"

    def test_failing_requests(self, program):
        with Gdb(program) as gdb:
            with pytest.raises(GdbFailure, match="KeyError: 'names'"):
                gdb.ask({"job": "describe", "foreign": []})
            assert ask_description(gdb)["functions"][0][0] == "main"

    def test_gdb_dies(self, program):
        with Gdb(program) as gdb:
            gdb._process.kill()
            with pytest.raises(GdbFailure, match="gdb has ended"):
                gdb.command("-data-evaluate-expression 1")
            with pytest.raises(GdbFailure, match="gdb has ended"):
                gdb.command("-data-evaluate-expression 1")

    def test_a_program_in_an_odd_place(self, program, tmp_path, monkeypatch):
        """Whatever the locale: gdb's own takes part in reading names."""
        monkeypatch.setenv("LC_ALL", "C")
        place = tmp_path / "grüße 'n' \"so\""
        place.mkdir()
        copy = place / "pro gram"
        copy.write_bytes(Path(program).read_bytes())
        copy.chmod(0o755)
        with Gdb(str(copy)) as gdb:
            assert [row[0] for row in ask_description(gdb)["functions"]] == ["main"]


class TestRefusals:
    def test_no_gdb(self, program, only_path, side_files):
        with pytest.raises(Refusal, match="gdb was not found: install gdb 12 or newer"):
            Gdb(program)
        assert list(side_files.iterdir()) == []

    @pytest.mark.parametrize(
        "version", ["GNU gdb (GDB) 9.2", "GNU gdb 9.2", "GNU gdb (Ubuntu 9.2-0ubuntu1~20.04.1) 9.2"]
    )
    def test_too_old(self, program, only_path, version):
        write_gdb(only_path, f"echo '{version}'", "echo 'Copyright 2020'")
        with pytest.raises(Refusal) as raised:
            Gdb(program)
        assert str(raised.value).startswith(f"{version} is too old: install gdb 12 or newer")

    @pytest.mark.parametrize(
        "version", ["GNU gdb (GDB) 12.1", "GNU gdb (Debian 13.1-3) 13.1", "GNU gdb (GDB) Fedora Linux 15.2-3.fc41"]
    )
    def test_new_enough(self, program, only_path, version):
        """Something else is wrong with it."""
        write_gdb(only_path, f"[ $2 = --version ] && echo '{version}'")
        with pytest.raises(GdbLost, match="gdb has ended"):
            Gdb(program)

    def test_no_version(self, program, only_path):
        write_gdb(only_path, "exit 1")
        with pytest.raises(Refusal, match="bin/gdb does not tell its version: install gdb 12"):
            Gdb(program)

    def test_not_executable_here(self, program, only_path):
        (only_path / "gdb").write_bytes(b"\x7fELF but not really")
        (only_path / "gdb").chmod(0o755)
        with pytest.raises(Refusal, match=r"gdb does not start .*: install gdb 12"):
            Gdb(program)

    def test_it_dies_at_the_start(self, program, only_path, side_files):
        write_gdb(only_path, "[ $2 = --version ] && echo 'GNU gdb (GDB) 13.1' || exit 3")
        before = find_children()
        with pytest.raises(GdbLost, match="gdb has ended with status 3"):
            Gdb(program)
        assert list(side_files.iterdir()) == []
        assert find_children() == before

    def test_it_hangs(self, program, only_path, side_files, monkeypatch):
        """At the start, and when it is asked to end."""
        write_gdb(only_path, "[ $2 = --version ] && echo 'GNU gdb (GDB) 13.1' && exit", "while read line; do :; done")
        ask = Gdb.command
        monkeypatch.setattr(Gdb, "command", lambda gdb, line, seconds: ask(gdb, line, 0))
        monkeypatch.setattr("pytest_causechain.debugger.gdb.END_SECONDS", 0)
        before = find_children()
        with pytest.raises(Refusal, match=r"gdb cannot be used \(no reply to -causechain-sync\): install gdb 12"):
            Gdb(program)
        assert list(side_files.iterdir()) == []
        assert find_children() == before

    def test_without_python(self, program, only_path, side_files):
        write_gdb(
            only_path,
            "[ $2 = --version ] && echo 'GNU gdb (GDB) 13.1' && exit",
            "read line",
            """echo "${line%%-*}^error,msg=\\"Undefined MI command: causechain-sync\\"" """,
            "read line",
        )
        with pytest.raises(Refusal, match=r"Undefined MI command: causechain-sync.*with Python support"):
            Gdb(program)
        assert list(side_files.iterdir()) == []


class TestLeavingNothing:
    def test_closing(self, program, side_files):
        before = find_children()
        with Gdb(program) as gdb:
            assert len(find_children() - before) == 1
            assert list(side_files.iterdir()) == [gdb.directory]
        assert find_children() == before
        assert list(side_files.iterdir()) == []

    def test_closing_twice(self, program):
        gdb = Gdb(program)
        gdb.close()
        gdb.close()

    def test_closing_when_gdb_has_died(self, program, side_files):
        before = find_children()
        with Gdb(program) as gdb:
            gdb._process.kill()
        assert find_children() == before
        assert list(side_files.iterdir()) == []
