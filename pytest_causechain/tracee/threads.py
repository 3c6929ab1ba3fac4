"""The threads of a traced process: all run, or all stand, so that what one of them meets finds the others at rest.

On the way to a moment they run in turns, one at a time, each until it waits for another one. So they come to the same
state again and again, as far as their own order decides about it: whose memory lies where, who takes which job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable

from pytest_causechain.kernel import linux
from pytest_causechain.kernel.linux import event_message, ptrace
from pytest_causechain.kernel.processes import has_ended, is_thread, list_threads, waiting_call

# Where the process has other threads, the signal that should wake us may now and then go to one of them.
DOZE_SECONDS = 0.05
# A thread that does not stop within this time waits for something in the kernel.
HALT_SECONDS = 1.0
# How often we look whether the thread whose turn it is still runs: soon at first, then less and less often.
LOOK_SECONDS, LOOK_FRACTION, LOOK_SECONDS_MOST = 0.00005, 0.25, 0.001
# One that waits for something else than a thread may need no other one to go on.
SLEEP_SECONDS = 0.005
# One that runs for so long may be waiting in a loop; then the next turns are shorter.
TURN_SECONDS, TURN_SECONDS_LEAST = 0.1, 0.001
# A change takes up to a millisecond. Threads that wait for each other so often are not held up any further.
TURNS_LIMIT = 500


class ProcessGone(Exception):
    """The process ended while it was expected to be there."""


class Threads:
    """Those that we know of: the first one, which has the number of the process, and all that were made since."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._standing = {pid}
        # The most memory that the process has used.
        self.peak_bytes = 0
        self._running: set[int] = set()
        # What threads that stand have met, until somebody asks.
        self.reports: deque[tuple[int, int]] = deque()
        # While one shares its memory with a child, as vfork(2) makes it do, only that one runs.
        self._lone = 0
        self.in_turns = False
        self._turns_left = TURNS_LIMIT
        self._turn = pid
        self._since = self._asleep_since = 0.0
        self._spent_before = 0.0
        self._turn_seconds = TURN_SECONDS
        # Called with each new thread before its first instruction.
        self.on_birth: Callable[[int], None] | None = None

    @property
    def standing(self) -> list[int]:
        """In the order in which they were made, as a rule."""
        return sorted(self._standing)

    def is_there(self, thread: int) -> bool:
        """Of one that stands: whether it has not been killed meanwhile."""
        try:
            event_message(thread)
        except ProcessLookupError:
            return False
        return True

    def take_report(self, block: bool = False) -> tuple[int, int] | None:
        """A thread that stopped or ended by itself, and its status. The end of the first one is that of all."""
        if self._lone or not self.reports:
            self._collect(block and len(self._running) == 1)
        report = next((report for report in self.reports if self._lone in (0, report[0])), None)
        if report is not None:
            self.reports.remove(report)
        return report

    def _collect(self, block: bool) -> None:
        for thread in tuple(self._running):
            if (status := self._wait_for(thread, block)) is not None:
                for idle in self._note(thread, status):
                    if not self.in_turns or idle == thread:
                        self.go(idle)

    def _wait_for(self, thread: int, block: bool = False) -> int | None:
        try:
            found, status, usage = os.wait4(thread, linux.WAIT_ALL | (0 if block else os.WNOHANG))
        except ChildProcessError:
            if thread == self.pid:
                raise
            self._running.discard(thread)  # by an exec it became the first one
            return None
        self.peak_bytes = usage.ru_maxrss << 10
        return status if found else None

    def _note(self, thread: int, status: int) -> tuple[int, ...]:
        """Those that now stand for our sake only."""
        self._running.discard(thread)
        self._standing.discard(thread)
        if not os.WIFSTOPPED(status):
            if thread == self.pid:
                self.reports.append((thread, status))
            return ()
        self._standing.add(thread)
        if status >> 16 == linux.EVENT_CLONE:
            return (thread, *self._adopt_from(thread))
        if status >> 16 == linux.EVENT_STOP:
            return (thread,)
        self.reports.append((thread, status))
        return ()

    def _adopt_from(self, maker: int) -> tuple[int, ...]:
        """A new thread is traced from its birth on, where it stops."""
        try:
            thread = event_message(maker)
        except ProcessLookupError:
            # Another one ended the process meanwhile, whose end is not reported before that of all its threads.
            self._running.update({*list_threads(self.pid)} - self._standing)
            return ()
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            if not os.WIFSTOPPED(os.waitpid(thread, linux.WAIT_ALL)[1]):
                return ()
            if not is_thread(self.pid, thread):
                ptrace(linux.DETACH, thread)  # a process made by clone(2): as other children it is none of our concern
                return ()
            self._standing.add(thread)
            if self.on_birth is not None:
                self.on_birth(thread)
            return (thread,)
        return ()

    def halt(self) -> None:
        """Stop all that run. What they meet meanwhile is reported later."""
        self._halt(self._running)

    def _halt(self, threads: set[int]) -> None:
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):
                ptrace(linux.INTERRUPT, thread)
        deadline = time.monotonic() + HALT_SECONDS
        while left := threads & self._running:
            for thread in left:
                if (status := self._wait_for(thread)) is not None:
                    self._note(thread, status)
            if threads & self._running != left:
                continue
            # A first thread that ended before the others is there until the last one has.
            if time.monotonic() >= deadline or (left == {self.pid} and has_ended(self.pid)):
                break
            signal.sigtimedwait({signal.SIGCHLD}, DOZE_SECONDS)

    def go(self, thread: int, sign: int = 0, request: int = linux.CONT) -> None:
        self._standing.discard(thread)
        self._running.add(thread)
        with contextlib.suppress(ProcessLookupError):  # killed meanwhile: its end will be reported
            ptrace(request, thread, 0, sign)

    def go_alone(self, thread: int) -> None:
        """The others stand until the next `resume`."""
        self._lone = thread
        self.go(thread)

    def resume(self, thread: int = 0, sign: int = 0) -> None:
        """All that have nothing to report, or the one whose turn it is; the signal is for the one named."""
        self._lone = 0
        if not self.in_turns:
            for standing in self._idle():
                self.go(standing, sign if standing == thread else 0)
        elif sign:
            self.go(thread, sign)
        elif self._turn not in self._running:
            self._begin_turn(self._turn + self._is_spent())

    def _idle(self) -> list[int]:
        reporting = {reporter for reporter, _ in self.reports}
        return sorted(self._standing - reporting)

    def doze(self, seconds: float) -> None:
        """Until a report may have come, or the time is over."""
        if not self.in_turns:
            signal.sigtimedwait({signal.SIGCHLD}, min(seconds, DOZE_SECONDS))
        elif (self._lone or self._turn) not in self._running:
            self.resume()  # it has ended, or stands again
        elif self._lone or not self._standing:
            signal.sigtimedwait({signal.SIGCHLD}, min(seconds, DOZE_SECONDS))
        elif signal.sigtimedwait({signal.SIGCHLD}, min(seconds, self._look_seconds())) is None:
            self._end_turn_if_due()

    def _look_seconds(self) -> float:
        return min(max(LOOK_SECONDS, LOOK_FRACTION * (time.monotonic() - self._since)), LOOK_SECONDS_MOST)

    def _end_turn_if_due(self) -> None:
        thread, now = self._turn, time.monotonic()
        call = waiting_call(thread)
        if call is None:
            self._asleep_since = now
            if not has_ended(thread) and not self._is_spent():
                return
        elif call != linux.FUTEX and now - self._asleep_since < SLEEP_SECONDS:
            return
        if call in (None, linux.FUTEX):
            self._halt({thread})
        self._begin_turn(thread + 1)

    def _spent(self) -> float:
        """The processor time of the whole process, since this is that of one thread as long as there are turns."""
        try:
            return time.clock_gettime(~self.pid << 3 | linux.PROCESS_CLOCK)
        except OSError:  # it is gone
            return self._spent_before

    def _is_spent(self) -> bool:
        if self._spent() - self._spent_before < self._turn_seconds:
            return False
        self._turn_seconds = max(self._turn_seconds / 2, TURN_SECONDS_LEAST)
        return True

    def _begin_turn(self, thread: int) -> None:
        """Of this one, or the next that may run."""
        candidates = self._idle() or sorted(self._running)
        if not candidates:
            return
        thread = next((one for one in candidates if one >= thread), candidates[0])
        self._turns_left -= thread != self._turn
        if self._turns_left <= 0:
            self.in_turns = False
            self.resume()
            return
        self._since = self._asleep_since = time.monotonic()
        if thread != self._turn:
            self._turn, self._spent_before = thread, self._spent()
        if thread in self._running:
            return
        # One that was killed may have met its end.
        if (status := self._wait_for(thread)) is None:
            self.go(thread)
        else:
            self._note(thread, status)

    def take_turns(self) -> None:
        """From now on one at a time, as long as that does not take too long."""
        self.in_turns = self._turns_left > 0

    def give_turn(self, thread: int) -> None:
        if thread != self._turn:
            self._turn, self._spent_before = thread, self._spent()

    def step(self, thread: int) -> int:
        """One instruction of one thread; the status of its next stop."""
        ptrace(linux.SINGLESTEP, thread)
        # The end of the first thread is not reported before all others have been waited for.
        block = thread != self.pid or self._standing == {self.pid}
        while (status := self._wait_for(thread, block)) is None:
            if signal.sigtimedwait({signal.SIGCHLD}, DOZE_SECONDS) is None and has_ended(thread):
                raise ProcessGone(self.pid)
        if not os.WIFSTOPPED(status):
            self._standing.discard(thread)
            if thread == self.pid:
                self.reports.append((thread, status))
            raise ProcessGone(self.pid)
        if status >> 16 == linux.EVENT_CLONE:
            self._adopt_from(thread)
        return status

    def set_options(self, options: int) -> None:
        for thread in self._standing:
            with contextlib.suppress(ProcessLookupError):
                ptrace(linux.SETOPTIONS, thread, 0, options)

    def release(self) -> None:
        """To somebody else, who finds the process stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        for thread in self._standing:
            with contextlib.suppress(ProcessLookupError):
                ptrace(linux.DETACH, thread)
        self._standing.clear()
