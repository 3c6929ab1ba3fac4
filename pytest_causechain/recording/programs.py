"""Turns the start of a program, as a test asked for it, into a Program that can be diagnosed, or into the sentence that
says why it cannot.

Looks through wrappers: env, timeout, a shell with a simple command, libtool's scripts. What a run of the program shows,
and how it ends, is then also what the wrapper shows; wrappers of which that is not true are refused by name. Reads only
the few ELF headers it needs: this happens at every start of a program in every test, and a passing suite must not
notice it.
"""

from __future__ import annotations

import functools
import getopt
import hashlib
import mmap
import os
import re
import shlex
import signal
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_causechain.kernel.elf import (
    CLASS_64,
    CLASS_AT,
    DATA_AT,
    LITTLE_ENDIAN,
    MAGIC,
    TYPE_EXECUTABLE,
    TYPE_SHARED,
    Section,
    find_build_id,
    read_sections,
    read_type,
)
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Observation, Program

# More than anybody nests.
MAX_WRAPPERS = 10


@dataclass(slots=True)
class Start:
    """One start of a program, as a test asked for it.

    `argv` and `environment` (the whole of it) keep what is not UTF-8 by surrogate escapes; with `shell` the
    command is argv[0]. `stdin` is None while unknown, `returncode` while the test has not asked for it: both are
    filled in by communicate, wait and poll; `stdout` and `stderr` by communicate alone, where they are pipes.

    `unsupported` names the way of starting where it is one in which no program can be put in place of another.
    `limit_status` is the exit status by which a wrapper tells that it has ended the program.
    """

    argv: tuple[str, ...]
    executable: str | None
    shell: bool
    cwd: str
    environment: dict[str, str]
    stdin: bytes | None
    returncode: int | None = None
    stdout: bytes | None = None
    stderr: bytes | None = None
    unsupported: str | None = None
    limit_status: int | None = None

    @property
    def shown(self) -> Observation | None:
        """What the program showed, as far as the test has seen it."""
        if self.returncode is None or self.stdout is None:
            return None
        ending: Literal["exit", "signal"] = "exit" if self.returncode >= 0 else "signal"
        return Observation(ending, abs(self.returncode), self.stdout, self.stderr or b"")

    @property
    def wanted(self) -> str:
        """The program to execute; empty where that is not known."""
        return self.executable or (self.argv[0] if self.argv else "")


class Recognised(NamedTuple):
    """A start of a program that can be diagnosed: `start` is the test's own, and told how it went; `inner` is that of
    the program, behind all wrappers."""

    start: Start
    inner: Start
    program: Program


def recognise_start(start: Start) -> Recognised:
    """Finds the program that is about to start; Refusal when it cannot be diagnosed."""
    if start.unsupported is not None:
        name = Path(start.argv[0].partition(" ")[0]).name if start.argv else "a program"
        raise Refusal(f"{name} is started through {start.unsupported}: start it with subprocess.run instead.")
    inner = start
    for _ in range(MAX_WRAPPERS):
        # The program under test may itself be a shell or debugger, so try it before unwrapping.
        problem = None
        if inner.wanted and not inner.shell:
            try:
                program = identify_program(find_executable(inner.wanted, inner.cwd, inner.environment))
                return Recognised(start, inner, program)
            except Refusal as refusal:
                problem = refusal
        behind = unwrap(inner)
        if behind is None:
            raise problem or Refusal("the test starts an empty command: give the path of the program.")
        inner = behind
    raise Refusal(f"{inner.wanted} is started through too many others: start the program itself from the test.")


# The program itself

# As many hexadecimal digits as a linker's own build id has.
_CONTENT_ID_DIGITS = 40


def find_executable(wanted: str, cwd: str, environment: Mapping[str, str]) -> str:
    """Returns the path that execvpe finds for `wanted` in `cwd`."""
    if "/" in wanted:
        return join_path(cwd, wanted)
    for directory in os.get_exec_path(environment):
        path = Path(cwd, directory, wanted)
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise Refusal(f"{wanted} is in no directory of PATH: give the path of the program.")


@functools.lru_cache(maxsize=1000)
def join_path(directory: str, name: str) -> str:
    return str(Path(directory, name))


def identify_program(path: str) -> Program:
    """Returns the program at `path`, with symbolic links resolved; Refusal unless it is ELF with debug information.

    What is known of an unchanged file (by device, inode, size and time) comes from memory.
    """
    try:
        status = os.stat(path)
    except OSError:
        raise Refusal(f"{path} does not exist: build it before the tests run.") from None
    found = _examine_once(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    if isinstance(found, str):
        raise Refusal(found)
    return found


@functools.lru_cache(maxsize=1000)
def _examine_once(path: str, _version: tuple[int, ...]) -> Program | str:
    """Returns the program in this version of a file, or the sentence that says why it cannot be diagnosed."""
    try:
        return _examine(Path(path))
    except Refusal as refusal:
        return str(refusal)


def require_same_build(program: Program) -> None:
    """Raises a Refusal when another build has taken the place of this program."""
    if identify_program(program.path).build_id != program.build_id:
        raise Refusal(
            f"{Path(program.path).name} was replaced by another build after its test had run: leave it alone until the "
            "session ends."
        )


def _examine(path: Path) -> Program:
    resolved = path.resolve()
    name = path.name
    if resolved.is_dir():
        raise Refusal(f"{name} is a directory: start the compiled program in it.")
    if resolved.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise Refusal(f"{name} runs with the rights of its owner, which it has not when traced: test a copy without.")
    if not os.access(resolved, os.X_OK):
        raise Refusal(f"{name} is not executable: make it so with chmod +x.")
    try:
        with resolved.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise Refusal(f"{name} is an empty file: build it again.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return Program(str(resolved), _identify_content(content, resolved, name))
    except OSError as error:
        raise Refusal(f"{name} cannot be read ({error.strerror}): give yourself the right to read it.") from None
    except (struct.error, IndexError, ValueError, OverflowError):
        raise Refusal(f"{name} is a damaged ELF file: build it again.") from None


def _identify_content(content: mmap.mmap, path: Path, name: str) -> str:
    """Returns the build id of a program that has all we need, else raises a Refusal."""
    _require_native(content, name)
    sections = {section.name: section for section in read_sections(content)}
    if b".debug_info" not in sections and b".zdebug_info" not in sections:
        raise Refusal(_explain_missing_debug_information(content, sections, path, name))
    return find_build_id(content, sections.values()) or hashlib.sha256(content).hexdigest()[:_CONTENT_ID_DIGITS]


def _require_native(content: mmap.mmap, name: str) -> None:
    if content[:2] == b"#!":
        interpreter = os.fsdecode(content[2:256].partition(b"\n")[0].strip()) or "a shell"
        raise Refusal(f"{name} is a script run by {interpreter}: start the compiled program itself from the test.")
    if content[:4] != MAGIC:
        raise Refusal(f"{name} is not an ELF program: start a program compiled for Linux from the test.")
    if content[CLASS_AT] != CLASS_64:
        raise Refusal(f"{name} is a 32-bit program: build it for 64 bits (without -m32).")
    if content[DATA_AT] != LITTLE_ENDIAN:
        raise Refusal(f"{name} is a program for another processor: build it for this machine.")
    if read_type(content) not in (TYPE_EXECUTABLE, TYPE_SHARED):
        raise Refusal(f"{name} is an ELF file but not a linked program: link it before the tests run.")


def _explain_missing_debug_information(
    content: mmap.mmap, sections: dict[bytes, Section], path: Path, name: str
) -> str:
    link = sections.get(b".gnu_debuglink")
    if link is not None:
        # Distributions leave this link in stripped programs whose debug file is not installed.
        separate = os.fsdecode(content[link.offset : link.offset + link.size].partition(b"\0")[0])
        if any((directory / separate).exists() for directory in (path.parent, path.parent / ".debug")):
            return (
                f"{name} has its debug information in a separate file ({separate}): "
                f"test the program as it was before that was split off."
            )
    if b".symtab" not in sections:
        return f"{name} is stripped: build it with -g, link without -s and do not strip it."
    return f"{name} has no debug information: build it with -g (and -O0 for exact variables)."


# Wrappers

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
    """Returns the start that a wrapper makes; None where `start` is no wrapper, Refusal where it cannot be looked
    through."""
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
    """Tells whether it is the system's own: others may have the same name, and do something else."""
    return "/" not in wanted or str(Path(wanted).parent) in _SYSTEM_DIRECTORIES


def _enter_command(start: Start, words: tuple[str, ...], environment: dict[str, str] | None = None) -> Start:
    """Enters a command line as shells and env have it: assignments, then the program."""
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
    """Finds what a shell would do with this command besides starting a program with arguments."""
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
    """Enters the program that libtool has left in a directory beside its script, which only finds the libraries for
    it."""
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
