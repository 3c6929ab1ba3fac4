"""The launching script starts a program just as subprocess does."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pytest_causechain.debugger.launch import quote, write_launch
from pytest_causechain.lab.gdb_lab import GdbLab
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Program

# All it was started with, each item closed by a NUL: arguments, working directory, environment; then its input.
SOURCE = {
    "program.c": r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char directory[4096];
    printf("%d%c", argc, 0);
    for (int i = 0; i < argc; i++)
        printf("%s%c", argv[i], 0);
    printf("%s%c", getcwd(directory, sizeof directory), 0);
    for (char **variable = environ; *variable; variable++)
        printf("%s%c", *variable, 0);
    int c;
    while ((c = getchar()) != EOF)
        putchar(c);
    for (int descriptor = 3; descriptor < 100; descriptor++)
        if (lseek(descriptor, 0, SEEK_CUR) >= 0)
            fprintf(stderr, "descriptor %d is open\n", descriptor);
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    for (int sign = 1; sign < NSIG; sign++) {
        struct sigaction action;
        if (sigaction(sign, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            fprintf(stderr, "signal %d is ignored\n", sign);
        if (sigismember(&blocked, sign) == 1)
            fprintf(stderr, "signal %d is blocked\n", sign);
    }
    return 0;
}
"""
}
AWKWARD = [
    "",
    " ",
    "two words",
    "it's",
    '"quoted"',
    "new\nline",
    "\n",
    "$HOME `id` \\ * ? ~ ! # & ; | < > ( ) { } [ ]",
    "-n",
    "--",
    "NAME=value",
    "grüße",
    os.fsdecode(b"\xff\xfe\x80"),
    "\x01\x7f\t\r",
    "x" * 100_000,
]


@pytest.fixture
def program(build) -> Program:
    return Program(str(build(SOURCE)), "")


def make_command(program: Program, argv: list[str], **more) -> Command:
    return Command(program, tuple(argv), **{"cwd": str(Path(program.path).parent), **more})


def run_script(command: Command, directory: Path) -> tuple[bytes, bytes]:
    launch = write_launch(command, directory, "run")
    launch.prepare()
    process = subprocess.Popen([launch.script])
    assert process.wait() == 0
    assert int(launch.pid.read_text()) == process.pid
    return launch.stdout.read_bytes(), launch.stderr.read_bytes()


def run_natively(command: Command) -> tuple[bytes, bytes]:
    done = subprocess.run(
        command.argv,
        executable=command.program.path,
        cwd=command.cwd,
        env=command.full_environment(),
        input=command.stdin,
        capture_output=True,
        check=True,
    )
    return done.stdout, done.stderr


class TestArguments:
    def test_awkward_ones(self, program, tmp_path):
        command = make_command(program, [program.path, *AWKWARD])
        output = run_script(command, tmp_path)
        assert output == run_natively(command)
        assert output[0].split(b"\0")[2 : 2 + len(AWKWARD)] == [os.fsencode(text) for text in AWKWARD]

    @pytest.mark.parametrize("first", ["./program", "../{}/program", "program", "another name", "a=b", "-x", "\n'"])
    def test_the_name_it_is_called_by(self, program, tmp_path, first):
        first = first.format(Path(program.path).parent.name)
        command = make_command(program, [first, "one", ""])
        output = run_script(command, tmp_path)
        assert output == run_natively(command)
        assert output[0].split(b"\0")[:4] == [b"3", first.encode(), b"one", b""]

    def test_a_path_that_looks_like_a_variable(self, program, tmp_path):
        directory = tmp_path / "mode=fast"
        directory.mkdir()
        copy = directory / "program"
        copy.write_bytes(Path(program.path).read_bytes())
        copy.chmod(0o755)
        command = make_command(Program(str(copy), ""), [str(copy), "argument"])
        assert run_script(command, tmp_path) == run_natively(command)

    def test_a_link(self, program, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(program.path)
        command = make_command(program, [str(link)])
        assert run_script(command, tmp_path)[0].startswith(b"1\0" + os.fsencode(link) + b"\0")

    @pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
    def test_quoting(self, text):
        done = subprocess.run([b"/bin/sh", b"-c", b"printf %s " + quote(text)], capture_output=True, check=True)
        assert done.stdout == os.fsencode(text)


class TestEnvironment:
    def test_changes(self, program, tmp_path, monkeypatch):
        monkeypatch.setenv("CAUSECHAIN_KEPT", "kept")
        monkeypatch.setenv("CAUSECHAIN_REMOVED", "seen")
        monkeypatch.setenv("CAUSECHAIN_CHANGED", "before")
        environment = (
            ("CAUSECHAIN_REMOVED", None),
            ("CAUSECHAIN_CHANGED", "after"),
            ("CAUSECHAIN_NEW", "two\nlines and 'quotes' and $HOME"),
            ("CAUSECHAIN_EMPTY", ""),
            ("CAUSECHAIN_BYTES", os.fsdecode(b"\xff=\xfe")),
            ("not.a-shell%%name", "() { :; }"),
        )
        command = make_command(program, [program.path], environment=environment)
        output = run_script(command, tmp_path)
        assert output == run_natively(command)
        variables = output[0].split(b"\0")
        assert b"CAUSECHAIN_KEPT=kept" in variables
        assert b"CAUSECHAIN_CHANGED=after" in variables
        assert b"CAUSECHAIN_BYTES=\xff=\xfe" in variables
        assert not any(v.startswith(b"CAUSECHAIN_REMOVED") for v in variables)

    @pytest.mark.parametrize("first", ["./program", "program"])
    def test_nothing_is_added(self, program, tmp_path, first, monkeypatch):
        """Shells and gdb like to add SHLVL, PWD, _, LINES and COLUMNS."""
        removed = tuple((name, None) for name in os.environ)
        command = make_command(program, [first], environment=removed)
        expected = b"1\0" + first.encode() + b"\0" + os.fsencode(command.cwd) + b"\0"
        assert run_script(command, tmp_path)[0] == expected
        with GdbLab(command, command, time.monotonic() + 60) as lab:
            assert lab.experiment("passing").stdout == expected

    def test_the_same_under_gdb(self, program):
        environment = (("LINES", "1"), ("SHLVL", "7"), ("_", "x"), ("PYTHONHOME", "/nowhere"), ("SHELL", "/bin/none"))
        command = make_command(program, ["./program", "a\nb"], environment=environment)
        with GdbLab(command, command, time.monotonic() + 60) as lab:
            observation = lab.experiment("passing")
        assert (observation.stdout, observation.stderr) == run_natively(command)


class TestTheRest:
    def test_directory(self, program, tmp_path):
        directory = tmp_path / "a 'strange' directory"
        directory.mkdir()
        command = make_command(program, [program.path], cwd=str(directory))
        output = run_script(command, tmp_path)
        assert output == run_natively(command)
        assert os.fsencode(directory) in output[0].split(b"\0")

    def test_a_directory_that_is_gone(self, program, tmp_path):
        launch = write_launch(make_command(program, ["./program"], cwd=str(tmp_path / "gone")), tmp_path, "run")
        with pytest.raises(Refusal, match=r"gone is gone, in which \./program was started: keep it"):
            launch.prepare()

    @pytest.mark.parametrize("first", ["./program", "program"])
    def test_input(self, program, tmp_path, first):
        stdin = bytes(range(256)) * 1000
        command = make_command(program, [first], stdin=stdin)
        output = run_script(command, tmp_path)
        assert output == run_natively(command)
        assert output[0].endswith(stdin)

    def test_input_is_written_anew_for_each_run(self, program, tmp_path):
        launch = write_launch(make_command(program, ["./program"], stdin=b"all of it"), tmp_path, "run")
        launch.prepare()
        launch.stdin.write_bytes(b"something else")
        launch.prepare()
        assert launch.stdin.read_bytes() == b"all of it"

    def test_two_launches_share_nothing(self, program, tmp_path):
        one, two = (write_launch(make_command(program, ["./program"]), tmp_path, name) for name in ("one", "two"))
        files = {
            file
            for launch in (one, two)
            for file in (launch.script, launch.stdin, launch.stdout, launch.stderr, launch.pid)
        }
        assert len(files) == 10

    def test_without_env(self, program, tmp_path, monkeypatch):
        command = make_command(program, ["./program", "x"])
        expected = run_natively(command)
        monkeypatch.setattr("shutil.which", lambda name: None)
        assert run_script(command, tmp_path) == expected
