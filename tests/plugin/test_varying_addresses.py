"""Where personality() is refused, as in many containers: addresses change from run to run, chains do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from suites import Diagnosed, Session, ShareSession, copy_fixture, read_chain, run_session
from test_fixture_chains import list_variables

# What a container's profile does: a filter of system calls that all processes of the session inherit.
FORBID = """
import ctypes
import errno
import struct

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
PERSONALITY, ALLOW, ERROR = 135, 0x7FFF0000, 0x00050000
code = b"".join(
    struct.pack("<HBBI", *instruction)
    for instruction in (
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, PERSONALITY),
        (RETURN, 0, 0, ERROR | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    )
)


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


libc = ctypes.CDLL(None)
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(Program(len(code) // 8, code)), 0, 0) == 0
assert libc.personality(0xFFFFFFFF) == -1
"""


def run_forbidden(name: str, directory: Path) -> Session:
    copy_fixture(name, directory)
    (directory / "forbid.py").write_text(FORBID)
    return run_session(directory, "-p", "forbid", "-n", "0")


@pytest.mark.parametrize("name", ["sample", "jukebox"])
def test_the_same_chain(diagnosed: Diagnosed, share_session: ShareSession, name: str) -> None:
    usual = diagnosed(name)
    forbidden = share_session(f"{name}-forbidden", lambda directory: run_forbidden(name, directory))
    chains = [read_chain(session.directory) for session in (usual, forbidden)]
    assert chains[1]["status"] == "complete"
    assert chains[1]["statistics"]["lab"] == "fork"
    assert list_variables(chains[1]) == list_variables(chains[0])
    assert [s["line"] for s in chains[1]["suspects"]] == [s["line"] for s in chains[0]["suspects"]]
