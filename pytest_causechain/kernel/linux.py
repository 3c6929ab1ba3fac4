"""The kernel's numbers and structures, and ptrace(2) itself, through ctypes.

All requests for a process must come from the thread that started it: the kernel insists.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Sequence

PEEKUSER, POKEUSER, CONT, SINGLESTEP, GETREGS, SETREGS, DETACH = 3, 6, 7, 9, 12, 13, 17
SETOPTIONS, GETEVENTMSG, GETREGSET, SETREGSET, SEIZE, INTERRUPT = 0x4200, 0x4201, 0x4204, 0x4205, 0x4206, 0x4207
TRACE_FORK, TRACE_VFORK, TRACE_CLONE, TRACE_EXEC, TRACE_VFORK_DONE, TRACE_EXIT = 0x2, 0x4, 0x8, 0x10, 0x20, 0x40
EXIT_KILL = 0x100000
EVENT_FORK, EVENT_VFORK, EVENT_CLONE, EVENT_EXEC, EVENT_VFORK_DONE, EVENT_EXIT, EVENT_STOP = 1, 2, 3, 4, 5, 6, 128
NT_X86_XSTATE = 0x202
WAIT_ALL = 0x40000000  # __WALL: children of any kind, threads too
ADDR_NO_RANDOMIZE = 0x0040000
CLONE_PARENT, CLONE_PTRACE, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x2000, 0x200000, 0x1000000
AT_ENTRY = 9
PROCESS_CLOCK = 2  # the low bits of the number of a clock, above which those of a process are
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_GET_TID_ADDRESS, PR_SET_PTRACER = 1, 36, 40, 0x59616D61
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAPABILITY_VERSION, PR_SET_DUMPABLE = 47, 2, 0x20080522, 4
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 0, 1, 3, 19, 21
PROT_READ_WRITE, PROT_READ_EXECUTE, PROT_ALL = 3, 5, 7
# With MAP_FIXED_NOREPLACE: never over something that is there.
MAP_PRIVATE_FIXED_ANONYMOUS, MAP_SHARED_FIXED = 0x100032, 0x100011
NO_FILE = (1 << 64) - 1
SYSCALLS = {
    "open": 2,
    "close": 3,
    "lseek": 8,
    "mmap": 9,
    "munmap": 11,
    "getitimer": 36,
    "clone": 56,
    "chdir": 80,
    "umask": 95,
    "capset": 126,
    "prctl": 157,
    "mount": 165,
    "umount2": 166,
    "unshare": 272,
    "dup3": 292,
    "memfd_create": 319,
}
AUDIT_ARCH_X86_64, KILL = 0xC000003E, 62
TRACEME, ATTACH = 0, 16
SECCOMP, SECCOMP_SET_FILTER, SECCOMP_NEW_LISTENER = 317, 1, 8
NOTIFICATION_RECEIVE, NOTIFICATION_SEND, NOTIFICATION_CONTINUE = 0xC0502100, 0xC0182101, 1
PR_SET_NO_NEW_PRIVS = 38
KCMP, KCMP_FILE, TGKILL, FUTEX, PTRACE = 312, 0, 234, 202, 101
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 0x1, 0x2, 0x4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
SYSCALL_INSTRUCTION = b"\x0f\x05"
INT3 = b"\xcc"
PAGE = 4096
REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
)
# Of struct seccomp_data: the number of the call, the processor's kind, the low half of the first argument.
NUMBER, ARCH, FIRST = 0, 4, 16
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, NOTIFY, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050000 | errno.EPERM
EVERYBODY = -1
# What begins a filter: those of another kind of processor have other numbers.
FilterStep = tuple[int, int, int, int]
BEGIN: list[FilterStep] = [
    (LOAD, 0, 0, ARCH), (JUMP_IF_EQUAL, 1, 0, AUDIT_ARCH_X86_64), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, NUMBER),
]  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Registers(ctypes.Structure):
    """struct user_regs_struct of x86-64."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in REGISTERS.split())
    rip: int
    rsp: int
    rbp: int
    rax: int
    r11: int
    gs_base: int
    orig_rax: int
    fs_base: int


class IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    # No PEEK requests here, so that -1 is always an error.
    _check(_libc.ptrace(request, pid, address, data), "ptrace", hex(request), "of", pid)


def read_user(thread: int, offset: int) -> int:
    """A word of struct user, by the system call itself: that of the C library cannot tell -1 from an error."""
    word = ctypes.c_ulong()
    _check(_libc.syscall(PTRACE, PEEKUSER, thread, offset, ctypes.byref(word)), "ptrace", hex(PEEKUSER), "of", thread)
    return word.value


def event_message(thread: int) -> int:
    """Of a thread that stopped at an event: the number of the process or thread it has made."""
    message = ctypes.c_ulong()
    ptrace(GETEVENTMSG, thread, 0, ctypes.addressof(message))
    return message.value


def send_signal(pid: int, thread: int, sign: int) -> None:
    """To one thread of a process, if it is still there."""
    _libc.syscall(TGKILL, pid, thread, sign)


def is_one_open_file(pid: int, first: int, second: int) -> bool:
    """Whether two descriptors, which look alike, are duplicates. True where kcmp(2) is refused: most are."""
    return bool(_libc.syscall(KCMP, pid, pid, KCMP_FILE, first, second) in (0, -1))


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(word) for word in (source, target, kind))
    _check(_libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) or None), "mount", target)


class _MountAttributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace"))


def change_mount(target: str, to_set: int = 0, to_clear: int = 0, recursive: bool = False) -> None:
    attributes = _MountAttributes(to_set, to_clear)
    call = (MOUNT_SETATTR, AT_FDCWD, os.fsencode(target), AT_RECURSIVE if recursive else 0)
    size = ctypes.sizeof(attributes)
    _check(_libc.syscall(*call, ctypes.byref(attributes), ctypes.c_size_t(size)), "mount_setattr", target)


def raise_interface(name: str) -> None:
    """Of the network; a new namespace has only lo, and it is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", name.encode(), IFF_UP))


def _check(result: int, *what: object) -> None:
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), " ".join(map(str, what)))


def fix_addresses() -> None:
    """In a child, before exec: the same addresses in every run. Some containers refuse; nothing depends on it."""
    _libc.personality(ADDR_NO_RANDOMIZE)


def keep_capabilities(numbers: Iterable[int]) -> None:
    """In a child, before exec: a program of a user who is not root loses all of them otherwise."""
    header, data = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if _libc.capget(header, data) == 0:
        data[2] = sum(1 << number for number in numbers)  # inheritable
        _libc.capset(header, data)
        for number in numbers:
            _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0)


def show_to_children() -> None:
    """What /proc tells of this process is hidden as soon as it has gained some power."""
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _install_filter(steps: Sequence[FilterStep], flags: int = 0) -> int:
    """What seccomp(2) gives, for this process, which gives up ever to gain power by an exec; -1 where it is not
    allowed."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = _FilterProgram(len(steps), ctypes.addressof(code))
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return int(_libc.syscall(SECCOMP, SECCOMP_SET_FILTER, flags, ctypes.byref(program)))


def die_with_parent() -> None:
    """The kernel kills this process when the thread that started it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)


def adopt_orphans() -> None:
    """What the children of this process leave behind becomes its own child, and not that of the first process."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def current_processor() -> int:
    return int(_libc.sched_getcpu())


def spare_others(pids: Sequence[int]) -> None:
    """In a child, before exec: neither all processes nor these get a signal from it, or from what it starts."""
    spared = [EVERYBODY, *pids]
    program = [*BEGIN, (JUMP_IF_EQUAL, 1, 0, KILL), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST)]
    # How far it is to the end, where it is refused.
    program += [(JUMP_IF_EQUAL, len(spared) - n, 0, pid & 0xFFFFFFFF) for n, pid in enumerate(spared)]
    _install_filter([*program, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)])


def listen_to(call: int) -> int:
    """In a child, before exec: it and what it starts wait with this call until it is decided upon where the descriptor
    is read."""
    steps = [*BEGIN, (JUMP_IF_EQUAL, 1, 0, call), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    descriptor = _install_filter(steps, SECCOMP_NEW_LISTENER)
    _check(descriptor, "seccomp")
    return descriptor
