"""Starts runs as forks of a process already stopped at the start, or at a moment; otherwise launches the program."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import find_register, merge_register
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.kernel.elf import MAGIC, map_file, read_sections
from pytest_causechain.kernel.processes import needs_processors, read_mappings
from pytest_causechain.lab.laboratory import FIRST_RUN_SECONDS, Open, Side
from pytest_causechain.model.alteration import Intervention, Patch, Transfer
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.runs import Command
from pytest_causechain.sandbox.copies import CannotCopy, Template
from pytest_causechain.sandbox.files import replace_file
from pytest_causechain.sandbox.isolation import Stage
from pytest_causechain.sandbox.subject import Subject, launch
from pytest_causechain.tracee.alteration import alter, pass_by
from pytest_causechain.tracee.stubs import Watched
from pytest_causechain.tracee.threads import ProcessGone
from pytest_causechain.tracee.tracee import WORD, call_function, inject
from pytest_causechain.tracee.tracer import Tracer

# Each is a stopped process; a search returns to the last few moments again and again.
TEMPLATES_KEPT = 8
# A breakpoint costs some 0.2 ms each time it is passed, preparing a stub about as much as eight of these.
MANY_VISITS = 10
DEBUG_SECTIONS = {b".debug_info", b".zdebug_info"}
LEAVE_ALONE = "build it before the tests run, and leave it alone while they do."


class Starts(Closing):
    """Brings a run to where it begins, or to stops."""

    def __init__(self, opening: Open, program: ProgramMap, stage: Stage) -> None:
        self.commands = opening.commands
        self.program, self.stage = program, stage
        self.deadline, self.bounds = opening.deadline, opening.precautions.bounds
        self.run_seconds = FIRST_RUN_SECONDS
        # The addresses at which lines begin.
        self.rows = frozenset(program.rows)
        # "rerun" as soon as there was a moment at which the program could not be copied.
        self.name = opening.kind
        # Whether the program may be on any processor, or stays where we are; not known before its first start.
        self.roams: bool | None = None
        self._opening, self._use_copies = opening, opening.kind == "fork"
        # By path of a program: which file it was when it was first needed.
        self._programs: dict[str, tuple[int, int, int]] = {}
        # Stopped at the entry point: what all other runs are copies of. None where there can be none.
        self._roots: dict[Side, Template | None] = {}
        self._templates: OrderedDict[tuple[Side, tuple[Stop, ...]], Template] = OrderedDict()
        # Where there can be no template; at other moments there may be.
        self._uncopied: set[tuple[Side, tuple[Stop, ...]]] = set()

    def close(self) -> None:
        for template in self._kept():
            template.close()

    def processes(self) -> list[int]:
        """Those that it keeps between two calls."""
        return [template.subject.pid for template in self._kept()]

    def _kept(self) -> list[Template]:
        return [*self._templates.values(), *(root for root in self._roots.values() if root is not None)]

    def require_time(self) -> float:
        """The time that it is; BudgetUsedUp behind the deadline. Asked by all that may take long."""
        now = time.monotonic()
        if now >= self.deadline:
            raise BudgetUsedUp
        return now

    def begin(self) -> float:
        """The deadline of a run that begins now."""
        return min(self.deadline, self.require_time() + (self.bounds.seconds or self.run_seconds))

    def start(self, side: Side, deadline: float) -> Subject:
        """The program where its runs begin. A copy, as a rule: that is faster, and all its addresses are the same each
        time, whatever the kernel thinks of that."""
        self._require_presence(self.commands[side])
        if side not in self._roots:
            self._roots[side] = self._make_root(side, deadline)
        root = self._roots[side]
        return root.copy() if root is not None else self._launch(side, deadline)

    def reach(self, side: Side, stops: Sequence[Stop], deadline: float, keep: bool = True) -> Subject:
        """A run that stands at the stops: a copy of one that does, where that is possible. `keep` that one: there
        will be more copies."""
        template = self._template(side, tuple(stops), deadline) if stops and keep and self._use_copies else None
        return template.copy() if template is not None else self._run_anew(side, stops, deadline)

    def run_to(self, process: Subject, stops: Sequence[Stop], deadline: float) -> None:
        """By breakpoint; by stub where that would have to be passed often."""
        for stop in stops:
            if stop.visit < MANY_VISITS:
                process.run_to([stop], deadline)
            else:
                tracer = Tracer(process, [self.watch(stop.address)], self.rows)
                tracer.stop_before(stop.visit, deadline)

    def watch(self, address: int) -> Watched:
        function = self.program.function_at(address)
        assert function is not None  # only the program's own code is watched
        return Watched(address, address == function.address, function.address, function.end)

    def is_doubtful(self, subject: Subject) -> bool:
        """Whether a run has written to what it had not for itself, and now would."""
        return self.stage.is_doubtful(subject.view)

    def forget(self, side: Side) -> None:
        """What is known of runs that are not made again."""
        if (root := self._roots.pop(side, None)) is not None:
            root.close()

    def _launch(self, side: Side, deadline: float) -> Subject:
        program, command = self.program, self._settle(self.commands[side])
        more = (program.libraries, self.stage, self.bounds, self.roams is not False)
        subject = launch(command, program.relocated, deadline, *more)
        with subject.ended_by_errors():
            if self.roams is None:
                files = {m.name for m in read_mappings(subject.pid) if m.name.startswith("/")}
                self.roams = needs_processors(files)
            repair = self._opening.repair
            if isinstance(repair, Intervention):
                self.run_to(subject, repair.spot.stops, deadline)
            if repair is not None and side == "passing":
                apply(subject, repair)
            elif isinstance(repair, Intervention):
                pass_by(subject, repair.spot)
        return subject

    def _make_root(self, side: Side, deadline: float) -> Template | None:
        command = self.commands[side]
        root = self._make_template(partial(self._launch, side, deadline), not self._opening.begins_inside)
        if root is None and find_addresses(command, deadline) != find_addresses(command, deadline):
            raise Refusal(
                f"the addresses of {command.program.path} change from run to run, since this container forbids "
                "personality(): start it with --security-opt seccomp=unconfined."
            )
        return root

    def _require_presence(self, command: Command) -> None:
        """A Refusal when its directory or program was removed or replaced: a view of them would hide that."""
        command.require_directory(self.stage.find_original(command.cwd))
        path = command.program.path
        try:
            status = Path(self.stage.find_original(path)).stat()
        except OSError:
            raise Refusal(f"{path} is gone: {LEAVE_ALONE}") from None
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._programs.setdefault(path, identity) != identity:
            raise Refusal(f"{path} was replaced by another one during the diagnosis: {LEAVE_ALONE}")

    def _settle(self, command: Command) -> Command:
        """The same, with those of its input files that are to be restored for its run, which have changed."""
        changed = tuple(file for file in command.inputs if file.has_changed(self.stage.find_original(file.path)))
        for file in changed:
            if not self.stage.can_restore(file):
                name = Path(command.program.path).name
                raise Refusal(
                    f"{file.path} is not as {name} found it in its test: let each test have files of its own, in "
                    "tmp_path for instance."
                )
        return command._replace(inputs=changed)

    def _run_anew(self, side: Side, stops: Sequence[Stop], deadline: float) -> Subject:
        subject = self.start(side, deadline)
        with subject.ended_by_errors():
            self.run_to(subject, stops, deadline)
        return subject

    def _make_template(self, run: Callable[[], Subject], is_root: bool = False) -> Template | None:
        """Of a run; of another one, where it has written to what it had not for itself. None when the program cannot be
        copied at this moment."""
        subject = run()
        while self.is_doubtful(subject):
            subject.kill()
            subject = run()
        with contextlib.suppress(CannotCopy), subject.ended_by_errors():
            return Template(subject, is_root, self.roams is not False)
        return None

    def _template(self, side: Side, stops: tuple[Stop, ...], deadline: float) -> Template | None:
        key = (side, stops)
        if key in self._uncopied:
            return None
        if key in self._templates:
            self._templates.move_to_end(key)
            return self._templates[key]
        template = self._make_template(partial(self._run_anew, side, stops, deadline))
        if template is None:
            self.name = "rerun"
            self._uncopied.add(key)
            return None
        self._templates[key] = template
        if len(self._templates) > TEMPLATES_KEPT:
            self._templates.popitem(last=False)[1].close()
        return template


def apply(subject: Subject, alteration: Transfer | Intervention | Patch) -> None:
    """Alter a run that stands where it is to be altered."""
    if isinstance(alteration, Patch):
        subject.write(subject.landmarks.load_map.to_run(alteration.address), alteration.code)
    elif isinstance(alteration, Intervention):
        alter(subject, alteration)
    else:
        _transfer(subject, alteration)


def _transfer(subject: Subject, transfer: Transfer) -> None:
    blocks = []
    for allocation in transfer.allocations:
        block = call_function(subject, subject.landmarks.symbols["malloc"], [allocation.size])
        if not block:
            raise ProcessGone(subject.pid)
        subject.write(block, allocation.data)
        blocks.append(block)
    writes = list(transfer.writes)
    for reference in transfer.references:
        place = reference.at if reference.holder is None else blocks[reference.holder] + reference.at
        writes.append((place, WORD.pack(blocks[reference.block] + reference.offset)))
    registers = subject.registers()
    for address, data in writes:
        if (register := find_register(address)) is not None:
            name, at = register
            setattr(registers, name, merge_register(getattr(registers, name), at, data))
        else:
            subject.write(address, data)
    subject.set_registers(registers)
    for file in transfer.files:
        replace_file(subject, file)
    if transfer.directory is not None:
        inject(subject, "chdir", transfer.directory)
    if transfer.umask is not None:
        inject(subject, "umask", transfer.umask)


def find_addresses(command: Command, deadline: float) -> list[tuple[int, str]]:
    """Where the parts of the program are; what is written to an address must hold for all its runs."""
    with launch(command, False, deadline) as subject:
        return [(mapping.start, mapping.name) for mapping in read_mappings(subject.pid)]


@dataclass(frozen=True, slots=True)
class Libraries:
    """Paths of those that the user wants to count as the program's own code and that can be looked into, and a sentence
    on each that cannot."""

    paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_libraries(opening: Open) -> Libraries:
    """Those that the program has by the time it begins."""
    if not opening.libraries:
        return Libraries()
    with launch(opening.failing, False, opening.deadline) as subject:
        mapped = [mapping.name for mapping in read_mappings(subject.pid)]
    return choose_libraries(mapped, opening.failing.program.path, opening.libraries)


def choose_libraries(mapped: Iterable[str], program: str, patterns: Sequence[str]) -> Libraries:
    """Of all files that are mapped in a run, those that one of the patterns is meant for."""
    paths, notes = [], []
    for path in dict.fromkeys(mapped):
        if path == program or not path.startswith("/") or not any(matches(path, pattern) for pattern in patterns):
            continue
        if has_debug_information(path):
            paths.append(path)
        else:
            notes.append(
                f"{Path(path).name} is named in cause_chain_libraries but has no debug information, so it was not "
                "looked into: build it with -g (and -O0 for exact variables)."
            )
    return Libraries(tuple(paths), tuple(notes))


def matches(path: str, pattern: str) -> bool:
    """A pattern without a directory is for the file's name. The version behind a name need not be given: the file
    that is loaded for libfoo.so is mostly a libfoo.so.1.2."""
    if "/" in pattern:
        wanted = Path(pattern)
        # Links lead to the file that is loaded.
        if path in {str(found.resolve()) for found in wanted.parent.glob(wanted.name)}:
            return True
    else:
        path = Path(path).name
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")


def has_debug_information(path: str) -> bool:
    with map_file(path) as content:
        return content[:4] == MAGIC and any(section.name in DEBUG_SECTIONS for section in read_sections(content))
