"""Turns a path into a Program that can be diagnosed, or into the sentence that says why it cannot.

Reads only the few ELF headers it needs: this happens at every start of a program in every test, and a
passing suite must not notice it.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

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
from pytest_causechain.model.runs import Program

# As many hexadecimal digits as a linker's own build id has.
_CONTENT_ID_DIGITS = 40


class _Answer(NamedTuple):
    """What is known of one version of a file; `program` is None where there is a `sentence`."""

    version: tuple[int, int, int, int]
    program: Program | None
    sentence: str


_answers: dict[str, _Answer] = {}


def find_executable(wanted: str, cwd: str, environment: Mapping[str, str]) -> str:
    """The path that execvpe finds for `wanted` in `cwd`."""
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
    """The program at `path`, with symbolic links resolved; Refusal unless it is ELF with debug information.

    The answer for an unchanged file (by device, inode, size and time) comes from memory.
    """
    try:
        status = os.stat(path)
    except OSError:
        raise Refusal(f"{path} does not exist: build it before the tests run.") from None
    version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    answer = _answers.get(path)
    if answer is None or answer.version != version:
        try:
            answer = _Answer(version, _examine(Path(path)), "")
        except Refusal as refusal:
            answer = _Answer(version, None, str(refusal))
        _answers[path] = answer
    if answer.program is None:
        raise Refusal(answer.sentence)
    return answer.program


def require_same_build(program: Program) -> None:
    """A Refusal when another program has taken its place."""
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
    """The build id of a program that has all we need."""
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
