"""Turns a link of a chain into a script that repeats its experiment in plain gdb.

The script works with `gdb -x` and with `gdb -batch -x`, needs neither Python in gdb nor this package, and is
printable ASCII apart from the user's own paths.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from pathlib import PurePath

from pytest_causechain.model.chain import Breakpoint, Cause, Chain, Link, Party, Repair
from pytest_causechain.report.wording import (
    NAME_LIMIT,
    count_of,
    describe_causes,
    describe_repair,
    name_test,
    printable,
    shorten,
    shorten_pair,
    twin_repair,
)

SETTINGS = (
    "set confirm off",
    "set pagination off",
    # Fetching debug information of system libraries would make the start take minutes.
    "set debuginfod enabled off",
    "set disable-randomization on",
    # The arguments below are quoted for a shell, and the shell redirects the input.
    "set startup-with-shell on",
)


def render_gdb_script(chain: Chain, link: Link, *, stdin_path: str | None = None) -> str:
    """The script for one link of the chain; `stdin_path` is a file with what the passing run reads."""
    lines = [*_introduce(chain, link)]
    obstacle = _find_obstacle(chain, link, stdin_path)
    if obstacle is not None:
        lines += ["", *_comment(f"This link cannot be replayed by a script: {obstacle}"), _echo(obstacle)]
    elif chain.program is not None and chain.passing is not None:
        lines += ["", *SETTINGS, *_start_program(chain.program.path, chain.passing, stdin_path)]
        repair = twin_repair(chain)
        stops = (*(repair.stops if repair is not None else ()), *link.moment.stops)
        if libraries := [stop.library for stop in stops if stop.library]:
            lines += ["", *_load_libraries(libraries)]
        if repair is not None:
            lines += ["", *_repair(repair)]
        for stop in link.moment.stops:
            lines += ["", *_go_to(stop)]
        for cause in link.causes:
            lines += ["", *_apply(cause)]
        lines += ["", *_go_on(chain)]
    return "\n".join(lines) + "\n"


def _introduce(chain: Chain, link: Link) -> Iterator[str]:
    number = chain.chain.index(link) + 1
    yield from _comment(f"Replays link {number} of the cause-effect chain of {chain.test}")
    yield from _comment(f"in plain gdb: gdb -x {number}.gdb (add -batch to leave gdb at the end).")
    if chain.passing is not None:
        yield "#"
        moment, neighbour = link.moment, name_test(chain.passing.test, beside=chain.test)
        run = f"the passing run, that of {neighbour}"
        if (repair := twin_repair(chain)) is not None:
            run = f"the failing run, which passes {describe_repair(repair)}, makes this repair"
        yield from _comment(
            f"It starts {run}, goes to the moment of the link, "
            f"in {moment.function} ({moment.file}:{moment.line}), and makes what differs there as it was "
            f"in the failing run: {describe_causes(link.causes, 'was', first=True)}. Then it lets the program go on."
        )
    yield "#"
    if link.confirmed == "context":
        others = count_of(max(link.differences - len(link.causes), 0), "other difference")
        yield from _comment(
            f"This change made the run fail together with up to {others} transferred as well, "
            "which the script does not make: the run may still pass."
        )
    elif chain.failure is not None:
        yield from _comment(f"To be expected: the passing run now fails as the failing one did: {chain.failure.text}.")


def _repair(repair: Repair) -> Iterator[str]:
    for stop in repair.stops:
        yield from _go_to(stop)
    yield _echo(describe_repair(repair))
    yield from repair.commands


def _comment(text: str) -> list[str]:
    # gdb joins a line that ends in a backslash with the next one, comments included.
    lines = textwrap.wrap(printable(text), 98, break_on_hyphens=False)
    return [f"# {line}" + (" ." if line.endswith("\\") else "") for line in lines]


def _echo(text: str) -> str:
    return "echo \\ncausechain: " + printable(text).replace("\\", "\\\\") + "\\n"


def _find_obstacle(chain: Chain, link: Link, stdin_path: str | None) -> str | None:
    """Why there can be no script for this link, or None when there can."""
    if chain.program is None or chain.passing is None:
        return "the passing run is not known."
    repair = twin_repair(chain)
    if not link.moment.stops and (repair is None or not repair.stops):
        return "its moment has no place in the program's code to stop at; start both runs and compare."
    if chain.passing.stdin and stdin_path is None:
        return "there is no file with the passing run's input."
    names = [chain.program.path, chain.passing.cwd, stdin_path or ""]
    stops = (*link.moment.stops, *(repair.stops if repair is not None else ()))
    names += [name for stop in stops for name in (stop.file, stop.function, stop.library or "")]
    if any(c in name for name in names for c in "\n\r\0"):
        return "the name of a file or function contains a line break."
    if any(argument.endswith("\n") for argument in chain.passing.argv[1:]):
        # "$(...)" drops them, and the shells have no other notation in common.
        return "an argument of the passing run ends in a line break."
    return None


def _start_program(program: str, passing: Party, stdin_path: str | None) -> Iterator[str]:
    path = program.replace("\\", "\\\\").replace('"', '\\"')
    yield f'file "{path}"'
    yield f"set cwd {passing.cwd}"
    # Without a redirection the program would read what is typed at gdb's prompt.
    source = shlex.quote(stdin_path) if passing.stdin and stdin_path else "/dev/null"
    yield " ".join(["set args", *map(_quote_for_gdb, passing.argv[1:]), "<", source])
    yield from _comment("Stop at the first instruction: only now are the program's addresses final.")
    yield "starti"


def _load_libraries(libraries: list[str]) -> Iterator[str]:
    yield from _comment("Go where the program itself begins: only now are its libraries there.")
    # Their names may be relative to the directory of the program, which is not gdb's.
    yield "set solib-search-path " + ":".join(dict.fromkeys(str(PurePath(path).parent) for path in libraries))
    yield "tbreak *(char *) &_start"
    yield "continue"


def _quote_for_gdb(argument: str) -> str:
    """The argument on one line for whatever shell gdb uses; dash, for one, does not know $'...'."""
    if printable(argument) == argument:
        return shlex.quote(argument)
    octal = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"\\{byte:03o}"
        for byte in argument.encode("utf-8", "surrogateescape")
    )
    return f"\"$(printf '{octal}')\""


def _go_to(stop: Breakpoint) -> Iterator[str]:
    where = f"{stop.function}, offset {stop.offset}, in {stop.file}"
    yield from _comment(f"Execution {stop.visit} of {where}, counted from here.")
    yield f"tbreak *((char *) &{_name_function(stop)} + {stop.offset})"
    if stop.visit > 1:
        yield f"ignore $bpnum {stop.visit - 1}"
    yield "continue"


def _name_function(stop: Breakpoint) -> str:
    """The function as a gdb expression; the file tells apart static functions of one name."""
    # gdb 13 has no way to quote a quote in a file's name, but takes a file by the end of its path.
    for file in (stop.file, PurePath(stop.file).name):
        if file and "'" not in file:
            return f"'{file}'::'{stop.function}'"
    return f"'{stop.function}'"


def _apply(cause: Cause) -> Iterator[str]:
    passing, failing = shorten_pair(cause.passing, cause.failing)
    told = f"{shorten(printable(cause.variable), NAME_LIMIT)}: {failing} instead of {passing}"
    if cause.assignment is None or not _is_statement(cause.assignment):
        yield from _comment(f"{told}. This cannot be written as one statement, so the script leaves it out.")
        yield _echo(f"left out, as no single statement does it: {told}")
        return
    yield from _comment(told)
    yield _echo(told)
    yield f"frame {cause.frame or 0}"
    yield f"set variable {cause.assignment.strip().removesuffix(';')}"


def _is_statement(assignment: str) -> bool:
    return printable(assignment) == assignment and not assignment.endswith("\\")


def _go_on(chain: Chain) -> Iterator[str]:
    if chain.oracle is not None and chain.oracle.kind == "hang":
        yield from _comment("The run is expected to hang: Ctrl-C stops it.")
    yield _echo("the passing run goes on with this change")
    yield "continue"
    yield from _comment("Still alive: it was stopped by a signal.")
    yield "if $_isvoid($_exitcode) && $_isvoid($_exitsignal)"
    yield "  backtrace 10"
    yield "end"
