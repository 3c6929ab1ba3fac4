"""The open files of a stopped run as its program sees them, and others in their places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_causechain.model.moment import Stop
from pytest_causechain.sandbox.files import STDERR, STDOUT, read_files, replace_file
from pytest_causechain.tracee.tracee import inject

# What the first argument names is done before here(); then all that is left is read, and told with the position.
PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void here(void) {}

int main(int argc, char **argv)
{
    char text[100] = "", line[100], directory[1000];
    const char *how = argc > 1 ? argv[1] : "";
    FILE *file = NULL;
    int number = -1, c;
    if (!strcmp(how, "stream") || !strcmp(how, "pushed") || !strcmp(how, "end")) {
        file = fopen("input", "r");
        if (!strcmp(how, "end"))
            while (fgetc(file) != EOF)
                ;
        else
            fgets(line, sizeof line, file);
        if (!strcmp(how, "pushed"))
            ungetc('#', file);
    } else if (!strcmp(how, "plain") || !strcmp(how, "twice")) {
        number = open("input", O_RDONLY);
        read(number, line, 3);
        if (!strcmp(how, "twice"))
            dup(number);
    } else if (!strcmp(how, "scratch")) {
        file = tmpfile();
        fputs("first\nsecond\n", file);
        fseek(file, 6, SEEK_SET);
    } else if (!strcmp(how, "written")) {
        number = open("written", O_RDWR | O_CREAT, 0600);
    } else if (!strcmp(how, "piped")) {
        int ends[2];
        pipe(ends);
    } else if (!strcmp(how, "printed")) {
        printf("one ");
        fflush(stdout);
        printf("two ");
        fputs("error ", stderr);
    } else if (!strcmp(how, "closed")) {
        printf("one ");
        fclose(stdout);
    } else if (!strcmp(how, "unbuffered")) {
        setvbuf(stdout, NULL, _IONBF, 0);
    }
    here();
    if (!strcmp(how, "directory"))
        printf("%s", getcwd(directory, sizeof directory));
    if (file && feof(file))
        printf("end;");
    while (file && (c = fgetc(file)) != EOF)
        text[strlen(text)] = c;
    if (number >= 0)
        read(number + !strcmp(how, "twice"), text, sizeof text - 1);
    printf("%s|%ld", text, file ? ftell(file) : number >= 0 ? (long)lseek(number, 0, SEEK_CUR) : 0);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(build):
    return build(PROGRAM)


@pytest.fixture
def stopped(start, program, symbol, deadline, tmp_path):
    (tmp_path / "input").write_text("one\ntwo\nthree\n")

    def make(how: str):
        subject = start(program, how, cwd=str(tmp_path))
        subject.run_to([Stop(symbol(program, "here"), 1)], deadline)
        return subject

    return make


def finish(subject, deadline) -> bytes:
    end = subject.finish(deadline)
    assert (end.kind, end.code) == ("exit", 0)
    return subject.outputs()[0]


def find(subject, number: int):
    return next(file for file in read_files(subject) if file.number == number)


class TestInputs:
    @pytest.mark.parametrize(
        ("how", "content", "position", "is_at_end"),
        [
            ("stream", b"one\ntwo\nthree\n", 4, False),
            ("pushed", b"one#two\nthree\n", 3, False),
            ("end", b"one\ntwo\nthree\n", 14, True),
            ("plain", b"one\ntwo\nthree\n", 3, False),
        ],
    )
    def test_read_so_far(self, stopped, tmp_path, how, content, position, is_at_end):
        file = find(stopped(how), 3)
        assert (file.name, file.role) == (str(tmp_path / "input"), "input")
        assert (file.content, file.position, file.is_at_end) == (content, position, is_at_end)
        assert file.modified_ns == (tmp_path / "input").stat().st_mtime_ns

    @pytest.mark.parametrize("how", ["stream", "pushed", "end", "plain", "twice"])
    def test_another_in_its_place(self, stopped, tmp_path, deadline, how):
        subject = stopped(how)
        replace_file(subject, replace(find(subject, 3), content=b"0123456789 and on", position=11, is_at_end=False))
        assert finish(subject, deadline) == b"and on|17"
        assert (tmp_path / "input").read_text() == "one\ntwo\nthree\n"

    def test_seen_end_is_part_of_it(self, stopped, deadline):
        subject = stopped("stream")
        replace_file(subject, replace(find(subject, 3), position=14, is_at_end=True))
        assert finish(subject, deadline) == b"end;|14"

    def test_as_it_was_found_it_makes_no_difference(self, stopped, deadline):
        subject = stopped("stream")
        replace_file(subject, find(subject, 3))
        assert finish(subject, deadline) == b"two\nthree\n|14"

    def test_kept_read_only_and_dated(self, stopped):
        subject = stopped("stream")
        replace_file(subject, replace(find(subject, 3), content=b"x", position=0, modified_ns=5_000_000_000))
        again = find(subject, 3)
        assert (again.role, again.content, again.modified_ns) == ("input", b"x", 5_000_000_000)


class TestScratchFiles:
    def test_seen_and_replaced(self, stopped, deadline):
        subject = stopped("scratch")
        file = find(subject, 3)
        assert (file.role, file.content, file.position) == ("scratch", b"first\nsecond\n", 6)
        replace_file(subject, replace(file, content=b"other text", position=6))
        assert finish(subject, deadline) == b"text|10"


class TestOthers:
    @pytest.mark.parametrize(("how", "name"), [("written", "written"), ("piped", "pipe")])
    def test_are_named_and_left_alone(self, stopped, tmp_path, deadline, how, name):
        subject = stopped(how)
        file = find(subject, 3)
        assert (file.role, Path(file.name).name) == ("other", name)
        replace_file(subject, replace(file, role="input", content=b"x"))
        assert finish(subject, deadline) == b"|0"
        assert not (tmp_path / "written").exists() or (tmp_path / "written").read_bytes() == b""


class TestOutputs:
    def test_written_and_waiting(self, stopped):
        subject = stopped("printed")
        out, error = find(subject, STDOUT), find(subject, STDERR)
        assert (out.name, out.content, out.position, out.pending) == ("stdout", b"one ", 4, b"two ")
        assert (error.name, error.content, error.pending) == ("stderr", b"error ", b"")

    @pytest.mark.parametrize("how", ["", "printed", "unbuffered"])
    def test_other_output(self, stopped, deadline, how):
        subject = stopped(how)
        other = replace(find(subject, STDOUT), content=b"long ago ", position=9, pending=b"x" * 5000, buffer_size=4096)
        replace_file(subject, other)
        assert subject.outputs()[0] == b"long ago "
        assert finish(subject, deadline) == b"long ago " + b"x" * 5000 + b"|0"

    def test_less_output(self, stopped, deadline):
        subject = stopped("printed")
        replace_file(subject, replace(find(subject, STDOUT), content=b"", position=0, pending=b""))
        assert finish(subject, deadline) == b"|0"

    def test_counts_when_it_is_closed(self, stopped, deadline):
        subject = stopped("closed")
        out = find(subject, STDOUT)
        assert (out.content, out.pending) == (b"one ", b"")
        replace_file(subject, replace(out, content=b"two "))
        assert finish(subject, deadline) == b"two "


def test_another_directory(stopped, tmp_path, deadline):
    (tmp_path / "inner").mkdir()
    subject = stopped("directory")
    inject(subject, "chdir", str(tmp_path / "inner"))
    assert finish(subject, deadline) == f"{tmp_path}/inner|0".encode()
