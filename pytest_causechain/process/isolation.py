"""Keeps runs from harming anything, as far as the kernel allows and the user wants."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytest_causechain.model.command import Command
from pytest_causechain.model.isolation import NO_ISOLATION, Isolation, Precautions
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.process.stage import Stage


def isolate(precautions: Precautions, commands: Sequence[Command], directory: str) -> tuple[Stage | None, Isolation]:
    """For this process, and all it starts from now on."""
    if precautions.isolation == "off":
        return None, NO_ISOLATION
    if (obstacle := try_stage(commands, directory)) is None:
        return Stage(commands, directory), Isolation("view", "read-only", "none", "single")
    if precautions.isolation == "require":
        raise Refusal(
            f"experiments cannot be isolated here ({obstacle}): allow user namespaces, or set cause_chain_isolation "
            "to auto."
        )
    return None, NO_ISOLATION


def try_stage(commands: Sequence[Command], directory: str) -> str | None:
    """Why there can be no stage here. Tried in another process, since there is no way back."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            Stage(commands, directory)
        except OSError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        obstacle = answer.read().decode()
    os.waitpid(pid, 0)
    return obstacle or None
