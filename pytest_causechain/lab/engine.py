"""The process in which all tracing happens: one thread, because ptrace belongs to one, and nothing of pytest.

It serves one pair of runs at a time: a message opens a lab for it, each further one is a call of that lab.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_causechain.debugger.gdb import GdbFailure, GdbLost, find_gdb
from pytest_causechain.debugger.program import is_relocated
from pytest_causechain.lab.intervening_lab import InterveningLab
from pytest_causechain.lab.presence import LEAVE_ALONE
from pytest_causechain.lab.weaknesses import find_weaknesses
from pytest_causechain.lab.worker import CANCEL, RESET
from pytest_causechain.model.command import Command
from pytest_causechain.model.intervention import Intervention, Patch
from pytest_causechain.model.isolation import USUAL, Precautions
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.process.elf import names_symbol
from pytest_causechain.process.isolation import isolate
from pytest_causechain.process.linux import adopt_orphans, die_with_parent
from pytest_causechain.process.processors import staying
from pytest_causechain.process.remains import end_orphans
from pytest_causechain.process.self_tracing import traces_itself
from pytest_causechain.process.stage import Stage
from pytest_causechain.process.subject import CannotStart, launch, require_tracing
from pytest_causechain.recording.programs import identify_program

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


# The status of a process whose lab has ended because there is to be another.
FOR_ANOTHER = 9


@dataclass(frozen=True, slots=True)
class Open:
    """Prepare a pair. `deadline` is a time.monotonic(), which all processes share; `kind` is "fork", or "rerun" where
    each experiment is to be a fresh run. `libraries` are patterns for those that count as the program's own code,
    `cache` is a directory for what should be known again in later sessions. `environment` is the one that pytest runs
    in, None the engine's own."""

    passing: Command
    failing: Command
    deadline: float
    kind: str = "fork"
    libraries: tuple[str, ...] = ()
    cache: Path | None = None
    others: tuple[Command, ...] = ()
    repair: Intervention | Patch | None = None
    precautions: Precautions = USUAL
    environment: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a program, as a command starts it, can be dealt with where this engine runs: a Fitness."""

    command: Command
    deadline: float


@dataclass(frozen=True, slots=True)
class Fitness:
    """`obstacle` is a sentence that says why not; `is_hopeless`: it holds for every program there."""

    obstacle: str = ""
    is_hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A method of the lab, or "limit_runs" with its run_seconds and run_cpu_seconds, or "widen" with its width."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The value of a call, with the name of the lab by then and the types it has learned since the last answer; or
    why there is none: the user's time is over, a sentence for the user, or a trouble that another try may not meet.
    `is_hopeless`: the sentence holds for whatever is tried; the trouble is gdb's, should it be met again."""

    value: Any = None
    lab: str = ""
    types: tuple[dict[str, Any], ...] = ()
    is_used_up: bool = False
    refusal: str = ""
    is_hopeless: bool = False
    trouble: str = ""


NO_ROOM = "there is no room for temporary files: make some, or let TMPDIR name a directory that has it."


def serve(connection: Connection[Any, Any]) -> int:
    """Each lab lives in a copy of this process: where a lab has been, in namespaces of its own, there is no way back
    from, and the next one need not wait until Python has started and read all modules."""
    adopt_orphans()
    try:
        while (message := connection.recv()) is not None:
            if isinstance(message, Check):
                connection.send(Answer(check(message)))
            elif isinstance(message, Open):
                status = copy_process(partial(serve_lab, connection, message))
                end_orphans(())
                if status != FOR_ANOTHER:
                    return status
                connection.send(Answer())
            elif message == RESET:
                connection.send(Answer())
            else:
                assert message == CANCEL  # it came too late
    except EOFError:
        pass
    return 0


def copy_process(work: Callable[[], int]) -> int:
    """The status with which the copy has ended; -1 when it was killed."""
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return max(-1, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def serve_lab(connection: Connection[Any, Any], opening: Open) -> int:
    """Until there is to be another."""
    lab: InterveningLab | None = None
    types_told = 0
    adopt_orphans()
    message: Any = opening
    try:
        while message not in (None, RESET):
            answer: Answer | None = None
            try:
                if isinstance(message, Open):
                    lab = open_lab(message)
                    die_with_parent()  # the kernel forgets it when a process enters a namespace
                    lab.is_wanted = lambda: not (connection.poll() and connection.recv() == CANCEL)
                    types_told = len(lab.program.types)
                    value: Any = (lab.program, lab.width, lab.notes, lab.isolation)
                    answer = Answer(value, lab.name)
                elif message != CANCEL:  # else it came too late
                    assert lab is not None
                    with staying():
                        value = carry_out(lab, message)
                    answer = Answer(value, lab.name, tuple(lab.program.types[types_told:]))
                    types_told = len(lab.program.types)
            except BudgetUsedUp:
                answer = Answer(is_used_up=True)
            except Refusal as refusal:
                answer = Answer(refusal=str(refusal), is_hopeless=isinstance(refusal, Hopeless))
            except CannotStart as error:
                answer = Answer(refusal=f"{error}: {LEAVE_ALONE}")
            except GdbLost as lost:
                answer = Answer(trouble=str(lost), is_hopeless=True)
            except (GdbFailure, OSError) as error:
                answer = Answer(trouble=f"{type(error).__name__}: {error}")
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    answer = Answer(refusal=NO_ROOM, is_hopeless=True)
            if lab is not None:
                end_orphans(lab.processes())
            if answer is not None:
                connection.send(answer)
            message = connection.recv()
    except EOFError:
        message = None
    finally:
        if lab is not None:
            lab.close()
    return FOR_ANOTHER if message == RESET else 0


def open_lab(message: Open) -> InterveningLab:
    if message.environment is not None:
        os.environ.clear()
        os.environ.update(message.environment)
    require_tracing()
    pair = (message.passing, message.failing, message.deadline)
    cache = hold(message.cache) if message.cache is not None else None
    commands = (message.passing, message.failing, *message.others)
    stage, isolation = isolate(message.precautions, commands, tempfile.gettempdir())
    require_no_tracer(message.failing, message.passing, message.deadline, stage)
    known = (message.kind == "fork", message.libraries, cache)
    lab = InterveningLab(*pair, *known, message.others, message.repair, stage)
    lab.notes += find_weaknesses(lab.program)
    lab.isolation, lab.bounds = isolation, message.precautions.bounds
    return lab


def require_no_tracer(failing: Command, passing: Command, deadline: float, stage: Stage | None) -> None:
    """A Refusal when one of them traces itself; where that cannot be found out, the runs show it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, struct.error):
        if not names_symbol(failing.program.path, ["ptrace"]):
            return
        places = {c: c.cwd if stage is None else stage.lend_directory(c) for c in dict.fromkeys((failing, passing))}
        if any(traces_itself(command, directory, deadline) for command, directory in places.items()):
            raise Hopeless(
                f"{Path(failing.program.path).name} traces itself by ptrace(2), so that experiments cannot: switch "
                "that off where it is tested."
            )


def hold(directory: Path) -> Path:
    """The same directory by a name under which it can be written to, whatever its own will stand for."""
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        return Path(f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY)}")
    return directory


def check(message: Check) -> Fitness:
    command, program = message.command, message.command.program
    try:
        find_gdb()
        require_tracing()
        found = identify_program(program.path)
        is_relocated(program.path)
        command.require_directory()
    except Refusal as refusal:
        return Fitness(str(refusal), isinstance(refusal, Hopeless))
    if found.build_id != program.build_id:
        return Fitness(f"{program.path} is another build there (its build id differs): bring it up to date.")
    return Fitness(find_launch_obstacle(command, message.deadline))


def find_launch_obstacle(command: Command, deadline: float) -> str:
    """Why the program does not start under ptrace here; empty when it does, or by an accident of the system's."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        launch(command, False, deadline).kill()
    except CannotStart as error:
        return f"{error}: {LEAVE_ALONE}"
    except OSError:
        pass  # the lab will meet it too, and tries again
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return ""


def carry_out(lab: InterveningLab, call: Call) -> Any:
    if call.name == "widen":
        (lab.width,) = call.arguments
        return None
    if call.name == "limit_runs":
        lab.run_seconds, lab.run_cpu_seconds = call.arguments
        return None
    if call.name == "visit":
        visit = lab.visit(*call.arguments)
        # All types with each visit would be most of the message.
        return None if visit is None else replace(visit, types=[])
    calls: dict[str, Callable[..., Any]] = {
        "experiments": lab.experiments,
        "speculate": lab.speculate,
        "trace": lab.trace,
        "layout": lab.layout,
        "observe": lab.observe,
        "find_writer": lab.find_writer,
        "signatures": lab.signatures,
        "effects": lab.effects,
        "cover": lab.cover,
        "count": lab.count,
        "values": lab.values,
        "sights": lab.sights,
        "follow": lab.follow,
        "interventions": lab.interventions,
    }
    return calls[call.name](*call.arguments)
