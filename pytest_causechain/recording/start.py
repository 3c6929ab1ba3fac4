"""One start of a program, as a test asked for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Start:
    """`argv` and `environment` (the whole of it) keep what is not UTF-8 by surrogate escapes; with `shell` the
    command is argv[0]. `stdin` is None while unknown, `returncode` while the test has not asked for it: both are
    filled in by communicate, wait and poll; `stdout` and `stderr` by communicate alone, where they are pipes.

    `unsupported` names the way of starting where it is one in which no program can be put in place of another.
    `limit_status` is the exit status by which a wrapper tells that it has ended the program.
    """

    argv: tuple[str, ...]
    executable: str | None
    shell: bool
    cwd: str
    environment: dict[str, str]
    stdin: bytes | None
    returncode: int | None = None
    stdout: bytes | None = None
    stderr: bytes | None = None
    unsupported: str | None = None
    limit_status: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether how it went cannot become known any better, but for what it printed."""
        return self.returncode is not None and self.stdin is not None

    @property
    def wanted(self) -> str:
        """What is to be executed; empty where that is not known."""
        return self.executable or (self.argv[0] if self.argv else "")
