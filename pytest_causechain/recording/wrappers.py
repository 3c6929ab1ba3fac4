"""Looks through what starts another program: env, timeout, a shell with a simple command, libtool's scripts.

What a run of the program shows, and how it ends, is then also what the wrapper shows. Wrappers of which that is not
true are refused by name.
"""

from __future__ import annotations

import getopt
import os
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.recording.programs import find_executable
from pytest_causechain.recording.start import Start

SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})

# Short and long options, and how many words stand between them and the command.
WRAPPERS: dict[str, tuple[str, list[str], int]] = {
    "env": ("iu:", ["ignore-environment", "unset="], 0),
    "nice": ("n:", ["adjustment="], 0),
    "nohup": ("", [], 0),
    "stdbuf": ("i:o:e:", ["input=", "output=", "error="], 0),
    "timeout": ("fvk:s:", ["kill-after=", "signal=", "foreground", "verbose"], 1),
}

# They print more than the program, end otherwise, or run it elsewhere.
TOOLS = frozenset(
    {"docker", "gdb", "gdbserver", "heaptrack", "ltrace", "perf", "rr", "script", "ssh", "strace", "sudo"}
    | {"time", "unbuffer", "valgrind", "wine", "xvfb-run"}
)
_EMULATOR = re.compile(r"qemu-\w+(-static)?")

_SYSTEM_DIRECTORIES = frozenset(f"{top}{name}" for top in ("", "/usr", "/usr/local") for name in ("/bin", "/sbin"))

# As timeout itself has it.
TIMED_OUT, KILLED = 124, 128 + signal.SIGKILL

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")

# What makes a shell do more than start a program, outside of quotes; of these, what it does between double quotes,
# and what only at the beginning of a word.
_SHELL_USES = {
    **dict.fromkeys("|", "a pipe"),
    **dict.fromkeys("<>", "a redirection"),
    **dict.fromkeys("&;\n", "several commands"),
    **dict.fromkeys("$`", "a substitution"),
    **dict.fromkeys("*?[", "a pattern"),
    **dict.fromkeys("()", "a subshell"),
    **dict.fromkeys("~{!#", "an expansion"),
}
_IN_DOUBLE_QUOTES = "$`"
_AT_BEGINNING = "~{!#"

# As much of a command as a sentence can bear.
_COMMAND_WIDTH = 40

# A script of libtool says so in its first lines, and is longer than anybody needs to read.
_SCRIPT_HEAD_BYTES = 16384
_LIBRARY_PATH = re.compile(r'^\s*LD_LIBRARY_PATH="([^"]*)"', re.MULTILINE)


def unwrap(start: Start) -> Start | None:
    """The start of what stands behind one that is itself no program under test; None where it is no wrapper, Refusal
    where it cannot be looked through."""
    name = Path(start.wanted).name
    if start.shell:
        return _enter_shell(start, start.argv[0] if len(start.argv) == 1 else None)
    if not start.wanted:
        return None
    if not _is_of_the_system(start.wanted):
        return _enter_libtool_script(start)
    if name in SHELLS:
        return _enter_shell(start, start.argv[2] if len(start.argv) == 3 and start.argv[1] == "-c" else None)
    if name in WRAPPERS:
        return _enter_wrapper(start, name)
    if name in ("libtool", "glibtool") and start.argv[1:2] == ("--mode=execute",):
        return _enter_command(start, start.argv[2:])
    if name in TOOLS or _EMULATOR.fullmatch(name):
        raise Refusal(f"{_tell(start)} runs the program under {name}: start the program itself from the test.")
    return _enter_libtool_script(start)


def _is_of_the_system(wanted: str) -> bool:
    """Others may have the same name, and do something else."""
    return "/" not in wanted or str(Path(wanted).parent) in _SYSTEM_DIRECTORIES


def _enter_command(start: Start, words: tuple[str, ...], environment: dict[str, str] | None = None) -> Start:
    """A command line as shells and env have it: assignments, then the program."""
    changed = dict(start.environment if environment is None else environment)
    while words and _ASSIGNMENT.match(words[0]):
        variable, _, value = words[0].partition("=")
        changed[variable] = value
        words = words[1:]
    if not words:
        raise Refusal(f"{_tell(start)} starts no program: give the path of the program.")
    return replace(start, argv=words, executable=None, shell=False, environment=changed)


def _enter_wrapper(start: Start, name: str) -> Start:
    short, long, count = WRAPPERS[name]
    try:
        options, words = getopt.getopt(list(start.argv[1:]), short, long)
    except getopt.GetoptError as error:
        raise Refusal(f"{_tell(start)} uses an option of {name} ({error}): start the program itself.") from None
    environment = dict(start.environment)
    limit = start.limit_status
    for option, value in options:
        match name, option:
            case "env", "-i" | "--ignore-environment":
                environment.clear()
            case "env", "-u" | "--unset":
                environment.pop(value, None)
            case "timeout", "-s" | "--signal" if value in ("9", "KILL", "SIGKILL"):
                limit = KILLED
    if name == "timeout":
        limit = limit or TIMED_OUT
    inner = tuple(words[count:])
    if name != "env" and inner and _ASSIGNMENT.match(inner[0]):
        raise Refusal(f"{inner[0]} is in no directory of PATH: give the path of the program.")
    return replace(_enter_command(start, inner, environment), limit_status=limit)


def _enter_shell(start: Start, command: str | None) -> Start:
    if command is None:
        raise Refusal(f"{_tell(start)} starts a shell: start the compiled program itself from the test.")
    use = find_shell_use(command)
    if use is not None:
        raise Refusal(f"{_tell(start)} uses {use} of the shell: start the compiled program itself from the test.")
    words = tuple(shlex.split(command))
    return _enter_command(start, words[1:] if words[:1] == ("exec",) else words)


def find_shell_use(command: str) -> str | None:
    """What a shell would do with this command besides starting a program with arguments."""
    quote, begins = "", True
    characters = iter(command)
    for character in characters:
        if character == "\\" and quote != "'":
            if next(characters, None) is None:
                return "a continued line"
        elif quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in _IN_DOUBLE_QUOTES:
                return _SHELL_USES[character]
        elif character in "'\"":
            quote = character
        elif character in _SHELL_USES and (begins or character not in _AT_BEGINNING):
            return _SHELL_USES[character]
        begins = not quote and character in " \t"
    return "an open quotation" if quote else None


def _enter_libtool_script(start: Start) -> Start | None:
    """The program that libtool has left in a directory beside its script, which only finds the libraries for it."""
    try:
        script = Path(find_executable(start.wanted, start.cwd, start.environment))
        with script.open("rb") as file:
            if file.read(2) != b"#!":
                return None
            head = os.fsdecode(file.read(_SCRIPT_HEAD_BYTES))
    except (OSError, Refusal):
        return None
    if "Generated by libtool" not in head:
        return None
    environment = dict(start.environment)
    if found := _LIBRARY_PATH.search(head):
        present = environment.get("LD_LIBRARY_PATH", "")
        environment["LD_LIBRARY_PATH"] = found[1].replace("$LD_LIBRARY_PATH", present).strip(":")
    for name in (f"lt-{script.name}", script.name):
        program = script.parent / ".libs" / name
        if program.is_file():
            return replace(start, executable=str(program), environment=environment)
    raise Refusal(f"{script.name} is a script of libtool whose program is not in .libs: build it before the tests run.")


def _tell(start: Start) -> str:
    line = " ".join((start.argv[0] if start.shell else shlex.join(start.argv)).split())
    return line if len(line) <= _COMMAND_WIDTH else line[: _COMMAND_WIDTH - 3] + "..."
