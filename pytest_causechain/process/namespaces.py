"""Takes this process, and all it starts from now on, to where the rest of the machine can be seen but not changed.

A user namespace takes away all power over the machine, even from root; in a mount namespace everything is read-only;
in namespaces of their own the network has no other end and System V's shared memory ends with us."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_causechain.process.linux import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_PRIVATE,
    MS_REC,
    change_mount,
    mount,
    raise_interface,
    show_to_children,
    unshare,
)

# Those that hold nothing of anybody's.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")
# Of /proc, where we write to the memory of processes: what belongs to the machine and obeys root.
MACHINE = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
EVERYBODY = (1 << 32) - 1


def enter_namespaces(writable: Sequence[str], is_closed: bool) -> None:
    """What is mounted from now on is seen here only. If it is closed, only what lies below these directories can be
    written to. An OSError says that the kernel does not allow it: then the process may be anywhere between, and should
    end."""
    with _mapping_users():
        unshare(CLONE_NEWUSER | CLONE_NEWNS | (CLONE_NEWIPC | CLONE_NEWNET if is_closed else 0))
    show_to_children()
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    for path in writable:
        mount(path, path, flags=MS_BIND | MS_REC)
    if is_closed:
        raise_interface("lo")
        _close(writable)


def _close(writable: Sequence[str]) -> None:
    devices = [path for name in DEVICES if os.path.exists(path := f"/dev/{name}")]
    machine = [path for name in MACHINE if os.path.exists(path := f"/proc/{name}")]
    for path in (*devices, *machine):
        mount(path, path, flags=MS_BIND | MS_REC)
    change_mount("/", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID, recursive=True)
    for path in devices:
        change_mount(path, to_clear=MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY)
    for path in ("/proc", *writable):
        change_mount(path, to_clear=MOUNT_ATTR_RDONLY)


@contextlib.contextmanager
def _mapping_users() -> Iterator[None]:
    """Everybody keeps the number they have. That of others can be mapped by root only, and only from outside."""
    uid, gid, pid = os.getuid(), os.getgid(), os.getpid()
    gate, opener = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(opener)
            os.read(gate, 1)
            directory = Path(f"/proc/{pid}")
            try:
                for kind in ("uid_map", "gid_map"):
                    (directory / kind).write_text(f"0 0 {EVERYBODY}")
            except OSError:
                (directory / "setgroups").write_text("deny")
                (directory / "uid_map").write_text(f"{uid} {uid} 1")
                (directory / "gid_map").write_text(f"{gid} {gid} 1")
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.close(opener)
        os.close(gate)
        os.waitpid(helper, 0)
    if "".join(Path("/proc/self/uid_map").read_text().split()) == "":
        raise PermissionError("the user cannot be mapped")
