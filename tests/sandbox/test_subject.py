"""A program starts under ptrace just as the test started it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_causechain.kernel.processes import read_mappings
from pytest_causechain.model.isolation import NO_BOUNDS, Bounds
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.runs import Command, Program
from pytest_causechain.sandbox import subject
from pytest_causechain.sandbox import subject as subject_module
from pytest_causechain.sandbox.isolation import OUTPUT_BYTES, STACK_BYTES
from pytest_causechain.sandbox.subject import CannotStart, Streams, launch, start
from pytest_causechain.tracee.tracee import End, NotReached

TELLER = r"""
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char line[4096];
    if (argc > 1 && strcmp(argv[1], "environment") == 0)
        for (char **e = environ; *e; e++)
            printf("%s%c", *e, 0);
    else if (argc > 1 && strcmp(argv[1], "descriptors") == 0) {
        for (int i = 0; i < 4096; i++)
            if (lseek(i, 0, SEEK_CUR) != -1 || errno != EBADF)
                printf("%d ", i);
    } else if (argc > 1 && strcmp(argv[1], "stdin") == 0) {
        printf("%ld ", (long)lseek(0, 0, SEEK_CUR));
        printf("%d ", (int)write(0, "x", 1));
        while (fgets(line, sizeof line, stdin))
            printf("%s", line);
    } else if (argc > 1 && strcmp(argv[1], "limits") == 0) {
        int kinds[] = {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_STACK};
        for (int i = 0; i < 3; i++) {
            struct rlimit limit;
            getrlimit(kinds[i], &limit);
            printf("%ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
        }
    } else if (argc > 1 && strcmp(argv[1], "signals") == 0) {
        sigset_t mask;
        struct sigaction action;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        for (int i = 1; i < 32; i++)
            if (sigismember(&mask, i) || (sigaction(i, NULL, &action) == 0 && action.sa_handler != SIG_DFL))
                printf("%d ", i);
    } else {
        printf("%s\n", getcwd(line, sizeof line));
        for (int i = 0; i < argc; i++)
            printf("<%s>", argv[i]);
        fprintf(stderr, "and this");
    }
    return argc;
}
"""


@pytest.fixture(scope="session")
def program(build) -> Program:
    return build(TELLER)


def run(command: Command, deadline: float, bounds: Bounds = NO_BOUNDS) -> tuple[End, bytes, bytes]:
    subject = launch(command, True, deadline, bounds=bounds)
    try:
        return (subject.finish(deadline), *subject.outputs())
    finally:
        subject.kill()


def test_arguments_and_directory(program, tmp_path, deadline):
    place = tmp_path / "näh \udcff"
    place.mkdir()
    command = Command(program, ("another name", "", "a b", "\udcfe"), str(place))
    end, stdout, stderr = run(command, deadline)
    assert end == End("exit", 4)
    assert stdout == os.fsencode(place) + b"\n<another name><><a b><\xfe>"
    assert stderr == b"and this"


def test_environment(program, tmp_path, deadline, monkeypatch):
    monkeypatch.setenv("KEPT", "from here")
    monkeypatch.setenv("GONE", "x")
    command = Command(
        program, (program.path, "environment"), str(tmp_path), (("GONE", None), ("NEW", "é=\udcff\n"), ("EMPTY", ""))
    )
    _, stdout, _ = run(command, deadline)
    seen = set(stdout.split(b"\0"))
    native = subprocess.run(command.argv, env=command.full_environment(), capture_output=True).stdout
    assert seen == set(native.split(b"\0"))
    assert {b"KEPT=from here", b"EMPTY=", "NEW=é=".encode() + b"\xff\n"} <= seen
    assert not any(variable.startswith(b"GONE=") for variable in seen)


@pytest.mark.parametrize("stdin", [b"", b"one\ntwo\n", b"x" * 300_000 + b"\n"])
def test_stdin_is_a_file_of_its_own_read_from_the_beginning(program, tmp_path, deadline, stdin):
    command = Command(program, (program.path, "stdin"), str(tmp_path), (), stdin)
    for _ in range(2):
        assert run(command, deadline)[1] == b"0 -1 " + stdin


def test_nothing_else_is_inherited(program, tmp_path, deadline):
    with (tmp_path / "file").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        _, stdout, _ = run(Command(program, (program.path, "descriptors"), str(tmp_path)), deadline)
    assert stdout == b"0 1 2 "


@pytest.mark.parametrize("bounds", [NO_BOUNDS, Bounds(output=OUTPUT_BYTES + 1, stack=STACK_BYTES + 1)])
def test_limits(program, tmp_path, deadline, bounds):
    _, stdout, _ = run(Command(program, (program.path, "limits"), str(tmp_path)), deadline, bounds)

    def expected(kind: int, value: int) -> str:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        return f"{value} {value}\n"

    assert stdout.decode() == (
        expected(resource.RLIMIT_CORE, 0)
        + expected(resource.RLIMIT_FSIZE, bounds.output or OUTPUT_BYTES)
        + expected(resource.RLIMIT_STACK, bounds.stack or STACK_BYTES)
    )


class TestSignals:
    @pytest.fixture(autouse=True)
    def only_python_ignores_some(self) -> Iterator[None]:
        """nohup ignores some too, and so does a shell for what it starts in the background."""
        ignored = {sign for sign in signal.valid_signals() if signal.getsignal(sign) is signal.SIG_IGN}
        assert {signal.SIGPIPE, signal.SIGXFSZ} <= ignored
        inherited = ignored - {signal.SIGPIPE, signal.SIGXFSZ}
        for sign in inherited:
            signal.signal(sign, signal.SIG_DFL)
        yield
        for sign in inherited:
            signal.signal(sign, signal.SIG_IGN)

    def test_none_is_blocked_or_ignored(self, program, tmp_path, deadline):
        _, stdout, _ = run(Command(program, (program.path, "signals"), str(tmp_path)), deadline)
        assert stdout == b""

    def test_what_all_that_we_start_ignores_is_ignored(self, program, tmp_path, deadline):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            _, stdout, _ = run(Command(program, (program.path, "signals"), str(tmp_path)), deadline)
        finally:
            signal.signal(signal.SIGHUP, before)
        assert stdout == b"%d " % signal.SIGHUP


def test_it_leads_a_process_group(start, program):
    subject = start(program)
    assert os.getpgid(subject.pid) == subject.pid


@pytest.mark.parametrize("flags", [(), ("-no-pie",), ("-static",), ("-static-pie",)])
def test_where_it_is_loaded(start, build, symbol, flags):
    program = build(TELLER, *flags)
    subject = start(program)
    code = Path(program.path).read_bytes()
    address = subject.base + symbol(program, "main")
    assert subject.read(address, 64) in code
    mapping = next(m for m in read_mappings(subject.pid) if m.start <= address < m.end)
    assert (mapping.name, mapping.permissions) == (program.path, "r-xp")


@pytest.mark.parametrize("flags", [(), ("-no-pie",), ("-static",)])
def test_addresses_are_the_same_in_every_run(start, build, flags):
    program = build(TELLER, *flags)
    first, second = (read_mappings(start(program).pid) for _ in range(2))
    assert first == second


class TestCannotStart:
    @pytest.fixture
    def command(self, tmp_path, leaves_nothing):
        def make(content: bytes | None, mode: int = 0o755) -> Command:
            path = tmp_path / "program"
            if content is not None:
                path.write_bytes(content)
                path.chmod(mode)
            return Command(Program(str(path), "none"), (str(path),), str(tmp_path))

        return make

    @pytest.mark.parametrize(
        ("content", "mode"),
        [(None, 0), (b"", 0o755), (b"no program", 0o755), (b"\x7fELF and no more", 0o755), (b"#!/nowhere\n", 0o755)],
    )
    def test_not_a_program(self, command, content, mode, deadline):
        with pytest.raises(CannotStart, match="cannot be started"):
            launch(command(content, mode), True, deadline)

    def test_without_permission(self, command, program, deadline):
        with pytest.raises(CannotStart, match="cannot be started"):
            launch(command(Path(program.path).read_bytes(), 0o644), True, deadline)

    def test_a_script_is_not_mapped(self, command, deadline):
        with pytest.raises(CannotStart, match="is not mapped"):
            launch(command(b"#!/bin/sh\nexit 0\n"), True, deadline)

    def test_without_time(self, program, tmp_path, leaves_nothing, monkeypatch, deadline):
        def miss(*arguments):
            raise NotReached(None)

        monkeypatch.setattr(subject, "prepare", miss)
        with pytest.raises(BudgetUsedUp):
            launch(Command(program, (program.path,), str(tmp_path)), True, deadline)

    def test_its_directory_is_gone(self, program, tmp_path, leaves_nothing, deadline):
        with pytest.raises(Refusal, match="is gone"):
            launch(Command(program, (program.path,), str(tmp_path / "gone")), True, deadline)


class TestKill:
    def test_nothing_is_left(self, program, tmp_path, leaves_nothing, deadline):
        command = Command(program, (program.path,), str(tmp_path))
        for finish in (True, False) * 5:
            subject = launch(command, True, deadline)
            if finish:
                assert subject.finish(deadline).kind == "exit"
            subject.kill()
            subject.kill()

    def test_its_children_end_too(self, build, start, deadline):
        program = build(
            "#include <unistd.h>\n#include <stdio.h>\n"
            "int main(void) { for (int i = 0; i < 3; i++) if (fork() == 0) { pause(); } return 0; }"
        )
        subject = start(program)
        assert subject.finish(deadline) == End("exit", 0)
        os.killpg(subject.pid, 0)
        subject.kill()
        living = [process for process in Path("/proc").glob("[0-9]*/stat") if is_in_group(process, subject.pid)]
        assert living == []


def is_in_group(stat: Path, group: int) -> bool:
    try:
        state, _, of_group = stat.read_text("utf-8", "surrogateescape").rpartition(")")[2].split()[:3]
    except OSError:
        return False
    return int(of_group) == group and state not in "ZX"


def test_an_endless_run_ends_by_time(build, start):
    subject = start(build("int main(void) { for (;;) ; }"))
    end = subject.finish(0.0)
    assert (end.kind, end.code) == ("timeout", signal.SIGKILL)
    assert end.frames


def test_too_much_output_ends_by_a_limit(build, start, deadline):
    source = '#include <stdio.h>\nint main(void) { for (;;) printf("%1000s", "x"); }'
    subject = start(build(source))
    assert subject.finish(deadline) == End("timeout", signal.SIGXFSZ)
    assert os.fstat(subject.streams.stdout).st_size == OUTPUT_BYTES


def test_it_never_runs_without_a_tracer(program, tmp_path, monkeypatch):
    """Of a tracer that is killed before it traces, nothing is left but the end of a pipe."""
    seen: list[int] = []

    def give_up(request: int, pid: int, *more: int) -> None:
        seen.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(subject_module, "ptrace", give_up)
    output = os.memfd_create("output")
    streams = Streams((0, 0), output, output)
    with pytest.raises(KeyboardInterrupt):
        start(
            Command(program, (program.path, "arguments"), str(tmp_path)),
            os.open("/dev/null", 0),
            streams,
            None,
            NO_BOUNDS,
            True,
        )
    (pid,) = seen
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127
    assert os.fstat(output).st_size == 0
