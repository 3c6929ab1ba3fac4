"""Turns the steps of a story into scripts that repeat their experiments in plain gdb.

A script works with `gdb -x` and with `gdb -batch -x`, needs neither Python in gdb nor this package, and is
printable ASCII apart from the user's own paths.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from pytest_causechain.model.chain import Cause, Chain, Link, Party, Script
from pytest_causechain.model.codec import write_whole
from pytest_causechain.model.moment import Breakpoint
from pytest_causechain.report.secrets import is_secret
from pytest_causechain.report.story import GdbScript, Reporter, Side, Story, StoryStep, twin_repair
from pytest_causechain.report.wording import (
    NAME_LIMIT,
    count_of,
    describe_causes,
    describe_repair,
    name_run,
    plain,
    printable,
    shorten,
    shorten_pair,
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


class GdbReporter(Reporter):
    """Writes for each link a script that shows the failure, and one that makes it go away where that was seen; and
    beside them what their runs read."""

    title = "the gdb scripts"

    def write(self, story: Story) -> None:
        for step in story.steps if story.artefacts is not None else ():
            for towards in ("failing", "passing"):
                self._write(story, step, towards)

    def _write(self, story: Story, step: StoryStep, towards: Side) -> None:
        plan, files = _choose_plan(step, towards), _Files(story, step, towards)
        if plan.obstacle is not None or story.artefacts is None:
            return
        if files.run is not None and plan.party is not None:
            _write_text(files.run, plan.party.stdin)
        if files.moment is not None and plan.script is not None:
            _write_text(files.moment, plan.script.stdin or "")
        _write_text(story.artefacts / plan.name, render_script(story, step, towards))


def _write_text(path: Path, text: str) -> None:
    write_whole(path, text.encode("utf-8", "surrogateescape"))


def _choose_plan(step: StoryStep, towards: Side) -> GdbScript:
    return step.replay if towards == "failing" else step.undo


class _Files:
    """The files beside a script: what its run reads, and what it is given at the moment of the link."""

    def __init__(self, story: Story, step: StoryStep, towards: Side) -> None:
        plan, directory = _choose_plan(step, towards), story.artefacts
        self.run = self.moment = None
        if directory is not None and plan.party is not None and plan.party.stdin:
            self.run = directory / ("passing.stdin" if towards == "failing" else "failing.stdin")
        if directory is not None and plan.script is not None and plan.script.stdin is not None:
            self.moment = (directory / plan.name).with_suffix(".stdin")


def render_script(story: Story, step: StoryStep, towards: Side = "failing") -> str:
    """Towards "failing", the passing run is made as the failing one; else the other way round, for a link that is
    confirmed both ways."""
    chain, plan, files = story.chain, _choose_plan(step, towards), _Files(story, step, towards)
    repair = twin_repair(chain)
    begin: list[str] = []
    if repair is not None and towards == "failing":
        begin = [*_go_to_all(repair.stops), _echo(describe_repair(repair)), *repair.commands]
    elif repair is not None:
        # Stops are counted from where the two runs part: behind the instruction that the repair replaces the effect of.
        begin = [*_go_to_all(repair.stops), *(command for command in repair.commands if command == "stepi")]
    assert chain.program is not None and plan.party is not None
    lines = [*(_introduce(chain, step) if towards == "failing" else _introduce_undo(chain, step))]
    lines += ["", *SETTINGS, *_start_program(chain.program.path, plan.party, files.run)]
    stops = (*(repair.stops if repair is not None else ()), *plan.stops)
    if libraries := [stop.library for stop in stops if stop.library]:
        lines += ["", *_load_libraries(libraries)]
    if begin:
        lines += ["", *begin]
    for stop in plan.stops:
        lines += ["", *_go_to(stop)]
    if plan.script is None:
        for change in plan.changes:
            lines += ["", *_assign(*change)]
    else:
        lines += ["", *_run_script(plan, plan.script, files.moment)]
    return "\n".join([*lines, "", *_go_on(chain)]) + "\n"


def _introduce(chain: Chain, step: StoryStep) -> Iterator[str]:
    number, link = step.number, step.link
    yield from _comment(f"Replays link {number} of the cause-effect chain of {chain.test}")
    yield from _comment(f"in plain gdb: gdb -x {number}.gdb (add -batch to leave gdb at the end).")
    if chain.passing is not None:
        yield "#"
        neighbour = name_run(chain.passing, beside=chain.test)
        run = f"the passing run, {'' if chain.passing.is_made else 'that of '}{neighbour}"
        if (repair := twin_repair(chain)) is not None:
            run = f"the failing run, which passes {describe_repair(repair)}, makes this repair"
        yield from _comment(
            f"It starts {run}, goes to the moment of the link, {_name_moment(link)}, and makes what differs there "
            f"as it was in the failing run: {plain(describe_causes(step.causes, 'was', first=True))}. "
            "Then it lets the program go on."
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


def _introduce_undo(chain: Chain, step: StoryStep) -> Iterator[str]:
    number, link = step.number, step.link
    yield from _comment(f"Undoes link {number} of the cause-effect chain of {chain.test}")
    yield from _comment(f"in plain gdb: gdb -x {number}-undo.gdb (add -batch to leave gdb at the end).")
    yield "#"
    yield from _comment(
        f"It starts the failing run, goes to the moment of the link, {_name_moment(link)}, and makes what differs "
        "there as it was in the passing run. Then it lets the program go on."
    )
    if chain.passing is not None:
        yield "#"
        yield from _comment("To be expected: the failing run does not fail any more.")


def _name_moment(link: Link) -> str:
    return f"in {link.moment.function} ({link.moment.file}:{link.moment.line})"


def _go_to_all(stops: Sequence[Breakpoint]) -> list[str]:
    return [line for stop in stops for line in _go_to(stop)]


def _comment(text: str) -> list[str]:
    # gdb joins a line that ends in a backslash with the next one, comments included.
    lines = textwrap.wrap(printable(text), 98, break_on_hyphens=False)
    return [f"# {line}" + (" ." if line.endswith("\\") else "") for line in lines]


def _echo(text: str) -> str:
    return "echo \\ncausechain: " + printable(text).replace("\\", "\\\\") + "\\n"


def _start_program(program: str, party: Party, stdin: Path | None) -> Iterator[str]:
    path = program.replace("\\", "\\\\").replace('"', '\\"')
    yield f'file "{path}"'
    yield f"set cwd {party.cwd}"
    for name, value in party.environment:
        if value is not None and is_secret(name):
            yield from _comment(f"The test sets {name}, whose value is not written down: set environment {name} = ...")
        else:
            yield f"unset environment {name}" if value is None else f"set environment {name} = {value}"
    # Without a redirection the program would read what is typed at gdb's prompt.
    source = shlex.quote(str(stdin.absolute())) if stdin is not None else "/dev/null"
    yield " ".join(["set args", *map(_quote_for_gdb, party.argv[1:]), "<", source])
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


def _tell_change(cause: Cause, old: str, new: str) -> str:
    old, new = shorten_pair(old, new)
    return f"{shorten(printable(cause.variable), NAME_LIMIT)}: {new or 'none'} instead of {old or 'none'}"


def _assign(cause: Cause, old: str, new: str, statement: str | None) -> Iterator[str]:
    assert statement is not None
    yield from _comment(_tell_change(cause, old, new))
    yield _echo(_tell_change(cause, old, new))
    place, _, value = statement.strip().removesuffix(";").partition(" = ")
    if "::" in value and cause.frame:
        # What belongs to a call further inside is found from there only.
        yield from ("frame 0", f"set $causechain = {value}")
        value = "$causechain"
    yield f"frame {cause.frame or 0}"
    yield f"set variable {place} = {value}"


def _run_script(plan: GdbScript, script: Script, stdin: Path | None) -> Iterator[str]:
    for cause, old, new, _ in plan.changes:
        yield from _comment(_tell_change(cause, old, new))
        yield _echo(_tell_change(cause, old, new))
    yield from _comment("Objects are found as the program itself finds them, since their addresses may differ.")
    yield from script.commands
    if stdin is not None:
        yield from _comment("Another standard input; what stdio has read ahead of the old one is dropped.")
        path = str(stdin.absolute()).replace("\\", "\\\\").replace('"', '\\"')
        yield "call (int) fflush(*(void **) &stdin)"
        yield "call (void) clearerr(*(void **) &stdin)"
        yield f'call (int) dup2((int) open("{path}", 0), 0)'
        yield f"call (long) lseek(0, {script.position}, 0)"


def _go_on(chain: Chain) -> Iterator[str]:
    if chain.oracle is not None and chain.oracle.kind == "hang":
        yield from _comment("The run is expected to hang: Ctrl-C stops it.")
    yield _echo("the run goes on with this change")
    yield "continue"
    yield from _comment("Still alive: it was stopped by a signal.")
    yield "if $_isvoid($_exitcode) && $_isvoid($_exitsignal)"
    yield "  backtrace 10"
    yield "end"
