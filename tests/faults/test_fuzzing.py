"""Whatever a program, gdb or a disk may say: it is understood, or refused, but never the end of us.

FUZZ is the number of examples of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_causechain.debugger.debugger import DescriptionStore
from pytest_causechain.debugger.gdb import Gdb, GdbFailure, parse_reply
from pytest_causechain.kernel.elf import find_objects, find_symbols, find_thread_symbols
from pytest_causechain.lab.laboratory import Trace
from pytest_causechain.lab.local_lab import is_optimised
from pytest_causechain.model.load_map import LoadMap, Module
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Program, Recording, Run
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.recording.store import RecordingStore
from pytest_causechain.tracee.tracer import RECORD

fuzz = settings.get_profile("fuzz")
# Places in a file and what stands there afterwards; the first bytes matter most.
damages = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 200), st.integers(0, 1 << 14), st.integers(-2500, -1)),
        st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
)


def damage(content: bytes, changes: list[tuple[int, bytes]]) -> bytes:
    damaged = bytearray(content)
    for at, data in changes:
        place = at % max(len(damaged), 1)
        damaged[place : place + len(data)] = data
    return bytes(damaged)


@pytest.fixture(scope="module")
def program(compiled):
    return compiled("int main(void) { return 0; }\n")


@fuzz
@example([(39, b"\x80")], 0)  # places of tables beyond all files
@example([(47, b"\x80")], 0)
@given(damages, st.integers(0, 1 << 14))
# Sections beyond all that an offset can be.
@example([(40, b"\0\0\0\0\0\0\0\x80")], 0)
def test_programs(program, tmp_path, changes, size):
    content = program.read_bytes()
    path = tmp_path / "damaged"
    path.write_bytes(damage(content, changes)[: size if size % 2 else None])
    path.chmod(0o755)
    os.utime(path, ns=(size, hash(tuple(changes)) & 0xFFFFFFFFFF))
    try:
        identify_program(str(path))
    except Refusal as refusal:
        assert str(refusal).endswith(".")
        return
    find_symbols.cache_clear()
    try:
        find_symbols(str(path), ("main", "malloc"))
        find_objects(str(path))
        find_thread_symbols(str(path))
        is_optimised(path)
    except Refusal:
        pass


@fuzz
@given(st.lists(st.binary(min_size=RECORD.size, max_size=RECORD.size), max_size=20), st.integers(0, 3))
def test_traces(records, known):
    load_map = LoadMap((Module(0x555555554000, 0x555555554000, 0x555555558000),))
    trace = Trace(tuple(range(known)), (b"".join(records),), load_map, True)
    assert all(event.address in range(known) for event in trace.events)
    assert len(trace.events) <= len(records)


def make_gdb(tmp_path: Path, replies: list[bytes], answer: bytes) -> Gdb:
    """One whose gdb says this, and writes that to the file it was asked for."""
    gdb = Gdb.__new__(Gdb)
    gdb.directory = tmp_path
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    gdb._process, gdb._begun = process, b""
    process.stdin.write(b"\n".join(replies) + b"\n")
    gdb._tokens = iter(range(1, 100))
    (tmp_path / "prepared").write_bytes(answer)

    def send_and_answer(line: str) -> None:
        if "-causechain " in line:
            shutil.copy(tmp_path / "prepared", tmp_path / "reply.json")
        else:
            process.stdin.write(line.partition("-")[0].encode() + b"^done\n")

    gdb._send = send_and_answer
    return gdb


lines = st.one_of(
    st.binary(max_size=60).map(lambda text: text.replace(b"\n", b" ")),
    st.sampled_from([b"(gdb)", b"^done,", b'2^done,a="', b"*stopped,reason={", b'~"\\303', b"2^error", b"^done,a"]),
    st.text('[]{}",=ab\\', max_size=20).map(lambda text: b"2^done,a=" + text.encode()),
)
answers = st.one_of(st.binary(max_size=30), st.sampled_from([b"[]", b"{}", b"null", b'{"a"']))


@fuzz
@given(st.lists(lines, max_size=5), answers)
def test_gdb(tmp_path, replies, answer):
    gdb = make_gdb(tmp_path, replies, answer)
    try:
        told = gdb.ask({"job": "look"}, 0.3)
        assert told == json.loads(answer) and isinstance(told, dict)
    except GdbFailure:
        pass
    finally:
        gdb._process.kill()
        gdb._process.wait()
        for stream in (gdb._process.stdin, gdb._process.stdout):
            stream.close()


@fuzz
@given(st.text('[]{}",=ab\\', max_size=40))
def test_replies(text):
    """pygdbmi would go on reading for ever."""
    try:
        assert parse_reply(f"1^done,a={text}")["message"] == "done"
    except GdbFailure as failure:
        assert "cannot be understood" in str(failure)


RECORDING = Recording(
    "test_x.py::test_x",
    "passed",
    (Run(Command(Program("/bin/x", "abc"), ("x", "1"), "/tmp"), 0),),
)


@fuzz
@given(damages, st.booleans())
def test_stored_recordings(tmp_path, changes, is_cut):
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    store = RecordingStore(tmp_path / "cache")
    store.save([RECORDING])
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            content = damage(path.read_bytes(), changes)
            path.write_bytes(content[: len(content) // 2] if is_cut else content)
    for recording in store.load("abc"):
        assert isinstance(recording, Recording)
    store.save([RECORDING])
    assert [recording.test for recording in store.load("abc")][-1:] == [RECORDING.test]


@fuzz
@given(damages)
def test_stored_descriptions(tmp_path, program, changes):
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    store = DescriptionStore(tmp_path / "cache", [str(program)], shutil.which("cc"))
    store.save({"layouts": []})
    (path,) = (tmp_path / "cache").rglob("*.bin")
    before = path.read_bytes()
    path.write_bytes(damage(before, changes))
    assert store.load() == ({"layouts": []} if path.read_bytes() == before else None)
