"""The process in which all tracing happens: one thread, because ptrace belongs to one, and nothing of pytest.

It serves one pair of runs at a time: a message opens a lab for it, each further one is a call of that lab.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_causechain.debugger.gdb import GdbFailure, GdbLost, find_gdb
from pytest_causechain.debugger.program import is_relocated
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.kernel.companion import hold_lifeline
from pytest_causechain.kernel.elf import names_symbol
from pytest_causechain.kernel.linux import adopt_orphans, die_with_parent
from pytest_causechain.kernel.processes import end_orphans, staying
from pytest_causechain.lab.laboratory import CALLS, Call, Check, EngineAnswer, Fitness, Message, Open, Opened
from pytest_causechain.lab.local_lab import LocalLab, blocking_children, find_weaknesses
from pytest_causechain.lab.relay import CANCEL, RESET
from pytest_causechain.lab.starts import LEAVE_ALONE
from pytest_causechain.model.refusal import BudgetUsedUp, Hopeless, Refusal
from pytest_causechain.model.runs import Command
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.sandbox.isolation import Stage, isolate
from pytest_causechain.sandbox.subject import CannotStart, launch, require_tracing, traces_itself

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


# The status of a process whose lab has ended because there is to be another.
FOR_ANOTHER = 9
NO_ROOM = "there is no room for temporary files: make some, or let TMPDIR name a directory that has it."


def serve(connection: Connection[EngineAnswer, Message]) -> int:
    """Each lab lives in a copy of this process: where a lab has been, in namespaces of its own, there is no way back
    from, and the next one need not wait until Python has started and read all modules."""
    adopt_orphans()
    try:
        while (message := connection.recv()) is not None:
            if isinstance(message, Check):
                connection.send(EngineAnswer(check(message)))
            elif isinstance(message, Open):
                status = copy_process(partial(serve_lab, connection, message))
                end_orphans(())
                if status != FOR_ANOTHER:
                    return status
                connection.send(EngineAnswer())
            elif message == RESET:
                connection.send(EngineAnswer())
            else:
                assert message == CANCEL  # it came too late
    except EOFError:
        pass
    return 0


def copy_process(work: Callable[[], int]) -> int:
    """The status with which the copy has ended; -1 when it was killed. We outlive the copy even when the session is
    killed, and so end what its programs have started."""
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            hold_lifeline()
            status = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    ended = os.waitpid(pid, 0)[1]
    hold_lifeline()
    return max(-1, os.waitstatus_to_exitcode(ended))


def serve_lab(connection: Connection[EngineAnswer, Message], opening: Open) -> int:
    """Until there is to be another."""
    lab: LocalLab | None = None
    adopt_orphans()
    message: Message = opening
    types_told, known_seconds = 0, 0.0
    try:
        while message not in (None, RESET):
            answer: EngineAnswer | None = None
            try:
                if isinstance(message, Open):
                    lab, opened = open_lab(message)
                    die_with_parent()  # the kernel forgets it when a process enters a namespace
                    lab.flights.orders = connection
                    types_told = len(lab.program.types)
                    answer = EngineAnswer(opened, lab.name)
                elif isinstance(message, Call):
                    assert lab is not None
                    with staying():
                        value = carry_out(lab, message)
                    answer = EngineAnswer(value, lab.name, tuple(lab.program.types[types_told:]))
                    types_told = len(lab.program.types)
                else:
                    assert message == CANCEL  # it came too late
            except BudgetUsedUp:
                answer = EngineAnswer(is_used_up=True)
            except Refusal as refusal:
                answer = EngineAnswer(refusal=str(refusal), is_hopeless=isinstance(refusal, Hopeless))
            except CannotStart as error:
                answer = EngineAnswer(refusal=f"{error}: {LEAVE_ALONE}")
            except GdbLost as lost:
                answer = EngineAnswer(trouble=str(lost), is_hopeless=True)
            except (GdbFailure, OSError) as error:
                answer = EngineAnswer(trouble=f"{type(error).__name__}: {error}")
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    answer = EngineAnswer(refusal=NO_ROOM, is_hopeless=True)
            if lab is not None:
                end_orphans(lab.processes())
            if answer is not None:
                computed = measure_ended_children()
                connection.send(replace(answer, cpu_seconds=computed - known_seconds))
                known_seconds = computed
            message = connection.recv()
    except EOFError:
        message = None
    finally:
        if lab is not None:
            lab.close()
    return FOR_ANOTHER if message == RESET else 0


def measure_ended_children() -> float:
    """What they computed, and their children, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def open_lab(message: Open) -> tuple[LocalLab, Opened]:
    if message.environment is not None:
        os.environ.clear()
        os.environ.update(message.environment)
    require_tracing()
    message = replace(message, cache=hold(message.cache) if message.cache is not None else None)
    stage, isolation = isolate(message.precautions, tuple(message.commands.values()), tempfile.gettempdir())
    require_no_tracer(message.failing, message.passing, message.deadline, stage)
    lab = LocalLab(message, stage)
    return lab, Opened(lab.program, lab.width, (*lab.notes, *find_weaknesses(lab.program)), isolation)


def require_no_tracer(failing: Command, passing: Command, deadline: float, stage: Stage) -> None:
    """A Refusal when one of them traces itself; where that cannot be found out, the runs show it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, struct.error):
        if not names_symbol(failing.program.path, ["ptrace"]):
            return
        places = {command: stage.lend_directory(command) for command in (failing, passing)}
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
    with blocking_children():
        try:
            launch(command, False, deadline).kill()
        except CannotStart as error:
            return f"{error}: {LEAVE_ALONE}"
        except OSError:
            pass  # the lab will meet it too, and tries again
    return ""


def carry_out(lab: LocalLab, call: Call) -> object:
    assert call.name in CALLS
    value: object = getattr(lab, call.name)(*call.arguments, **call.keywords)
    # All types with each visit would be most of the message.
    return replace(value, types=[]) if isinstance(value, Visit) else value
