"""Finds out whether a program traces itself: a process has room for one tracer, and in experiments that is us.

In a run that nobody traces, the kernel shows us each call of ptrace(2) before it is carried out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_causechain.model.runs import Command
from pytest_causechain.process.filter import listen_to
from pytest_causechain.process.limits import limit_self
from pytest_causechain.process.linux import (
    ATTACH,
    NOTIFICATION_CONTINUE,
    NOTIFICATION_RECEIVE,
    NOTIFICATION_SEND,
    PTRACE,
    SEIZE,
    TRACEME,
    die_with_parent,
)
from pytest_causechain.process.remains import end_group

# struct seccomp_notif: its number, who calls, flags; then the call, kind of processor, where, and six arguments.
NOTIFICATION = struct.Struct("<QII iIQ6Q")
RESPONSE = struct.Struct("<QqiI")
# Those that do it, do it early.
MOST_SECONDS = 5.0


def traces_itself(command: Command, directory: str, deadline: float) -> bool:
    """It, or one that it has started for that, when it runs in this directory."""
    deadline = min(deadline, time.monotonic() + MOST_SECONDS)
    with _run(command, directory) as (process, listener), _open_pidfd(process.pid) as ended:
        poll = select.poll()
        for descriptor in (listener, ended):
            poll.register(descriptor, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = [descriptor for descriptor, _ in poll.poll(1000 * left)]
            if listener in ready and _is_self_tracing(listener, process.pid):
                return True
            if ended in ready:
                break
    return False


def _is_self_tracing(listener: int, pid: int) -> bool:
    """What the next call is for; any other may go on."""
    notification = bytearray(NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, NOTIFICATION_RECEIVE, notification)
        number, caller, *_, request, target = NOTIFICATION.unpack(notification)[:8]
        if (request == TRACEME and _find_process(caller) == pid) or (request in (ATTACH, SEIZE) and target == pid):
            return True
        fcntl.ioctl(listener, NOTIFICATION_SEND, RESPONSE.pack(number, 0, 0, NOTIFICATION_CONTINUE))
    except OSError:  # the caller has been killed meanwhile
        pass
    return False


def _find_process(thread: int) -> int:
    status = Path(f"/proc/{thread}/status").read_text()
    return int(status.partition("\nTgid:")[2].split()[0])


@contextlib.contextmanager
def _run(command: Command, directory: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The program as the test started it, and where its calls are shown. An OSError where the kernel does not."""
    ours, theirs = socket.socketpair()

    def prepare() -> None:
        die_with_parent()
        limit_self()
        socket.send_fds(theirs, [b"."], [listen_to(PTRACE)])

    with ours, theirs, open(os.memfd_create("stdin"), "w+b") as stdin:
        stdin.write(command.stdin)
        stdin.seek(0)
        process = subprocess.Popen(
            command.argv,
            executable=command.program.path,
            cwd=directory,
            env=command.full_environment(),
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,
        )
        _, (listener,), *_ = socket.recv_fds(ours, 1, 1)
    try:
        yield process, listener
    finally:
        os.close(listener)
        end_group(process.pid)
        process.kill()
        process.wait()


@contextlib.contextmanager
def _open_pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
