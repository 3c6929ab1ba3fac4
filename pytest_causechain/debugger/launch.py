"""Writes the script by which gdb starts the program just as the test did.

gdb starts programs through $SHELL -c "exec PROGRAM ..."; a script in the place of the shell can set what gdb's
own `run` cannot: argv[0], working directory, exact environment and descriptors.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.runs import Command

# Becomes the program, as env(1) does; but argv[0] need not be the program's path. Python itself ignores two signals.
STARTER = """
import os, signal, sys
program, count, *rest = sys.argv[1:]
for ignored in signal.SIGPIPE, signal.SIGXFSZ:
    signal.signal(ignored, signal.SIG_DFL)
environment = dict(variable.split("=", 1) for variable in rest[int(count):])
os.execve(program, rest[:int(count)], environment)
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """The files of one way to start the program. `stdin` is rewritten before each run."""

    script: Path
    stdin: Path
    stdout: Path
    stderr: Path
    pid: Path
    command: Command

    def prepare(self) -> None:
        self.stdin.write_bytes(self.command.stdin)
        self.command.require_directory()


def write_launch(command: Command, directory: Path, name: str) -> Launch:
    launch = Launch(
        script=directory / f"{name}.sh",
        stdin=directory / f"{name}.stdin",
        stdout=directory / f"{name}.stdout",
        stderr=directory / f"{name}.stderr",
        pid=directory / f"{name}.pid",
        command=command,
    )
    streams = (launch.stdin, launch.stdout, launch.stderr)
    lines = [
        b"#!/bin/sh",
        b"echo $$ > " + quote(str(launch.pid)),
        b"cd " + quote(command.cwd) + b" || exit 127",
        b"exec <%s >%s 2>%s" % tuple(quote(str(stream)) for stream in streams),
        b"exec " + b" ".join(quote(word) for word in starting_words(command)),
    ]
    launch.script.write_bytes(b"\n".join(lines) + b"\n")
    launch.script.chmod(0o700)
    return launch


def starting_words(command: Command) -> list[str]:
    """A command that becomes the program. A shell will not do: each adds something to the environment.

    env(1) starts within a millisecond, Python within ten; so it is for what env cannot do."""
    variables = [f"{name}={value}" for name, value in command.full_environment().items()]
    env = shutil.which("env")
    first = command.argv[0]
    is_plain = "/" in first and "=" not in first and not any(v.startswith(("-", "=")) for v in variables)
    if env is not None and is_plain and leads_to_program(command):
        return [env, "-i", *variables, *command.argv]
    return [
        sys.executable, "-ISc", STARTER,
        command.program.path, str(len(command.argv)), *command.argv, *variables,
    ]  # fmt: skip


def leads_to_program(command: Command) -> bool:
    try:
        return Path(command.cwd, command.argv[0]).samefile(command.program.path)
    except OSError:
        return False


def quote(text: str) -> bytes:
    """As one word for a shell, whatever bytes it is made of."""
    return b"'" + os.fsencode(text).replace(b"'", b"'\\''") + b"'"
