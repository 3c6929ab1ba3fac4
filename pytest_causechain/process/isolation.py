"""Keeps runs from harming anything, as far as the kernel allows and the user wants."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytest_causechain.model.isolation import NO_ISOLATION, Isolation, Precautions, Wish
from pytest_causechain.model.refusal import Hopeless
from pytest_causechain.model.runs import Command
from pytest_causechain.process.copied_stage import CopiedStage
from pytest_causechain.process.stage import Stage, find_areas, is_within, named_directories


def isolate(precautions: Precautions, commands: Sequence[Command], directory: str) -> tuple[Stage | None, Isolation]:
    """For this process, and all it starts from now on."""
    if precautions.isolation == "off":
        return None, NO_ISOLATION
    areas = find_areas(name for command in commands for name in named_directories(command))
    apart = [command.cwd for command in commands if not is_within(os.path.realpath(command.cwd), areas)]
    obstacle = f"other file systems are mounted below {apart[0]}" if apart else try_stage(areas, directory)
    if obstacle is None:
        return Stage(areas, directory), Isolation("view", "read-only", "none", "single")
    if precautions.isolation == "require":
        raise Hopeless(
            f"experiments cannot be isolated here ({obstacle}): allow user namespaces, or set cause_chain_isolation "
            "to auto."
        )
    try:
        return CopiedStage(commands, directory), Isolation("copy", signals="single")
    except OSError:
        return None, NO_ISOLATION


def isolate_tests(wish: Wish, directories: Sequence[str], directory: str) -> None:
    """The same for a process that runs the user's tests, as far as possible: what they write below these directories
    is seen by themselves only. They may need all the rest."""
    areas = find_areas(directories)
    if wish != "off" and try_stage(areas, directory) is None:
        Stage(areas, directory, is_closed=False)
        os.chdir(os.getcwd())


def try_stage(areas: Sequence[str], directory: str) -> str | None:
    """Why there can be no stage here. Tried twice: one of the processes that it takes may have been killed, and without
    a stage the user's files are not safe."""
    return _try_stage(areas, directory) and _try_stage(areas, directory)


def _try_stage(areas: Sequence[str], directory: str) -> str | None:
    """In another process, since there is no way back."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            Stage(areas, directory)
        except OSError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        obstacle = answer.read().decode()
    os.waitpid(pid, 0)
    return obstacle or None
