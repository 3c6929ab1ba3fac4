"""Runs inside gdb (12 or newer): carries out requests that `gdb.py` writes to a file, answers in another.

A request names a job: describe the program, or look at a process of it that stands still. No job runs a program.
Files, because large MI replies are slow to parse.
Only the standard library of the Python inside gdb, which need not be the one pytest runs in.
"""

import json
import os
import re
import sys

import gdb

sys.path.append(os.path.dirname(__file__))
from agent_symbols import (
    TYPES,
    backtrace,
    describe,
    describe_frames,
    describe_layouts,
)

LOADED = {}


def load_libraries(libraries):
    """Read the symbols of libraries ([path, base]), once; gdb itself would read them anew in each process."""
    wanted = dict(libraries)
    for path, base in list(LOADED.items()):
        if wanted.get(path) != base:
            gdb.execute("remove-symbol-file " + quote(path), to_string=True)
            del LOADED[path]
    for path, base in wanted.items():
        if path not in LOADED:
            gdb.execute(f"add-symbol-file {quote(path)} -o {base:#x}", to_string=True)
            LOADED[path] = base


def quote(path):
    """As an argument of a gdb command."""
    return re.sub(r"([^\w/.-])", r"\\\1", path)


def look(request):
    """Frames and variables of a process that somebody else started and stopped; it does not survive this."""
    load_libraries(request["libraries"])
    gdb.execute(f"attach {request['pid']}", to_string=True)
    try:
        next(t for t in gdb.selected_inferior().threads() if t.ptid[1] == request["thread"]).switch()
        if request["backtrace"]:
            return {"backtrace": backtrace()}
        answer = {"frames": describe_frames(), "layouts": describe_layouts(request["wanted"])}
        return dict(answer, types=TYPES.rows[request["types_known"] :])
    finally:
        gdb.execute("kill", to_string=True)


def prepare(request):
    """Go on with the types of an earlier gdb, and read the libraries' symbols."""
    TYPES.recall(request["types"])
    load_libraries(request["libraries"])
    return {}


JOBS = {"prepare": prepare, "describe": describe, "look": look}


class Carry(gdb.MICommand):
    """-causechain REQUEST REPLY"""

    def invoke(self, arguments):
        with open(arguments[0]) as file:
            request = json.load(file)
        try:
            reply = JOBS[request["job"]](request)
        except Exception as error:  # whatever it is, the other side must hear of it
            reply = {"error": f"{type(error).__name__}: {error}"}
        with open(arguments[1], "w") as file:
            json.dump(reply, file)


class Sync(gdb.MICommand):
    """-causechain-sync: answered when all before it is done."""

    def invoke(self, arguments):
        return {}


Carry("-causechain")
Sync("-causechain-sync")
