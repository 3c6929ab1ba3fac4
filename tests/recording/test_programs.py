from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.recording import programs
from pytest_causechain.recording.programs import identify_program


def refusal_of(path: Path) -> str:
    with pytest.raises(Refusal) as raised:
        identify_program(str(path))
    return str(raised.value)


class TestIdentity:
    def test_build_id_is_the_linkers(self, build):
        program = build("named", "-Wl,--build-id=0x0123456789abcdef")
        assert identify_program(str(program)).build_id == "0123456789abcdef"

    def test_build_id_agrees_with_readelf(self, program):
        notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
        assert f"Build ID: {identify_program(str(program)).build_id}\n" in notes

    def test_without_build_id_the_contents_count(self, build, tmp_path):
        program = build("nameless", "-Wl,--build-id=none")
        identity = identify_program(str(program))
        assert len(identity.build_id) == 40
        copy = shutil.copy(program, tmp_path / "copy")
        assert identify_program(str(copy)).build_id == identity.build_id
        with copy.open("ab") as file:
            file.write(b"x")
        assert identify_program(str(copy)).build_id != identity.build_id

    @pytest.mark.parametrize("flag", ["-no-pie", "-static", "-gz", "-O2"])
    def test_kinds_of_programs(self, build, flag):
        assert identify_program(str(build("kind", flag))).build_id

    def test_symbolic_links_are_resolved(self, program, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(program)
        assert identify_program(str(link)) == identify_program(str(program))
        assert identify_program(str(link)).path == str(program.resolve())

    def test_an_unchanged_file_is_examined_once(self, program, tmp_path, monkeypatch):
        copy = shutil.copy2(program, tmp_path / "copy")
        first = identify_program(str(copy))
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
        sentence = refusal_of(script)
        monkeypatch.setattr(programs, "_examine", lambda path: pytest.fail("examined again"))
        assert identify_program(str(copy)) is first
        assert refusal_of(script) == sentence

    def test_a_rebuilt_file_is_examined_again(self, program, tmp_path, build):
        copy = shutil.copy(program, tmp_path / "copy")
        first = identify_program(str(copy))
        shutil.copy(build("other", "-O1"), copy)
        assert identify_program(str(copy)).build_id != first.build_id


class TestRefusals:
    def test_absent(self, tmp_path):
        path = tmp_path / "absent"
        assert refusal_of(path) == f"{path} does not exist: build it before the tests run."

    def test_not_executable(self, tmp_path):
        path = tmp_path / "data"
        path.write_text("x")
        assert refusal_of(path) == "data is not executable: make it so with chmod +x."

    def test_directory(self, tmp_path):
        assert refusal_of(tmp_path).endswith(" is a directory: start the compiled program in it.")

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b"#! /bin/sh -e\n", "is a script run by /bin/sh -e: start the compiled program itself from the test."),
            (b"#!", "is a script run by a shell: start the compiled program itself from the test."),
            (b"MZ", "is not an ELF program: start a program compiled for Linux from the test."),
            (b"", "is an empty file: build it again."),
            (b"\x7fELF\1\1\1", "is a 32-bit program: build it for 64 bits (without -m32)."),
            (b"\x7fELF\2\2\1", "is a program for another processor: build it for this machine."),
            (b"\x7fELF\2\1\1", "is a damaged ELF file: build it again."),
        ],
    )
    def test_other_files(self, tmp_path, content, sentence):
        path = tmp_path / "test.sh"
        path.write_bytes(content)
        path.chmod(0o755)
        assert refusal_of(path) == f"test.sh {sentence}"

    def test_no_debug_information(self, build):
        assert refusal_of(build("plain", "-g0")) == (
            "plain has no debug information: build it with -g (and -O0 for exact variables)."
        )

    def test_stripped(self, build):
        assert refusal_of(build("bare", "-s")) == (
            "bare is stripped: build it with -g, link without -s and do not strip it."
        )

    def test_no_section_headers(self, build):
        program = build("headless")
        content = bytearray(program.read_bytes())
        struct.pack_into("<Q", content, 40, 0)
        program.write_bytes(content)
        assert refusal_of(program).startswith("headless is stripped:")

    def test_object_file(self, build):
        program = build("part.o", "-c")
        program.chmod(0o755)
        assert refusal_of(program) == "part.o is an ELF file but not a linked program: link it before the tests run."

    @pytest.mark.parametrize("place", [".", ".debug"])
    def test_debug_information_in_a_separate_file(self, build, place):
        program = build("split")
        (program.parent / place).mkdir(exist_ok=True)
        separate = program.parent / place / "split.debug"
        subprocess.run(["objcopy", "--only-keep-debug", program, separate], check=True)
        subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={separate}", program], check=True)
        assert refusal_of(program) == (
            "split has its debug information in a separate file (split.debug): "
            "test the program as it was before that was split off."
        )
        separate.unlink()
        os.utime(program)
        assert refusal_of(program).startswith("split is stripped:")

    @pytest.mark.parametrize("size", [20, 64, 1000, 10_000])
    def test_truncated(self, program, tmp_path, size):
        path = tmp_path / "cut"
        path.write_bytes(program.read_bytes()[:size])
        path.chmod(0o755)
        assert refusal_of(path) == "cut is a damaged ELF file: build it again."
