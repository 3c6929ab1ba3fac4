"""Writes the script by which gdb starts the program just as the test did.

gdb starts programs through $SHELL -c "exec PROGRAM ..."; a script in the place of the shell can set what gdb's
own `run` cannot: argv[0], working directory, exact environment, descriptors and limits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.command import Command

# An altered program may ask for anything: these keep it from harming the machine.
OUTPUT_LIMIT_BYTES = 64 << 20
STACK_LIMIT_BYTES = 8 << 20


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


def write_launch(command: Command, directory: Path, name: str) -> Launch:
    launch = Launch(
        script=directory / f"{name}.sh",
        stdin=directory / f"{name}.stdin",
        stdout=directory / f"{name}.stdout",
        stderr=directory / f"{name}.stderr",
        pid=directory / f"{name}.pid",
        command=command,
    )
    arguments = b" ".join(quote(argument) for argument in command.argv[1:])
    environment = command.full_environment()
    lines = [
        b"#!/bin/bash",
        b"echo $$ > " + quote(str(launch.pid)),
        b"cd " + quote(command.cwd) + b" || exit 127",
        b"ulimit -c 0",
        b"ulimit -f %d" % (OUTPUT_LIMIT_BYTES // 1024),
        b"ulimit -s %d 2>/dev/null" % (STACK_LIMIT_BYTES // 1024),
        b'for name in $(compgen -e); do unset "$name" 2>/dev/null; done',
        *(b"export " + name.encode() + b"=" + quote(value) for name, value in environment.items() if is_name(name)),
        b"exec -a %s %s %s <%s >%s 2>%s"
        % (
            quote(command.argv[0]),
            quote(command.program.path),
            arguments,
            quote(str(launch.stdin)),
            quote(str(launch.stdout)),
            quote(str(launch.stderr)),
        ),
    ]
    launch.script.write_bytes(b"\n".join(lines) + b"\n")
    launch.script.chmod(0o700)
    return launch


def is_name(name: str) -> bool:
    """bash can export nothing else; and these it keeps for itself."""
    return name.isidentifier() and name.isascii() and name not in ("_", "SHLVL", "BASHOPTS", "SHELLOPTS")


def quote(text: str) -> bytes:
    """As one word for bash, whatever bytes it is made of."""
    return b"'" + os.fsencode(text).replace(b"'", b"'\\''") + b"'"
