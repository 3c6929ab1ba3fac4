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
# Defines what a script calls functions with. gdb 13 fails in its own call on processors with AMX, whose state is larger
# than it knows: "Couldn't write extended state status: Bad address." The vector registers must be kept all the same: at
# a moment they may hold arguments, or the values of a loop.
CALLING = """\
# gdb's own command for calling functions writes all registers, which gdb 13 cannot do on processors
# with AMX. This one has the program itself save its vector registers and restore them.
#
# causechain-text VARIABLE "TEXT" puts a text on the stack, below the 128 bytes that the program may
# use there without having moved the stack pointer, and its address in the variable.
set $causechain_used = 128
define causechain-text
  set $causechain_used = $causechain_used + sizeof($arg1)
  set $arg0 = (unsigned long) $rsp - $causechain_used
  set *((char *) $arg0)@sizeof($arg1) = $arg1
end
# causechain-call FUNCTION NUMBER... calls a function with one to three numbers or addresses, and leaves
# what it returns in $causechain_result.
define causechain-call
  set $causechain_function = (unsigned long) &::$arg0
  set $causechain_arg1 = (unsigned long) ($arg1), $causechain_arg2 = 0, $causechain_arg3 = 0
  if $argc > 2
    set $causechain_arg2 = (unsigned long) ($arg2)
  end
  if $argc > 3
    set $causechain_arg3 = (unsigned long) ($arg3)
  end
  set $causechain_rax = $rax, $causechain_rbx = $rbx, $causechain_rcx = $rcx, $causechain_rdx = $rdx
  set $causechain_rsi = $rsi, $causechain_rdi = $rdi, $causechain_r8 = $r8, $causechain_r9 = $r9
  set $causechain_r10 = $r10, $causechain_r11 = $r11, $causechain_r12 = $r12
  set $causechain_rsp = $rsp, $causechain_rip = $rip, $causechain_eflags = $eflags
  # The code at _start is never executed again. For the time of the call it is replaced by:
  # xsave64 (%rsp); xor %eax, %eax; call *%rbx; xchg %rax, %r12; xrstor64 (%rsp)
  set $causechain_code = (unsigned long *) &::_start
  set $causechain_code0 = $causechain_code[0], $causechain_code1 = $causechain_code[1]
  set $causechain_code[0] = 0xffc0312424ae0f48, $causechain_code[1] = 0x242cae0f489449d3
  # A processor without AVX may not know xsave64. One bit less makes it fxsave64.
  if $_isvoid($ymm0)
    set $causechain_code[0] ^= 1UL << 29, $causechain_code[1] ^= 1UL << 53
  end
  # The registers are saved at the stack pointer. 64 bytes in the middle are a header, which must be zero.
  set $rsp = ((unsigned long) $rsp - $causechain_used - 4096) & -64
  set $causechain_header = (unsigned long *) ($rsp + 512), $causechain_at = 0
  while $causechain_at < 8
    set $causechain_header[$causechain_at++] = 0
  end
  # This stands for the x87, SSE, AVX and AVX-512 registers.
  set $rax = 0xe7, $r12 = 0xe7
  set $rbx = $causechain_function
  set $rdi = $causechain_arg1, $rsi = $causechain_arg2, $rdx = $causechain_arg3
  set $rip = $causechain_code
  set scheduler-locking on
  tbreak *($causechain_code + 2)
  commands
    silent
  end
  continue
  # A signal may stop it before it gets there.
  while $rip != $causechain_code + 2
    continue
  end
  set scheduler-locking replay
  set $causechain_result = $r12
  set $causechain_code[0] = $causechain_code0, $causechain_code[1] = $causechain_code1
  set $rax = $causechain_rax, $rbx = $causechain_rbx, $rcx = $causechain_rcx, $rdx = $causechain_rdx
  set $rsi = $causechain_rsi, $rdi = $causechain_rdi, $r8 = $causechain_r8, $r9 = $causechain_r9
  set $r10 = $causechain_r10, $r11 = $causechain_r11, $r12 = $causechain_r12
  set $rsp = $causechain_rsp, $rip = $causechain_rip, $eflags = $causechain_eflags
  set $causechain_used = 128
end"""


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
    lines += ["", *SETTINGS]
    if plan.script is not None and _makes_calls(plan.script):
        lines += ["", CALLING, ""]
    lines += _start_program(chain.program.path, plan.party, files.run)
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


def _makes_calls(script: Script) -> bool:
    return script.stdin is not None or any(command.startswith("causechain-") for command in script.commands)


def _run_script(plan: GdbScript, script: Script, stdin: Path | None) -> Iterator[str]:
    for cause, old, new, _ in plan.changes:
        yield from _comment(_tell_change(cause, old, new))
        yield _echo(_tell_change(cause, old, new))
    yield from _comment("Objects are found as the program itself finds them, since their addresses may differ.")
    yield from script.commands
    if stdin is not None:
        yield from _comment("Another standard input; what stdio has read ahead of the old one is dropped.")
        path = str(stdin.absolute()).replace("\\", "\\\\").replace('"', '\\"')
        yield "set $causechain_stdin = *(void **) &stdin"
        yield "causechain-call fflush $causechain_stdin"
        yield "causechain-call clearerr $causechain_stdin"
        yield f'causechain-text $causechain_path "{path}"'
        yield "causechain-call open $causechain_path 0"
        yield "causechain-call dup2 $causechain_result 0"
        yield f"causechain-call lseek 0 {script.position} 0"


def _go_on(chain: Chain) -> Iterator[str]:
    if chain.oracle is not None and chain.oracle.kind == "hang":
        yield from _comment("The run is expected to hang: Ctrl-C stops it.")
    yield _echo("the run goes on with this change")
    yield "continue"
    yield from _comment("Still alive: it was stopped by a signal.")
    yield "if $_isvoid($_exitcode) && $_isvoid($_exitsignal)"
    yield "  backtrace 10"
    yield "end"
